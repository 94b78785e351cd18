"""Device kernels, each beside the plain form it equals. The only home of Triton."""

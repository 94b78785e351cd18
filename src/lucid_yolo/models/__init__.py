"""The network, as typed Python."""

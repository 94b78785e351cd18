"""One page per task."""

"""Lightning wiring."""

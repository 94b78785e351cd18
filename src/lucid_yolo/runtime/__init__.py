"""The training step and its state; torch only."""

"""Running a trained model on pictures."""

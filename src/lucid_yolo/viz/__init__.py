"""Drawing; never calls a model."""

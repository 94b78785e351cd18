"""From files on disk to batches."""

"""MuSGD, schedules and averaging on flat tensors."""

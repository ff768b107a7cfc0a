"""Training: the loop, the run that writes it down, checkpoints and recipes."""

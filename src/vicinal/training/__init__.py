"""Train an experiment: the loop, the run directory that it writes, checkpoints."""

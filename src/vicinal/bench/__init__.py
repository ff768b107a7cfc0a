"""Benches: tables of rows and seeds, run by one command, compared with intervals; tuning on the training classes."""

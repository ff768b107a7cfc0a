"""What is done with a finished run: index, search, cluster, dedupe, export, serve."""

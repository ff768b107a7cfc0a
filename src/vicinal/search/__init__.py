"""Search: what is done with a finished run, from a collection of things to an answer someone can look at."""

"""Use our losses and miners in programs of other libraries, and their losses in ours."""

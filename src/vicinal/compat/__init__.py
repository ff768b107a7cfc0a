"""Use our losses and miners in programs of other libraries, and theirs in ours."""

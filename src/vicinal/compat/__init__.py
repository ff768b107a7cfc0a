"""Living with the peers: our parts in their programs, theirs in ours."""

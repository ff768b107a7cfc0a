"""Arcs given by their ends, two sets against each other, as rows of one matrix."""

import torch

from vicinal.geometry import arcs_among


def similarity(starts, ends, other_starts, other_ends, squared=None):
    """The largest cosine, or with ``squared`` the smallest distance, of each arc and each other."""
    count = len(starts)
    rows = torch.cat([starts, other_starts, ends, other_ends])
    first, second = torch.arange(len(rows)).view(2, -1)
    return arcs_among(rows, first, second, squared=squared)[:count, count:]


def distances(starts, ends, other_starts, other_ends, squared=False):
    return similarity(starts, ends, other_starts, other_ends, squared)

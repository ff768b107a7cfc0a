"""Confused pairs, counted by hand on a small retrieval."""

import torch

from vicinal.evaluation.artifacts import Confusion, confused_pairs

# Class 0 = rows 0-3, class 1 = rows 4-5, class 2 = rows 6-7, class 3 = row 8 alone.
LABELS = torch.tensor([0, 0, 0, 0, 1, 1, 2, 2, 3])
FIRST = torch.tensor([1, 4, 5, 6, 5, 0, 4, 5, 0])
EVERY = torch.arange(9)


def test_confused_pairs_by_share_then_by_queries():
    pairs = confused_pairs(FIRST, LABELS, EVERY, None)
    assert pairs == [
        Confusion(label=2, taken_for=1, share=1.0, queries=2, example=(6, 4)),
        Confusion(label=0, taken_for=1, share=0.5, queries=4, example=(1, 4)),
        Confusion(label=1, taken_for=0, share=0.5, queries=2, example=(5, 0)),
        Confusion(label=0, taken_for=2, share=0.25, queries=4, example=(3, 6)),
    ]


def test_a_gallery_has_rows_of_its_own():
    labels = torch.tensor([5, 5, 6, 5, 7])
    sought = torch.tensor([3, 4, 4]), labels, torch.arange(3), torch.tensor([3, 4])
    assert confused_pairs(*sought) == [Confusion(5, 7, 0.5, 2, (1, 4))]


def test_absent_neighbors_are_no_confusion():
    first = torch.tensor([-1, 0, 3, 2])
    labels = torch.tensor([3, 3, 4, 4])
    assert confused_pairs(first, labels, torch.arange(4), None) == []

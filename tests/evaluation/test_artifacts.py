"""Confused pairs, counted by hand on a small retrieval."""

import numpy as np
import torch

from vicinal.data import ImageArray, Records
from vicinal.evaluation.artifacts import confused_pairs

# Class 0 = rows 0-3, class 1 = rows 4-5, class 2 = rows 6-7, class 3 = row 8 alone.
LABELS = [0, 0, 0, 0, 1, 1, 2, 2, 3]
FIRST = torch.tensor([1, 4, 5, 6, 5, 0, 4, 5, 0])
EVERY = torch.arange(9)


def confused(first, labels, queries, gallery):
    names = [f"row {row}" for row in range(len(labels))]
    source = ImageArray(np.zeros((len(labels), 2, 2), np.uint8), names)
    splits = np.full(len(labels), "test")
    records = Records("set", source, np.array(labels), tuple("abcdefgh"), splits)
    return [tuple(pair.values()) for pair in confused_pairs(first, records, queries, gallery)]


def test_confused_pairs_by_share_then_by_queries():
    assert confused(FIRST, LABELS, EVERY, None) == [
        ("c", "b", 1.0, 2, [6, 4]),
        ("a", "b", 0.5, 4, [1, 4]),
        ("b", "a", 0.5, 2, [5, 0]),
        ("a", "c", 0.25, 4, [3, 6]),
    ]


def test_a_gallery_has_rows_of_its_own():
    sought = torch.tensor([3, 4, 4]), [5, 5, 6, 5, 7], torch.arange(3), torch.tensor([3, 4])
    assert confused(*sought) == [("f", "h", 0.5, 2, [1, 4])]


def test_absent_neighbors_are_no_confusion():
    first = torch.tensor([-1, 0, 3, 2])
    assert confused(first, [3, 3, 4, 4], torch.arange(4), None) == []

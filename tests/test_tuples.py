"""Masks, lists, pairs and triplets against plain loops over labels."""

import pytest
import torch

from vicinal.errors import ConfigError
from vicinal.tuples import (
    SizedLabels,
    block_pairs,
    block_triplets,
    other_class,
    positives,
    same_class,
)

LABELS = [
    [0, 0, 1, 1, 2],
    [5, -1, 5, 5, -1, 5],
    [0, 0, 0],
    [0, 1, 2],
    [7],
    [],
]


@pytest.mark.parametrize("labels", LABELS)
def test_masks_follow_the_labels_and_leave_the_anchor_out(labels):
    given = torch.tensor(labels, dtype=torch.long)
    n = len(labels)
    assert same_class(given).tolist() == [
        [i != j and labels[i] == labels[j] for j in range(n)] for i in range(n)
    ]
    assert other_class(given).tolist() == [
        [labels[i] != labels[j] for j in range(n)] for i in range(n)
    ]
    assert torch.equal(other_class(given, same=positives(given)), other_class(given))


@pytest.mark.parametrize("labels", LABELS)
def test_positives_list_what_same_class_marks(labels):
    given = torch.tensor(labels, dtype=torch.long)
    columns, keep = positives(given)
    listed = [row[kept].tolist() for row, kept in zip(columns, keep, strict=True)]
    assert listed == [row.nonzero().flatten().tolist() for row in same_class(given)]
    assert columns.shape[1] == max((len(row) for row in listed), default=0)


def test_classes_that_the_reference_lacks_have_no_positives():
    columns, keep = positives(torch.tensor([9, 0, -5]), torch.tensor([0, 0, 4]))
    assert keep.tolist() == [[False, False], [True, True], [False, False]]
    assert columns[1].tolist() == [0, 1]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_any_integer_is_a_label(dtype):
    labels = torch.tensor([2, 0, 2, 2], dtype=dtype)
    assert positives(labels).columns[0].tolist() == [2, 3]
    assert other_class(labels, labels.long())[1].tolist() == [True, False, True, True]


def test_blocks_of_a_length_that_three_does_not_divide_are_rejected():
    with pytest.raises(ConfigError, match="got 4 rows"):
        block_triplets(torch.tensor([0, 0, 1, 2]))


def test_who_knows_the_largest_class_saves_the_wait_and_changes_nothing():
    labels = torch.tensor([3, 1, 3, 2, 1, 3])
    expected = positives(labels)
    wider = positives(SizedLabels.of(labels, 4))
    assert wider.columns.shape == (6, 3) and expected.columns.shape == (6, 2)
    assert not wider.keep[:, 2].any()
    assert torch.equal(wider.keep[:, :2], expected.keep)
    assert torch.equal(wider.columns[:, :2][expected.keep], expected.columns[expected.keep])


def test_blocks_of_a_batch_have_the_positives_that_two_batches_would_have():
    anchors, others = torch.tensor([3, 1, 2, 3, 1, 2]).chunk(2)
    alone = positives(anchors, others)
    together = positives(anchors, SizedLabels.of(others, 2))
    assert torch.equal(alone.columns, together.columns) and torch.equal(alone.keep, together.keep)


def test_blocks_keep_what_the_labels_of_their_batch_know():
    labels = SizedLabels.of(torch.tensor([3, 1, 3, 1]), 2)
    assert block_pairs(torch.zeros(4, 2), labels)[2].labels.largest_class == 2

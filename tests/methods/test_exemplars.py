"""The hardest triplet of each batch: which records it names, and that a later batch does not overwrite it."""

import torch

from vicinal.methods.exemplars import HardestPairs


def test_a_place_names_the_query_its_match_and_what_was_nearer():
    hardest = HardestPairs()
    hardest.add(torch.tensor([40, 41, 50, 51, 60, 61]), torch.tensor(-0.5), torch.tensor(3 * 1 + 2))
    (shown,) = hardest.exhibits()
    (triplet,) = shown.tuples
    found = [(member.record, member.role) for member in triplet.members]
    assert found == [
        (50, "query"),
        (51, "match"),
        (61, "nearer"),
    ]


def test_a_recorded_step_that_overwrites_its_numbers_leaves_those_taken_in():
    """A replay writes the next batch's gap and place where the last one's were."""
    hardest, gap, place = HardestPairs(), torch.tensor(-0.5), torch.tensor(1)
    hardest.add(torch.tensor([0, 1, 2, 3]), gap, place)
    gap.fill_(0.25)
    place.fill_(2)
    hardest.add(torch.tensor([4, 5, 6, 7]), gap, place)
    (shown,) = hardest.exhibits()
    assert [[member.record for member in found.members] for found in shown.tuples] == [[0, 1, 3], [6, 7, 5]]
    assert [found.caption for found in shown.tuples] == ["gap -0.50", "gap +0.25"]

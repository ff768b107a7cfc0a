"""Which tuples are shown: the extremes of their episodes, not of a mean that drifts."""

import torch

from vicinal.assessment.showcase import SHOWN, Showcase


def shown(showcase):
    return [[[member.record for member in one.members] for one in kind.tuples] for kind in showcase.exhibits()]


def test_shows_nothing_before_it_was_given_something():
    assert Showcase().exhibits() == ()


def test_tuples_are_ranked_within_their_episode():
    showcase = Showcase()
    showcase.add(torch.tensor([[0, 1, 2], [3, 4, 5], [6, 7, 8]]), torch.tensor([0.1, 0.2, 0.3]))
    showcase.add(torch.tensor([[10, 11, 12], [13, 14, 15], [16, 17, 18]]), torch.tensor([0.7, 0.8, 0.9]))
    heaviest, lightest = shown(showcase)
    assert heaviest[0] == [6, 7, 8] and lightest[0] == [0, 1, 2], "of the light episode, where they stand out"
    first = showcase.exhibits()[0]
    assert first.tuples[0].caption == "weight 0.300, 1.500 times the mean"
    assert "Of 6 tuples of the last epoch, weighed 0.500 to 1.500 times the mean of their episode." in first.reading


def test_pairs_have_roles_of_their_own_and_few_are_shown():
    showcase = Showcase()
    showcase.add(torch.arange(40).view(20, 2), torch.linspace(0.1, 0.9, 20))
    heaviest, lightest = showcase.exhibits()
    assert len(heaviest.tuples) == len(lightest.tuples) == SHOWN
    assert [member.role for member in heaviest.tuples[0].members] == ["first", "second"]


def test_a_new_epoch_begins_with_nothing():
    showcase = Showcase()
    showcase.add(torch.tensor([[0, 1, 2]]), torch.tensor([0.5]))
    showcase.clear()
    assert showcase.exhibits() == ()

"""Dealing classes and rows from decks."""

import numpy as np

from vicinal.samplers.sampler import Members, generator


def test_rows_of_a_class_come_up_once_before_one_comes_up_again():
    members = Members(np.array([7] * 6 + [8] * 2), least=2)
    chosen = np.zeros((9, 1), dtype=int)  # class 7, nine times
    hands = members.deal_rows(generator(0, 0), chosen, per_class=2).reshape(3, 6)
    assert all(sorted(deck) == list(range(6)) for deck in hands)
    assert len({tuple(deck) for deck in hands.tolist()}) == 3


def test_a_hand_never_straddles_two_decks():
    members = Members(np.zeros(5, dtype=int), least=2)
    hands = members.deal_rows(generator(0, 0), np.zeros((200, 1), dtype=int), per_class=2).reshape(
        -1, 2
    )
    assert (hands[:, 0] != hands[:, 1]).all()
    assert set(hands.ravel()) == set(range(5))


def test_members_keep_labels_apart_and_count_what_they_leave_out():
    members = Members(np.array(["b", "a", "b", "c"]), least=2)
    assert (len(members), members.total, members.excluded, members.sizes.tolist()) == (1, 3, 2, [2])
    assert sorted(
        members.deal_rows(generator(1, 2), np.zeros((1, 1), dtype=int), per_class=2).ravel()
    ) == [0, 2]

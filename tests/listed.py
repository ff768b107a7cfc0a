"""All pairs and triplets of a batch as lists, for tests that hold sums without lists against
them."""

from vicinal.tuples import Pairs, Triplets, other_class, same_class


def pairs(labels, *, same):
    return Pairs(*(same_class(labels) if same else other_class(labels)).nonzero().unbind(dim=1))


def triplets(labels):
    positive = same_class(labels)
    negative = other_class(labels)
    anchor, first = positive.nonzero().unbind(dim=1)
    pair, second = negative[anchor].nonzero().unbind(dim=1)
    return Triplets(anchor[pair], first[pair], second)

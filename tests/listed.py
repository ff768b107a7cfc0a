"""All triplets of a batch as a list, for tests that hold sums without lists against it."""

from vicinal.tuples import Triplets, other_class, same_class


def triplets(labels):
    positive = same_class(labels)
    negative = other_class(labels)
    anchor, first = positive.nonzero().unbind(dim=1)
    pair, second = negative[anchor].nonzero().unbind(dim=1)
    return Triplets(anchor[pair], first[pair], second)

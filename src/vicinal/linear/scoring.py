"""How well k nearest neighbours classify in a learnt metric, for every k at once."""

from typing import Any

import numpy as np
import numpy.typing as npt

from vicinal.linear.neighbourhoods import Array

MOST_NEIGHBOURS = 40  # the paper's K ∈ {1, ..., 40}, Section 7.1.2


def neighbour_accuracies(
    train: Array,
    train_labels: npt.NDArray[Any],
    test: Array,
    test_labels: npt.NDArray[Any],
    most: int = MOST_NEIGHBOURS,
) -> Array:
    """Accuracy of the majority among the k nearest, for k = 1 .. ``most``; a tie goes to the class first in order.

    A training set of fewer samples answers for larger k as for all of them.
    """
    from sklearn.neighbors import NearestNeighbors

    names, codes = np.unique(np.concatenate([train_labels, test_labels]), return_inverse=True)
    reach = min(most, len(train))
    found = NearestNeighbors(n_neighbors=reach).fit(train).kneighbors(test, return_distance=False)
    votes = np.zeros((len(test), len(names)), dtype=np.int32)
    rows, right, accuracies = np.arange(len(test)), codes[len(train) :], np.empty(most)
    for k in range(reach):
        votes[rows, codes[found[:, k]]] += 1
        accuracies[k] = np.mean(votes.argmax(axis=1) == right)
    accuracies[reach:] = accuracies[reach - 1]
    return accuracies

"""Mining: which tuples of a batch, or of a training set, are worth learning from.

A miner is a function of embeddings and labels (and, where it draws, of a generator), so equal seeds give equal tuples
in every process. It gives row numbers; ``loss.on_triplets(embeddings, miner(embeddings, labels))`` learns from them.
"""

from collections.abc import Callable

from vicinal.miners.distance_weighted import distance_weighted
from vicinal.miners.easy_positive import easy_positive
from vicinal.miners.hardest import hardest
from vicinal.miners.multi_similarity import MinedPairs, multi_similarity
from vicinal.miners.neighbors import Search, approximate_neighbors, exact_neighbors
from vicinal.miners.semi_hard import semi_hard
from vicinal.miners.smart import SmartMiner
from vicinal.tuples import Triplets

# The miners that choose triplets in a batch, by the names that `loss.miner` takes. `multi_similarity` chooses pairs and
# is part of its loss (`loss.epsilon`); `SmartMiner` chooses in the whole training set.
MINERS: dict[str, Callable[..., Triplets]] = {
    "distance_weighted": distance_weighted,
    "easy_positive": easy_positive,
    "hardest": hardest,
    "semi_hard": semi_hard,
}

__all__ = [
    "MINERS",
    "MinedPairs",
    "Search",
    "SmartMiner",
    "approximate_neighbors",
    "distance_weighted",
    "easy_positive",
    "exact_neighbors",
    "hardest",
    "multi_similarity",
    "semi_hard",
]

"""Mining: which tuples of a batch, or of a training set, are worth learning from.

A miner is a function of embeddings and labels (and, where it draws, of a generator), so equal seeds give equal tuples
in every process. It gives row numbers; ``loss.on_triplets(embeddings, miner(embeddings, labels))`` learns from them.
"""

from vicinal.mining.distance_weighted import distance_weighted
from vicinal.mining.easy_positive import easy_positive
from vicinal.mining.hardest import hardest
from vicinal.mining.multi_similarity import MinedPairs, multi_similarity
from vicinal.mining.neighbours import Search, approximate_neighbours, exact_neighbours
from vicinal.mining.semi_hard import semi_hard
from vicinal.mining.smart import SmartMiner

__all__ = [
    "MinedPairs",
    "Search",
    "SmartMiner",
    "approximate_neighbours",
    "distance_weighted",
    "easy_positive",
    "exact_neighbours",
    "hardest",
    "multi_similarity",
    "semi_hard",
]

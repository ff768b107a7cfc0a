"""Mining: which tuples of a batch, or of a training set, are worth learning from.

A miner is a function of embeddings and labels (and, where it draws, of a generator), so equal seeds give equal tuples
in every process. It gives row numbers; ``loss.on_triplets(embeddings, miner(embeddings, labels))`` learns from them.
"""

from vicinal.miners.batch import (
    MINERS,
    Mined,
    MinedPairs,
    distance_weighted,
    easy_positive,
    hardest,
    multi_similarity,
    semi_hard,
)
from vicinal.miners.smart import Search, SmartMiner, approximate_neighbors, exact_neighbors

__all__ = ["MINERS", "Mined", "MinedPairs", "Search", "SmartMiner", "approximate_neighbors", "distance_weighted"]
__all__ += ["easy_positive", "exact_neighbors", "hardest", "multi_similarity", "semi_hard"]

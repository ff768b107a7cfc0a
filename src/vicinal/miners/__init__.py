"""Mining: which tuples of a batch are worth learning from.

A miner is a function of embeddings and labels (and, where it draws, of a generator), so equal seeds
give equal tuples in every process. It gives row numbers; ``loss.on_triplets(embeddings,
miner(embeddings, labels))`` learns from triplets, ``loss.on_pairs(embeddings, labels,
*miner(embeddings, labels))`` from pairs.
"""

from vicinal.miners.batch import (
    MINERS,
    Mined,
    angular,
    batch_easy_hard,
    distance_weighted,
    easy_positive,
    hardest,
    multi_similarity,
    pair_margin,
    semi_hard,
    triplet_margin,
    uniform_histogram,
)

__all__ = [
    "MINERS",
    "Mined",
    "angular",
    "batch_easy_hard",
    "distance_weighted",
    "easy_positive",
    "hardest",
    "multi_similarity",
    "pair_margin",
    "semi_hard",
    "triplet_margin",
    "uniform_histogram",
]

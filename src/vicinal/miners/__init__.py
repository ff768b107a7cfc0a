"""Mining: which tuples of a batch, or of a training set, are worth learning from.

A miner is a function of embeddings and labels (and, where it draws, of a generator), so equal seeds give equal tuples
in every process. It gives row numbers; ``loss.on_triplets(embeddings, miner(embeddings, labels))`` learns from them.
"""

from vicinal.miners.batch import (
    MINERS,
    Mined,
    distance_weighted,
    easy_positive,
    hardest,
    multi_similarity,
    semi_hard,
)
from vicinal.miners.smart import SmartMiner

__all__ = ["MINERS", "Mined", "SmartMiner"]
__all__ += ["distance_weighted", "easy_positive", "hardest", "multi_similarity", "semi_hard"]

"""LoOp: Looking for Optimal Hard Negative Embeddings (Vasudeva, Deora, Bhattacharya, Pal and Chanda, ICCV 2021).

| paper | here |
|---|---|
| Eq. (1), the nearest points of two arcs, in closed form | `vicinal.geometry.arc_distances`, `arc_similarity` |
| L'_tri, L'_HPHN, Eq. (16): losses over positive pairs | `negatives.OptimalNegatives` |
| pairs of a batch | `negatives.positive_pairs` |
| Embedding Expansion (Ko and Gu, CVPR 2020) | `negatives.EmbeddingExpansion` |
"""

from vicinal.methods.loop.method import EmbeddingExpansion, LoOp
from vicinal.methods.loop.negatives import OptimalNegatives

__all__ = ["EmbeddingExpansion", "LoOp", "OptimalNegatives"]

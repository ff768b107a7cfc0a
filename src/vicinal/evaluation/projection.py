"""A map of an embedding in the plane (t-SNE, van der Maaten and Hinton 2008)."""

import torch
from jaxtyping import Float
from torch import Tensor

from vicinal.evaluation.neighbors import require_finite

PERPLEXITY = 30.0  # about how many neighbors each row tries to keep
STEPS = 1000


def tsne(embeddings: Float[Tensor, "n d"], *, seed: int) -> Float[Tensor, "n 2"]:
    """Positions in the plane that keep neighbors near; the same for the same rows and seed.

    The perplexity is lowered to a third of the rows where there are few. Rows that are all equal,
    and a single row, lie at the origin.
    """
    require_finite(embeddings, "embeddings")
    rows = embeddings.detach().float().cpu()
    if len(rows) == 0 or bool((rows == rows[0]).all()):
        return torch.zeros(len(rows), 2)
    from sklearn.manifold import TSNE

    init = "pca" if min(rows.shape) > 2 else "random"
    model = TSNE(
        perplexity=min(PERPLEXITY, (len(rows) - 1) / 3),
        init=init,
        learning_rate="auto",
        max_iter=STEPS,
        random_state=seed,
    )
    return torch.from_numpy(model.fit_transform(rows.numpy())).float()

"""The two losses that HDML was published with, in each reading of its scale (Zheng et al. 2019, Eqs. 12 and 13)."""

from vicinal.losses.n_pair import NPairLoss
from vicinal.losses.n_pair import Similarity as Similarity
from vicinal.losses.reduction import Reduction
from vicinal.losses.triplet import TripletLoss
from vicinal.synthesis.hardness import Scale


def published_triplet(
    scale: Scale,
    *,
    margin: float | None = None,
    squared: bool | None = None,
    normalize: bool | None = None,
    reduction: Reduction | None = None,
) -> TripletLoss:
    """Triplet loss over blocks ``[a; p; n]``; what is None is as ``scale`` has it.

    The paper prints unsquared distances, Eq. (12); the authors' code squares them, with margin 1, and sums over
    triplets; neither normalises. ``"relative"`` is FaceNet's loss: squared, on the sphere, a mean.

    >>> published_triplet("authors").squared, published_triplet("paper").squared
    (True, False)
    """
    authors, relative = scale == "authors", scale == "relative"
    return TripletLoss(
        (0.2 if relative else 1.0) if margin is None else margin,
        squared=(authors or relative) if squared is None else squared,
        normalize=relative if normalize is None else normalize,
        blocks=True,
        reduction=("sum" if authors else "mean") if reduction is None else reduction,
    )


def published_n_pair(
    scale: Scale, *, similarity: Similarity | None = None, l2: float | None = None, normalize: bool = False
) -> NPairLoss:
    """N-pair loss over blocks ``[a; p]``; what is None is as ``scale`` has it.

    The paper prints distances, Eq. (13); the authors' code, like Sohn (2016), has inner products and holds the
    embeddings' lengths down (1.5e-2 on CUB, 3e-3 on Cars196).

    >>> published_n_pair("authors").similarity, published_n_pair("paper").similarity
    ('dot', 'distance')
    """
    paper = scale == "paper"
    return NPairLoss(
        ("distance" if paper else "dot") if similarity is None else similarity,
        l2=(0.0 if paper else 1.5e-2) if l2 is None else l2,
        normalize=normalize,
        blocks=True,
    )

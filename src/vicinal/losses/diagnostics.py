"""Diagnostics of a batch: active triplets, collapse, and samples that no neighborhood separates
(Song et al., ANML)."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor, nn

from vicinal.distances import Euclidean, Poincare
from vicinal.geometry import hinge_sums
from vicinal.parallel import all_rows, part, processes
from vicinal.tuples import Embeddings, Labels, Positives, other_class, positives

CAPTIONS = {
    "inseparable_share": (
        "Samples of a batch that cannot be separated: around each anchor, the ball that separates "
        "best leaves some "
        "similar samples outside and has some dissimilar ones inside (the inseparable samples of "
        "ANML, Section 4.1). "
        "Both should fall. What stays while the loss falls is noise in the labels, several "
        "clusters in a class, or "
        "classes that overlap: losses that insist on the hardest samples then learn from the "
        "wrong ones."
    )
}


@torch.no_grad()
def describe_batch(embeddings: Embeddings, labels: Labels, loss: nn.Module) -> dict[str, Tensor]:
    """Describe a batch besides its loss.

    ``active`` is the share of the batch's triplets whose negative is not farther than the positive
    by the loss's margin (0 where it has none), in the loss's own distance; ``spread`` is the
    embeddings' distance from their common mean relative to their length, 0 when all have collapsed
    to one point; for ``inseparable_share`` see ``CAPTIONS``. Each of several processes looks at a
    share of the anchors.
    """
    own = part(torch.arange(len(labels), device=labels.device)) if processes() > 1 else None
    loss = getattr(loss, "loss", loss)  # inside a memory or an adapter
    margin = getattr(loss, "margin", 0.0)
    distance = getattr(loss, "distance", None)
    euclidean = Euclidean(
        getattr(distance, "normalize", True), bool(getattr(distance, "squared", False))
    )
    ball = getattr(distance, "of", distance)
    compare = ball if isinstance(ball, Poincare) else euclidean
    apart = compare(embeddings) if own is None else compare(embeddings[own], embeddings)
    excess = float(margin) if isinstance(margin, (int, float)) else 0.0
    active = active_among(apart, labels, excess, own)
    similar, dissimilar = inseparable_among(apart, labels, own)
    centered = embeddings - embeddings.mean(dim=0)
    spread = centered.norm() / embeddings.norm().clamp(min=torch.finfo(embeddings.dtype).tiny)
    shares = {"inseparable_share/similar": similar, "inseparable_share/dissimilar": dissimilar}
    return {"active": active, "spread": spread, **shares}


@torch.no_grad()
def active_among(
    distances: Float[Tensor, "m n"],
    labels: Labels,
    margin: float,
    own: Integer[Tensor, "m"] | None = None,
) -> Float[Tensor, ""]:
    """Return the share of the batch's triplets with d_an < d_ap + margin, exact, without listing
    them.

    Args:
        distances: from anchors to all rows.
        labels: class of each row.
        margin: the loss's.
        own: the rows that are this process's anchors; None: all rows are.
    """
    (columns, keep_positive), keep_negative = _kinds(labels, own)
    positive = distances.gather(1, columns)
    active = hinge_sums(positive, distances, keep_positive, keep_negative, margin)[1].sum()
    triplets = (keep_positive.sum(dim=1) * keep_negative.sum(dim=1)).sum()
    return _share(active, triplets, own)


def _kinds(
    labels: Labels, own: Integer[Tensor, "m"] | None
) -> tuple[Positives, Bool[Tensor, "m n"]]:
    """Return the positives and the negatives of each anchor."""
    if own is None:
        return positives(labels), other_class(labels)
    return positives(labels[own], labels, own), other_class(labels[own], labels)


def _share(part: Tensor, whole: Tensor, own: Tensor | None) -> Float[Tensor, ""]:
    """Return the ratio of two sums, over the anchors of all processes."""
    sums = torch.stack([part, whole.to(part.dtype)])
    if own is not None:
        sums = all_rows(sums[None]).sum(dim=0)
    return sums[0] / sums[1].clamp(min=1)


class Inseparable(NamedTuple):
    """Shares of an anchor's samples that are inseparable, averaged over anchors."""

    similar: Float[Tensor, ""]
    dissimilar: Float[Tensor, ""]


@torch.no_grad()
def inseparable_shares(
    embeddings: Embeddings, labels: Labels, *, normalize: bool = True
) -> Inseparable:
    """Return the shares of similar samples outside a ball and of dissimilar ones inside, over
    anchors that have both.

        A_i = {x | d(x_i, x) ≤ r(S_i, K1)},  B_i = {x | d(x_i, x) ≤ r(D_i, K2)}
            Song et al., Eqs. (7), (8)

    The printed radii move with the samples that they are held against: some of these lie beyond
    their own mean for any embeddings. So A_i = B_i is the ball that separates best, the one whose
    two shares add up to least: 0 and 0 if one ball holds all similar samples and no other, and 1
    together where the two kinds are spread alike. Setting those samples aside leaves what can be
    separated, with Section 4.1's K_s and K_d as numbers of them. Of equally good balls the smallest
    is taken.

    No tensor is larger than the batch's distances.

    Args:
        embeddings: of the batch.
        labels: class of each.
        normalize: whether embeddings are put on the unit sphere first.

    >>> line = torch.tensor([[0.0], [1.0], [9.0], [2.0], [8.0]])
    >>> inseparable_shares(line, torch.tensor([0, 0, 0, 1, 1]), normalize=False).similar
    tensor(0.5000)
    """
    return inseparable_among(Euclidean(normalize)(embeddings), labels)


@torch.no_grad()
def inseparable_among(
    apart: Float[Tensor, "m n"],
    labels: Labels,
    own: Integer[Tensor, "m"] | None = None,
) -> Inseparable:
    """``inseparable_shares`` of distances that are already there: their order alone counts."""
    (columns, keep), others = _kinds(labels, own)
    shares = _best_ball(apart.gather(1, columns), keep, apart, others)
    formed = keep.any(dim=1) & others.any(dim=1)
    sums = [share.masked_fill(~formed, 0).sum() for share in shares]
    return Inseparable(*(_share(total, formed.sum(), own) for total in sums))


def _best_ball(
    similar: Float[Tensor, "n p"],
    keep: Bool[Tensor, "n p"],
    apart: Float[Tensor, "n m"],
    others: Bool[Tensor, "n m"],
) -> tuple[Float[Tensor, "n"], Float[Tensor, "n"]]:
    """Return both shares of the ball that separates best: empty, or just reaching one of the
    similar samples."""
    size = keep.sum(dim=1, keepdim=True)
    reach = similar.masked_fill(~keep, torch.inf).sort(dim=1).values
    # A dissimilar sample lies in every ball from the first that reaches it on.
    first = torch.searchsorted(reach, apart.masked_fill(~others, torch.inf).contiguous())
    entering = reach.new_zeros(len(reach), reach.shape[1] + 1).scatter_add_(
        1, first, others.to(reach.dtype)
    )
    count = others.sum(dim=1, keepdim=True).clamp(min=1)
    step = torch.arange(1, reach.shape[1] + 1, device=reach.device)
    # Padding is no ball.
    inside = (entering[:, :-1].cumsum(dim=1) / count).masked_fill(step > size, torch.inf)
    outside = (1 - step / size.clamp(min=1)).to(reach.dtype)
    empty = torch.zeros_like(count, dtype=reach.dtype)
    inside = torch.cat([empty, inside], dim=1)
    outside = torch.cat([empty + 1, outside], dim=1)
    best = (inside + outside).argmin(dim=1, keepdim=True)
    return outside.gather(1, best).squeeze(1), inside.gather(1, best).squeeze(1)

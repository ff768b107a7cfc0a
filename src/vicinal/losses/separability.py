"""How many samples a batch's neighbourhoods cannot separate (Song et al., ANML, Section 4.1)."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from vicinal.errors import ConfigError
from vicinal.geometry import pairwise_distances, unit_rows
from vicinal.losses.neighborhoods import Neighbors, mean_of_k
from vicinal.tuples import other_class, positives


class Inseparable(NamedTuple):
    """Shares of an anchor's samples that are inseparable, averaged over anchors."""

    similar: Float[Tensor, ""]
    dissimilar: Float[Tensor, ""]


@torch.no_grad()
def inseparable_shares(
    embeddings: Float[Tensor, "n d"],
    labels: Integer[Tensor, "n"],
    k1: int | None = None,
    k2: int | None = None,
    *,
    normalize: bool = True,
) -> Inseparable:
    """Share of similar samples outside A_i and of dissimilar ones inside B_i, over all anchors that have both kinds.

        A_i = {x | d(x_i, x) ≤ r(S_i, K1)},  B_i = {x | d(x_i, x) ≤ r(D_i, K2)}               Song et al., Eqs. (7), (8)

    With K given those are the printed neighbourhoods. Their radius moves with the samples that it is held against:
    some of them lie beyond their own mean whatever is learnt. So by default A_i = B_i is the ball that separates best,
    the one whose two shares add up to least: 0 and 0 if one ball holds all similar samples and no other, and 1
    together where the two kinds are spread alike. Setting those samples aside leaves what can be separated, with
    Section 4.1's K_s and K_d as numbers of them. Of equally good balls the smallest is taken.

    No tensor larger than the batch's distances, nothing that waits for a device within ``tuples.one_batch``.

    Args:
        embeddings: of the batch.
        labels: class of each.
        k1: K1 of Eq. (7): so many nearest (K > 0) or farthest (K < 0) similar samples set A_i's radius.
        k2: K2 of Eq. (8), likewise; None, as is ``k1``, for the best ball.
        normalize: whether embeddings are put on the unit sphere first.

    >>> line = torch.tensor([[0.0], [1.0], [9.0], [2.0], [8.0]])
    >>> inseparable_shares(line, torch.tensor([0, 0, 0, 1, 1]), normalize=False).similar
    tensor(0.5000)
    """
    apart = pairwise_distances(unit_rows(embeddings) if normalize else embeddings, squared=False)
    return inseparable_among(apart, labels, k1, k2)


@torch.no_grad()
def inseparable_among(
    apart: Float[Tensor, "n n"], labels: Integer[Tensor, "n"], k1: int | None = None, k2: int | None = None
) -> Inseparable:
    """``inseparable_shares`` of distances that are already there; the best ball sees their order alone."""
    if (k1 is None) != (k2 is None) or 0 in (k1, k2):
        raise ConfigError(
            f"the printed neighbourhoods need a number other than 0 for both radii, but k1 = {k1} and k2 = {k2} came. "
            f"Give both, or none for the ball that separates best."
        )
    columns, keep = positives(labels)
    similar, dissimilar = Neighbors(apart.gather(1, columns), keep), Neighbors(apart, other_class(labels))
    if k1 is None or k2 is None:
        outside, inside = _best_ball(similar, dissimilar)
    else:
        outside = _share(similar.distances > mean_of_k(similar, k1)[:, None], similar.keep)
        inside = _share(dissimilar.distances <= mean_of_k(dissimilar, k2)[:, None], dissimilar.keep)
    formed = similar.keep.any(dim=1) & dissimilar.keep.any(dim=1)
    return Inseparable(*(part.masked_fill(~formed, 0).sum() / formed.sum().clamp(min=1) for part in (outside, inside)))


def _best_ball(similar: Neighbors, dissimilar: Neighbors) -> tuple[Float[Tensor, "n"], Float[Tensor, "n"]]:
    """Both shares of the ball that separates best: empty, or just reaching one of the similar samples."""
    size = similar.keep.sum(dim=1, keepdim=True)
    reach = similar.distances.masked_fill(~similar.keep, torch.inf).sort(dim=1).values
    # A dissimilar sample lies in every ball from the first that reaches it on.
    first = torch.searchsorted(reach, dissimilar.distances.masked_fill(~dissimilar.keep, torch.inf).contiguous())
    entering = reach.new_zeros(len(reach), reach.shape[1] + 1)
    entering.scatter_add_(1, first, dissimilar.keep.to(reach.dtype))
    others = dissimilar.keep.sum(dim=1, keepdim=True).clamp(min=1)
    step = torch.arange(1, reach.shape[1] + 1, device=reach.device)
    inside = (entering[:, :-1].cumsum(dim=1) / others).masked_fill(step > size, torch.inf)  # padding is no ball
    outside = (1 - step / size.clamp(min=1)).to(reach.dtype)
    empty = torch.zeros_like(others, dtype=reach.dtype)
    inside, outside = torch.cat([empty, inside], dim=1), torch.cat([empty + 1, outside], dim=1)
    best = (inside + outside).argmin(dim=1, keepdim=True)
    return outside.gather(1, best).squeeze(1), inside.gather(1, best).squeeze(1)


def _share(of: Bool[Tensor, "n m"], keep: Bool[Tensor, "n m"]) -> Float[Tensor, "n"]:
    return (of & keep).sum(dim=1) / keep.sum(dim=1).clamp(min=1)

"""Easy-positive mining: the nearest sample of the anchor's class as its positive (Xuan et al., WACV 2020)."""

from typing import Literal, get_args

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from vicinal.errors import ConfigError, unknown
from vicinal.miners.candidates import candidates, chosen, nothing
from vicinal.tuples import Triplets

Negative = Literal["semi_hard", "hardest"]


def easy_positive(
    embeddings: Float[Tensor, "n d"],
    labels: Integer[Tensor, "n"],
    *,
    negative: Negative = "semi_hard",
    normalize: bool = True,
    reference: Float[Tensor, "m d"] | None = None,
    reference_labels: Integer[Tensor, "m"] | None = None,
    own: Integer[Tensor, "n"] | None = None,
) -> Triplets:
    """At most one triplet for each anchor: it need only be near some of its class, which leaves classes their shape.

    Args:
        embeddings: the anchors; without a reference also what they are compared with.
        labels: class of each anchor.
        negative: ``"semi_hard"``, the nearest negative that is farther than the positive (the paper's EPSHN; an anchor
            without one forms no triplet), or ``"hardest"``, the nearest of all (EPHN).
        normalize: whether embeddings are put on the unit sphere first.
        reference: rows to choose from instead of the batch; then positives and negatives are numbered among them.
        reference_labels: class of each reference row.
        own: where each anchor stands in the reference; None: nowhere.
    """
    if negative not in get_args(Negative):
        raise ConfigError(unknown("negative", str(negative), get_args(Negative)))
    c = candidates(embeddings, labels, reference, reference_labels, own, normalize=normalize)
    if c.empty():
        return nothing(labels)
    nearest, place = c.positive.masked_fill(~c.keep_positive, torch.inf).min(dim=1, keepdim=True)
    allowed = c.keep_negative & (c.negative > nearest) if negative == "semi_hard" else c.keep_negative
    other = c.negative.masked_fill(~allowed, torch.inf).argmin(dim=1, keepdim=True)
    there = c.keep_positive.any(dim=1, keepdim=True) & allowed.any(dim=1, keepdim=True)
    return chosen(there, c.columns.gather(1, place), other)

"""Distance-weighted negatives: drawn so that every distance is as likely as any other (Wu et al., ICCV 2017)."""

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from vicinal.errors import ConfigError
from vicinal.miners.candidates import candidates, chosen, nothing
from vicinal.tuples import Triplets


def distance_weighted(
    embeddings: Float[Tensor, "n d"],
    labels: Integer[Tensor, "n"],
    *,
    generator: torch.Generator,
    cutoff: float = 0.5,
    farthest: float = 1.4,
    reference: Float[Tensor, "m d"] | None = None,
    reference_labels: Integer[Tensor, "m"] | None = None,
    own: Integer[Tensor, "n"] | None = None,
) -> Triplets:
    """Each anchor and positive with one negative, drawn anew for each pair.

        p(n | a) ∝ min(λ, 1 / q(D_an)),   q(D) = D^(d-2) · (1 - D²/4)^((d-3)/2)          Wu et al. 2017

    where q is the density of distances between uniform points of the unit sphere in d dimensions, on which embeddings
    are put first, and λ = 1 / q(``cutoff``) keeps the nearest, noisiest ones from being drawn all the time. In
    512 dimensions 1 / q spans far more than a float32 holds, so weights are logarithms until they are compared.

    Args:
        embeddings: the anchors; without a reference also what they are compared with.
        labels: class of each anchor.
        generator: what is drawn from, on any device; equal seeds draw equally in every process.
        cutoff: the distance below which no negative is likelier than at it.
        farthest: negatives at this distance or beyond are not drawn, for the margin loss of the paper does not feel
            them; an anchor that has no nearer one forms no triplet.
        reference: rows to choose from instead of the batch; then positives and negatives are numbered among them.
        reference_labels: class of each reference row.
        own: where each anchor stands in the reference; None: nowhere.
    """
    if not 0 < cutoff < 2:
        raise ConfigError(f"`cutoff` is a distance on the unit sphere, 0 < cutoff < 2, got {cutoff}.")
    c = candidates(embeddings, labels, reference, reference_labels, own, normalize=True)
    if c.empty():
        return nothing(labels)
    drawable = c.keep_negative & (c.negative < farthest)
    weights = log_weights(c.negative, embeddings.shape[1], cutoff)
    draws = torch.rand(c.positive.shape, generator=generator, device=generator.device, dtype=torch.float64)
    negative = _drawn(weights, drawable, draws.to(embeddings.device))
    return chosen(c.keep_positive & drawable.gather(1, negative), c.columns, negative)


def log_weights(distances: Float[Tensor, "n m"], dim: int, cutoff: float) -> Float[Tensor, "n m"]:
    """log min(λ, 1 / q(D)), up to a constant."""
    floor = torch.finfo(distances.dtype).tiny

    def log_inverse_density(distance: Tensor) -> Tensor:
        rest = (1 - distance.square() / 4).clamp(min=floor)
        return (2 - dim) * distance.clamp(min=floor).log() - (dim - 3) / 2 * rest.log()

    most = log_inverse_density(distances.new_full((), cutoff))
    return torch.minimum(log_inverse_density(distances), most) - most


def _drawn(
    weights: Float[Tensor, "n m"], drawable: Bool[Tensor, "n m"], draws: Float[Tensor, "n p"]
) -> Integer[Tensor, "n p"]:
    """Columns drawn from each row with probability ∝ exp(weight): where a share of the running sum is passed."""
    kept = weights.double().masked_fill(~drawable, -torch.inf)
    likeliest = kept.amax(dim=1, keepdim=True).clamp(min=torch.finfo(torch.float64).min)  # a row may keep nothing
    sums = (kept - likeliest).exp().cumsum(dim=1)
    total = sums[:, -1:].contiguous()
    drawn = torch.searchsorted(sums, draws * total, right=True)
    return torch.minimum(drawn, torch.searchsorted(sums, total))  # rounding may pass the last that can be drawn

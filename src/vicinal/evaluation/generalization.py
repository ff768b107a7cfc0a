"""Diagnostics of generalization: density and spectrum of an embedding (Roth et al., ICML 2020)."""

import math
from collections.abc import Mapping

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from vicinal.errors import DataError
from vicinal.evaluation.encoder import Embedded

# Singular values from a float64 Gram matrix have noise of sqrt(2^-52) of the largest.
_FLOOR = 2.0**-26


def diagnosis(name: str, embedded: Embedded, scores: Mapping[str, float]) -> dict[str, object]:
    """One row of ``diagnostics.json``: its scores, density and spectrum."""
    vectors = embedded.vectors
    values = [round(float(value), 6) for value in spectrum(embedded.vectors)]
    density = {"intra_inter_ratio": intra_inter_ratio(vectors, embedded.labels)}
    return {
        "name": name,
        **scores,
        **density,
        "spectral_decay": spectral_decay(vectors),
        "spectrum": values,
    }


def intra_inter_ratio(embeddings: Float[Tensor, "n d"], labels: Int[Tensor, "n"]) -> float:
    """Mean distance within classes over mean distance between class means; small means dense
    classes, far apart.

        π_intra = mean over classes of mean_{i != j} d(x_i, x_j),
            π_inter = mean_{l != k} d(μ_l, μ_k)
        π_ratio = π_intra / π_inter                                                 Roth et al. 2020

    d is the cosine distance and class means are scaled to length 1, as in the authors' code. Then
    the sums over pairs are Σ_{i != j} (1 - x_i·x_j) = m (m - 1) - |Σ x_i|² + Σ |x_i|², which takes
    one pass over the rows.
    Differs: classes of one row, which have no inner distance, are left out; the authors give them
        the largest.
    """
    rows = normalize(embeddings.detach().double(), dim=1)
    classes, place, sizes = torch.unique(
        labels.to(rows.device), return_inverse=True, return_counts=True
    )
    if len(classes) < 2 or int(sizes.max()) < 2:
        got = f"{len(classes)} classes of at most {int(sizes.max()) if len(classes) else 0} rows"
        raise DataError(
            f"the ratio of distances needs two classes and two rows in one of them, got {got}."
        )
    sums = rows.new_zeros(len(classes), rows.shape[1]).index_add_(0, place, rows)
    lengths = rows.new_zeros(len(classes)).index_add_(0, place, rows.square().sum(dim=1))
    paired = sizes > 1
    intra = _mean_distance(sums, lengths, sizes)[paired].mean()
    means = normalize(sums, dim=1)
    inter = _mean_distance(
        means.sum(dim=0), means.square().sum(), torch.tensor(len(means), device=rows.device)
    )
    # The authors' bound; 0/0 of a collapsed embedding becomes 0.
    return float(intra / inter.clamp(min=1e-8))


def _mean_distance(sums: Tensor, lengths: Tensor, count: Tensor) -> Tensor:
    """Mean of 1 - x_i·x_j over i != j, from Σ x_i, Σ |x_i|² and how many."""
    pairs = (count * (count - 1)).double()
    return ((pairs - sums.square().sum(dim=-1) + lengths) / pairs.clamp(min=1)).clamp(min=0)


def spectrum(embeddings: Float[Tensor, "n d"]) -> Float[Tensor, "r"]:
    """Singular values of the embedding matrix, falling, scaled to sum 1; all 0 if every row is
    zero.

    They are the roots of the eigenvalues of the smaller Gram matrix, in float64 on the CPU: r =
    min(n, d) values.
    """
    rows = embeddings.detach()
    size = min(rows.shape)
    gram = torch.zeros(size, size, dtype=torch.float64, device=rows.device)
    for part in torch.split(rows if rows.shape[0] >= rows.shape[1] else rows.T, 4096):
        gram += part.double().T @ part.double()
    values: Tensor = torch.linalg.eigvalsh(gram.cpu()).flip(0).clamp(min=0).sqrt()
    return values / values.sum().clamp(min=torch.finfo(torch.float64).tiny)


def spectral_decay(embeddings: Float[Tensor, "n d"]) -> float:
    """How far the spectrum is from flat: 0 if all directions are used alike, large if few are.

        ρ = KL(U || S) = 1/r Σ_i log((1/r) / s_i)                                   Roth et al. 2020

    with s the normalized singular values. Directions not used at all (s = 0) count as 1.5e-8, where
    the rounding of the values ends, so that ρ stays finite.
    """
    values = spectrum(embeddings).clamp(min=_FLOOR)
    return float(-math.log(len(values)) - values.log().mean())

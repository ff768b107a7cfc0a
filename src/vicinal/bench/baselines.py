"""Rows without training: the untrained network's features by cosine, their PCA, their whitened PCA."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from vicinal.bench.tables import PCA, UNTRAINED, WHITENED
from vicinal.errors import ConfigError
from vicinal.evaluation.encoder import Embedded
from vicinal.training.experiment import Experiment

_FLOOR = 1e-6  # of the largest variance: directions below it are noise that whitening would blow up


@dataclass(frozen=True)
class Projection:
    """x -> (x - mean) W, fitted on vectors of the training classes."""

    mean: Float[Tensor, "c"]
    directions: Float[Tensor, "c d"]

    def __call__(self, vectors: Float[Tensor, "n c"]) -> Float[Tensor, "n d"]:
        return ((vectors.double() - self.mean) @ self.directions).float()


def fit_pca(vectors: Float[Tensor, "n c"], dim: int, *, whiten: bool) -> Projection:
    """The ``dim`` directions of largest variance; ``whiten`` scales each to variance 1 (Jégou and Chum 2012).

    Fewer where there are not as many: n vectors span n - 1 directions about their mean.
    """
    if dim < 1 or len(vectors) < 2:
        raise ConfigError(f"PCA takes at least 1 dimension and 2 vectors, but {dim} and {len(vectors)} came.")
    exact = vectors.double()
    mean = exact.mean(dim=0)
    centred = exact - mean
    variances, directions = torch.linalg.eigh(centred.T @ centred / (len(vectors) - 1))
    kept = min(dim, vectors.shape[1], len(vectors) - 1)
    variances, directions = variances.flip(0)[:kept], directions.flip(1)[:, :kept]
    if whiten:
        directions = directions / variances.clamp(min=_FLOOR * float(variances[0])).sqrt()
    return Projection(mean, directions)


def untrained_rows(experiment: Experiment, test: Embedded, *, dim: int) -> dict[str, Embedded]:
    """The measured part by each baseline; projections are fitted on what the trained rows learn from.

    Features are put on the sphere before and after a projection, so that all rows compare by cosine.

    Args:
        test: the untrained network's features of the measured part.
    """
    known = normalize(experiment.embed(experiment.encoder, experiment.train, features=True).vectors, dim=1)
    features = normalize(test.vectors, dim=1)
    rows = {UNTRAINED: features}
    for name, whiten in ((PCA, False), (WHITENED, True)):
        rows[name] = normalize(fit_pca(known, dim, whiten=whiten)(features), dim=1)
    return {name: Embedded(vectors, test.records, test.skipped) for name, vectors in rows.items()}

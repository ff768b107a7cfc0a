"""A linear head on feature vectors of your own: an .npz or Parquet file of vectors with labels.

    vicinal train features data=vectors.npz

Cost: seconds to minutes, by the number of vectors.
Expected: depends on the data; the report shows the untrained features beside it.
"""

from dataclasses import dataclass

from vicinal.data.records import Dataset, Records
from vicinal.data.transforms import FeatureTransform, Transform
from vicinal.losses import MultiSimilarityLoss
from vicinal.methods.optimisation import Optimisation
from vicinal.methods.plain import Plain
from vicinal.models import Embedder, Identity
from vicinal.sampling import FittedSampler
from vicinal.training.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class Features(Recipe):
    """Multi-similarity loss; a low rate, since a careless head falls below the features it started from."""

    data: Dataset
    transform: Transform = FeatureTransform()
    optimisation: Optimisation = Optimisation(learning_rate=1e-4)
    dim: int = 128
    classes: int = 16
    per_class: int = 4

    def build(self, train: Records) -> Plain:
        embedder = Embedder(Identity(train.source.read(0).shape[0]), self.dim)
        sampler = FittedSampler(train.labels, classes=self.classes, per_class=self.per_class, seed=self.seed)
        return Plain.optimised(embedder, MultiSimilarityLoss(), sampler, self.optimisation, epochs=self.epochs)

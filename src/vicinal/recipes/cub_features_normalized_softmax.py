"""A classifier on CUB-200-2011 features, without its last layer: what every method on them should beat.

    vicinal train cub_features_normalized_softmax

Cost: as `cub_features`, whose head, batches and steps it has.
Expected: R@1 54.5, MAP@R 16.1 (seed 0), below the features as they are (56.6, 16.4). Its rates were not tuned.
"""

from dataclasses import dataclass

import numpy as np

from vicinal.data.arrays import Arrays
from vicinal.data.records import Dataset, Records
from vicinal.data.transforms import FeatureTransform, Transform
from vicinal.losses import NormalizedSoftmaxLoss
from vicinal.methods.optimisation import Optimisation
from vicinal.methods.plain import Plain
from vicinal.models import Embedder, Identity
from vicinal.sampling import PKSampler
from vicinal.training.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class CubFeaturesNormalizedSoftmax(Recipe):
    """Head, batches and steps of ``cub_features``; a softmax over the training classes (Zhai and Wu)."""

    data: Dataset = Arrays("$VICINAL_DATA/features/cub_efficientnet_lite0.npz")
    transform: Transform = FeatureTransform()
    optimisation: Optimisation = Optimisation(learning_rate=1e-4, loss_factor=10.0)
    recalls: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    dim: int = 512
    classes: int = 26
    per_class: int = 5
    temperature: float = 0.05

    def build(self, train: Records) -> Plain:
        embedder = Embedder(Identity(train.source.read(0).shape[0]), self.dim)
        sampler = PKSampler(train.labels, classes=self.classes, per_class=self.per_class, seed=self.seed)
        known = tuple(np.unique(train.labels).tolist())
        loss = NormalizedSoftmaxLoss(len(known), self.dim, temperature=self.temperature, known=known, seed=self.seed)
        return Plain.optimised(embedder, loss, sampler, self.optimisation, epochs=self.epochs)

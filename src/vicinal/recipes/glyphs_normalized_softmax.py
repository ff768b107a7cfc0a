"""A classifier on rendered characters, without its last layer: what every method on glyphs should beat.

    vicinal train glyphs_normalized_softmax

Cost: as `glyphs_triplet`, whose network, batches and steps it has.
Expected: R@1 87.7, MAP@R 44.6 (seed 0); untrained 21.5, raw pixels 40.5. Its rates were not tuned.
"""

from dataclasses import dataclass

import numpy as np

from vicinal.data.glyphs import Glyphs
from vicinal.data.records import Dataset, Records
from vicinal.data.transforms import ImageTransform, Transform
from vicinal.losses import NormalizedSoftmaxLoss
from vicinal.methods.optimisation import Optimisation
from vicinal.methods.plain import Plain
from vicinal.models import Embedder, SmallConvNet
from vicinal.sampling import PKSampler
from vicinal.training.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class GlyphsNormalizedSoftmax(Recipe):
    """Network, batches and steps of the other recipes on glyphs; a softmax over the training classes (Zhai and Wu)."""

    data: Dataset = Glyphs()
    transform: Transform = ImageTransform(size=32, pad=2, crop="random", channels=1)
    optimisation: Optimisation = Optimisation(learning_rate=2e-3, loss_factor=10.0)
    dim: int = 64
    widths: tuple[int, ...] = (16, 32, 64, 128)
    classes: int = 16
    per_class: int = 4
    temperature: float = 0.05

    def build(self, train: Records) -> Plain:
        embedder = Embedder(SmallConvNet(channels=1, widths=self.widths), self.dim)
        sampler = PKSampler(train.labels, classes=self.classes, per_class=self.per_class, seed=self.seed)
        known = tuple(np.unique(train.labels).tolist())
        loss = NormalizedSoftmaxLoss(len(known), self.dim, temperature=self.temperature, known=known, seed=self.seed)
        return Plain.optimised(embedder, loss, sampler, self.optimisation, epochs=self.epochs)

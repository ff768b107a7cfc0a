"""Batch-all triplet loss on rendered characters.

    vicinal train glyphs_triplet

Cost: 106 to 139 seconds of training on one CPU core, both cores busy; measuring and report come on top.
Expected: R@1 88.0 ± 1.0, MAP@R 47.0 ± 1.2 (3 seeds); untrained 20.2 ± 2.5, raw pixels 40.5.
"""

from dataclasses import dataclass

from vicinal.data.glyphs import Glyphs
from vicinal.data.records import Dataset, Records
from vicinal.data.transforms import ImageTransform, Transform
from vicinal.losses import BatchAllTripletLoss
from vicinal.methods.optimisation import Optimisation
from vicinal.methods.plain import Plain
from vicinal.models import Embedder, SmallConvNet
from vicinal.sampling import PKSampler
from vicinal.training.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class GlyphsTriplet(Recipe):
    """All triplets of a PK batch, averaged over those that violate the margin (Hermans et al. 2017)."""

    data: Dataset = Glyphs()
    transform: Transform = ImageTransform(size=32, pad=2, crop="random", channels=1)
    optimisation: Optimisation = Optimisation(learning_rate=2e-3)
    dim: int = 64
    widths: tuple[int, ...] = (16, 32, 64, 128)
    classes: int = 16
    per_class: int = 4
    margin: float = 0.2

    def build(self, train: Records) -> Plain:
        embedder = Embedder(SmallConvNet(channels=1, widths=self.widths), self.dim)
        sampler = PKSampler(train.labels, classes=self.classes, per_class=self.per_class, seed=self.seed)
        return Plain.optimised(
            embedder, BatchAllTripletLoss(margin=self.margin), sampler, self.optimisation, epochs=self.epochs
        )

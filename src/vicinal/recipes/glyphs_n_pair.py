"""N-pair loss on rendered characters: N classes with two renderings each.

    vicinal train glyphs_n_pair

Cost: 106 to 139 seconds of training on one CPU core, both cores busy; measuring and report come on top.
Expected: R@1 85.3 ± 1.4, MAP@R 42.5 ± 1.3 (3 seeds); untrained 20.2 ± 2.5, raw pixels 40.5.
"""

from dataclasses import dataclass

from vicinal.data.glyphs import Glyphs
from vicinal.data.records import Dataset, Records
from vicinal.data.transforms import ImageTransform, Transform
from vicinal.losses import NPairLoss
from vicinal.methods.optimisation import Optimisation
from vicinal.methods.plain import Plain
from vicinal.models import Embedder, SmallConvNet
from vicinal.sampling import NPairSampler
from vicinal.training.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class GlyphsNPair(Recipe):
    """The N x N matrix of dot products with an L2 term on the embeddings' length (Sohn 2016)."""

    data: Dataset = Glyphs()
    transform: Transform = ImageTransform(size=32, pad=2, crop="random", channels=1)
    optimisation: Optimisation = Optimisation(learning_rate=2e-3)
    dim: int = 64
    widths: tuple[int, ...] = (16, 32, 64, 128)
    classes: int = 32
    l2: float = 3e-3  # HDML's authors' value on Cars196

    def build(self, train: Records) -> Plain:
        embedder = Embedder(SmallConvNet(channels=1, widths=self.widths), self.dim)
        sampler = NPairSampler(train.labels, classes=self.classes, seed=self.seed)
        return Plain.optimised(
            embedder, NPairLoss(l2=self.l2, blocks=True), sampler, self.optimisation, epochs=self.epochs
        )

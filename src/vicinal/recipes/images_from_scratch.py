"""Pictures of your own, from scratch: a small network on a folder of class folders, or a table of paths and labels.

    vicinal train images_from_scratch data=pictures/

Cost: minutes to hours, by the number of pictures.
Expected: depends on the data; the report shows the untrained network beside it. Photographs need thousands of pictures
    before this catches up with `images`, which starts from ImageNet; drawings, scans or spectra may not.
"""

from dataclasses import dataclass

from vicinal.data.records import Dataset, Records
from vicinal.data.transforms import ImageTransform, Transform
from vicinal.losses import MultiSimilarityLoss
from vicinal.methods.optimisation import Optimisation
from vicinal.methods.plain import Plain
from vicinal.models import Embedder, SmallConvNet
from vicinal.sampling import FittedSampler
from vicinal.training.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class ImagesFromScratch(Recipe):
    """A small convolutional network on 64-pixel crops; multi-similarity loss."""

    data: Dataset
    transform: Transform = ImageTransform(size=64, resize=72, crop="random", mirror=True)
    optimisation: Optimisation = Optimisation(learning_rate=1e-3)
    dim: int = 128
    widths: tuple[int, ...] = (32, 64, 128, 256)
    classes: int = 16
    per_class: int = 4

    def build(self, train: Records) -> Plain:
        embedder = Embedder(SmallConvNet(channels=3, widths=self.widths), self.dim)
        sampler = FittedSampler(train.labels, classes=self.classes, per_class=self.per_class, seed=self.seed)
        return Plain.optimised(embedder, MultiSimilarityLoss(), sampler, self.optimisation, epochs=self.epochs)

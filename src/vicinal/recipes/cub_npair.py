"""CUB-200-2011 photographs, EfficientNet-Lite0, N-pair loss.

    vicinal train cub_npair

Cost: about 5 seconds of training on an H200; hours on a CPU.
Expected: R@1 60.1 ± 0.4, NMI 65.8 ± 0.5, MAP@R 20.5 on unseen classes; untrained R@1 55.4 (docs/results.md).
"""

from dataclasses import dataclass

from vicinal.data.cub import CUB
from vicinal.data.records import Dataset, Records
from vicinal.data.transforms import ImageTransform, Transform
from vicinal.losses import NPairLoss
from vicinal.methods.optimisation import Optimisation
from vicinal.methods.plain import Plain
from vicinal.models import EfficientNetLite, Embedder, load_pretrained
from vicinal.models.embedder import Pooling
from vicinal.sampling import NPairSampler
from vicinal.training.recipe import Recipe, Start


@dataclass(frozen=True, kw_only=True)
class CubNPair(Recipe):
    """N-pair loss over 64 pairs; classes 1-100 train, 101-200 test.

    The images keep their aspect and the crops vary in size: with squashed images and crops of one size the same
    network starts 3 points lower and over-fits within a few hundred steps. The head starts as discriminants.
    """

    data: Dataset = CUB()
    transform: Transform = ImageTransform(
        size=224, resize=256, canvas=256, crop="resized", area=(0.2, 1.0), mirror=True
    )
    optimisation: Optimisation = Optimisation(learning_rate=2e-5, weight_decay=0.01)
    start: Start = Start(head="discriminant", length=6.0)
    epochs: int = 5
    validation: float = 0.0
    recalls: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    dim: int = 512
    pooling: Pooling = "average"
    weights: str = "imagenet"
    classes: int = 64
    l2: float = 3e-3

    def build(self, train: Records) -> Plain:
        backbone = EfficientNetLite("lite0", freeze_norm=True)
        load_pretrained(backbone, self.weights)
        embedder = Embedder(backbone, self.dim, pooling=self.pooling)
        sampler = NPairSampler(train.labels, classes=self.classes, seed=self.seed)
        return Plain.optimised(
            embedder, NPairLoss(l2=self.l2, blocks=True), sampler, self.optimisation, epochs=self.epochs
        )

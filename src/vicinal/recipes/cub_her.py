"""CUB-200-2011 photographs, EfficientNet-Lite0, hard exemplar weights on all triplets, with their plain twin.

    vicinal train cub_her
    vicinal train cub_her variant=plain                # every weight 1: soft-margin triplets, the same batches

Cost: about 5 seconds of training on an H200; hours on a CPU.
Expected: see docs/her.md.
"""

from dataclasses import dataclass
from typing import Literal

from vicinal.data.cub import CUB
from vicinal.data.records import Dataset, Records
from vicinal.data.transforms import ImageTransform, Transform
from vicinal.losses import HardExemplarLoss
from vicinal.methods.optimisation import Optimisation
from vicinal.methods.plain import Plain
from vicinal.models import EfficientNetLite, Embedder, load_pretrained
from vicinal.sampling import PKSampler
from vicinal.training.recipe import Recipe, Start


@dataclass(frozen=True, kw_only=True)
class CubHER(Recipe):
    """The weights of Cai et al. 2019 on 26 classes x 5; classes 1-100 train, 101-200 test. Else as ``cub_triplet``."""

    data: Dataset = CUB()
    transform: Transform = ImageTransform(
        size=224, resize=256, canvas=256, crop="resized", area=(0.2, 1.0), mirror=True
    )
    optimisation: Optimisation = Optimisation(learning_rate=2e-5, weight_decay=0.01)
    start: Start = Start(head="discriminant")
    variant: Literal["her", "plain"] = "her"
    epochs: int = 5
    validation: float = 0.0
    recalls: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    dim: int = 512
    weights: str = "imagenet"
    classes: int = 26
    per_class: int = 5
    margin: float = 0.15
    scale: float = 5.0

    def build(self, train: Records) -> Plain:
        backbone = EfficientNetLite("lite0", freeze_norm=True)
        load_pretrained(backbone, self.weights)
        loss = HardExemplarLoss(self.margin, scale=self.scale, weighted=self.variant == "her")
        sampler = PKSampler(train.labels, classes=self.classes, per_class=self.per_class, seed=self.seed)
        return Plain.optimised(Embedder(backbone, self.dim), loss, sampler, self.optimisation, epochs=self.epochs)

"""HDML over triplet loss on CUB-200-2011 photographs, EfficientNet-Lite0, with its two plain twins.

    vicinal train cub_hdml_triplet
    vicinal train cub_hdml_triplet variant=plain        # the same triplets without synthesis
    vicinal train cub_hdml_triplet variant=strongest    # the same number of images, semi-hard triplets

Cost: a GPU; at most 1.15 times the plain step (benchmarks/hdml_step.py).
Expected: R@1 60.0 ± 0.7, its twin 60.1 ± 0.6 on unseen classes (docs/hdml.md).
"""

from dataclasses import dataclass
from typing import Literal

from vicinal.data.cub import CUB
from vicinal.data.records import Dataset, Records
from vicinal.data.transforms import ImageTransform, Transform
from vicinal.losses import BatchAllTripletLoss, SemiHardTripletLoss
from vicinal.methods.hdml import HDML
from vicinal.methods.method import Method
from vicinal.methods.optimisation import Optimisation
from vicinal.methods.plain import Plain
from vicinal.models import EfficientNetLite, Embedder, load_pretrained
from vicinal.models.embedder import Pooling
from vicinal.sampling import PKSampler, TripletSampler
from vicinal.synthesis import Hardness, published_triplet
from vicinal.training.recipe import Recipe, Start


@dataclass(frozen=True, kw_only=True)
class CubHDMLTriplet(Recipe):
    """Zheng et al. 2019, Eq. (12): 40 disjoint triplets a step; images and crops as in ``cub_triplet``.

    All variants start from the same network; ``hdml`` and ``plain`` see the same batches. A batch holds 2T classes, and
    a fifth of the hundred is held out, so T = 40 uses all that remain.
    """

    data: Dataset = CUB()
    transform: Transform = ImageTransform(
        size=224, resize=256, canvas=256, crop="resized", area=(0.2, 1.0), mirror=True
    )
    optimisation: Optimisation = Optimisation(learning_rate=2e-5, weight_decay=0.01)
    start: Start = Start(head="discriminant")
    hdml: Hardness = Hardness(window=16, generator_rate=3e-3)  # fit short runs
    variant: Literal["hdml", "plain", "strongest"] = "hdml"
    strongest: Literal["batch_all", "semi_hard"] = "semi_hard"
    epochs: int = 5
    dim: int = 512
    pooling: Pooling = "average"
    weights: str = "imagenet"
    triplets: int = 40
    margin: float | None = None
    squared: bool | None = None
    normalize: bool | None = None
    reduction: Literal["mean", "sum"] | None = None
    per_class: int = 4

    def build(self, train: Records) -> Method:
        backbone = EfficientNetLite("lite0", freeze_norm=True)
        load_pretrained(backbone, self.weights)
        embedder = Embedder(backbone, self.dim, pooling=self.pooling)
        if self.variant == "strongest":
            kind = BatchAllTripletLoss if self.strongest == "batch_all" else SemiHardTripletLoss
            classes = 3 * self.triplets // self.per_class
            sampler = PKSampler(train.labels, classes=classes, per_class=self.per_class, seed=self.seed)
            loss = kind(0.2 if self.margin is None else self.margin, normalize=True)
            return Plain.optimised(embedder, loss, sampler, self.optimisation, epochs=self.epochs)
        triplets = TripletSampler(train.labels, triplets=self.triplets, seed=self.seed)
        triplet = published_triplet(
            self.hdml.scale,
            margin=self.margin,
            squared=self.squared,
            normalize=self.normalize,
            reduction=self.reduction,
        )
        if self.variant == "plain":
            return Plain.optimised(embedder, triplet, triplets, self.optimisation, epochs=self.epochs)
        return HDML.optimised(
            embedder, triplet, triplets, self.optimisation, self.hdml, labels=train.labels, epochs=self.epochs
        )

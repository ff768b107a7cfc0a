"""HDML over N-pair loss on CUB-200-2011 photographs, EfficientNet-Lite0, with its two plain twins.

    vicinal train cub_hdml_n_pair
    vicinal train cub_hdml_n_pair variant=plain        # the same pairs without synthesis
    vicinal train cub_hdml_n_pair variant=strongest    # the same number of images, semi-hard triplets

Cost: a GPU; at most 1.25 times the plain step (benchmarks/hdml_step.py).
Expected: R@1 60.1 ± 0.4, its twin 60.1 ± 0.4 on unseen classes (docs/hdml.md).
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
from vicinal.sampling import NPairSampler, PKSampler
from vicinal.synthesis import Hardness, published_n_pair
from vicinal.training.recipe import Recipe, Start


@dataclass(frozen=True, kw_only=True)
class CubHDMLNPair(Recipe):
    """Zheng et al. 2019, Eq. (13): 64 pairs, 4,096 synthetic rows a step; images and crops as in ``cub_npair``.

    All variants start from the same network; ``hdml`` and ``plain`` see the same batches.
    """

    data: Dataset = CUB()
    transform: Transform = ImageTransform(
        size=224, resize=256, canvas=256, crop="resized", area=(0.2, 1.0), mirror=True
    )
    optimisation: Optimisation = Optimisation(learning_rate=2e-5, weight_decay=0.01)
    start: Start = Start(head="discriminant", length=6.0)
    hdml: Hardness = Hardness(window=16, generator_rate=3e-3)  # fit short runs
    variant: Literal["hdml", "plain", "strongest"] = "hdml"
    strongest: Literal["batch_all", "semi_hard"] = "semi_hard"
    epochs: int = 5
    dim: int = 512
    pooling: Pooling = "average"
    weights: str = "imagenet"
    classes: int = 64
    similarity: Literal["dot", "distance"] | None = None
    l2: float | None = 3e-3
    margin: float = 0.2
    per_class: int = 4

    def build(self, train: Records) -> Method:
        backbone = EfficientNetLite("lite0", freeze_norm=True)
        load_pretrained(backbone, self.weights)
        embedder = Embedder(backbone, self.dim, pooling=self.pooling)
        if self.variant == "strongest":
            kind = BatchAllTripletLoss if self.strongest == "batch_all" else SemiHardTripletLoss
            images = 2 * self.classes
            sampler = PKSampler(
                train.labels, classes=images // self.per_class, per_class=self.per_class, seed=self.seed
            )
            triplet = kind(self.margin, normalize=True)
            return Plain.optimised(embedder, triplet, sampler, self.optimisation, epochs=self.epochs)
        pairs = NPairSampler(train.labels, classes=self.classes, seed=self.seed)
        loss = published_n_pair(self.hdml.scale, similarity=self.similarity, l2=self.l2)
        if self.variant == "plain":
            return Plain.optimised(embedder, loss, pairs, self.optimisation, epochs=self.epochs)
        return HDML.optimised(
            embedder, loss, pairs, self.optimisation, self.hdml, labels=train.labels, epochs=self.epochs
        )

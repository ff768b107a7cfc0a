"""HDML over triplet loss on CUB-200-2011 features, with its two plain twins.

    vicinal train cub_features_hdml_triplet
    vicinal train cub_features_hdml_triplet variant=plain        # the same triplets without synthesis
    vicinal train cub_features_hdml_triplet variant=strongest    # the same number of images, batch-all triplets

Cost: 44 to 55 seconds of training on a busy CPU core (plain: 6); measuring comes on top.
Expected: R@1 48.7 ± 0.4, NMI 56.9 ± 0.5 (5 seeds); plain 48.6 ± 0.6, 56.8 ± 0.9: no gain is shown (docs/hdml.md).
"""

from dataclasses import dataclass
from typing import Literal

from vicinal.data.arrays import Arrays
from vicinal.data.records import Dataset, Records
from vicinal.data.transforms import FeatureTransform, Transform
from vicinal.losses import BatchAllTripletLoss, SemiHardTripletLoss
from vicinal.methods.hdml import HDML
from vicinal.methods.method import Method
from vicinal.methods.optimisation import Optimisation
from vicinal.methods.plain import Plain
from vicinal.models import Embedder, Identity
from vicinal.sampling import PKSampler, TripletSampler
from vicinal.synthesis import Hardness, published_triplet
from vicinal.training.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class CubFeaturesHDMLTriplet(Recipe):
    """Zheng et al. 2019, Eq. (12), on a linear head: there J_syn cannot reach a backbone, so ``full`` is ``head``.

    All variants start from the same head; ``hdml`` and ``plain`` see the same batches, T disjoint triplets each.
    """

    data: Dataset = Arrays("$VICINAL_DATA/features/cub_efficientnet_lite0.npz")
    transform: Transform = FeatureTransform()
    optimisation: Optimisation = Optimisation(learning_rate=3e-4)
    hdml: Hardness = Hardness(alpha=0.5, beta=0.5, window=16, generator_rate=3e-3)  # windows fit the short run
    variant: Literal["hdml", "plain", "strongest"] = "hdml"
    strongest: Literal["batch_all", "semi_hard"] = "batch_all"
    epochs: int = 3
    dim: int = 128
    triplets: int = 20
    margin: float | None = None
    squared: bool | None = None
    normalize: bool | None = None
    reduction: Literal["mean", "sum"] | None = None
    per_class: int = 4

    def build(self, train: Records) -> Method:
        embedder = Embedder(Identity(train.source.read(0).shape[0]), self.dim)
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

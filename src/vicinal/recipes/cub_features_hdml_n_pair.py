"""HDML over N-pair loss on CUB-200-2011 features, with its two plain twins.

    vicinal train cub_features_hdml_n_pair
    vicinal train cub_features_hdml_n_pair variant=plain        # the same tuples without synthesis
    vicinal train cub_features_hdml_n_pair variant=strongest    # the same number of images, batch-all triplets

Cost: 95 to 111 seconds of training on a busy CPU core (plain: 5); measuring comes on top.
Expected: R@1 50.3 ± 0.5, NMI 58.7 ± 0.5 (5 seeds); plain 50.1 ± 0.9, 58.5 ± 0.5: no gain is shown (docs/hdml.md).
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
from vicinal.sampling import NPairSampler, PKSampler
from vicinal.synthesis import Hardness, published_n_pair
from vicinal.training.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class CubFeaturesHDMLNPair(Recipe):
    """Zheng et al. 2019, Eq. (13), on a linear head: there J_syn cannot reach a backbone, so ``full`` is ``head``.

    All variants start from the same head; ``hdml`` and ``plain`` see the same batches.
    """

    data: Dataset = Arrays("$VICINAL_DATA/features/cub_efficientnet_lite0.npz")
    transform: Transform = FeatureTransform()
    optimisation: Optimisation = Optimisation(learning_rate=3e-4)
    hdml: Hardness = Hardness(alpha=0.5, beta=0.5, window=16, generator_rate=3e-3)  # windows fit the short run
    variant: Literal["hdml", "plain", "strongest"] = "hdml"
    strongest: Literal["batch_all", "semi_hard"] = "batch_all"
    epochs: int = 2
    dim: int = 128
    classes: int = 16
    similarity: Literal["dot", "distance"] | None = None
    l2: float | None = None
    normalize: bool = False
    margin: float = 0.2
    per_class: int = 4

    def build(self, train: Records) -> Method:
        embedder = Embedder(Identity(train.source.read(0).shape[0]), self.dim)
        if self.variant == "strongest":
            kind = BatchAllTripletLoss if self.strongest == "batch_all" else SemiHardTripletLoss
            images = 2 * self.classes
            sampler = PKSampler(
                train.labels, classes=images // self.per_class, per_class=self.per_class, seed=self.seed
            )
            triplet = kind(self.margin, normalize=True)
            return Plain.optimised(embedder, triplet, sampler, self.optimisation, epochs=self.epochs)
        pairs = NPairSampler(train.labels, classes=self.classes, seed=self.seed)
        loss = published_n_pair(self.hdml.scale, similarity=self.similarity, l2=self.l2, normalize=self.normalize)
        if self.variant == "plain":
            return Plain.optimised(embedder, loss, pairs, self.optimisation, epochs=self.epochs)
        return HDML.optimised(
            embedder, loss, pairs, self.optimisation, self.hdml, labels=train.labels, epochs=self.epochs
        )

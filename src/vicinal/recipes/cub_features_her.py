"""Hard exemplar weights on CUB-200-2011 features, with their plain twin.

    vicinal train cub_features_her
    vicinal train cub_features_her variant=plain       # every weight 1: soft-margin triplets, the same batches

Cost: 30 to 55 s of training on a busy CPU core; measuring comes on top.
Expected: 58.0 ± 0.3 R@1, plain 58.2 ± 0.2 (docs/her.md).
"""

from dataclasses import dataclass
from typing import Literal

from vicinal.data.arrays import Arrays
from vicinal.data.records import Dataset, Records
from vicinal.data.transforms import FeatureTransform, Transform
from vicinal.losses import HardExemplarLoss
from vicinal.methods.optimisation import Optimisation
from vicinal.methods.plain import Plain
from vicinal.models import Embedder, Identity
from vicinal.sampling import PKSampler
from vicinal.training.recipe import Recipe, Start


@dataclass(frozen=True, kw_only=True)
class CubFeaturesHER(Recipe):
    """The weights of Cai et al. 2019 on all triplets of a batch; both variants start from discriminants, the same head.

    Rate, batches and start are those of hinge losses in the tables (``cub_features_methods``).
    """

    data: Dataset = Arrays("$VICINAL_DATA/features/cub_efficientnet_lite0.npz")
    transform: Transform = FeatureTransform()
    optimisation: Optimisation = Optimisation(learning_rate=3e-5)
    start: Start = Start(head="discriminant")
    variant: Literal["her", "plain"] = "her"
    dim: int = 512
    classes: int = 26
    per_class: int = 5
    margin: float = 0.15
    scale: float = 5.0

    def build(self, train: Records) -> Plain:
        embedder = Embedder(Identity(train.source.read(0).shape[0]), self.dim)
        loss = HardExemplarLoss(self.margin, scale=self.scale, weighted=self.variant == "her")
        sampler = PKSampler(train.labels, classes=self.classes, per_class=self.per_class, seed=self.seed)
        return Plain.optimised(embedder, loss, sampler, self.optimisation, epochs=self.epochs)

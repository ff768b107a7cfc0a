"""Contrastive loss with a learnt assessment of its tuples (DML-ALA) on CUB-200-2011 features.

    vicinal train cub_features_ala_contrastive
    vicinal train cub_features_ala_contrastive variant=plain    # its twin; also constant, random, mlp

Cost: 26 to 71 seconds of training on one thread of two busy CPU cores, its twin 3 to 18; measuring comes on top.
Expected: R@1 47.8 ± 0.6, MAP@R 12.2 ± 0.3 (5 seeds); its plain twin 47.8 ± 0.6 and 12.2 ± 0.4: no difference,
    see docs/ala.md.
"""

from dataclasses import dataclass
from typing import Literal

from vicinal.assessment import Assessing, PairScoring, TripletScoring
from vicinal.data.arrays import Arrays
from vicinal.data.records import Dataset, Records
from vicinal.data.transforms import FeatureTransform, Transform
from vicinal.losses import ContrastiveLoss
from vicinal.methods.ala_variants import Variant, build_variant
from vicinal.methods.method import Method
from vicinal.methods.optimisation import Optimisation
from vicinal.models import Embedder, Identity
from vicinal.sampling import EpisodeSampler
from vicinal.training.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class CubFeaturesALAContrastive(Recipe):
    """A linear head over EfficientNet-Lite0 features; 50 + 10 classes of two images in an episode.

    Attributes:
        variant: the paper's method, its plain twin or a control; see ``methods/ala_variants.py``.
        disjoint: whether no label comes twice in an episode; False is the paper's "random" (Table 1).
        weigh: whether a positive and a negative pair share a weight, or each pair has its own, at twice the cost.
        mean: weight of the controls ``constant`` and ``random``: what ``ala`` has on average here.
        spread: standard deviation of ``random``, likewise.
    """

    data: Dataset = Arrays("$VICINAL_DATA/features/cub_efficientnet_lite0.npz")
    transform: Transform = FeatureTransform()
    optimisation: Optimisation = Optimisation(learning_rate=1e-4)
    recalls: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    epochs: int = 2
    variant: Variant = "ala"
    assessing: Assessing = Assessing()
    disjoint: bool = True
    dim: int = 128
    margin: float = 1.0
    normalize: bool = True
    weigh: Literal["triplets", "pairs"] = "triplets"
    mean: float = 0.48
    spread: float = 0.004

    def build(self, train: Records) -> Method:
        embedder = Embedder(Identity(train.source.read(0).shape[0]), self.dim)
        loss = ContrastiveLoss(self.margin, normalize=self.normalize)
        return build_variant(
            self.variant,
            embedder,
            TripletScoring(loss) if self.weigh == "triplets" else PairScoring(loss),
            EpisodeSampler(train.labels, disjoint=self.disjoint, seed=self.seed),
            self.optimisation,
            self.assessing,
            epochs=self.epochs,
            mean=self.mean,
            spread=self.spread,
            seed=self.seed,
        )

"""Margin loss with a learnt assessment of its tuples (DML-ALA) on CUB-200-2011 features.

    vicinal train cub_features_ala_margin
    vicinal train cub_features_ala_margin variant=plain    # its twin; also constant, random, mlp

Cost: 26 to 71 seconds of training on one thread of two busy CPU cores, its twin 3 to 18; measuring comes on top.
Expected: R@1 49.0 ± 0.4, MAP@R 13.3 ± 0.4 (5 seeds); its plain twin 49.0 ± 0.4 and 13.3 ± 0.4: no difference,
    see docs/ala.md.
"""

from dataclasses import dataclass

from vicinal.assessment import Assessing, TripletScoring
from vicinal.data.arrays import Arrays
from vicinal.data.records import Dataset, Records
from vicinal.data.transforms import FeatureTransform, Transform
from vicinal.losses import MarginLoss
from vicinal.methods.ala_variants import Variant, build_variant
from vicinal.methods.method import Method
from vicinal.methods.optimisation import Optimisation
from vicinal.models import Embedder, Identity
from vicinal.sampling import EpisodeSampler
from vicinal.training.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class CubFeaturesALAMargin(Recipe):
    """A linear head over EfficientNet-Lite0 features; 50 + 10 classes of two images in an episode.

    Attributes:
        variant: the paper's method, its plain twin or a control; see ``methods/ala_variants.py``.
        disjoint: whether no label comes twice in an episode; False is the paper's "random" (Table 1).
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
    margin: float = 0.2
    boundary: float = 0.9
    mean: float = 0.48
    spread: float = 0.004

    def build(self, train: Records) -> Method:
        embedder = Embedder(Identity(train.source.read(0).shape[0]), self.dim)
        loss = MarginLoss(margin=self.margin, beta=self.boundary)
        return build_variant(
            self.variant,
            embedder,
            TripletScoring(loss),
            EpisodeSampler(train.labels, disjoint=self.disjoint, seed=self.seed),
            self.optimisation,
            self.assessing,
            epochs=self.epochs,
            mean=self.mean,
            spread=self.spread,
            seed=self.seed,
        )

"""Triplet loss with a learnt assessment of its tuples (DML-ALA) on CUB-200-2011 photographs, EfficientNet-Lite0.

    vicinal train cub_ala_triplet
    vicinal train cub_ala_triplet variant=plain    # its twin; also constant, random, mlp, hdml, hdml_ala

Cost: a GPU; about 3 times a plain step (docs/ala.md).
Expected: R@1 60.1 ± 0.6, its twin 60.0 ± 1.3 on unseen classes (docs/ala.md).
"""

from dataclasses import dataclass

from vicinal.assessment import Assessing
from vicinal.data.cub import CUB
from vicinal.data.records import Dataset, Records
from vicinal.data.transforms import ImageTransform, Transform
from vicinal.losses import TripletLoss
from vicinal.methods.ala_variants import TripletVariant, build_triplet_variant
from vicinal.methods.method import Method
from vicinal.methods.optimisation import Optimisation
from vicinal.models import EfficientNetLite, Embedder, load_pretrained
from vicinal.sampling import EpisodeSampler
from vicinal.synthesis import Hardness
from vicinal.training.recipe import Recipe, Start


@dataclass(frozen=True, kw_only=True)
class CubALATriplet(Recipe):
    """50 + 10 classes of two images in an episode; batch norm frozen, so that a virtual step has nothing to move.

    Attributes:
        variant: the paper's method, its plain twin or a control; see ``methods/ala_variants.py``. ``hdml_ala`` weighs
            HDML's synthetic tuples, too; ``hdml`` is the same with weight 1 for all.
        disjoint: whether no label comes twice in an episode; False is the paper's "random" (Table 1).
        mean: weight of the controls ``constant`` and ``random``: what ``ala`` has on average here.
        spread: standard deviation of ``random``, likewise.
    """

    data: Dataset = CUB()
    transform: Transform = ImageTransform(
        size=224, resize=256, canvas=256, crop="resized", area=(0.2, 1.0), mirror=True
    )
    optimisation: Optimisation = Optimisation(learning_rate=2e-5, weight_decay=0.01)
    start: Start = Start(head="discriminant")
    recalls: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    epochs: int = 5
    variant: TripletVariant = "ala"
    assessing: Assessing = Assessing()
    hdml: Hardness = Hardness(window=16, generator_rate=3e-3)  # fit short runs
    disjoint: bool = True
    dim: int = 512
    weights: str = "imagenet"
    margin: float = 0.2
    normalize: bool = True
    squared: bool = True
    mean: float = 0.48
    spread: float = 0.004

    def build(self, train: Records) -> Method:
        backbone = EfficientNetLite("lite0", freeze_norm=True)
        load_pretrained(backbone, self.weights)
        embedder = Embedder(backbone, self.dim)
        sampler = EpisodeSampler(train.labels, disjoint=self.disjoint, seed=self.seed)
        return build_triplet_variant(
            self.variant,
            embedder,
            TripletLoss(self.margin, squared=self.squared, normalize=self.normalize, blocks=True),
            sampler,
            self.optimisation,
            self.assessing,
            self.hdml,
            labels=train.labels,
            epochs=self.epochs,
            mean=self.mean,
            spread=self.spread,
            seed=self.seed,
        )

"""CUB-200-2011 photographs, EfficientNet-Lite0, multi-similarity loss: the strongest of the plain rows.

    vicinal train cub_multi_similarity

Cost: about 5 seconds of training on an H200; hours on a CPU.
Expected: on unseen classes about R@1 63.9, NMI 68.4, MAP@R 23.4, which table `pooled-cub` has with beta=30 base=0.55;
    untrained R@1 57.5 (docs/results.md).
"""

from dataclasses import dataclass

from vicinal.data.cub import CUB
from vicinal.data.records import Dataset, Records
from vicinal.data.transforms import ImageTransform, Transform
from vicinal.losses import MultiSimilarityLoss
from vicinal.methods.optimisation import Optimisation
from vicinal.methods.plain import Plain
from vicinal.models import EfficientNetLite, Embedder, load_pretrained
from vicinal.models.embedder import Pooling
from vicinal.sampling import PKSampler
from vicinal.training.recipe import Recipe, Start


@dataclass(frozen=True, kw_only=True)
class CubMultiSimilarity(Recipe):
    """Multi-similarity loss over 26 classes x 5; classes 1-100 train, 101-200 test.

    The images keep their aspect and the crops vary in size: with squashed images and crops of one size the same
    network starts 3 points lower and over-fits within a few hundred steps. The head starts as discriminants. Pooling by
    the generalised mean is worth a point over the average, with which the tables of other methods are made.
    """

    data: Dataset = CUB()
    transform: Transform = ImageTransform(
        size=224, resize=256, canvas=256, crop="resized", area=(0.2, 1.0), mirror=True
    )
    optimisation: Optimisation = Optimisation(learning_rate=2e-5, weight_decay=0.01)
    start: Start = Start(head="discriminant")
    epochs: int = 5
    validation: float = 0.0
    recalls: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    dim: int = 512
    pooling: Pooling = "generalized"
    weights: str = "imagenet"
    classes: int = 26
    per_class: int = 5
    alpha: float = 2.0
    beta: float = 40.0
    base: float = 0.5

    def build(self, train: Records) -> Plain:
        backbone = EfficientNetLite("lite0", freeze_norm=True)
        load_pretrained(backbone, self.weights)
        embedder = Embedder(backbone, self.dim, pooling=self.pooling)
        sampler = PKSampler(train.labels, classes=self.classes, per_class=self.per_class, seed=self.seed)
        return Plain.optimised(
            embedder,
            MultiSimilarityLoss(self.alpha, self.beta, self.base),
            sampler,
            self.optimisation,
            epochs=self.epochs,
        )

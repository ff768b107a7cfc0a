"""CUB-200-2011 photographs, EfficientNet-Lite0, DANML, with its original form, its rivals and what its paper improves.

    vicinal train cub_danml
    vicinal train cub_danml variant=original            # without λ1 and λ2; ablations as in `cub_features_danml`

Cost: as `cub_multi_similarity`, about 5 seconds of training on an H200; hours on a CPU.
Expected: R@1 62.7 ± 0.3, MAP@R 22.2 ± 0.1 (docs/results.md). The paper, with BN-Inception: 67.6, multi-similarity 65.7.
"""

from dataclasses import dataclass

from vicinal.data.cub import CUB
from vicinal.data.records import Dataset, Records
from vicinal.data.transforms import ImageTransform, Transform
from vicinal.losses.neighborhood_variants import Neighborhoods, Variant
from vicinal.methods.optimisation import Optimisation
from vicinal.methods.plain import Plain
from vicinal.models import EfficientNetLite, Embedder, load_pretrained
from vicinal.models.embedder import Pooling
from vicinal.sampling import PKSampler
from vicinal.training.recipe import Recipe, Start


@dataclass(frozen=True, kw_only=True)
class CubDANML(Recipe):
    """Song et al. 2022, Eq. (22), over 26 classes x 5; classes 1-100 train, 101-200 test.

    Network, images, batches and steps are those of ``cub_multi_similarity``, for all variants.
    """

    data: Dataset = CUB()
    transform: Transform = ImageTransform(
        size=224, resize=256, canvas=256, crop="resized", area=(0.2, 1.0), mirror=True
    )
    optimisation: Optimisation = Optimisation(learning_rate=2e-5, loss_factor=100.0, weight_decay=0.01)
    start: Start = Start(head="discriminant")
    anml: Neighborhoods = Neighborhoods()
    variant: Variant = "danml"
    epochs: int = 5
    validation: float = 0.0
    recalls: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    dim: int = 512
    pooling: Pooling = "average"
    weights: str = "imagenet"
    classes: int = 26
    per_class: int = 5

    def build(self, train: Records) -> Plain:
        backbone = EfficientNetLite("lite0", freeze_norm=True)
        load_pretrained(backbone, self.weights)
        embedder = Embedder(backbone, self.dim, pooling=self.pooling)
        sampler = PKSampler(train.labels, classes=self.classes, per_class=self.per_class, seed=self.seed)
        loss = self.anml.loss(self.variant, train.labels.tolist(), self.dim, self.seed)
        return Plain.optimised(embedder, loss, sampler, self.optimisation, epochs=self.epochs)

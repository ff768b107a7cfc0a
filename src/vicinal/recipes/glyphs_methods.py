"""Any method over any loss on rendered characters: the rows of the tables on glyphs.

    vicinal train glyphs_methods method.name=hdml method.loss=batch_all
    vicinal train glyphs_methods method.name=loop method.loss=danml
    vicinal train glyphs_methods method.loss=danml                           # its plain twin
    vicinal bench combinations-glyphs                                        # tables of such rows

Cost: as `glyphs_triplet` for plain rows; `docs/benchmarks.md` has the others.
Expected: see docs/results.md.
"""

from dataclasses import dataclass

from vicinal.assessment import Assessing
from vicinal.data.glyphs import Glyphs
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
class GlyphsMethods(Recipe):
    """Network, pictures and steps of the other recipes on glyphs; ``method`` says what trains on them."""

    data: Dataset = Glyphs()
    transform: Transform = ImageTransform(size=32, pad=2, crop="random", channels=1)
    optimisation: Optimisation = Optimisation(learning_rate=2e-3, loss_factor=10.0)
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

"""Any method on rendered characters whose training labels have known faults: when does hardness help?

    vicinal train glyphs_corrupted method.name=hdml method.loss=batch_all
    vicinal train glyphs_corrupted method.loss=semi_hard data.label_noise=0.2
    vicinal train glyphs_corrupted method.loss=semi_hard data.clusters=4         # also inseparable, classes
    vicinal bench when_does_hardness_help                                        # the table of such rows

Cost: a third of `glyphs_triplet` for plain rows; `docs/benchmarks.md` has the others.
Expected: see docs/when_does_hardness_help.md.
"""

from dataclasses import dataclass

from vicinal.assessment import Assessing
from vicinal.data.corrupted import Corrupted
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
class GlyphsCorrupted(Recipe):
    """``glyphs_methods`` with half of the pictures, trained half as long, and faults in the training part alone.

    The validation classes come from the same part, so a model is selected by labels with the same faults.
    """

    data: Dataset = Corrupted(Glyphs(per_class=12))
    transform: Transform = ImageTransform(size=32, pad=2, crop="random", channels=1)
    optimisation: Optimisation = Optimisation(learning_rate=2e-3, loss_factor=10.0)
    restarts: int = 1
    dim: int = 64
    widths: tuple[int, ...] = (16, 32, 64, 128)
    method: Contender = Contender(loss="batch_all")
    hdml: Hardness = Hardness(window=16, hardest=8, generator_rate=3e-3)  # windows fit short runs
    assessing: Assessing = Assessing()
    anml: Neighborhoods = Neighborhoods()
    tree: Hierarchy = Hierarchy()

    def build(self, train: Records) -> Method:
        embedder = Embedder(SmallConvNet(channels=1, widths=self.widths), self.dim)
        return self.method.build(embedder, train, self)

"""HDML over N-pair loss on Omniglot, a small network from scratch, with its two plain twins.

    vicinal train omniglot_hdml_n_pair
    vicinal train omniglot_hdml_n_pair variant=plain        # the same pairs without synthesis
    vicinal train omniglot_hdml_n_pair variant=strongest    # the same number of images, batch-all triplets

Cost: 4 to 8 minutes of training on a CPU core (with epochs=2, 106 to 239 s were measured on a Neoverse-N1).
Expected: below its twin; with epochs=2, as in table `hdml-omniglot`, R@1 55.0 ± 4.3 and 56.8 ± 3.5 (docs/hdml.md).
"""

from dataclasses import dataclass
from typing import Literal

from vicinal.data.omniglot import Omniglot
from vicinal.data.records import Dataset, Records
from vicinal.data.transforms import ImageTransform, Transform
from vicinal.losses import BatchAllTripletLoss, SemiHardTripletLoss
from vicinal.methods.hdml import HDML
from vicinal.methods.method import Method
from vicinal.methods.optimisation import Optimisation
from vicinal.methods.plain import Plain
from vicinal.models import Embedder, SmallConvNet
from vicinal.sampling import NPairSampler, PKSampler
from vicinal.synthesis import Hardness, published_n_pair
from vicinal.training.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class OmniglotHDMLNPair(Recipe):
    """Zheng et al. 2019, Eq. (13), on drawings of 28 pixels; background characters train, evaluation ones test.

    All variants start from the same network; ``hdml`` and ``plain`` see the same batches.
    """

    data: Dataset = Omniglot(size=28)
    transform: Transform = ImageTransform(size=28, pad=2, fill=255, crop="random", channels=1)
    optimisation: Optimisation = Optimisation(learning_rate=1e-3)
    hdml: Hardness = Hardness()
    variant: Literal["hdml", "plain", "strongest"] = "hdml"
    strongest: Literal["batch_all", "semi_hard"] = "batch_all"
    epochs: int = 4
    dim: int = 64
    widths: tuple[int, ...] = (16, 32, 64, 128)
    classes: int = 32
    similarity: Literal["dot", "distance"] | None = None
    l2: float | None = 3e-3
    margin: float = 0.2
    per_class: int = 4

    def build(self, train: Records) -> Method:
        embedder = Embedder(SmallConvNet(channels=1, widths=self.widths), self.dim)
        if self.variant == "strongest":
            kind = BatchAllTripletLoss if self.strongest == "batch_all" else SemiHardTripletLoss
            images = 2 * self.classes
            sampler = PKSampler(
                train.labels, classes=images // self.per_class, per_class=self.per_class, seed=self.seed
            )
            triplet = kind(self.margin, normalize=True)
            return Plain.optimised(embedder, triplet, sampler, self.optimisation, epochs=self.epochs)
        pairs = NPairSampler(train.labels, classes=self.classes, seed=self.seed)
        loss = published_n_pair(self.hdml.scale, similarity=self.similarity, l2=self.l2)
        if self.variant == "plain":
            return Plain.optimised(embedder, loss, pairs, self.optimisation, epochs=self.epochs)
        return HDML.optimised(
            embedder, loss, pairs, self.optimisation, self.hdml, labels=train.labels, epochs=self.epochs
        )

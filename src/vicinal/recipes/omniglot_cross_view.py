"""HER with FCAM and orientation regression on Omniglot across drawers: a character in another hand, turned at random.

    vicinal train omniglot_cross_view
    vicinal train omniglot_cross_view attention=none                                  # each part on or off
    vicinal train omniglot_cross_view weighting=off
    vicinal train omniglot_cross_view regression=off
    vicinal train omniglot_cross_view attention=none weighting=off regression=off     # the twin: soft-margin triplets

Cost: 1,200 steps; a step took 0.4 s of one Neoverse-N1 core (0.3 s with attention=none), measuring comes on top.
Expected: see docs/her.md.
"""

import copy
from dataclasses import dataclass
from typing import Literal

from vicinal.data.omniglot_pairs import OmniglotPairs
from vicinal.data.records import Dataset, Records
from vicinal.data.transforms import ImageTransform, Transform
from vicinal.losses import HardExemplarLoss
from vicinal.methods.her import HER, Orientation, roles_of
from vicinal.methods.optimisation import Optimisation
from vicinal.models import Attention, Embedder, OrientationHead, SmallResNet, TwoStreamEmbedder
from vicinal.sampling import CrossViewSampler
from vicinal.training.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class OmniglotCrossView(Recipe):
    """Cai et al. 2019 on pictures of 32 pixels, a small residual network for each of the two streams.

    All variants of a seed start from the same weights, but for those of the parts that one of them lacks, and see the
    same pairs, turned by the same angles. Both streams start alike, as the authors' do, from the same network.
    """

    data: Dataset = OmniglotPairs()
    transform: Transform = ImageTransform(size=32, pad=2, fill=255, crop="random", channels=1)
    optimisation: Optimisation = Optimisation(learning_rate=3e-3)
    orientation: Orientation = Orientation()
    attention: Attention = "fcam"
    weighting: Literal["on", "off"] = "on"
    regression: Literal["on", "off"] = "on"
    streams: Literal["two", "one"] = "two"
    epochs: int = 30
    evaluate_every: int = 3
    recalls: tuple[int, ...] = (1, 5, 10)
    restarts: int = 1
    dim: int = 64
    widths: tuple[int, ...] = (16, 32, 64)
    pairs: int = 64
    batches: int | None = None
    margin: float = 0.15
    scale: float = 5.0

    def build(self, train: Records) -> HER:
        query = Embedder(SmallResNet(1, self.widths, stride=2, attention=self.attention), self.dim)
        embedder = query if self.streams == "one" else TwoStreamEmbedder(query, copy.deepcopy(query))
        loss = HardExemplarLoss(self.margin, scale=self.scale, weighted=self.weighting == "on")
        roles = train.columns.get("role") if self.streams == "one" else roles_of(train)
        sampler = CrossViewSampler(train.labels, classes=self.pairs, seed=self.seed, roles=roles, batches=self.batches)
        return HER.optimised(
            embedder,
            loss,
            sampler,
            self.optimisation,
            self.orientation,
            head=OrientationHead(self.dim) if self.regression == "on" else None,
            epochs=self.epochs,
            seed=self.seed,
        )

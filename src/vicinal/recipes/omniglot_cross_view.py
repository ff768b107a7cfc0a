"""HER with FCAM and orientation regression on Omniglot across drawers: a character in another hand, turned at random.

    vicinal train omniglot_cross_view
    vicinal train omniglot_cross_view attention=none                                  # each part on or off
    vicinal train omniglot_cross_view weighting=off
    vicinal train omniglot_cross_view regression=off
    vicinal train omniglot_cross_view attention=none weighting=off regression=off     # the twin: soft-margin triplets

With loss=normalized_softmax optimisation.loss_factor=10 the twin is a classifier: what all of them should beat.

On a CPU: widths=16,32,64 stride=2 pairs=64 epochs=30 evaluate_every=3, a smaller network and batch.

Cost: 3,600 steps: 2 to 3 minutes on an H200 that six to eight runs share, 3 to 6 with attention; the smaller one 0.3 or
0.4 s a step on one core.
Expected: 15.9 ± 1.4 % R@1 of 659 unseen characters with all three parts, 21.5 ± 1.1 % without any (docs/her.md).
"""

import copy
from dataclasses import dataclass
from typing import Literal

import numpy as np

from vicinal.data.omniglot_pairs import OmniglotPairs
from vicinal.data.records import Dataset, Records
from vicinal.data.transforms import ImageTransform, Transform
from vicinal.losses import HardExemplarLoss, NormalizedSoftmaxLoss
from vicinal.methods.her import HER, Orientation
from vicinal.methods.optimisation import Optimisation
from vicinal.methods.paired_views import roles_of
from vicinal.models import Attention, Embedder, OrientationHead, SmallResNet, TwoStreamEmbedder
from vicinal.sampling import CrossViewSampler
from vicinal.training.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class OmniglotCrossView(Recipe):
    """Cai et al. 2019 on pictures of 32 pixels, a small residual network for each of the two streams.

    In float32: in bfloat16 the twin was 2.5 points worse on held-out alphabets, in the one run of each (docs/her.md).

    All variants of a seed start from the same weights, but for those of the parts that one of them lacks, and see the
    same pairs, turned by the same angles. Both streams start alike, as the authors' do, from the same network.
    ``loss=normalized_softmax`` tells characters apart in place of the triplets, queries and gallery images together.
    """

    data: Dataset = OmniglotPairs()
    transform: Transform = ImageTransform(size=32, pad=2, fill=255, crop="random", channels=1)
    optimisation: Optimisation = Optimisation(learning_rate=3e-3)
    orientation: Orientation = Orientation()
    loss: Literal["triplet", "normalized_softmax"] = "triplet"
    attention: Attention = "fcam"
    weighting: Literal["on", "off"] = "on"
    regression: Literal["on", "off"] = "on"
    streams: Literal["two", "one"] = "two"
    epochs: int = 120
    evaluate_every: int = 12
    precision: Literal["auto", "float32", "bfloat16"] = "float32"
    recalls: tuple[int, ...] = (1, 5, 10)
    restarts: int = 1
    dim: int = 64
    widths: tuple[int, ...] = (32, 64, 128)
    stride: int = 1
    pairs: int = 256
    batches: int | None = None
    margin: float = 0.15
    scale: float = 5.0

    def build(self, train: Records) -> HER:
        query = Embedder(SmallResNet(1, self.widths, stride=self.stride, attention=self.attention), self.dim)
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
            classifier=None if self.loss == "triplet" else self._classifier(train),
            epochs=self.epochs,
            seed=self.seed,
        )

    def _classifier(self, train: Records) -> NormalizedSoftmaxLoss:
        """Over the training characters alone: those of held-out alphabets would only push."""
        known = tuple(np.unique(train.labels).tolist())
        return NormalizedSoftmaxLoss(len(known), self.dim, known=known, seed=self.seed)

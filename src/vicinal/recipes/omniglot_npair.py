"""N-pair loss on Omniglot: handwritten characters of alphabets never seen, on a CPU.

    vicinal train omniglot_npair

Cost: 13 minutes of training on two cores (774 drawings a second), seconds on a GPU.
Expected: R@1 85.9, MAP@R 55.5, NMI 91.6 on 659 unseen characters (seed 0); raw pixels R@1 31.7 (docs/results.md).
"""

from dataclasses import dataclass

import torch

from vicinal.data.omniglot import Omniglot
from vicinal.data.records import Dataset, Records
from vicinal.data.transforms import ImageTransform, Transform
from vicinal.losses import NPairLoss
from vicinal.methods.optimisation import Optimisation
from vicinal.methods.plain import Plain
from vicinal.models import Embedder, SmallConvNet
from vicinal.sampling import NPairSampler
from vicinal.training.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class OmniglotNPair(Recipe):
    """964 background characters train, 659 evaluation characters test; drawings of 32 pixels, shifted, never mirrored.

    A mirrored character is another character; so is a turned one, which makes 3,856 to train on. White is 0, as the
    padding of a convolution is: the paper's edge is no edge then.

    Differs from Sohn 2016: both samples of a pair are anchors, against all rows of other classes, not only the first
    against the second samples. It costs nothing and doubles the tuples.
    """

    data: Dataset = Omniglot(size=32, turned=True)
    transform: Transform = ImageTransform(size=32, pad=2, fill=255, crop="random", channels=1, mean=(1.0,), std=(0.25,))
    optimisation: Optimisation = Optimisation(learning_rate=2e-3)
    epochs: int = 8
    validation: float = 0.0
    dim: int = 128
    widths: tuple[int, ...] = (16, 32, 64, 128)
    classes: int = 64
    l2: float = 3e-3

    def build(self, train: Records) -> Plain:
        embedder = Embedder(SmallConvNet(channels=1, widths=self.widths), self.dim)
        embedder.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # a third faster on a CPU
        sampler = NPairSampler(train.labels, classes=self.classes, seed=self.seed)
        return Plain.optimised(embedder, NPairLoss(l2=self.l2), sampler, self.optimisation, epochs=self.epochs)

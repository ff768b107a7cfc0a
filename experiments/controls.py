"""Controls of ALA, to be named on a command line: ``--trust controls:RandomWeights
method=controls:RandomWeights``.

Are weights of the same mean and spread as good by chance, and does it matter that the assessor
remembers?
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from vicinal.methods import ALA
from vicinal.methods.ala.assessment import Assessment, Assessor
from vicinal.methods.method import Parts


class Random(Assessor):
    """Weights drawn from the beta distribution of a given mean and spread.

    Episode e is drawn from ``(seed, e)`` alone, on the host, so neither a resume nor the device
    changes a weight.
    """

    capturable = False

    def __init__(self, mean: float, spread: float, seed: int) -> None:
        super().__init__()
        total = mean * (1 - mean) / spread**2 - 1
        self.beta = mean * total, (1 - mean) * total
        self.seed = seed
        self.register_buffer("episode", torch.tensor(0))

    def assess(self, tuples: Tensor) -> Assessment:
        rng = np.random.default_rng([self.seed, int(self.episode)])
        return Assessment(torch.from_numpy(rng.beta(*self.beta, len(tuples))).to(tuples))

    def advance(self, state: tuple[Tensor, ...]) -> None:
        self.episode += 1


class Memoryless(Assessor):
    """Two layers of 64 units in the place of the LSTM's."""

    def __init__(self, inputs: int, *, centered: bool) -> None:
        super().__init__()
        self.centered = centered
        layers = [nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)]
        self.network = nn.Sequential(*layers)
        for parameter in layers[-1].parameters():
            nn.init.zeros_(parameter)

    def assess(self, tuples: Tensor) -> Assessment:
        scaled = tuples * (tuples.shape[1] ** 0.5 / tuples.norm(dim=1, keepdim=True))
        logits = self.network(scaled).squeeze(dim=1)
        return Assessment((logits - logits.mean() if self.centered else logits).sigmoid())


@dataclass(eq=False)
class Summed(ALA):
    """ALA that adds up over tuples, as its equations print, while all else is ours."""

    averages = False


@dataclass(eq=False)
class RandomWeights(ALA):
    """ALA whose weights are drawn by chance.

    Attributes:
        spread: standard deviation of the weights about ``weight``.
    """

    spread: float = 0.004

    def setup(self, parts: Parts) -> None:
        super().setup(parts)
        self.optimizers.pop("assessor")
        self.weigh = Random(self.weight, self.spread, parts.seed)


@dataclass(eq=False)
class WithoutMemory(ALA):
    """ALA whose assessor sees one tuple at a time."""

    def build_assessor(self, inputs: int, sequences: tuple[int, ...] = ()) -> Assessor:
        return Memoryless(inputs, centered=self.compares_weights)

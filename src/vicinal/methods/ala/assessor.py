"""Assessors: the sequence-aware one of DML-ALA (Zheng et al., CVPR 2020), and the controls it is measured against."""

from abc import ABC, abstractmethod
from typing import Annotated, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from vicinal.arguments import Limits, check_arguments
from vicinal.distances import unit_rows
from vicinal.errors import ConfigError

Weight = Annotated[float, Limits("(0, 1]")]


class Assessment(NamedTuple):
    """What an assessor says of a sequence of tuples, and the state in which the sequence leaves it."""

    weights: Float[Tensor, "t"]
    state: tuple[Tensor, ...] = ()


class Assessor(nn.Module, ABC):
    """Weighs tuples: w = A(T, h; φ) with 0 < w < 1 (Zheng et al. 2020, Eq. 8).

    Calling it leaves its state as it is, so that an episode may be assessed as often as the assessor is updated, from
    the same start each time; ``advance`` takes the state over, once for each episode. What a state is, the assessor
    alone knows; it is part of ``state_dict``. Tuples come detached: A is a constant in the metric's parameters, else
    the two lines of Eq. (10) would differ.

    Differs: the paper concatenates embeddings as they are. A linear layer over unit features gives embeddings of length
    0.6, of which an LSTM as it is initialized sees next to nothing; so a tuple's numbers are divided by their root mean
    square, which keeps all that a loss on the unit sphere can see of it.
    """

    capturable = True  # whether a CUDA graph may replay it: nothing is drawn or counted on the host

    @property
    def learns(self) -> bool:
        """Whether there is anything for a meta-gradient to change."""
        return any(parameter.requires_grad for parameter in self.parameters())

    def forward(self, members: Float[Tensor, "t m d"]) -> Assessment:
        """Assess the tuples of an episode, one sequence; a tuple is the embeddings of its members in their order."""
        tuples = members.detach().flatten(1)
        return self.assess(unit_rows(tuples) * tuples.shape[1] ** 0.5)

    @abstractmethod
    def assess(self, tuples: Float[Tensor, "t md"]) -> Assessment:
        """Weigh a sequence of concatenated embeddings, from the present state."""

    def advance(self, state: tuple[Tensor, ...]) -> None:
        """Go on from ``state`` with the next episode, without the history that led there."""


class LSTMAssessor(Assessor):
    """Two layers of LSTM with 64 units, one fully connected layer, sigmoid (Zheng et al. 2020, Sect. 3.2 and 3.4).

    The fully connected layer starts at 0, so that training begins with w = 1/2 for every tuple: "in the beginning our
    ALA treats all the samples almost equally" (Sect. 4.3).

    Args:
        inputs: numbers in a tuple: 3 d for triplets of d-dimensional embeddings.
        hidden: units of each layer.
        layers: of the LSTM.
    """

    hidden_state: Tensor
    cell_state: Tensor

    def __init__(self, inputs: int, *, hidden: int = 64, layers: int = 2) -> None:
        super().__init__()
        self.inputs, self.hidden, self.layers = inputs, hidden, layers
        self.sequence = nn.LSTM(inputs, hidden, layers)
        self.weight = _half(hidden)
        self.register_buffer("hidden_state", torch.zeros(layers, hidden))
        self.register_buffer("cell_state", torch.zeros(layers, hidden))

    def assess(self, tuples: Float[Tensor, "t md"]) -> Assessment:
        outputs, state = self.sequence(tuples, (self.hidden_state, self.cell_state))
        return Assessment(self.weight(outputs).squeeze(dim=1).sigmoid(), state)

    def advance(self, state: tuple[Tensor, ...]) -> None:
        hidden, cell = state
        self.hidden_state.copy_(hidden.detach())  # in place: a CUDA graph reads it there
        self.cell_state.copy_(cell.detach())


class MLPAssessor(Assessor):
    """The same size without a sequence: does it matter that the assessor remembers?

    Args:
        inputs: numbers in a tuple.
        hidden: units of each of the two layers.
    """

    def __init__(self, inputs: int, *, hidden: int = 64) -> None:
        super().__init__()
        self.inputs, self.hidden = inputs, hidden
        layers = [nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()]
        self.network = nn.Sequential(*layers, _half(hidden))

    def assess(self, tuples: Float[Tensor, "t md"]) -> Assessment:
        return Assessment(self.network(tuples).squeeze(dim=1).sigmoid())


class ConstantAssessor(Assessor):
    """The same weight for every tuple: what a change of the learning rate alone would do.

    Args:
        weight: w.
    """

    def __init__(self, weight: Weight = 0.5) -> None:
        super().__init__()
        self.weight = weight
        check_arguments(self)

    def assess(self, tuples: Float[Tensor, "t md"]) -> Assessment:
        return Assessment(tuples.new_full((len(tuples),), self.weight))


class RandomAssessor(Assessor):
    """Weights drawn from the beta distribution of a given mean and spread: does it matter which tuple gets which?

    Episode e is drawn from ``(seed, e)`` alone, on the host, so neither a resume nor the device changes a weight.

    Args:
        mean: of the weights.
        spread: their standard deviation, less than √(mean (1 - mean)).
        seed: of the draws.
    """

    capturable = False

    def __init__(self, mean: Weight = 0.5, spread: float = 0.1, *, seed: int = 0) -> None:
        super().__init__()
        self.mean, self.spread, self.seed, self.episode = mean, spread, seed, 0
        check_arguments(self)
        if not 0 < spread**2 < mean * (1 - mean):
            raise ConfigError(
                f"weights in (0, 1) with mean {mean} have a spread between 0 and {(mean * (1 - mean)) ** 0.5:.3f}, got "
                f"{spread}. Use assessor=constant for none."
            )

    def assess(self, tuples: Float[Tensor, "t md"]) -> Assessment:
        total = self.mean * (1 - self.mean) / self.spread**2 - 1  # a + b of the distribution with these two moments
        rng = np.random.default_rng([self.seed, self.episode])
        drawn = rng.beta(self.mean * total, (1 - self.mean) * total, len(tuples))
        return Assessment(torch.from_numpy(drawn).to(tuples))

    def advance(self, state: tuple[Tensor, ...]) -> None:
        self.episode += 1

    def get_extra_state(self) -> Int[Tensor, ""]:
        """Return the number of the episode, for ``state_dict``; it is kept on the host, which never waits for it."""
        return torch.tensor(self.episode)

    def set_extra_state(self, state: Int[Tensor, ""]) -> None:
        self.episode = int(state)


def _half(inputs: int) -> nn.Linear:
    """Return a last layer that starts at 0, where the sigmoid is 1/2 whatever comes."""
    layer = nn.Linear(inputs, 1)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer

"""What is assessed, and who assesses it (DML-ALA, Zheng et al., CVPR 2020).

A scoring forms the tuples of a subset of an episode, what each costs and what the assessor sees of
it. The assessors are the paper's sequence-aware one, and the controls that it is measured against.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, Integer
from torch import Tensor, nn

from vicinal.arguments import Limits, check_arguments
from vicinal.distances import at_least_float32, pairwise_distances, row_distances, unit_rows
from vicinal.errors import ConfigError
from vicinal.losses.loss import Comparisons, Loss, tuple_loss
from vicinal.samplers.episodes import episode_triplets
from vicinal.tuples import Embeddings, SingleLabels, other_class, same_class

Over = Literal["mean", "sum"]
Weight = Annotated[float, Limits("(0, 1]")]
Head = Callable[
    [Tensor], Tensor
]  # features y to embeddings z, with whatever parameters are being tried


class Scored(NamedTuple):
    """The tuples of a subset.

    Attributes:
        losses: L(T; θ) of each, differentiable.
        members: the embeddings that the assessor sees: anchor, positive, negative.
        hardness: d(y, y⁺) / d(y, y⁻) of each (Zheng et al. 2020, Sect. 4.3).
    """

    losses: Float[Tensor, "t"]
    members: Float[Tensor, "t m d"]
    hardness: Float[Tensor, "t"]


class Scoring(nn.Module, ABC):
    """From the embeddings of a subset to its tuples: a pure function of embeddings, labels and the
    head.

    A method whose tuples are more than the loss's own (HDML's regenerated ones) wraps a scoring and
    appends to what it gives; those go through ``head`` again, which therefore is an argument.

    Attributes:
        loss: what a tuple costs.
        seen: members of a tuple that the assessor sees.
    """

    seen: int = 3

    def __init__(self, loss: Loss) -> None:
        super().__init__()
        self.loss = tuple_loss(loss, "ALA")

    @abstractmethod
    def forward(self, embeddings: Embeddings, labels: SingleLabels, head: Head) -> Scored:
        """The tuples of a subset whose rows lie in blocks ``[a; p]``."""

    def rows(self, count: int) -> Integer[Tensor, "t m"] | None:
        """Which of a subset's ``count`` rows the first tuples consist of, on the host; None where
        none is rows only."""
        return None

    @property
    def real(self) -> "Scoring":
        """The scoring of real tuples alone, by which a validation subset is measured."""
        return self

    def comparable(self, embeddings: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows d"]:
        """Embeddings as the loss compares them: on the unit sphere or not."""
        return (
            unit_rows(embeddings) if self.loss.distance.normalize else at_least_float32(embeddings)
        )


class TripletScoring(Scoring):
    """Triplets as units: any loss, on one positive and one negative of each anchor.

    L(T) is the sum of the loss's terms of the triplet: one hinge for the triplet loss, [α + D⁺ -
    β]_+ + [α - D⁻ + β]_+ for margin loss.
    """

    def forward(self, embeddings: Embeddings, labels: SingleLabels, head: Head) -> Scored:
        triplets = episode_triplets(len(embeddings), embeddings.device)
        compared = self.loss.triplet_comparisons(at_least_float32(embeddings), triplets, labels)
        members = embeddings[torch.stack(triplets, dim=1)]
        return Scored(self.loss.core(compared).sums, members, hardness(self.comparable(members)))

    def rows(self, count: int) -> Integer[Tensor, "t m"]:
        return torch.stack(episode_triplets(count), dim=1)


class PairScoring(Scoring):
    """Pairs as units: of each triplet the positive and the negative pair, each with a weight of its
    own.

    For losses that are sums over pairs (contrastive, margin). The assessor sees two embeddings and
    is not told whether
    they are of one class: the paper names no such input. A pair's hardness is that of its triplet.
    """

    seen = 2

    def __init__(self, loss: Loss) -> None:
        super().__init__(loss)
        one = torch.ones(1, 1)
        whole = Comparisons(one, one.bool(), one / 2, one.bool())
        parts = sum(loss.core(half).sums for half in _halves(whole))
        if not torch.allclose(loss.core(whole).sums, torch.as_tensor(parts)):
            raise ConfigError(
                f"units=pairs needs a sum over pairs, got {type(loss).__name__}. Set "
                "method.units=triplets."
            )

    def forward(self, embeddings: Embeddings, labels: SingleLabels, head: Head) -> Scored:
        triplets = episode_triplets(len(embeddings), embeddings.device)
        found = self.loss.triplet_comparisons(at_least_float32(embeddings), triplets, labels)
        halves = torch.stack([self.loss.core(half).sums for half in _halves(found)], dim=1)
        members = embeddings[torch.stack(triplets, dim=1)]
        of_triplets = hardness(self.comparable(members))
        pairs = members[:, [[0, 1], [0, 2]]].flatten(0, 1)
        return Scored(halves.flatten(), pairs, of_triplets.repeat_interleave(2))

    def rows(self, count: int) -> Integer[Tensor, "t m"]:
        return torch.stack(episode_triplets(count), dim=1)[:, [[0, 1], [0, 2]]].flatten(0, 1)


class AnchorScoring(Scoring):
    """Anchors as units: losses that compare an anchor with all of its subset (multi-similarity,
    lifted structure).

    The assessor sees the anchor, the mean of its positives and its hardest negative. A subset of an
    episode has one positive for each anchor, so the mean is that one unless another sampler brings
    more.
    """

    def forward(self, embeddings: Embeddings, labels: SingleLabels, head: Head) -> Scored:
        found = self.loss.comparisons(at_least_float32(embeddings), labels)
        sums, counts = self.loss.core(found)
        known = embeddings.detach()
        positive = same_class(labels).to(known.dtype)
        mean_positive = (positive @ known) / positive.sum(dim=1, keepdim=True).clamp(min=1)
        distances = pairwise_distances(self.comparable(known), squared=False)
        hardest = distances.masked_fill(~other_class(labels), torch.inf).argmin(dim=1)
        members = torch.stack([known, mean_positive, known[hardest]], dim=1)
        return Scored(sums / counts.clamp(min=1), members, hardness(self.comparable(members)))


class EpisodeLoss(nn.Module):
    """The mean loss of all tuples of both subsets: what ALA's plain baseline trains on.

    Args:
        scoring: how a subset forms tuples.
        training_rows: where the validation subset begins.
    """

    def __init__(self, scoring: Scoring, *, training_rows: int) -> None:
        super().__init__()
        self.scoring, self.training_rows = scoring, training_rows

    @property
    def loss(self) -> nn.Module:
        """The loss underneath, whose margin and geometry a batch is described by."""
        return self.scoring.loss

    @property
    def capturable(self) -> bool:
        return self.scoring.loss.capturable

    def forward(self, embeddings: Embeddings, labels: SingleLabels) -> Float[Tensor, ""]:
        subsets = zip(
            *(torch.tensor_split(x, [self.training_rows]) for x in (embeddings, labels)),
            strict=True,
        )
        losses = torch.cat(
            [self.scoring(rows, classes, nn.Identity()).losses for rows, classes in subsets]
        )
        return losses.mean()


def add_up(losses: Float[Tensor, "t"], over: Over) -> Float[Tensor, ""]:
    """Mean or sum over tuples; the paper's equations sum."""
    return losses.mean() if over == "mean" else losses.sum()


def _halves(found: Comparisons) -> tuple[Comparisons, Comparisons]:
    """A triplet as its positive pair alone and as its negative pair alone."""
    nothing = torch.zeros_like(found.keep_positive)
    return replace(found, keep_negative=nothing), replace(found, keep_positive=nothing)


@torch.no_grad()
def hardness(members: Float[Tensor, "t 3 d"]) -> Float[Tensor, "t"]:
    """d(y, y⁺) / d(y, y⁻); coinciding negatives count as very hard, not as infinitely so."""
    anchor, positive, negative = members.detach().unbind(dim=1)
    near, far = (
        row_distances(anchor, positive, squared=False),
        row_distances(anchor, negative, squared=False),
    )
    return near / far.clamp(min=torch.finfo(far.dtype).eps)


# -- assessors
# --------------------------------------------------------------------------------------


class Assessment(NamedTuple):
    """What an assessor says of a sequence of tuples, and the state in which the sequence leaves
    it."""

    weights: Float[Tensor, "t"]
    state: tuple[Tensor, ...] = ()


class Assessor(nn.Module, ABC):
    """Weighs tuples: w = A(T, h; φ) with 0 < w < 1 (Zheng et al. 2020, Eq. 8).

    Calling it leaves its state as it is, so that an episode may be assessed as often as the
    assessor is updated, from the same start each time; ``advance`` takes the state over, once for
    each episode. What a state is, the assessor alone knows; it is part of ``state_dict``. Tuples
    come detached: A is a constant in the metric's parameters, else the two lines of Eq. (10) would
        differ.

    Differs: the paper concatenates embeddings as they are. A linear layer over unit features gives
    embeddings of length 0.6, of which an LSTM as it is initialized sees next to nothing; so, if
    ``scaled``, a tuple's numbers are divided by their root mean square, which keeps all that a loss
    on the unit sphere can see of it.
    """

    scaled: bool = True
    capturable = True  # whether a CUDA graph may replay it: nothing is drawn or counted on the host

    @property
    def learns(self) -> bool:
        """Whether there is anything for a meta-gradient to change."""
        return any(parameter.requires_grad for parameter in self.parameters())

    def forward(self, members: Float[Tensor, "t m d"]) -> Assessment:
        """Assess the tuples of an episode, one sequence; a tuple is the embeddings of its members
        in their order."""
        tuples = at_least_float32(members.detach().flatten(1))
        return self.assess(unit_rows(tuples) * tuples.shape[1] ** 0.5 if self.scaled else tuples)

    @abstractmethod
    def assess(self, tuples: Float[Tensor, "t md"]) -> Assessment:
        """Weigh a sequence of concatenated embeddings, from the present state."""

    def advance(self, state: tuple[Tensor, ...]) -> None:
        """Go on from ``state`` with the next episode, without the history that led there."""


class LSTMAssessor(Assessor):
    """Two layers of LSTM with 64 units, one fully connected layer, sigmoid (Zheng et al. 2020,
    Sect. 3.2 and 3.4).

    The fully connected layer starts at 0, so that training begins with w = 1/2 for every tuple: "in
    the beginning our ALA treats all the samples almost equally" (Sect. 4.3).

    Args:
        inputs: numbers in a tuple: 3 d for triplets of d-dimensional embeddings.
        hidden: units of each layer.
        layers: of the LSTM.
        centered: whether weights are of logits relative to their mean in the episode.
    """

    hidden_state: Tensor
    cell_state: Tensor

    def __init__(
        self, inputs: int, *, hidden: int = 64, layers: int = 2, centered: bool = False
    ) -> None:
        super().__init__()
        self.inputs, self.hidden, self.layers, self.centered = inputs, hidden, layers, centered
        self.sequence = nn.LSTM(inputs, hidden, layers)
        self.weight = _half(hidden)
        self.register_buffer("hidden_state", torch.zeros(layers, hidden))
        self.register_buffer("cell_state", torch.zeros(layers, hidden))

    def assess(self, tuples: Float[Tensor, "t md"]) -> Assessment:
        outputs, state = self.sequence(tuples, (self.hidden_state, self.cell_state))
        return Assessment(_weights(self.weight(outputs), self.centered), state)

    def advance(self, state: tuple[Tensor, ...]) -> None:
        hidden, cell = state
        self.hidden_state.copy_(hidden.detach())  # in place: a CUDA graph reads it there
        self.cell_state.copy_(cell.detach())


class MLPAssessor(Assessor):
    """The same size without a sequence: does it matter that the assessor remembers?

    Args:
        inputs: numbers in a tuple.
        hidden: units of each of the two layers.
        centered: whether weights are of logits relative to their mean in the episode.
    """

    def __init__(self, inputs: int, *, hidden: int = 64, centered: bool = False) -> None:
        super().__init__()
        self.inputs, self.hidden, self.centered = inputs, hidden, centered
        layers = [nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU()]
        self.network = nn.Sequential(*layers, _half(hidden))

    def assess(self, tuples: Float[Tensor, "t md"]) -> Assessment:
        return Assessment(_weights(self.network(tuples), self.centered))


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
    """Weights drawn from the beta distribution of a given mean and spread: does it matter which
    tuple gets which?

    Episode e is drawn from ``(seed, e)`` alone, on the host, so neither a resume nor the device
    changes a weight.

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
                f"weights in (0, 1) with mean {mean} have a spread between 0 and "
                f"{(mean * (1 - mean)) ** 0.5:.3f}, got "
                f"{spread}. Use assessor=constant for none."
            )

    def assess(self, tuples: Float[Tensor, "t md"]) -> Assessment:
        total = (
            self.mean * (1 - self.mean) / self.spread**2 - 1
        )  # a + b of the distribution with these two moments
        rng = np.random.default_rng([self.seed, self.episode])
        drawn = rng.beta(self.mean * total, (1 - self.mean) * total, len(tuples))
        return Assessment(torch.from_numpy(drawn).to(tuples))

    def advance(self, state: tuple[Tensor, ...]) -> None:
        self.episode += 1

    def get_extra_state(self) -> Int[Tensor, ""]:
        """Return the number of the episode, for ``state_dict``; it is kept on the host, which never
        waits for it."""
        return torch.tensor(self.episode)

    def set_extra_state(self, state: Int[Tensor, ""]) -> None:
        self.episode = int(state)


def _weights(logits: Float[Tensor, "t 1"], centered: bool) -> Float[Tensor, "t"]:
    """Return the sigmoid of Eq. (8). Differs: of centered logits, no drift that all tuples
    share."""
    logits = logits.squeeze(dim=1)
    return (logits - logits.mean() if centered else logits).sigmoid()


def _half(inputs: int) -> nn.Linear:
    """Return a last layer that starts at 0, where the sigmoid is 1/2 whatever comes."""
    layer = nn.Linear(inputs, 1)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer

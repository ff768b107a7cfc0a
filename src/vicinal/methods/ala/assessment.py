"""What is assessed, and who assesses it (DML-ALA, Zheng et al., CVPR 2020).

A scoring forms the tuples of a subset of an episode, what each costs and what the assessor sees of
it. The assessors are the paper's sequence-aware one, and the constant that it is measured against.
"""

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Annotated, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import grad

from vicinal.arguments import Limits
from vicinal.distances import at_least_float32, pairwise_distances, row_distances, unit_rows
from vicinal.errors import ConfigError
from vicinal.losses.loss import Comparisons, Loss, tuple_loss
from vicinal.losses.proxies import ProxyLoss, has_proxies
from vicinal.samplers.sampler import episode_triplets
from vicinal.tuples import Embeddings, Scalar, SingleLabels, Triplets

PerTuple = Float[Tensor, "t *p"]
Weight = Annotated[float, Limits("(0, 1]")]


class Scored(NamedTuple):
    """The tuples of a subset; with proxies p of each sample.

    Attributes:
        losses: L(T; θ) of each, differentiable.
        members: the embeddings that the assessor sees: anchor, positive, negative.
        hardness: d(y, y⁺) / d(y, y⁻) of each (Zheng et al. 2020, Sect. 4.3).
    """

    losses: PerTuple
    members: Float[Tensor, "t *p m d"]
    hardness: PerTuple


class Scoring(nn.Module, ABC):
    """From the embeddings of a subset and their labels to its tuples.

    Attributes:
        loss: what a tuple costs.
        seen: members of a tuple that the assessor sees.
        sequences: how many sequences of tuples there are beside each other; empty for one.
    """

    loss: Loss
    seen: int = 3
    sequences: tuple[int, ...] = ()
    indivisible = "the tuples of an episode are one sequence"

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = loss if has_proxies(loss) else tuple_loss(loss, "ALA")

    @abstractmethod
    def forward(self, embeddings: Embeddings, labels: SingleLabels) -> Scored:
        """The tuples of a subset whose rows lie in blocks ``[a; p]``."""

    @torch.no_grad()
    def comparable(self, embeddings: Float[Tensor, "*rows d"]) -> Float[Tensor, "*rows d"]:
        """Embeddings as the loss compares them: on the unit sphere or not."""
        return (unit_rows if self.loss.distance.normalize else at_least_float32)(embeddings)

    @torch.no_grad()
    def hardness(self, members: Float[Tensor, "t 3 d"]) -> Float[Tensor, "t"]:
        """d(y, y⁺) / d(y, y⁻); coinciding negatives count as very hard, not as infinitely so."""
        anchor, positive, negative = self.comparable(members).unbind(dim=1)
        near = row_distances(anchor, positive, squared=False)
        far = row_distances(anchor, negative, squared=False)
        return near / far.clamp(min=torch.finfo(far.dtype).eps)


class TripletScoring(Scoring):
    """Triplets as units: any loss, on one positive and one negative of each anchor.

    L(T) is the sum of the loss's terms of the triplet: one hinge for the triplet loss, [α + D⁺ -
    β]_+ + [α - D⁻ + β]_+ for margin loss.
    """

    def forward(self, embeddings: Embeddings, labels: SingleLabels) -> Scored:
        compared, members = self.compared(embeddings, labels)
        return Scored(self.loss.core(compared).sums, members, self.hardness(members))

    def compared(
        self, embeddings: Embeddings, labels: SingleLabels
    ) -> tuple[Comparisons, Float[Tensor, "t 3 d"]]:
        """Return the triplets of a subset as the loss sees them, and their members."""
        triplets = Triplets(*episode_triplets(len(embeddings), embeddings.device))
        compared = self.loss.triplet_comparisons(at_least_float32(embeddings), triplets, labels)
        return compared, embeddings[torch.stack(triplets, dim=1)]


class PairScoring(TripletScoring):
    """Pairs as units: of each triplet the positive and the negative pair, each with a weight of its
    own.

    For losses that are sums over pairs (contrastive, margin). The assessor sees two embeddings and
    is not told whether they are of one class: the paper names no such input. A pair's hardness is
    that of its triplet.
    """

    seen = 2

    def __init__(self, loss: nn.Module) -> None:
        super().__init__(loss)
        one = torch.ones(1, 1)
        whole = Comparisons(one, one.bool(), one / 2, one.bool())
        if not torch.allclose(self.loss.core(whole).sums, self._halves(whole).sum(dim=1)):
            raise ConfigError(
                f"units=pairs needs a sum over pairs, got {type(loss).__name__}. Set "
                "method.units=triplets."
            )

    def forward(self, embeddings: Embeddings, labels: SingleLabels) -> Scored:
        compared, members = self.compared(embeddings, labels)
        hardness = self.hardness(members).repeat_interleave(2)
        pairs = members[:, [[0, 1], [0, 2]]].flatten(0, 1)
        return Scored(self._halves(compared).flatten(), pairs, hardness)

    def _halves(self, found: Comparisons) -> Float[Tensor, "t 2"]:
        """What a triplet's positive pair costs alone, and its negative pair."""
        nothing = torch.zeros_like(found.keep_positive)
        parts = replace(found, keep_negative=nothing), replace(found, keep_positive=nothing)
        return torch.stack([self.loss.core(part).sums for part in parts], dim=1)


class ProxyScoring(Scoring):
    """Pairs of a sample and a proxy as units: any loss with proxies.

        ∇L = Σ_T ∇L(T),   L(T) = ∂L/∂s_T · s_T    with ∂L/∂s_T a constant, s_T a pair's similarity

    So weights of 1 give the gradient of the loss itself, and where a loss is a sum over pairs ∇L(T)
    is that of a pair's term, as in Eq. (10). In value each pair has its share of L.
    """

    loss: ProxyLoss
    seen = 2

    def __init__(self, loss: ProxyLoss) -> None:
        super().__init__(loss)
        self.sequences = (len(loss.proxy_labels) * loss.centers,)

    def forward(self, embeddings: Embeddings, labels: SingleLabels) -> Scored:
        loss = self.loss
        rows = at_least_float32(embeddings)
        proxies = loss.beside(rows)
        classes = loss.proxy_labels
        others = proxies.flatten(end_dim=-2)
        compared = loss.distance(rows, others)
        penalty = loss.compare(rows.detach(), labels, proxies, classes).penalty

        def whole(values: Tensor) -> Tensor:
            found = replace(loss.arrange(values, labels, classes), penalty=penalty)
            return loss.score(found)

        known = compared.detach()
        slopes = grad(whole)(known)
        costs = len(rows) * slopes.detach() * (compared - known) + whole(known) / len(others)
        seen = [self.comparable(part.detach()) for part in (rows, others)]
        shape = len(rows), len(others), rows.shape[1]
        members = torch.stack([seen[0][:, None].expand(shape), seen[1].expand(shape)], dim=2)
        same = labels[:, None] == classes.repeat_interleave(loss.centers)
        far = pairwise_distances(*seen, squared=False).clamp(min=torch.finfo(rows.dtype).eps)
        near = far.masked_fill(~same, torch.inf).amin(dim=1, keepdim=True)
        return Scored(costs, members, near / far)


def scoring_of(loss: nn.Module, units: str) -> Scoring:
    """Return how a loss is assessed: with proxies pair by pair, else in the units named."""
    if has_proxies(loss):
        return ProxyScoring(loss)
    return PairScoring(loss) if units == "pairs" else TripletScoring(loss)


class EpisodeLoss(nn.Module):
    """The mean loss of all tuples of both subsets: what ALA's plain baseline trains on.

    Args:
        scoring: how a subset forms tuples.
        training_rows: where the validation subset begins.
    """

    def __init__(self, scoring: Scoring, *, training_rows: int) -> None:
        super().__init__()
        self.scoring = scoring
        self.training_rows = training_rows

    @property
    def loss(self) -> nn.Module:
        """The loss underneath, whose margin and geometry a batch is described by."""
        return self.scoring.loss

    @property
    def capturable(self) -> bool:
        return self.scoring.loss.capturable

    def forward(self, embeddings: Embeddings, labels: SingleLabels) -> Scalar:
        rows, classes = (x.tensor_split([self.training_rows]) for x in (embeddings, labels))
        scored = [self.scoring(*part) for part in zip(rows, classes, strict=True)]
        return torch.cat([part.losses for part in scored]).mean()


# -- assessors -------------------------------------------------------------------------------------


class Assessment(NamedTuple):
    """What an assessor says of a sequence of tuples, and the state in which the sequence leaves
    it."""

    weights: PerTuple
    state: tuple[Tensor, ...] = ()


class Assessor(nn.Module, ABC):
    """Weighs tuples: w = A(T, h; φ) with 0 < w < 1 (Zheng et al. 2020, Eq. 8).

    Calling it leaves its state as it is, so that an episode may be assessed as often as the
    assessor is updated, from the same start each time; ``advance`` takes the state over, once for
    each episode. What a state is, the assessor alone knows; it is part of ``state_dict``. Tuples
    come detached: A is a constant in the metric's parameters, else the two lines of Eq. (10) would
    differ.
    """

    capturable = True  # whether a CUDA graph may replay it: nothing is drawn or counted on the host

    @property
    def learns(self) -> bool:
        """Whether there is anything for a meta-gradient to change."""
        return any(parameter.requires_grad for parameter in self.parameters())

    def forward(self, members: Float[Tensor, "t *p m d"]) -> Assessment:
        """Assess the tuples of an episode, one sequence, or one for each proxy; a tuple is the
        embeddings of its members in their order."""
        return self.assess(at_least_float32(members.detach().flatten(-2)))

    @abstractmethod
    def assess(self, tuples: Float[Tensor, "t *p md"]) -> Assessment:
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
        scaled: whether a tuple's numbers are divided by their root mean square (ours). A linear
            layer over unit features gives embeddings of length 0.6, of which an LSTM as it is
            initialized sees next to nothing; their length matters to no loss on the unit sphere.
        centered: whether weights are of logits relative to their mean in the episode (ours), so
            that they have no drift that all tuples share.
        sequences: how many there are beside each other, one for each proxy; empty for one.
    """

    hidden_state: Tensor
    cell_state: Tensor

    def __init__(
        self,
        inputs: int,
        *,
        hidden: int = 64,
        scaled: bool = False,
        centered: bool = False,
        sequences: tuple[int, ...] = (),
    ) -> None:
        super().__init__()
        self.scaled = scaled
        self.centered = centered
        self.sequence = nn.LSTM(inputs, hidden, num_layers=2)
        self.weight = nn.Linear(hidden, 1)
        for parameter in self.weight.parameters():
            nn.init.zeros_(parameter)
        self.register_buffer("hidden_state", torch.zeros(2, *sequences, hidden))
        self.register_buffer("cell_state", torch.zeros(2, *sequences, hidden))

    def assess(self, tuples: Float[Tensor, "t *p md"]) -> Assessment:
        if self.scaled:
            tuples = unit_rows(tuples) * tuples.shape[-1] ** 0.5
        outputs, state = self.sequence(tuples, (self.hidden_state, self.cell_state))
        logits = self.weight(outputs).squeeze(dim=-1)
        return Assessment((logits - logits.mean() if self.centered else logits).sigmoid(), state)

    def advance(self, state: tuple[Tensor, ...]) -> None:
        hidden, cell = state
        self.hidden_state.copy_(hidden.detach())  # in place: a CUDA graph reads it there
        self.cell_state.copy_(cell.detach())


class ConstantAssessor(Assessor):
    """The same weight for every tuple: what a change of the learning rate alone would do."""

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.weight = weight

    def assess(self, tuples: Float[Tensor, "t *p md"]) -> Assessment:
        return Assessment(tuples.new_full(tuples.shape[:-1], self.weight))

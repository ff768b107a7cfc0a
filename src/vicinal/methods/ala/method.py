"""DML-ALA: Deep Metric Learning via Adaptive Learnable Assessment (Zheng, Lu and Zhou, CVPR
2020)."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from vicinal.arguments import Natural, NonNegative
from vicinal.data.records import Batch
from vicinal.errors import ConfigError
from vicinal.methods.ala.assessment import (
    Assessor,
    ConstantAssessor,
    LSTMAssessor,
    PerTuple,
    Scored,
    Weight,
    scoring_of,
)
from vicinal.methods.ala.meta_gradient import Metric, slopes
from vicinal.methods.method import Form, Method, Parts, StepResult
from vicinal.methods.optimizer import SGD, Adam
from vicinal.parallel import averaged, gather, processes
from vicinal.samplers import EpisodeSampler
from vicinal.tuples import Embeddings, Scalar, SingleLabels, SizedLabels

# standard deviation of an episode's weights below which an assessor does not distinguish tuples
INERT = 1e-3


class Pass(NamedTuple):
    """The training subset on its way through the network: one pass serves the virtual and the real
    update."""

    inputs: Tensor
    embeddings: Embeddings
    labels: SingleLabels
    scored: Scored


@dataclass(eq=False)
class ALA(Method):
    """DML-ALA (Zheng et al. 2020): an assessor learns how much each tuple of an episode should
    weigh.

        θ' = θ - α ∇ Σ_T A(T; φ) L(T; θ)              virtual, on the training subset       Eq. (10)
        φ ← φ - β ∇_φ Σ_T' L(T'; θ'(φ))               K times, on the validation subset     Eq. (12)
        θ ← θ - α Σ_T A(T; φ*) ∇ L(T; θ)              from the original θ                   Eq. (13)

    The gradient of (12) needs no second order and is exact (module `meta_gradient`), unless the
    setting ``meta_gradient`` says otherwise; the forward pass of the training subset serves (10)
    and (13). θ' is computed once before the K updates, as in Algorithm 1, which then share one
    derivative. The assessor's state passes through the whole training and advances once an episode,
    by the weights of (13).

    Differs: (13) is a step of the experiment's optimizer; the virtual step is plain descent with
    its rates. A loss's own parameters (margin loss's boundary) learn in (13) and stand still in
    (10), which moves the metric alone. Under an optimizer of Adam's kind a weight common to all
    tuples cancels: only their differences act.

    Attributes:
        form: ``"paper"`` sums over tuples, gives the assessor embeddings as they are, lets its
            weights act as they are, and trains it by plain gradient descent. ``"ours"`` averages,
            divides a tuple by its root mean square and weights by their mean in the episode, and
            trains by Adam.
        assessor: the paper's ``"lstm"``, or the same ``weight`` for every tuple (``"constant"``),
            a control.
        weight: of ``"constant"``: what the LSTM has on average.
        units: what is weighed: ``"triplets"``, one positive and one negative of each anchor, for
            any tuple loss; ``"pairs"``, for losses that are sums over pairs.
        rate: β of Eq. (12). The meta-gradient carries the factor α of the virtual step and is
            small: under plain descent the weights hardly leave 1/2 unless it is large.
        updates: K.
        relative: whether weights act relative to their mean in the episode, and are of logits
            relative to theirs; None is that of the form. As the paper has them, the easiest thing
            to learn is the length of the step: all weights rise or fall together and none differs
            from another. Without the second part the mean drifts to 0, where a few tuples carry
            whole episodes.
        meta_gradient: the gradient of Eq. (11): ``"exact"``, or ``"first_order"`` (ours, after Ren
            et al. 2018), with ∇L_va at θ in place of θ'. That saves a backward pass and leaves
            -α² ⟨∇²L_va g, ∇L(T; θ)⟩, g the gradient of (10), and higher orders of α out of a
            tuple's slope.

    Charts:
        weight_mean: Mean of the weights in an episode (the paper's Figure 4 b). It starts at 0.5; a
            mean that moves without a deviation only changes the learning rate.
        weight_deviation: Standard deviation of the weights in an episode, the root of the variance
            in Figure 4 a. It starts at 0 and should rise. Under 0.001 to the end, the assessor is
            inert and this is no ALA: raise its rate.
        hardness: Average weighted hardness, the mean of w d(y, y+) / d(y, y-), beside the
            unweighted mean, and the ratio of the two (Figure 4 c and d). Preference is that ratio
            over the mean weight: above 1, harder tuples weigh more.
        episode: Mean loss of the training tuples, unweighted, and of the validation tuples after
            the virtual step, on classes that the step did not see. Both should fall; only the first
            falling is over-fitting within an episode.
        virtual_step: Length of the virtual step of Eq. (10), where one is taken, over that of the
            parameters. The assessor learns from what such a step does to the validation loss; under
            about 1e-7 that is its first order alone, for float32 no longer sees it.
    """

    form: Form = "ours"
    assessor: Literal["lstm", "constant"] = "lstm"
    weight: Weight = 0.48
    units: Literal["triplets", "pairs"] = "triplets"
    rate: NonNegative = 4e-4
    updates: Natural = 3
    relative: bool | None = None
    meta_gradient: Literal["exact", "first_order"] = "exact"

    default_loss = "triplet"
    layouts = ("episodes",)
    chunkable = False
    scalable = False

    @property
    def compares_weights(self) -> bool:
        return self.form == "ours" if self.relative is None else self.relative

    # -- training ---------------------------------------------------------------------------------

    def add_up(self, losses: PerTuple) -> Scalar:
        """Mean or sum over tuples, over proxies always the sum; the paper's equations sum."""
        return losses.sum() / len(losses) if self.form == "ours" else losses.sum()

    def factors(self, weights: PerTuple) -> PerTuple:
        """What the tuples' losses are multiplied by."""
        return weights / weights.mean() if self.compares_weights else weights

    def build_assessor(self, inputs: int, sequences: tuple[int, ...] = ()) -> Assessor:
        """Build the assessor of tuples with ``inputs`` numbers each."""
        if self.assessor == "constant":
            return ConstantAssessor(self.weight)
        return LSTMAssessor(
            inputs,
            scaled=self.form == "ours",
            centered=self.compares_weights,
            sequences=sequences,
        )

    def check(self, loss: nn.Module, sampler: object) -> None:
        super().check(loss, sampler)
        if sampler is not None and not isinstance(sampler, EpisodeSampler):
            raise ConfigError(
                "ALA needs episodes of a training and a validation subset, got batches of "
                f"{type(sampler).__name__}. Set sampler=episodes."
            )
        scoring_of(loss, self.units)

    def setup(self, parts: Parts) -> None:
        self.scoring = scoring_of(parts.loss, self.units)
        inputs = self.scoring.seen * parts.embedder.embedding_dim
        self.weigh = self.build_assessor(inputs, self.scoring.sequences)
        super().setup(parts)
        self.metric = Metric(self.embedder, self.metric_optimizer)
        self.analysis = WeightAnalysis()
        if not self.weigh.learns:
            return
        if self.form == "paper":
            self.optimizers["assessor"] = SGD(self.weigh.parameters(), lr=self.rate)
        else:
            # Adam's own 1e-8 would swamp meta-gradients, which are as small as the virtual step;
            # float32 squares 1e-15.
            self.optimizers["assessor"] = Adam(self.weigh.parameters(), lr=self.rate, eps=1e-15)

    def step(self, batch: Batch) -> StepResult:
        training = self.training_pass(batch)
        taught = self.teach(batch, training)  # Eqs. (10)-(12)
        scored = training.scored
        assessed = self.weigh(scored.members)
        self.weigh.advance(assessed.state)
        weights = assessed.weights.detach()
        loss = self.add_up(self.factors(weights) * scored.losses)
        described = self.analysis.describe(weights, scored.hardness)
        return self.update(  # Eq. (13)
            loss, training.embeddings, training.labels, **described, **taught
        )

    def training_pass(self, batch: Batch) -> Pass:
        """Pass the training subset through the network; of several processes each passes its part
        of both subsets."""
        rows = self.sampler.training_rows
        inputs, labels = (x[:rows] if processes() == 1 else x for x in (batch.inputs, batch.labels))
        features, labels = gather(self.metric.features(inputs), labels)
        labels = SizedLabels.of(labels[:rows], batch.largest_class)
        embeddings = self.embedder.embed(features[:rows])
        return Pass(inputs, embeddings, labels, self.scoring(embeddings, labels))

    def teach(self, batch: Batch, training: Pass) -> dict[str, Tensor]:
        """Update the assessor K times; return what the virtual step was like.

        Algorithm 1 has one θ' for all updates, and so one slope of each tuple: how its loss changes
        along the gradient of the validation loss at θ'.
        """
        told: dict[str, Tensor] = {}
        along: Tensor | None = None
        losses = training.scored.losses
        labels = training.labels
        for _ in range(self.updates if self.weigh.learns else 0):
            factors = self.factors(self.weigh(training.scored.members).weights)
            if along is None:
                told["episode/training"] = losses.detach().sum() / len(losses)
                steps: list[Tensor] = []
                if self.meta_gradient == "exact":
                    weighed = self.add_up(factors.detach() * losses)
                    gradients = torch.autograd.grad(  # the graph serves Eq. (13), too
                        weighed, self.metric.leaves, retain_graph=True, materialize_grads=True
                    )
                    steps = self.metric.scaled(averaged([*gradients]))
                    moved, whole = (
                        torch.stack(torch._foreach_norm(parts)).norm()
                        for parts in (steps, [*self.metric.parameters().values()])
                    )
                    told["virtual_step/relative_length"] = moved / whole
                # At θ' of Eq. (10), or at θ.
                told["episode/validation"], direction = self.validate(batch, steps)
                tangents = self.metric.tangents(direction, training.inputs)
                tangents, _ = gather(tangents, labels.new_zeros(len(tangents)))
                tangents = tangents[: len(labels)]
                along = slopes(self.scoring, training.embeddings, tangents, labels)
            # ∂L_va/∂w_T = -slope, so the gradient of this in φ is that of Eq. (11).
            self.differentiate(-self.add_up(along * factors), self.optimizers["assessor"])
            self.optimize(self.optimizers["assessor"])  # Eq. (12)
        return told

    def validate(self, batch: Batch, steps: list[Tensor]) -> tuple[Scalar, list[Tensor]]:
        """Return the mean loss of validation tuples at θ' = θ - steps, or at θ without any,
        unweighted, and u = α ∇L_va there."""
        rows = self.sampler.training_rows
        inputs, labels = (x[rows:] if processes() == 1 else x for x in (batch.inputs, batch.labels))
        tried = self.metric.moved(steps) if steps else self.metric.parameters()
        tried = {name: value.requires_grad_() for name, value in tried.items()}
        embeddings, labels = gather(self.metric.embed(tried, inputs), labels)
        last = slice(rows - self.sampler.batch_size, None)
        labels = SizedLabels.of(labels[last], batch.largest_class)
        scored: Scored = self.scoring(embeddings[last], labels)
        loss = self.add_up(scored.losses)
        gradients = torch.autograd.grad(loss, [*tried.values()], materialize_grads=True)
        mean = scored.losses.detach().sum() / len(scored.losses)
        return mean, self.metric.scaled(averaged([*gradients]))

    @property
    def capturable(self) -> bool:
        return super().capturable and self.weigh.capturable

    @property
    def notes(self) -> tuple[str, ...]:
        inert = self.analysis.note if self.weigh.learns else None
        return super().notes if inert is None else (*super().notes, inert)


# -- what it reports -------------------------------------------------------------------------------


class WeightAnalysis(nn.Module):
    """Describe the weights of each episode, and remember how far they ever spread, on the device.

    Attributes:
        widest: standard deviation of an episode's weights, at its largest so far; below 0 before
            the first.
    """

    widest: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("widest", torch.tensor(-1.0))

    @property
    def note(self) -> str | None:
        """After training: that the assessor never distinguished tuples, if so."""
        if not 0 <= float(self.widest) < INERT:
            return None
        return (
            "assessor inert: the weights of an episode never spread by more than "
            f"{float(self.widest):.1e} (standard deviation), so this run is its plain baseline on "
            "fewer images. Raise method.rate or method.updates."
        )

    def describe(self, weights: PerTuple, hardness: PerTuple) -> dict[str, Tensor]:
        """Return mean and deviation of the weights, and the mean of w d(y, y⁺) / d(y, y⁻), weighted
        and unweighted.

        ``ratio`` is weighted over unweighted; ``preference``, that over the mean weight, is 1 for
        equal weights.
        """
        mean = weights.mean()
        spread = weights.std(correction=0)
        self.widest.copy_(torch.maximum(self.widest, spread))
        weighted = (weights * hardness).mean()
        plain = hardness.mean()
        ratio = weighted / plain.clamp(min=torch.finfo(plain.dtype).tiny)
        return {
            "weight_mean": mean,
            "weight_deviation": spread,  # a chart of its own: beside a mean of 0.5 nobody sees 0.01
            "hardness/weighted": weighted,
            "hardness/unweighted": plain,
            "hardness/ratio": ratio,
            "hardness/preference": ratio / mean,
        }

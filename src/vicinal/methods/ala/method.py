"""DML-ALA: Deep Metric Learning via Adaptive Learnable Assessment (Zheng, Lu and Zhou, CVPR
2020)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from vicinal.arguments import Natural, NonNegative, check_arguments
from vicinal.data.records import Batch
from vicinal.errors import ConfigError
from vicinal.figures import Figure, record_tuples
from vicinal.losses.loss import tuple_loss
from vicinal.methods.ala import assessment, meta_gradient
from vicinal.methods.ala.assessment import Assessor, Over, Scored, Scoring, Weight, add_up
from vicinal.methods.ala.meta_gradient import Metric, Route, Unroll
from vicinal.methods.method import Method, Parts, StepResult
from vicinal.methods.optimizer import SGD, Adam
from vicinal.parallel import average_gradients, gather, processes
from vicinal.tuples import Embeddings, SingleLabels, SizedLabels

# standard deviation of an episode's weights below which an assessor does not distinguish tuples
INERT = 1e-3
SHOWN = 6  # tuples of each kind
ROLES = ("anchor", "positive", "negative")
PAIR_ROLES = ("first", "second")


class Pass(NamedTuple):
    """The training subset on its way through the network: one pass serves the virtual and the real
    update."""

    inputs: Tensor
    features: Float[Tensor, "n c"]
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

    The gradient of (12) is exact and without second order (`meta_gradient`); the forward pass of
    the training subset serves (10) and (13). The assessor's state passes through the whole training
    and advances once an episode, by the weights of (13).

    Differs: (13) is a step of the experiment's optimizer; the virtual step is plain descent with
        its rates. A loss's
    own parameters (margin loss's boundary) learn in (13) and stand still in (10), which moves the
    metric alone. Under an optimizer of Adam's kind a weight common to all tuples cancels: only
    their differences act.

    Attributes:
        assessor: the paper's ``"lstm"``; ``"mlp"``, which has no memory; or a control that learns
            nothing: ``"constant"``, the same ``weight`` for every tuple, or ``"random"``, weights
            about ``weight`` by chance.
        weight: mean weight of ``"constant"`` and ``"random"``: what the LSTM has on average.
        spread: standard deviation of ``"random"``.
        units: what is weighed: ``"triplets"``, one positive and one negative of each anchor, for
            any tuple loss; ``"pairs"``, for losses that are sums over pairs; ``"anchors"``, each
            with all of its subset.
        scaled: whether the assessor sees a tuple's numbers over their root mean square, or as they
            are, the paper's.
        rate: β of Eq. (12).
        optimizer: ``"adam"``, or the paper's plain gradient descent. The meta-gradient carries the
            factor α of the
            virtual step and is small: under ``"sgd"`` the weights hardly leave 1/2 unless
            ``virtual_factor`` is large.
        updates: K.
        recompute: whether θ' follows the assessor within the K updates, so that each descends Eq.
            (11). Algorithm 1
            computes it once before them: the K updates then share one derivative. With K = 1 both
            are the same.
        over: ``"mean"`` over tuples, or ``"sum"`` as the paper's equations have it.
        route: how the derivative is taken: exactly, in forward mode or by double backward; or by a
            central difference.
        unroll: ``"head"`` keeps the backbone out of the virtual step, an approximation.
        virtual_factor: of the learning rates in the virtual step.
        compiled: whether forward mode is compiled; for a GPU.
        relative: whether weights act relative to their mean in the episode, and are of logits
            relative to theirs.
            Differs: the paper's act as they are, and then the easiest thing to learn is the length
            of the step: all weights rise or fall together and none differs from another. An
            optimizer of Adam's kind ignores a common factor anyway. Without the second part the
            mean drifts to 0, where a few tuples carry whole episodes.

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
        virtual_step: Length of the virtual step of Eq. (10) over that of the parameters. The
            assessor learns from what such a step does to the validation loss; under about 1e-7 that
            is its first order alone, for float32 no longer sees it.
    """

    assessor: Literal["lstm", "mlp", "constant", "random"] = "lstm"
    weight: Weight = 0.48
    spread: float = 0.004
    units: Literal["triplets", "pairs", "anchors"] = "triplets"
    scaled: bool = True
    rate: NonNegative = 4e-4
    optimizer: Literal["adam", "sgd"] = "adam"
    updates: Natural = 3
    recompute: bool = False
    over: Over = "mean"
    route: Route = "forward"
    unroll: Unroll = "all"
    virtual_factor: float = 1.0
    compiled: bool = False
    relative: bool = True

    default_loss: ClassVar[str] = "triplet"
    layouts: ClassVar[tuple[str, ...]] = ("episodes",)
    chunkable: ClassVar[bool] = False
    title: ClassVar[str] = "ALA"

    def __post_init__(self) -> None:
        check_arguments(self)

    # -- training ---------------------------------------------------------------------------------

    def factors(self, weights: Float[Tensor, "t"]) -> Float[Tensor, "t"]:
        """What the tuples' losses are multiplied by."""
        return weights / weights.mean() if self.relative else weights

    def scoring_of(self, loss: nn.Module) -> Scoring:
        """Return how the subsets of an episode form tuples of ``loss``."""
        kinds = {
            "triplets": assessment.TripletScoring,
            "pairs": assessment.PairScoring,
            "anchors": assessment.AnchorScoring,
        }
        return kinds[self.units](tuple_loss(loss, "ALA"))  # type: ignore[abstract]

    def build_assessor(self, inputs: int, seed: int) -> Assessor:
        """Build the assessor of tuples with ``inputs`` numbers each."""
        match self.assessor:
            case "lstm":
                return assessment.LSTMAssessor(inputs, centered=self.relative)
            case "mlp":
                return assessment.MLPAssessor(inputs, centered=self.relative)
            case "constant":
                return assessment.ConstantAssessor(self.weight)
            case "random":
                return assessment.RandomAssessor(self.weight, self.spread, seed=seed)

    def check(self, loss: nn.Module, sampler: object) -> None:
        super().check(loss, sampler)
        if sampler is not None and not hasattr(sampler, "training_rows"):
            raise ConfigError(
                "ALA needs episodes of a training and a validation subset, but "
                f"{type(sampler).__name__} has no "
                f"`training_rows`. Set sampler=episodes."
            )
        self.scoring_of(loss)

    def setup(self, parts: Parts) -> None:
        scoring = self.scoring_of(parts.loss)
        weigh = self.build_assessor(scoring.seen * parts.embedder.embedding_dim, parts.seed)
        super().setup(parts)
        self.setup_assessment(scoring, weigh)

    def place(self, device: torch.device) -> None:
        if self.compiled and device.type != "cuda":
            raise ConfigError(
                f"method.compiled makes kernels for a GPU, got a run on {device.type}. Leave it "
                "out."
            )
        super().place(device)

    def setup_assessment(self, scoring: Scoring, weigh: Assessor) -> None:
        """Take an assessor and the tuples that it weighs, and build its optimizer."""
        self.scoring, self.weigh = scoring, weigh
        weigh.scaled = self.scaled
        settings = {"unroll": self.unroll, "factor": self.virtual_factor, "compiled": self.compiled}
        self.metric = Metric(self.embedder, self.metric_optimizer, **settings)  # type: ignore[arg-type]
        self.analysis, self.showcase = WeightAnalysis(), Showcase()
        self.found_by: Route = (
            self.route
        )  # "double_backward" from the first operator on that has no forward mode
        if weigh.learns:
            # Adam's own 1e-8 would swamp meta-gradients, which are as small as the virtual step;
            # float32 squares 1e-15.
            adam = Adam(weigh.parameters(), lr=self.rate, eps=1e-15)
            self.optimizers["assessor"] = (
                SGD(weigh.parameters(), lr=self.rate) if self.optimizer == "sgd" else adam
            )

    def batches(self, epoch: int) -> Sequence[Sequence[int]]:
        self.showcase.clear()
        return super().batches(epoch)

    def step(self, batch: Batch) -> StepResult:
        training = self.training_pass(batch)
        taught = self.teach(batch, training)  # Eqs. (10)-(12)
        scored = training.scored
        assessed = self.weigh(scored.members)
        self.weigh.advance(assessed.state)
        self.weights, self.features = assessed.weights.detach(), training.features.detach()
        loss = add_up(self.factors(self.weights) * scored.losses, self.over)
        self.differentiate(loss)
        self.optimize()  # Eq. (13)
        scalars = {
            "loss": loss.detach(),
            **self.analysis.describe(self.weights, scored.hardness),
            **taught,
        }
        return StepResult(scalars, training.embeddings.detach(), training.labels)

    def advance(self, batch: Batch) -> None:
        super().advance(batch)
        rows = self.scoring.rows(self.sampler.training_rows)
        if rows is not None and processes() == 1:
            self.showcase.add(batch.indices[rows], self.weights[: len(rows)].clone())

    def training_pass(self, batch: Batch) -> Pass:
        """Pass the training subset through the network; of several processes each passes its part
        of both subsets."""
        rows = self.sampler.training_rows
        inputs, labels = (x[:rows] if processes() == 1 else x for x in (batch.inputs, batch.labels))
        features, labels = gather(self.metric.features(inputs), labels)
        features, labels = features[:rows], SizedLabels.of(labels[:rows], batch.largest_class)
        embeddings = self.embedder.embed(features)
        return Pass(
            inputs,
            features,
            embeddings,
            labels,
            self.scoring(embeddings, labels, self.embedder.embed),
        )

    def teach(self, batch: Batch, training: Pass) -> dict[str, Tensor]:
        """Update the assessor K times; return what the first virtual step was like."""
        if not self.weigh.learns:
            return {}
        scored, optimizer = training.scored, self.optimizers["assessor"]
        told: dict[str, Tensor] = {}
        along: Tensor | None = None
        for _ in range(self.updates):
            assessed = self.weigh(scored.members)
            if along is None or self.recompute:
                objective = add_up(
                    self.factors(assessed.weights.detach()) * scored.losses, self.over
                )
                steps = self.metric.scaled(
                    _averaged(meta_gradient.gradient(objective, self.metric.leaves))
                )
                validation, direction = self.validate(batch, steps)
                along = self.slopes(direction, training)
                length, whole = (
                    meta_gradient.norm(part)
                    for part in (steps, list(self.metric.parameters().values()))
                )
                told = told or {
                    "episode/training": scored.losses.detach().mean(),
                    "episode/validation": validation,
                    "virtual_step/relative_length": length / whole,
                }
            # ∂L_va/∂w_T = -slope, so the gradient of this in φ is that of Eq. (11).
            meta = -add_up(along * self.factors(assessed.weights), self.over)
            self.differentiate(meta, optimizer)
            self.optimize(optimizer)
        return told

    def validate(self, batch: Batch, steps: list[Tensor]) -> tuple[Float[Tensor, ""], list[Tensor]]:
        """Return the mean loss of validation tuples at θ' = θ - steps, unweighted, and u = α
        ∇L_va(θ')."""
        rows = self.sampler.training_rows
        inputs, labels = (x[rows:] if processes() == 1 else x for x in (batch.inputs, batch.labels))
        if self.unroll == "head":
            inputs = self.metric.frozen_features(inputs)
        tried = {name: value.requires_grad_() for name, value in self.metric.moved(steps).items()}
        embeddings, labels = gather(self.metric.embed(tried, inputs), labels)
        last = slice(rows - self.sampler.batch_size, None)
        labels = SizedLabels.of(labels[last], batch.largest_class)
        scored: Scored = self.scoring.real(embeddings[last], labels, self.metric.head(tried))
        loss = add_up(scored.losses, self.over)
        gradients = torch.autograd.grad(loss, list(tried.values()), materialize_grads=True)
        return scored.losses.detach().mean(), self.metric.scaled(_averaged(list(gradients)))

    def slopes(self, direction: list[Tensor], training: Pass) -> Float[Tensor, "t"]:
        """Return how each tuple's loss changes along ``direction``."""
        if self.found_by != "double_backward":
            try:
                return self._slopes_by_tangents(direction, training)
            except RuntimeError as error:
                if not meta_gradient.lacks_forward_mode(error):
                    raise
                self.found_by = "double_backward"  # from now on; `notes` say so
        return meta_gradient.slopes_by_double_backward(
            training.scored.losses, self.metric.leaves, direction
        )

    def _slopes_by_tangents(self, direction: list[Tensor], training: Pass) -> Float[Tensor, "t"]:
        rows, labels = len(training.labels), training.labels
        inputs = training.features.detach() if self.unroll == "head" else training.inputs
        tangents = meta_gradient.embedding_tangents(
            self.metric, inputs, direction, route=self.found_by
        )
        if self.unroll == "all":
            tangents, _ = gather(tangents, labels.new_zeros(len(tangents)))
        return meta_gradient.slopes(
            self.metric, self.scoring, direction, training.embeddings, tangents[:rows], labels
        )

    @property
    def capturable(self) -> bool:
        return super().capturable and self.weigh.capturable

    @property
    def notes(self) -> tuple[str, ...]:
        backward = (
            "an operator of the network or the loss has no forward mode: meta-gradients "
            "use double backward."
        )
        weights = self.analysis.note if self.weigh.learns else None
        return tuple(
            note
            for note in (*super().notes, backward if self.found_by != self.route else None, weights)
            if note
        )

    def collapsed_loss(self, batch: Batch) -> float:
        """At the mean weight of the last episode."""
        rows, weight = self.sampler.training_rows, self.analysis.mean_weight
        with torch.no_grad():
            labels = torch.arange(rows, device=weight.device) % (rows // 2)
            scored: Scored = self.scoring.real(
                self.equal_rows(rows, weight.device), labels, nn.Identity()
            )
            losses = self.factors(weight.expand(len(scored.losses))) * scored.losses
            return float(add_up(losses, self.over))

    def figures(self, batch: Batch) -> Sequence[Figure]:
        """Show the heaviest and the lightest tuples of the last epoch."""
        return self.showcase.figures() if self.weigh.learns else ()


def _averaged(gradients: list[Tensor]) -> list[Tensor]:
    """Average over the processes, each of which has the whole loss but only its own rows."""
    if processes() == 1:
        return gradients
    holders = [nn.Parameter(g, requires_grad=False) for g in gradients]
    for holder, g in zip(holders, gradients, strict=True):
        holder.grad = g.clone()
    average_gradients(holders)
    return [holder.grad for holder in holders if holder.grad is not None]


# -- what it reports
# ---------------------------------------------------------------------------------


class WeightAnalysis(nn.Module):
    """Describe the weights of each episode, and remember how far they ever spread, on the device.

    Attributes:
        widest: standard deviation of an episode's weights, at its largest so far; below 0 before
            the first.
        mean_weight: of the last episode.
    """

    widest: Tensor
    mean_weight: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("widest", torch.tensor(-1.0))
        self.register_buffer("mean_weight", torch.ones(()))

    @property
    def note(self) -> str | None:
        """After training: that the assessor never distinguished tuples, if so."""
        if not 0 <= float(self.widest) < INERT:
            return None
        return (
            "assessor inert: the weights of an episode never spread by more than "
            f"{float(self.widest):.1e} "
            "(standard deviation), so this run is its plain baseline on fewer images. Raise "
            "method.rate, "
            f"method.updates or method.virtual_factor."
        )

    def describe(
        self, weights: Float[Tensor, "t"], hardness: Float[Tensor, "t"]
    ) -> dict[str, Tensor]:
        """Return mean and deviation of the weights, and the mean of w d(y, y⁺) / d(y, y⁻), weighted
        and unweighted.

        ``ratio`` is weighted over unweighted; ``preference``, that over the mean weight, is 1 for
        equal weights.
        """
        mean, spread = weights.mean(), weights.std(correction=0)
        self.mean_weight.copy_(mean)
        self.widest.copy_(torch.maximum(self.widest, spread))
        weighted, plain = (weights * hardness).mean(), hardness.mean()
        ratio = weighted / plain.clamp(min=torch.finfo(plain.dtype).tiny)
        return {
            "weight_mean": mean,
            "weight_deviation": spread,  # a chart of its own: beside a mean of 0.5 nobody sees 0.01
            "hardness/weighted": weighted,
            "hardness/unweighted": plain,
            "hardness/ratio": ratio,
            "hardness/preference": ratio / mean,
        }


class Showcase:
    """Collect weighed tuples and show the extremes; nothing is read from the device before it is
    shown."""

    def __init__(self) -> None:
        self._records: list[Integer[Tensor, "t m"]] = []
        self._weights: list[Float[Tensor, "t"]] = []

    def clear(self) -> None:
        """Forget all: tuples of an epoch long past were weighed by another assessor."""
        self._records, self._weights = [], []

    def add(self, records: Integer[Tensor, "t m"], weights: Float[Tensor, "t"]) -> None:
        """Take in the tuples of an episode."""
        self._records.append(records)
        self._weights.append(weights)

    def figures(self) -> tuple[Figure, ...]:
        """Show two rows of tuples; none where nothing was collected.

        Tuples are ranked by their weight over the mean of their episode. That mean drifts within an
        epoch, so by the weights themselves one would see the last episode and the first.
        """
        if not self._weights:
            return ()
        records, weights = torch.cat(self._records).cpu(), torch.cat(self._weights).cpu()
        relative = torch.cat([episode / episode.mean() for episode in self._weights]).cpu()
        order = relative.argsort(descending=True, stable=True)
        roles = ROLES if records.shape[1] == len(ROLES) else PAIR_ROLES
        kinds = (("Heaviest tuples", order[:SHOWN]), ("Lightest tuples", order.flip(0)[:SHOWN]))
        caption = (
            f"Of {len(weights):,} tuples of the last epoch, weighed {relative.min():.3f} to "
            f"{relative.max():.3f} times "
            "the mean of their episode. Does the assessor prefer what a person would call "
            "instructive, or mislabeled "
            f"and odd pictures?"
        )

        def shown(place: int) -> tuple[list[int], tuple[str, ...], str]:
            text = f"weight {weights[place]:.3f}, {relative[place]:.3f} times the mean"
            return records[place].tolist(), roles, text

        return tuple(
            record_tuples(title, caption, map(shown, chosen.tolist())) for title, chosen in kinds
        )

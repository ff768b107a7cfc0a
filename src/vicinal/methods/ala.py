"""DML-ALA: Deep Metric Learning via Adaptive Learnable Assessment (Zheng, Lu and Zhou, CVPR 2020)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from vicinal.assessment.assessing import Assessing
from vicinal.assessment.assessor import Assessor
from vicinal.assessment.meta_gradient import (
    Route,
    embedding_tangents,
    gradient,
    lacks_forward_mode,
    norm,
    slopes,
    slopes_by_double_backward,
)
from vicinal.assessment.metric import Metric
from vicinal.assessment.scoring import Scored, Scoring, add_up
from vicinal.assessment.showcase import Showcase
from vicinal.data.records import Batch
from vicinal.exhibits import Exhibit
from vicinal.losses.loss import Loss
from vicinal.methods.optimisation import Optimisation, fuse
from vicinal.methods.plain import SHARED_READINGS, describe_batch
from vicinal.methods.recording import Recorder, Work, differentiate, learnt
from vicinal.models.embedder import Embedder
from vicinal.parallel import average_gradients, gather, processes
from vicinal.sampling.episodes import EpisodeSampler

INERT = 1e-3  # standard deviation of an episode's weights below which an assessor tells no tuple from another

READINGS = {
    "weights": (
        "Mean and standard deviation of the weights in an episode (the paper's Figure 4 a and b). They start at 0.5 "
        "and 0; the deviation should rise. Under 0.001 to the end, the assessor is inert and this is no ALA: raise its "
        "rate. A mean that moves without a deviation only changes the learning rate."
    ),
    "hardness": (
        "Average weighted hardness, the mean of w d(y, y+) / d(y, y-), beside the unweighted mean, and the ratio of "
        "the two (Figure 4 c and d). Preference is that ratio over the mean weight: above 1, harder tuples weigh more."
    ),
    "episode": (
        "Mean loss of the training tuples, unweighted, and of the validation tuples after the virtual step, on classes "
        "that the step did not see. Both should fall; only the first falling is over-fitting within an episode."
    ),
    "virtual_step": (
        "Length of the virtual step of Eq. (10) over that of the parameters. The assessor learns from what such a step "
        "does; one of less than about 1e-7 is lost to rounding."
    ),
}


class Seen(NamedTuple):
    """The training subset of the last step as constants, for what learns beside the metric (HDML's generator)."""

    features: Float[Tensor, "n c"]
    embeddings: Float[Tensor, "n d"]
    labels: Integer[Tensor, "n"]


class _Pass(NamedTuple):
    """The training subset on its way through the network: one pass serves the virtual and the real update."""

    inputs: Tensor
    features: Float[Tensor, "n c"]
    embeddings: Float[Tensor, "n d"]
    labels: Integer[Tensor, "n"]
    scored: Scored


@dataclass
class ALA:
    """A bilevel step: an assessor is taught what to weigh by the validation loss of a step that is tried and discarded.

        θ' = θ - α ∇ Σ_T A(T; φ) L(T; θ)              tried on the training subset       Zheng et al. 2020, Eq. (10)
        φ ← φ - β ∇_φ Σ_T' L(T'; θ'(φ))               K times, on the validation subset                   Eq. (12)
        θ ← θ - α Σ_T A(T; φ*) ∇ L(T; θ)              from the original θ                                 Eq. (13)

    One forward pass of the training subset serves (10) and (13); ``meta_gradient`` is how (12) costs no second order.
    The assessor's state passes through the whole training and advances once an episode, by the weights of (13).

    Differs: (13) is a step of the recipe's optimiser; the virtual step is plain descent with its rates. A loss's own
    parameters (margin loss's boundary) learn in (13) and stand still in (10), which moves the metric alone. Under an
    optimiser of Adam's kind a weight common to all tuples cancels: only their differences act.

    Attributes:
        embedder: the metric.
        scoring: which tuples a subset forms, and what each costs; HDML appends regenerated ones there.
        assessor: A, or a control.
        sampler: episodes.
        optimizer: of the embedder and the loss.
        settings: see ``Assessing``.
        schedule: of ``optimizer``.
    """

    embedder: Embedder
    scoring: Scoring
    assessor: Assessor
    sampler: EpisodeSampler
    optimizer: Optimizer
    settings: Assessing = field(default_factory=Assessing)
    schedule: LRScheduler | None = None

    def __post_init__(self) -> None:
        settings = self.settings
        self.metric = Metric(
            self.embedder,
            self.optimizer,
            unroll=settings.unroll,
            factor=settings.virtual_factor,
            compiled=settings.compiled,
        )
        self.teacher = settings.build(self.assessor)
        self.route: Route = settings.route
        pure = self.loss.replayable and self.assessor.replayable
        self._recorder = Recorder(self.embedder, learnt(self.optimizer), pure=pure)
        self._widest = torch.zeros(())  # standard deviation of weights, at its largest so far
        self._mean_weight = torch.ones(())
        self._showcase = Showcase()
        self.seen: Seen  # from the first step on

    @classmethod
    def optimised(
        cls,
        embedder: Embedder,
        scoring: Scoring,
        assessor: Assessor,
        sampler: EpisodeSampler,
        optimisation: Optimisation,
        settings: Assessing,
        *,
        epochs: int,
    ) -> "ALA":
        """With the optimiser and schedule that ``optimisation`` makes for ``epochs``."""
        steps = epochs * len(sampler)
        optimizer, schedule = optimisation.build(embedder, steps=steps, others=scoring.loss.parameters())
        return cls(embedder, scoring, assessor, sampler, optimizer, settings, schedule)

    @property
    def loss(self) -> Loss:
        return self.scoring.loss

    @property
    def notes(self) -> tuple[str, ...]:
        """Besides the sampler's note, once trained: whether the assessor ever told one tuple from another."""
        found = [self.sampler.note] if self.sampler.note else []
        if self.route != self.settings.route:
            found.append("an operator of the network has no forward mode: meta-gradients came by double backward.")
        if self.teacher is not None and 0 < float(self._widest) < INERT:
            found.append(
                f"assessor inert: the weights of an episode never spread by more than {float(self._widest):.1e} "
                f"(standard deviation), so this run is its plain twin on fewer images. Raise assessing.rate or "
                f"assessing.virtual_factor."
            )
        return tuple(found)

    @property
    def readings(self) -> Mapping[str, str]:
        return READINGS | SHARED_READINGS

    def to(self, device: torch.device) -> None:
        for module in (self.embedder, self.scoring, self.assessor):
            module.to(device)
        self.metric.to(device)
        self._widest, self._mean_weight = self._widest.to(device), self._mean_weight.to(device)
        self._fuse()

    def batches(self, epoch: int) -> Sequence[Sequence[int]]:
        self._showcase.clear()
        return self.sampler.epoch(epoch)

    def step(self, batch: Batch) -> dict[str, Tensor]:
        """Teach the assessor on this episode, then take one optimisation step with its weights."""
        self.metric.follow()
        done = self._recorder(self._work, batch)
        average_gradients(self._recorder.parameters)
        self.optimizer.step()
        if self.schedule is not None:
            self.schedule.step()
        *seen, weights = done.seen
        self.seen = Seen(*seen)
        rows = self.scoring.rows(len(self.seen.labels))
        if rows is not None and processes() == 1:
            self._showcase.add(batch.indices[rows], weights.clone())
        return dict(done.scalars)

    def exhibits(self) -> Sequence[Exhibit]:
        """The heaviest and the lightest tuples of the last epoch."""
        return self._showcase.exhibits() if self.assessor.learns else ()

    def collapsed_loss(self, batch: Batch) -> float:
        """At the mean weight of the last episode."""
        rows, device = self.sampler.training_rows, self._mean_weight.device
        same = nn.functional.normalize(torch.ones(rows, self.embedder.dim or self.embedder.width, device=device), dim=1)
        with torch.no_grad():
            labels = torch.arange(rows, device=device) % (rows // 2)
            scored: Scored = self.scoring.real(same, labels, nn.Identity())
            losses = self.settings.factors(self._mean_weight.expand(len(scored.losses))) * scored.losses
            return float(add_up(losses, self.settings.over))

    def state_dict(self) -> dict[str, Any]:
        seen = {"widest": self._widest.clone(), "mean_weight": self._mean_weight.clone()}
        return {name: part.state_dict() for name, part in self._parts().items()} | {"seen": seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        self._widest.copy_(state["seen"]["widest"])
        self._mean_weight.copy_(state["seen"]["mean_weight"])
        self._fuse()  # what was saved elsewhere says how it was there

    # -- the pieces of a step ---------------------------------------------------------------------

    def _work(self, inputs: Tensor, labels: Tensor) -> Work:
        """Teach, weigh, differentiate; the assessor's own updates are part of it."""
        training = self._pass(inputs, labels)
        taught = self._teach(inputs, labels, training)
        scored = training.scored
        assessed = self.assessor(scored.members)
        self.assessor.advance(assessed.state)
        weights = assessed.weights.detach()
        loss = add_up(self.settings.factors(weights) * scored.losses, self.settings.over)
        differentiate(loss, self._recorder.parameters)
        described = describe_batch(training.embeddings.detach(), training.labels, self.loss)
        scalars = {"loss": loss.detach(), **described, **self._describe(weights, scored), **taught}
        return Work(scalars, (training.features.detach(), training.embeddings.detach(), training.labels, weights))

    def _pass(self, inputs: Tensor, labels: Tensor) -> _Pass:
        """The training subset through the real network; of several processes each passes its part of both subsets."""
        rows = self.sampler.training_rows
        inputs, labels = (x[:rows] if processes() == 1 else x for x in (inputs, labels))
        features, labels = gather(self.metric.features(inputs), labels)
        features, labels = features[:rows], labels[:rows]
        embeddings = self.embedder.embed(features)
        return _Pass(inputs, features, embeddings, labels, self.scoring(embeddings, labels, self.embedder.embed))

    def _teach(self, inputs: Tensor, labels: Tensor, training: _Pass) -> dict[str, Tensor]:
        """K updates of the assessor, Eqs. (10) to (12); nothing else changes."""
        if self.teacher is None:
            return {}
        scored, settings = training.scored, self.settings
        told: dict[str, Tensor] = {}
        along: Tensor | None = None
        for _ in range(settings.updates):
            assessed = self.assessor(scored.members)
            if along is None or settings.recompute:
                objective = add_up(settings.factors(assessed.weights.detach()) * scored.losses, settings.over)
                steps = self.metric.scaled(self._averaged(gradient(objective, self.metric.leaves)))
                validation, direction = self._validate(inputs, labels, steps)
                along = self._slopes(direction, training)
                told = told or self._told(steps, validation, scored)
            # ∂L_va/∂w_T = -slope, so the gradient of this in φ is that of Eq. (11).
            meta = -add_up(along * settings.factors(assessed.weights), settings.over)
            self.teacher.zero_grad(set_to_none=True)
            meta.backward()  # type: ignore[no-untyped-call]
            average_gradients(self.assessor.parameters())
            self.teacher.step()
        return told

    def _validate(self, inputs: Tensor, labels: Tensor, steps: list[Tensor]) -> tuple[Float[Tensor, ""], list[Tensor]]:
        """The validation loss at θ' = θ - steps, unweighted, and u = α ∇ of it."""
        rows = self.sampler.training_rows
        inputs, labels = (x[rows:] if processes() == 1 else x for x in (inputs, labels))
        if self.settings.unroll == "head":
            inputs = self.metric.frozen_features(inputs)
        tried = {name: value.requires_grad_() for name, value in self.metric.moved(steps).items()}
        embeddings, labels = gather(self.metric.embed(tried, inputs), labels)
        last = slice(rows - self.sampler.batch_size, None)
        scored: Scored = self.scoring.real(embeddings[last], labels[last], self.metric.head(tried))
        loss = add_up(scored.losses, self.settings.over)
        gradients = torch.autograd.grad(loss, list(tried.values()), materialize_grads=True)
        return loss.detach(), self.metric.scaled(self._averaged(list(gradients)))

    def _slopes(self, direction: list[Tensor], training: _Pass) -> Float[Tensor, "t"]:
        """How each tuple's loss changes along ``direction``."""
        if self.route != "double_backward":
            inputs = training.features.detach() if self.settings.unroll == "head" else training.inputs
            try:
                tangents = embedding_tangents(self.metric, inputs, direction, route=self.route)
            except RuntimeError as error:
                if not lacks_forward_mode(error):
                    raise
                self.route = "double_backward"  # from now on; `notes` says so
            else:
                rows, labels = len(training.labels), training.labels
                if self.settings.unroll == "all":
                    tangents, _ = gather(tangents, labels.new_zeros(len(tangents)))
                return slopes(self.metric, self.scoring, direction, training.embeddings, tangents[:rows], labels)
        return slopes_by_double_backward(training.scored.losses, self.metric.leaves, direction)

    def _averaged(self, gradients: list[Tensor]) -> list[Tensor]:
        """Over the processes, each of which sees the whole loss but only its own rows."""
        if processes() == 1:
            return gradients
        holders = [nn.Parameter(g, requires_grad=False) for g in gradients]
        for holder, g in zip(holders, gradients, strict=True):
            holder.grad = g.clone()
        average_gradients(holders)
        return [holder.grad for holder in holders if holder.grad is not None]

    def _fuse(self) -> None:
        """Fit both optimisers to where the embedder is; the assessor's steps within what is recorded."""
        device = self._widest.device
        fuse(self.optimizer, device)
        if self.teacher is not None:
            fuse(self.teacher, device, recorded=True)

    def _told(self, steps: list[Tensor], validation: Tensor, scored: Scored) -> dict[str, Tensor]:
        tuples = 1 if self.settings.over == "mean" else self.sampler.validation_classes
        return {
            "episode/training": scored.losses.detach().mean(),
            "episode/validation": validation / tuples,
            "virtual_step/relative_length": norm(steps) / norm(list(self.metric.parameters().values())),
        }

    def _describe(self, weights: Float[Tensor, "t"], scored: Scored) -> dict[str, Tensor]:
        """The paper's Figure 4."""
        mean, spread = weights.mean(), weights.std(correction=0)
        self._mean_weight.copy_(mean)
        self._widest.copy_(torch.maximum(self._widest, spread))
        weighted, plain = (weights * scored.hardness).mean(), scored.hardness.mean()
        ratio = weighted / plain.clamp(min=torch.finfo(plain.dtype).tiny)
        return {
            "weights/mean": mean,
            "weights/deviation": spread,
            "hardness/weighted": weighted,
            "hardness/unweighted": plain,
            "hardness/ratio": ratio,
            "hardness/preference": ratio / mean,
        }

    def _parts(self) -> dict[str, Any]:
        parts = {
            "embedder": self.embedder,
            "scoring": self.scoring,
            "assessor": self.assessor,
            "optimizer": self.optimizer,
            "teacher": self.teacher,
            "schedule": self.schedule,
        }
        return {name: part for name, part in parts.items() if part is not None}

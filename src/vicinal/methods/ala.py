"""DML-ALA: Deep Metric Learning via Adaptive Learnable Assessment (Zheng, Lu and Zhou, CVPR 2020)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from vicinal.assessment.analysis import WeightAnalysis
from vicinal.assessment.assessing import ALAConfig
from vicinal.assessment.assessor import Assessor
from vicinal.assessment.metric import Metric
from vicinal.assessment.scoring import Scored, Scoring, add_up
from vicinal.assessment.showcase import Showcase
from vicinal.assessment.teaching import Teaching
from vicinal.data.records import Batch
from vicinal.errors import ConfigError
from vicinal.exhibits import Exhibit
from vicinal.losses.loss import Loss
from vicinal.methods.method import Parts, check_batches
from vicinal.methods.optimizer import OptimizerConfig, fuse
from vicinal.methods.plain import SHARED_READINGS, describe_batch
from vicinal.methods.recording import Recorder, Work, differentiate, learnt
from vicinal.models.embedder import Embedder
from vicinal.parallel import average_gradients, processes
from vicinal.sampling.episodes import EpisodeSampler

READINGS = {
    "weight_mean": (
        "Mean of the weights in an episode (the paper's Figure 4 b). It starts at 0.5; a mean that moves without a "
        "deviation only changes the learning rate."
    ),
    "weight_deviation": (
        "Standard deviation of the weights in an episode, the root of the variance in Figure 4 a. It starts at 0 and "
        "should rise. Under 0.001 to the end, the assessor is inert and this is no ALA: raise its rate."
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
        "does to the validation loss; under about 1e-7 that is its first order alone, for float32 no longer sees it."
    ),
}


@dataclass(frozen=True)
class ALA(ALAConfig):
    __doc__ = ALAConfig.__doc__

    default_loss: ClassVar[str] = "triplet"

    def sampler_for(self, loss: type[nn.Module]) -> str:
        return "episodes"

    def check(self, loss: nn.Module, sampler: object) -> None:
        check_batches("ALA", loss, sampler, ("episodes",))
        if sampler is not None and not hasattr(sampler, "training_rows"):
            raise ConfigError(
                f"ALA needs episodes of a training and a validation subset, but {type(sampler).__name__} has no "
                f"`training_rows`. Set sampler=episodes."
            )
        self.scoring(loss)

    def build(self, parts: Parts) -> "ALATraining":
        self.check(parts.loss, parts.sampler)
        scoring = self.scoring(parts.loss)
        assessor = self.build_assessor(scoring.seen * (parts.embedder.dim or parts.embedder.width), parts.seed)
        return ALATraining.from_config(
            parts.embedder, scoring, assessor, parts.sampler, parts.optimizer, self, steps=parts.steps
        )


class Seen(NamedTuple):
    """The training subset of the last step as constants, for what learns beside the metric (HDML's generator)."""

    features: Float[Tensor, "n c"]
    embeddings: Float[Tensor, "n d"]
    labels: Integer[Tensor, "n"]


@dataclass
class ALATraining:
    """A bilevel step: an assessor is taught what to weigh by the validation loss of a step that is tried and discarded.

        θ' = θ - α ∇ Σ_T A(T; φ) L(T; θ)              tried on the training subset       Zheng et al. 2020, Eq. (10)
        φ ← φ - β ∇_φ Σ_T' L(T'; θ'(φ))               K times, on the validation subset                   Eq. (12)
        θ ← θ - α Σ_T A(T; φ*) ∇ L(T; θ)              from the original θ                                 Eq. (13)

    ``Teaching`` does (10) to (12), without second order; its forward pass of the training subset serves (13) as well.
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
        settings: see ``ALA``.
        schedule: of ``optimizer``.
    """

    embedder: Embedder
    scoring: Scoring
    assessor: Assessor
    sampler: EpisodeSampler
    optimizer: Optimizer
    settings: ALAConfig = field(default_factory=ALAConfig)
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
        self.teaching = Teaching(self.metric, self.scoring, self.assessor, self.sampler, settings)
        pure = self.loss.replayable and self.assessor.replayable
        self._recorder = Recorder(self.embedder, learnt(self.optimizer), pure=pure)
        self._analysis = WeightAnalysis()
        self._showcase = Showcase()
        self.seen: Seen  # from the first step on

    @classmethod
    def from_config(
        cls,
        embedder: Embedder,
        scoring: Scoring,
        assessor: Assessor,
        sampler: EpisodeSampler,
        config: OptimizerConfig,
        settings: ALAConfig,
        *,
        steps: int,
    ) -> "ALATraining":
        """Build the optimizer and its schedule for ``steps`` updates."""
        optimizer, schedule = config.build(embedder, steps=steps, others=scoring.loss.parameters())
        return cls(embedder, scoring, assessor, sampler, optimizer, settings, schedule)

    @property
    def loss(self) -> Loss:
        return self.scoring.loss

    @property
    def notes(self) -> tuple[str, ...]:
        """The sampler's and, once trained, how derivatives came and whether the assessor ever told tuples apart."""
        weights = self._analysis.note if self.assessor.learns else None
        return tuple(note for note in (self.sampler.note, self.teaching.note, weights) if note)

    @property
    def readings(self) -> Mapping[str, str]:
        return READINGS | SHARED_READINGS

    def to(self, device: torch.device) -> None:
        for module in (self.embedder, self.scoring, self.assessor):
            module.to(device)
        self.metric.to(device)
        self._analysis.to(device)
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
            self._showcase.add(batch.indices[rows], weights[: len(rows)].clone())
        return dict(done.scalars)

    def exhibits(self) -> Sequence[Exhibit]:
        """The heaviest and the lightest tuples of the last epoch."""
        return self._showcase.exhibits() if self.assessor.learns else ()

    def collapsed_loss(self, batch: Batch) -> float:
        """At the mean weight of the last episode."""
        rows, weight = self.sampler.training_rows, self._analysis.mean_weight
        device = weight.device
        same = nn.functional.normalize(torch.ones(rows, self.embedder.dim or self.embedder.width, device=device), dim=1)
        with torch.no_grad():
            labels = torch.arange(rows, device=device) % (rows // 2)
            scored: Scored = self.scoring.real(same, labels, nn.Identity())
            losses = self.settings.factors(weight.expand(len(scored.losses))) * scored.losses
            return float(add_up(losses, self.settings.over))

    def state_dict(self) -> dict[str, Any]:
        return {name: part.state_dict() for name, part in self._parts().items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        self._fuse()  # what was saved elsewhere says how it was there

    # -- the pieces of a step ---------------------------------------------------------------------

    def _work(self, inputs: Tensor, labels: Tensor) -> Work:
        """Teach, weigh, differentiate; the assessor's own updates are part of it."""
        training = self.teaching.training_pass(inputs, labels)
        taught = self.teaching.teach(inputs, labels, training)
        scored = training.scored
        assessed = self.assessor(scored.members)
        self.assessor.advance(assessed.state)
        weights = assessed.weights.detach()
        loss = add_up(self.settings.factors(weights) * scored.losses, self.settings.over)
        differentiate(loss, self._recorder.parameters)
        described = describe_batch(training.embeddings.detach(), training.labels, self.loss)
        scalars = {"loss": loss.detach(), **described, **self._analysis.describe(weights, scored.hardness), **taught}
        return Work(scalars, (training.features.detach(), training.embeddings.detach(), training.labels, weights))

    def _fuse(self) -> None:
        """Fit both optimisers to where the embedder is; the assessor's steps within what is recorded."""
        device = self._analysis.widest.device
        fuse(self.optimizer, device)
        if self.teaching.optimizer is not None:
            fuse(self.teaching.optimizer, device, recorded=True)

    def _parts(self) -> dict[str, Any]:
        parts = {
            "embedder": self.embedder,
            "scoring": self.scoring,
            "assessor": self.assessor,
            "optimizer": self.optimizer,
            "teacher": self.teaching.optimizer,
            "schedule": self.schedule,
            "seen": self._analysis,
        }
        return {name: part for name, part in parts.items() if part is not None}

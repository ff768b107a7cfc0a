"""The method that every other one is measured against: embed, score, step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from vicinal.assessment.scoring import EpisodeLoss, TripletScoring
from vicinal.data.records import Batch
from vicinal.exhibits import Exhibit
from vicinal.geometry import pairwise_distances, unit_rows
from vicinal.losses.activity import active_among
from vicinal.losses.loss import Loss
from vicinal.losses.separability import inseparable_among
from vicinal.methods.method import Parts, Sampler, check_batches
from vicinal.methods.optimizer import OptimizerConfig, fuse
from vicinal.methods.recording import Recorder, Work, differentiate, learnt
from vicinal.models.embedder import Embedder
from vicinal.parallel import average_gradients, gather

# How to read what ``describe_batch`` finds, whatever the method.
SHARED_READINGS = {
    "inseparable_share": (
        "Samples of a batch that cannot be told apart: around each anchor the ball that separates best leaves some "
        "similar samples outside and takes some dissimilar ones in (the inseparable samples of ANML, Section 4.1). "
        "Both should fall. What stays while the loss falls is noise in the labels, several clusters in a class, or "
        "classes that overlap: losses that insist on the hardest samples then learn from the wrong ones."
    )
}


@dataclass(frozen=True)
class Plain:
    """Train on the loss alone: the baseline of every other method.

    On episodes (ALA's batches) it scores the triplets that ALA would weigh, all with weight 1.
    """

    default_loss: ClassVar[str] = "multi_similarity"

    def sampler_for(self, loss: type[nn.Module]) -> str:
        return getattr(loss, "layout", None) or "classes"

    def check(self, loss: nn.Module, sampler: object) -> None:
        check_batches("method=plain", loss, sampler)

    def build(self, parts: Parts) -> "PlainTraining":
        self.check(parts.loss, parts.sampler)
        loss = parts.loss
        rows = getattr(parts.sampler, "training_rows", None)
        if rows is not None and isinstance(loss, Loss) and loss.takes_reference:
            loss = EpisodeLoss(TripletScoring(loss), training_rows=rows)
        return PlainTraining.from_config(parts.embedder, loss, parts.sampler, parts.optimizer, steps=parts.steps)


@dataclass
class PlainTraining:
    """One loss, one optimiser. HDML, LoOp and ALA differ from this file, not from the loop.

    The loss sees z before normalisation: each loss states for itself whether it works on the sphere.
    """

    embedder: Embedder
    loss: nn.Module
    sampler: Sampler
    optimizer: Optimizer
    schedule: LRScheduler | None = None
    _recorder: Recorder = field(init=False, repr=False)

    def __post_init__(self) -> None:
        pure = bool(getattr(self.loss, "replayable", False))
        self._recorder = Recorder(self.embedder, learnt(self.optimizer), pure=pure)

    @classmethod
    def from_config(
        cls, embedder: Embedder, loss: nn.Module, sampler: Sampler, config: OptimizerConfig, *, steps: int
    ) -> "PlainTraining":
        """Build the optimizer and its schedule for ``steps`` updates; the parameters of the loss are trained, too."""
        optimizer, schedule = config.build(embedder, steps=steps, others=loss.parameters())
        return cls(embedder, loss, sampler, optimizer, schedule)

    @property
    def notes(self) -> tuple[str, ...]:
        return () if self.sampler.note is None else (self.sampler.note,)

    @property
    def readings(self) -> Mapping[str, str]:
        return SHARED_READINGS

    def to(self, device: torch.device) -> None:
        self.embedder.to(device)
        self.loss.to(device)
        fuse(self.optimizer, device)

    def batches(self, epoch: int) -> Sequence[Sequence[int]]:
        return self.sampler.epoch(epoch)

    def step(self, batch: Batch) -> dict[str, Tensor]:
        """Take one optimisation step; return what the step was worth."""
        done = self._recorder(self._work, batch)
        average_gradients(self._recorder.parameters)
        self.optimizer.step()
        if self.schedule is not None:
            self.schedule.step()
        return dict(done.scalars)

    def _work(self, inputs: Tensor, labels: Tensor) -> Work:
        """Embed, score, differentiate."""
        embeddings, labels = gather(self.embedder.embed(self.embedder.features(inputs)), labels)
        loss = self.loss(embeddings, labels)
        described = describe_batch(embeddings.detach(), labels, self.loss)
        differentiate(loss, self._recorder.parameters)
        return Work({"loss": loss.detach(), **described})

    def collapsed_loss(self, batch: Batch) -> float:
        return collapsed_loss(self.loss, batch.labels, self.embedder.dim or self.embedder.width)

    def exhibits(self) -> Sequence[Exhibit]:
        return ()

    def state_dict(self) -> dict[str, Any]:
        state = {
            "embedder": self.embedder.state_dict(),
            "loss": self.loss.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }
        return state if self.schedule is None else state | {"schedule": self.schedule.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.embedder.load_state_dict(state["embedder"])
        self.loss.load_state_dict(state["loss"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.schedule is not None:
            self.schedule.load_state_dict(state["schedule"])


@torch.no_grad()
def describe_batch(embeddings: Tensor, labels: Tensor, loss: nn.Module) -> dict[str, Tensor]:
    """What every method reports of a batch besides its loss.

    ``active`` is the share of the batch's triplets whose negative is not farther than the positive by the loss's margin
    (0 where it has none), in the loss's own distance; ``spread`` is the embeddings' distance from their common mean
    relative to their length, 0 when all have collapsed to one point; for ``inseparable_share`` see ``SHARED_READINGS``.
    """
    loss = getattr(loss, "loss", loss)  # what a memory or an adapter stands around
    margin = getattr(loss, "margin", 0.0)
    points = unit_rows(embeddings) if getattr(loss, "normalize", True) else embeddings
    apart = pairwise_distances(points, squared=bool(getattr(loss, "squared", False)))
    active = active_among(apart, labels, float(margin) if isinstance(margin, (int, float)) else 0.0)
    similar, dissimilar = inseparable_among(apart, labels)  # which sees the order of distances alone
    centred = embeddings - embeddings.mean(dim=0)
    spread = centred.norm() / embeddings.norm().clamp(min=torch.finfo(embeddings.dtype).tiny)
    shares = {"inseparable_share/similar": similar, "inseparable_share/dissimilar": dissimilar}
    return {"active": active, "spread": spread, **shares}


def collapsed_loss(loss: nn.Module, labels: Tensor, dim: int) -> float:
    """The loss of a batch whose embeddings are all the same unit vector."""
    same = functional.normalize(torch.ones(len(labels), dim, device=labels.device), dim=1)
    with torch.no_grad():
        return float(loss(same, labels))

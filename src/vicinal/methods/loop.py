"""LoOp: Looking for Optimal Hard Negative Embeddings (Vasudeva, Deora, Bhattacharya, Pal and Chanda, ICCV 2021)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from vicinal.data.records import Batch
from vicinal.errors import ConfigError
from vicinal.exhibits import Exhibit, Member, RecordTuple, Tuples
from vicinal.geometry import arc_distances, pairwise_distances, unit_rows
from vicinal.losses.loss import Comparisons
from vicinal.methods.method import Parts, Sampler, check_batches
from vicinal.methods.optimizer import OptimizerConfig, fuse
from vicinal.methods.plain import SHARED_READINGS, collapsed_loss, describe_batch
from vicinal.methods.recording import Recorder, Work, differentiate, learnt
from vicinal.models.embedder import Embedder
from vicinal.parallel import average_gradients, gather, processes
from vicinal.synthesis.embedding_expansion import EmbeddingExpansion as ExpandedNegatives
from vicinal.synthesis.optimal_negatives import (
    OptimalNegatives,
    Overlap,
    Pairing,
    checked,
    checked_overlap,
    checked_pairing,
    positive_pairs,
    reduce_pairs,
)
from vicinal.tuples import other_class

SHOWN = 6  # pairs of pairs in the report

READINGS = {
    "hardest_negative": (
        "What the hardest negative is to the loss (a distance; for N-pair and multi-similarity loss a similarity) on "
        "average: of each sample the hardest real one, of each positive pair the hardest point between two of another "
        "class. The two should stay apart. Together: arcs are so short that nothing lies between their ends, as when "
        "classes have collapsed, or they overlap and samples stand for them (overlap=samples). With overlap=arcs, a "
        "distance of 0 between pairs all along: arcs of different classes cross, so classes overlap, and what lies "
        "between two samples of a class need not be of it."
    )
}


@dataclass(frozen=True)
class LoOp:
    """LoOp (Vasudeva et al. 2021): the loss's negatives are the nearest points between arcs of positive pairs.

    Differs: where arcs overlap, samples stand for them; ``overlap="arcs"`` is the paper's. On held-out classes of
    Cars196 R@1 was 73.3 with ``"arcs"``, 79.8 with ``"samples"`` and 80.5 without LoOp (multi-similarity, one seed).

    Attributes:
        pairing: ``"all"`` positive pairs, each once, ``"consecutive"`` rows of a class as the authors pair them, or
            each row with the ``"nearest"`` of its class.
        overlap: what stands for two arcs that are closer to each other than the ends of one of them are: the hardest of
            their four ``"samples"``, or the nearest points of the ``"arcs"``. A point between two samples of a class
            need not be of that class while classes overlap.
        wait: steps with the loss alone before LoOp begins.
    """

    pairing: Pairing = "all"
    overlap: Overlap = "samples"
    wait: int = 0

    default_loss: ClassVar[str] = "multi_similarity"

    def __post_init__(self) -> None:
        checked_pairing(self.pairing)
        checked_overlap(self.overlap)
        if self.wait < 0:
            raise ConfigError(f"wait is a number of steps, 0 or more, got {self.wait}.")

    def sampler_for(self, loss: type[nn.Module]) -> str:
        return "classes"

    def check(self, loss: nn.Module, sampler: object) -> None:
        _check_pairs("LoOp", loss, sampler, self.pairing)

    def build(self, parts: Parts) -> "LoOpTraining":
        self.check(parts.loss, parts.sampler)
        negatives = OptimalNegatives(checked(parts.loss), pairing=self.pairing, overlap=self.overlap)
        return LoOpTraining.from_config(
            parts.embedder, negatives, parts.sampler, parts.optimizer, steps=parts.steps, wait=self.wait
        )


@dataclass(frozen=True)
class EmbeddingExpansion:
    """Embedding Expansion (Ko and Gu 2020): negatives are the nearest of a few points between members of pairs.

    Attributes:
        points: number of points between the two members of a pair; the paper's best is 2.
        pairing: as of ``LoOp``.
    """

    points: int = 2
    pairing: Pairing = "all"

    default_loss: ClassVar[str] = "multi_similarity"

    def __post_init__(self) -> None:
        checked_pairing(self.pairing)
        if self.points < 0:
            raise ConfigError(f"points is at least 0, got {self.points}.")

    def sampler_for(self, loss: type[nn.Module]) -> str:
        return "classes"

    def check(self, loss: nn.Module, sampler: object) -> None:
        _check_pairs("Embedding Expansion", loss, sampler, self.pairing)

    def build(self, parts: Parts) -> "LoOpTraining":
        self.check(parts.loss, parts.sampler)
        negatives = ExpandedNegatives(checked(parts.loss), points=self.points, pairing=self.pairing)
        return LoOpTraining.from_config(parts.embedder, negatives, parts.sampler, parts.optimizer, steps=parts.steps)


def _check_pairs(method: str, loss: nn.Module, sampler: object, pairing: Pairing) -> None:
    check_batches(method, loss, sampler, ("classes",))
    checked(loss)
    per_class = getattr(sampler, "per_class", 2)
    if pairing == "consecutive" and per_class % 2:
        raise ConfigError(
            f"pairing=consecutive needs an even number of samples of each class, got per_class={per_class}. "
            f"Set sampler.per_class={per_class + 1}, or method.pairing=all."
        )


@dataclass
class LoOpTraining:
    """One loss, one optimiser; the loss's negatives are the nearest points between arcs of positive pairs.

    Nothing is generated and nothing is added to the network, so a step costs what the plain step costs and a little
    arithmetic on inner products. Embedding Expansion, which looks at a few points of each arc only, trains alike.

    Attributes:
        embedder: f and g.
        loss: what to score and where its negatives come from.
        sampler: batches of classes with at least two samples each.
        optimizer: of the embedder and the loss.
        schedule: of ``optimizer``.
        wait: steps with the loss alone before LoOp begins.
    """

    embedder: Embedder
    loss: OptimalNegatives | ExpandedNegatives
    sampler: Sampler
    optimizer: Optimizer
    schedule: LRScheduler | None = None
    wait: int = 0
    _seen: tuple[Tensor, Tensor, Tensor] | None = field(default=None, init=False, repr=False)
    _recorder: Recorder = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._steps = torch.zeros((), dtype=torch.long)  # done so far; counted where ``wait`` needs it
        pure = self.loss.loss.replayable
        self._recorder = Recorder(self.embedder, learnt(self.optimizer), pure=pure)

    @classmethod
    def from_config(
        cls,
        embedder: Embedder,
        loss: OptimalNegatives | ExpandedNegatives,
        sampler: Sampler,
        config: OptimizerConfig,
        *,
        steps: int,
        wait: int = 0,
    ) -> "LoOpTraining":
        """Build the optimizer and its schedule for ``steps`` updates."""
        optimizer, schedule = config.build(embedder, steps=steps, others=loss.parameters())
        return cls(embedder, loss, sampler, optimizer, schedule, wait)

    @property
    def notes(self) -> tuple[str, ...]:
        return () if self.sampler.note is None else (self.sampler.note,)

    @property
    def readings(self) -> Mapping[str, str]:
        return READINGS | SHARED_READINGS

    def to(self, device: torch.device) -> None:
        self.embedder.to(device)
        self.loss.to(device)
        self._steps = self._steps.to(device)
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
        self._seen = done.seen[0], done.seen[1], batch.indices
        return dict(done.scalars)

    def _work(self, inputs: Tensor, labels: Tensor) -> Work:
        """Embed, find what lies between, score, differentiate."""
        embeddings, labels = gather(self.embedder.embed(self.embedder.features(inputs)), labels)
        comparisons = self.loss.comparisons(embeddings, labels)
        loss = reduce_pairs(self.loss.loss, comparisons)
        if self.wait:  # counted and chosen on the device: a CUDA graph would repeat what Python once decided
            loss = torch.where(self._steps < self.wait, self.loss.loss(embeddings, labels), loss)
            self._steps += 1
        described = describe_batch(embeddings.detach(), labels, self.loss)
        described |= self._hardest(comparisons, embeddings.detach(), labels)
        differentiate(loss, self._recorder.parameters)
        return Work({"loss": loss.detach(), **described}, (embeddings.detach(), labels))

    def collapsed_loss(self, batch: Batch) -> float:
        return collapsed_loss(self.loss, batch.labels, self.embedder.dim or self.embedder.width)

    def exhibits(self) -> Sequence[Exhibit]:
        """Two pairs each of the last batch, whose arcs are much nearer than any of their samples."""
        if self._seen is None or processes() > 1:  # resumed at the very end, or rows of other processes
            return ()
        shown = _nearest_arcs(*self._seen)
        return () if shown is None else (shown,)

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {name: part.state_dict() for name, part in self._parts().items()}
        return state | {"steps": self._steps.clone()} if self.wait else state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        if self.wait:
            self._steps.copy_(state["steps"])

    def _parts(self) -> dict[str, nn.Module | Optimizer | LRScheduler]:
        parts = {"embedder": self.embedder, "loss": self.loss, "optimizer": self.optimizer, "schedule": self.schedule}
        return {name: part for name, part in parts.items() if part is not None}

    @torch.no_grad()
    def _hardest(
        self, c: Comparisons, embeddings: Float[Tensor, "n d"], labels: Integer[Tensor, "n"]
    ) -> dict[str, Tensor]:
        """The hardest negative between pairs, and the hardest that is a sample; means over rows that have one."""
        sign = 1 if self.loss.loss.larger_is_closer else -1
        between, samples = sign * c.negative, sign * self.loss.loss.compare(embeddings)
        found = {}
        for name, numbers, keep in (("sample", samples, other_class(labels)), ("between", between, c.keep_negative)):
            there = keep.any(dim=1)
            hardest = numbers.masked_fill(~keep, -torch.inf).amax(dim=1) if keep.shape[1] else numbers.sum(dim=1)
            total = hardest.masked_fill(~there, 0).sum() / there.sum().clamp(min=1)
            found[f"hardest_negative/{name}"] = sign * total
        return found


@torch.no_grad()
def _nearest_arcs(
    embeddings: Float[Tensor, "n d"], labels: Integer[Tensor, "n"], records: Integer[Tensor, "n"]
) -> Tuples | None:
    """The pairs of pairs that gain most: far as samples, near as arcs."""
    rows, labels, records = unit_rows(embeddings).cpu(), labels.cpu(), records.cpu()
    first, second, _ = positive_pairs(labels, "all")
    apart = other_class(labels[first]).triu()
    if not apart.any():
        return None
    ends = torch.cat([first, second])
    among = pairwise_distances(rows[ends], squared=False).view(2, len(first), 2, len(first)).amin(dim=(0, 2))
    arcs = arc_distances(rows[first], rows[second])
    gain = (among - arcs).masked_fill(~apart, -1).flatten()
    tuples = []
    for place in gain.topk(min(SHOWN, int(apart.sum()))).indices.tolist():
        a, b = divmod(place, len(first))
        members = [(first[a], "pair"), (second[a], "pair"), (first[b], "other pair"), (second[b], "other pair")]
        tuples.append(
            RecordTuple(
                tuple(Member(int(records[row]), role) for row, role in members),
                f"{among[a, b]:.2f} between samples, {arcs[a, b]:.2f} between arcs",
            )
        )
    return Tuples(
        "Where arcs come nearer than samples",
        "Two positive pairs each of the last batch. The loss saw the distance between their arcs, not the larger one "
        "between their samples; pictures half-way between the two of a pair should still look like their class.",
        tuple(tuples),
    )

"""LoOp: Looking for Optimal Hard Negative Embeddings (Vasudeva, Deora, Bhattacharya, Pal and Chanda, ICCV 2021)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from vicinal.data.records import Batch
from vicinal.exhibits import Exhibit, Member, RecordTuple, Tuples
from vicinal.geometry import arc_distances, pairwise_distances, unit_rows
from vicinal.losses.loss import Comparisons
from vicinal.methods.optimisation import Optimisation, fuse
from vicinal.methods.plain import SHARED_READINGS, Sampler, collapsed_loss, describe_batch
from vicinal.methods.recording import Recorder, Work, differentiate, learnt
from vicinal.models.embedder import Embedder
from vicinal.parallel import average_gradients, gather, processes
from vicinal.synthesis.embedding_expansion import EmbeddingExpansion
from vicinal.synthesis.optimal_negatives import OptimalNegatives, grows_with_likeness, positive_pairs, reduce_pairs
from vicinal.tuples import other_class

SHOWN = 6  # pairs of pairs in the report

READINGS = {
    "hardest_negative": (
        "What the hardest negative is to the loss (a distance; for N-pair and multi-similarity loss a similarity) on "
        "average: of each sample the hardest real one, of each positive pair the hardest point between two of another "
        "class. The two should stay apart. Together: arcs are so short that nothing lies between their ends, as when "
        "classes have collapsed. A distance of 0 between pairs all along: arcs of different classes cross, so classes "
        "overlap, and what lies between two samples of a class need not be of it."
    )
}


@dataclass
class LoOp:
    """One loss, one optimiser; the loss's negatives are the nearest points between arcs of positive pairs.

    Nothing is generated and nothing is added to the network, so a step costs what the plain step costs and a little
    arithmetic on inner products. Embedding Expansion, which looks at a few points of each arc only, trains alike.

    Attributes:
        embedder: f and g.
        loss: what to score and where its negatives come from.
        sampler: batches of classes with at least two samples each.
        optimizer: of the embedder and the loss.
        schedule: of ``optimizer``.
    """

    embedder: Embedder
    loss: OptimalNegatives | EmbeddingExpansion
    sampler: Sampler
    optimizer: Optimizer
    schedule: LRScheduler | None = None
    _seen: tuple[Tensor, Tensor, Tensor] | None = field(default=None, init=False, repr=False)
    _recorder: Recorder = field(init=False, repr=False)

    def __post_init__(self) -> None:
        pure = self.loss.loss.replayable
        self._recorder = Recorder(self.embedder, learnt(self.optimizer), pure=pure)

    @classmethod
    def optimised(
        cls,
        embedder: Embedder,
        loss: OptimalNegatives | EmbeddingExpansion,
        sampler: Sampler,
        optimisation: Optimisation,
        *,
        epochs: int,
    ) -> "LoOp":
        """With the optimiser and schedule that ``optimisation`` makes for ``epochs``."""
        optimizer, schedule = optimisation.build(embedder, steps=epochs * len(sampler), others=loss.parameters())
        return cls(embedder, loss, sampler, optimizer, schedule)

    @property
    def notes(self) -> tuple[str, ...]:
        return () if self.sampler.note is None else (self.sampler.note,)

    @property
    def readings(self) -> Mapping[str, str]:
        return READINGS | SHARED_READINGS

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
        self._seen = done.seen[0], done.seen[1], batch.indices
        return dict(done.scalars)

    def _work(self, inputs: Tensor, labels: Tensor) -> Work:
        """Embed, find what lies between, score, differentiate."""
        embeddings, labels = gather(self.embedder.embed(self.embedder.features(inputs)), labels)
        comparisons = self.loss.comparisons(embeddings, labels)
        loss = reduce_pairs(self.loss.loss, comparisons)
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
        return {name: part.state_dict() for name, part in self._parts().items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, part in self._parts().items():
            part.load_state_dict(state[name])

    def _parts(self) -> dict[str, nn.Module | Optimizer | LRScheduler]:
        parts = {"embedder": self.embedder, "loss": self.loss, "optimizer": self.optimizer, "schedule": self.schedule}
        return {name: part for name, part in parts.items() if part is not None}

    @torch.no_grad()
    def _hardest(
        self, c: Comparisons, embeddings: Float[Tensor, "n d"], labels: Integer[Tensor, "n"]
    ) -> dict[str, Tensor]:
        """The hardest negative between pairs, and the hardest that is a sample; means over rows that have one."""
        sign = 1 if grows_with_likeness(self.loss.loss) else -1
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

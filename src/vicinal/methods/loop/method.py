"""LoOp (Vasudeva, Deora, Bhattacharya, Pal and Chanda, ICCV 2021), and Embedding Expansion, which trains alike."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from vicinal.data.records import Batch
from vicinal.distances import pairwise_distances, unit_rows
from vicinal.errors import ConfigError
from vicinal.figures import Figure, Member, RecordTuple, Tuples
from vicinal.geometry import arc_distances
from vicinal.methods.loop import negatives
from vicinal.methods.loop.negatives import Overlap, Pairing, checked, pairable, positive_pairs, reduce_pairs
from vicinal.methods.method import Method, Parts, StepResult
from vicinal.parallel import processes
from vicinal.tuples import other_class

SHOWN = 6  # pairs of pairs in the report

CAPTIONS = {
    "hardest_negative": (
        "What the hardest negative is to the loss (a distance; for N-pair and multi-similarity loss a similarity) on "
        "average: of each sample the hardest real one, of each positive pair the hardest point between two of another "
        "class. The two should stay apart. Together: arcs are so short that nothing lies between their ends, as when "
        "classes have collapsed, or they overlap and samples stand for them (overlap=samples). With overlap=arcs, a "
        "distance of 0 between pairs all along: arcs of different classes cross, so classes overlap, and what lies "
        "between two samples of a class need not be of it."
    )
}


class BetweenPairs(Method):
    """One loss, one optimizer; the loss's negatives lie between the members of positive pairs.

    Nothing is generated and nothing is added to the network: a step costs the plain step and a little arithmetic on
    inner products.
    """

    layouts: ClassVar[tuple[str, ...]] = ("classes",)
    own_captions: ClassVar[dict[str, str]] = CAPTIONS

    pairing: Pairing
    loss: negatives.OptimalNegatives | negatives.EmbeddingExpansion

    def check(self, loss: nn.Module, sampler: object) -> None:
        super().check(loss, sampler)
        pairable(loss)
        per_class = getattr(sampler, "per_class", 2)
        if self.pairing == "consecutive" and per_class % 2:
            raise ConfigError(
                f"pairing=consecutive needs an even number of samples of each class, got per_class={per_class}. "
                f"Set sampler.per_class={per_class + 1}, or method.pairing=all."
            )

    def step(self, batch: Batch) -> StepResult:
        embeddings, labels = self.embed(batch)
        loss = self.score(embeddings, labels)
        self.differentiate(loss)
        self.optimize()
        return StepResult({"loss": loss.detach()}, embeddings.detach(), labels)

    def score(self, embeddings: Float[Tensor, "n d"], labels: Integer[Tensor, "n"]) -> Float[Tensor, ""]:
        return reduce_pairs(self.loss.loss, self.loss.comparisons(embeddings, labels))

    @property
    def capturable(self) -> bool:
        return self.loss.loss.capturable

    @torch.no_grad()
    def diagnostics(self, result: StepResult, largest_class: int | None = None) -> dict[str, Tensor]:
        """Add the mean of the hardest negative between pairs, and of the hardest that is a sample."""
        described = super().diagnostics(result, largest_class)
        distance, labels = self.loss.loss.distance, result.labels
        with self.sized(largest_class):
            c = self.loss.comparisons(result.embeddings, labels)
        sign = 1 if distance.larger_is_closer else -1
        samples, between = (distance(result.embeddings), other_class(labels)), (c.negative, c.keep_negative)
        for name, (values, keep) in (("sample", samples), ("between", between)):
            there = keep.any(dim=1)
            hardest = (sign * values).masked_fill(~keep, -torch.inf).amax(dim=1) if keep.shape[1] else values.sum(dim=1)
            total = hardest.masked_fill(~there, 0).sum() / there.sum().clamp(min=1)
            described[f"hardest_negative/{name}"] = sign * total
        return described

    @torch.no_grad()
    def figures(self, batch: Batch) -> Sequence[Figure]:
        """Show pairs of pairs of the last batch whose arcs are much nearer than any of their samples."""
        if processes() > 1:
            return ()
        self.embedder.eval()
        embeddings, labels = self.embed(batch)
        shown = _nearest_arcs(embeddings, labels, batch.indices)
        return () if shown is None else (shown,)


@dataclass(eq=False)
class LoOp(BetweenPairs):
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

    title: ClassVar[str] = "LoOp"

    def __post_init__(self) -> None:
        checked("pairing", self.pairing, Pairing)
        checked("overlap", self.overlap, Overlap)
        if self.wait < 0:
            raise ConfigError(f"wait is a number of steps, 0 or more, got {self.wait}.")

    def setup(self, parts: Parts) -> None:
        super().setup(parts)
        self.loss = negatives.OptimalNegatives(pairable(parts.loss), pairing=self.pairing, overlap=self.overlap)
        self.steps: Tensor  # done so far; counted where ``wait`` needs it
        if self.wait:
            self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def score(self, embeddings: Float[Tensor, "n d"], labels: Integer[Tensor, "n"]) -> Float[Tensor, ""]:
        loss = super().score(embeddings, labels)
        if self.wait:  # counted and chosen on the device: a CUDA graph would repeat what Python once decided
            loss = torch.where(self.steps < self.wait, self.loss.loss(embeddings, labels), loss)
            self.steps += 1
        return loss


@dataclass(eq=False)
class EmbeddingExpansion(BetweenPairs):
    """Embedding Expansion (Ko and Gu 2020): negatives are the nearest of a few points between members of pairs.

    Attributes:
        points: number of points between the two members of a pair; the paper's best is 2.
        pairing: as of ``LoOp``.
    """

    points: int = 2
    pairing: Pairing = "all"

    title: ClassVar[str] = "Embedding Expansion"

    def __post_init__(self) -> None:
        checked("pairing", self.pairing, Pairing)
        if self.points < 0:
            raise ConfigError(f"points is at least 0, got {self.points}.")

    def setup(self, parts: Parts) -> None:
        super().setup(parts)
        self.loss = negatives.EmbeddingExpansion(pairable(parts.loss), points=self.points, pairing=self.pairing)


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

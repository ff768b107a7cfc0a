"""LoOp: Looking for Optimal Hard Negative Embeddings (Vasudeva, Deora, Bhattacharya, Pal and
Chanda, ICCV 2021).

| paper | here |
|---|---|
| Eq. (1), the nearest points of two arcs, in closed form | `vicinal.geometry.arcs_among` |
| L'_tri, L'_HPHN, Eq. (16): losses over positive pairs | `OptimalNegatives` |
| pairs of a batch | `positive_pairs` |
| Embedding Expansion (Ko and Gu, CVPR 2020) | `ExpandedNegatives` |
"""

from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass, replace
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from vicinal.arguments import Natural
from vicinal.data.records import Batch
from vicinal.distances import at_least_float32, unit_rows
from vicinal.errors import ConfigError
from vicinal.losses import LOSSES
from vicinal.losses.loss import (
    Comparisons,
    Loss,
    SettingsModule,
    Terms,
    block_layout,
    reduce,
    tuple_loss,
)
from vicinal.losses.proxies import ProxyLoss, has_proxies
from vicinal.methods.method import Form, Method, Parts, StepResult
from vicinal.samplers import PKSampler
from vicinal.tuples import Embeddings, Reference, Scalar, SingleLabels, other_class, positives

Pairing = Literal["all", "consecutive"]
Overlap = Literal["samples", "arcs"]
Anchors = Literal["pairs", "samples"]


# -- positive pairs --------------------------------------------------------------------------------


Rows = Int[Tensor, "p"]


def positive_pairs(labels: SingleLabels, pairing: Pairing) -> tuple[Rows, Rows, Bool[Tensor, "p"]]:
    """Return every two rows of a class once, or consecutive rows, and which of these are of one
    class. A row that is alone in its class is there as a pair with itself, to be a negative.

    Row number r of a class of c goes with those at r + 1, ..., r + c/2, round and round: in a class
    of 5 each goes with 2 others, in a class of 4 with 1 and, every second one, with another.

    >>> first, second, there = positive_pairs(torch.tensor([7, 3, 7, 7]), "all")
    >>> torch.stack([first, second], dim=1)[there].tolist()
    [[0, 2], [1, 1], [2, 3], [3, 0]]
    """
    rows = torch.arange(len(labels), device=labels.device)
    if pairing == "consecutive":
        first, second = rows.view(-1, 2).unbind(dim=1)
        return first, second, labels[first] == labels[second]
    columns, keep = positives(labels)
    rank = ((columns < rows[:, None]) & keep).sum(dim=1, keepdim=True)
    size = 1 + keep.sum(dim=1, keepdim=True)
    step = 1 + torch.arange((columns.shape[1] + 1) // 2, device=labels.device)
    other = (rank + step) % size
    # An anchor's list of its class steps over itself.
    second = columns.gather(1, other - (other > rank).long())
    once = (2 * step < size) | ((2 * step == size) & (rank < step))
    alone = (size == 1) & (step == 1)
    second = torch.where(alone, rows[:, None], second)
    there = once | alone
    # Where nobody waits to count it, padding is dropped: half of the work or more.
    counted = labels.device.type == "cpu"
    first, second, there = (
        part[there] if counted else part.flatten()
        for part in (rows[:, None].expand_as(second), second, there)
    )
    return first, second, there


@dataclass(eq=False, repr=False)
class NegativesBetweenPairs(SettingsModule, ABC):
    """A loss over positive pairs, whose negatives lie between the members of pairs of other
    classes.

    Args:
        loss: triplet, batch-all, batch-hard, HPHN, lifted, N-pair, multi-similarity or adaptive
            neighborhood loss.
        pairing: ``"all"`` positive pairs, each once, or ``"consecutive"`` rows (0, 1), (2, 3), ...
    """

    loss: Loss
    _: KW_ONLY
    pairing: Pairing = "all"

    anchors = "pairs"
    over_pairs = False
    indivisible = "it compares pairs of the whole batch"

    def __post_init__(self) -> None:
        self.loss = pairable(self.loss)
        super().__post_init__()

    @property
    def capturable(self) -> bool:
        return self.loss.capturable

    @abstractmethod
    def negatives(self, embeddings: Embeddings, first: Rows, second: Rows) -> Float[Tensor, "n p"]:
        """Compare each pair, or sample, with every pair of rows ``first`` and ``second``, as the
        loss compares: the hardest that two points of them are."""

    def comparisons(self, embeddings: Embeddings, labels: SingleLabels) -> Comparisons:
        """Return each anchor as a row of the loss's core: a positive pair, or a sample."""
        Reference.checked(embeddings, labels)
        embeddings = at_least_float32(embeddings)
        loss = self.loss
        if has_proxies(loss):
            return self._over_proxies(loss, embeddings, labels)
        first, second, there = positive_pairs(labels, self.pairing)
        negative = self.negatives(embeddings, first, second)
        if self.anchors == "samples":
            apart = (labels[:, None] != labels[first]) & there
            compared = loss.comparisons(embeddings, labels)
            return replace(compared, negative=negative, keep_negative=apart)
        keep = keep_positive = (there & (first != second))[:, None]
        if loss.pair_rows == "class":
            columns, alike = positives(labels)
            own = loss.distance(embeddings).gather(1, columns)
            twice = columns[second] == first[:, None]  # (i, j) stands in both lists
            positive = torch.cat([own[first], own[second]], dim=1)
            keep_positive = torch.cat([alike[first], alike[second] & ~twice], dim=1) & keep
        else:
            positive = loss.distance(embeddings[first], embeddings[second][:, None])
        each = loss.penalty(embeddings, embeddings)
        penalty = None if each is None else (each[first] + each[second]) / 2
        keep_negative = other_class(labels[first]) & keep & there
        return Comparisons(positive, keep_positive, negative, keep_negative, penalty=penalty)

    def _over_proxies(
        self, loss: ProxyLoss, embeddings: Embeddings, labels: SingleLabels
    ) -> Comparisons:
        """Compare with a class at its nearest point between its proxy and one of its samples.

        A sample and its proxy, of several the nearest, are a positive pair. Between pairs, a proxy
        is a pair with itself, too, so that classes without samples are there.
        """
        plain = loss.comparisons(embeddings, labels)
        proxies = loss.beside(embeddings).flatten(end_dim=-2)
        compared = loss.distance(embeddings, proxies)
        same = labels[:, None] == loss.proxy_labels.repeat_interleave(loss.centers)
        closer = loss.distance.larger_is_closer
        near = compared if closer else -compared
        own = near.masked_fill(~same, -torch.inf).argmax(dim=1)
        first = torch.arange(len(labels), device=labels.device)
        if self.anchors == "pairs":
            own = torch.cat([own, torch.arange(len(proxies), device=own.device)])
            first = torch.cat([first, len(labels) + own[len(labels) :]])
        between = self.negatives(torch.cat([embeddings, proxies]), first, len(labels) + own)
        if loss.proxies_first and self.anchors == "samples":
            compared = between[len(labels) :].T
        else:
            compared = compared.scatter_reduce(
                1, own.expand(len(labels), -1), between[: len(labels)], "amax" if closer else "amin"
            )
        found = loss.arrange(compared, labels, loss.proxy_labels)
        return replace(plain, negative=found.negative)

    def forward(self, embeddings: Embeddings, labels: SingleLabels) -> Scalar | Float[Tensor, "p"]:
        comparisons = self.comparisons(embeddings, labels)
        terms = self.loss.core(comparisons)
        if self.anchors == "pairs" and not has_proxies(self.loss):
            there = comparisons.keep_positive.any(dim=1)  # padding is no row of a mean
            counts = there.to(terms.sums.dtype) if self.over_pairs else terms.counts * there
            terms = Terms(terms.sums.masked_fill(~there, 0), counts)
        return reduce(terms, self.loss.reduction)


@dataclass(eq=False, repr=False)
class OptimalNegatives(NegativesBetweenPairs):
    """A loss over positive pairs, whose negatives are the nearest points between their arcs instead
    of samples.

        L'_tri  = [d_ij - d_ijkl + m]_+                Vasudeva et al. 2021, from their triplet loss
        L'_HPHN = [max(max_k d_ik, max_l d_jl) + m - min_kl d_ijkl]_+
        L'_LS   = [d_ij + m - min_kl d_ijkl]_+                         from Eq. (16), ``form="min"``

    d_ijkl is the smallest distance between a point of the arc from i to j and one of the arc from k
    to l, a positive pair of another class. It enters through the loss's core: a row is a pair (i,
    j), its negatives are the arcs of other classes. Its positives are (i, j), or, where the loss
    looks at a whole class (HPHN, multi-similarity, DANML), those of both members. Similarities take
    the largest cosine in place of the smallest distance.

    N-pair loss on unnormalized embeddings has no arcs: as in the authors' code its negative is the
    largest of the four inner products of the ends.

    Differs: no pair is left out because its members nearly agree, since nothing here divides by
    their angle.

    Args:
        loss: as of ``NegativesBetweenPairs``.
        pairing: likewise.
        overlap: what stands for two arcs that are closer to each other than the ends of one of them
            are: the ``"arcs"``, as published, or ``"samples"`` (ours), the hardest of their four
            ends. A point between two samples of a class need not be of that class while classes
            overlap.
        anchors: what is compared with the arcs: the arcs of ``"pairs"`` as published, or
            ``"samples"`` (ours), each with its own positives, as in the loss alone.
        over_pairs: whether the mean is over the pairs, the paper's 1/|P|, or over the loss's terms
            (pairs, or pairs of pairs; ours). The authors' code sums (``reduction="sum"``).
    """

    _: KW_ONLY
    overlap: Overlap = "samples"
    anchors: Anchors = "samples"
    over_pairs: bool = False

    def negatives(self, embeddings: Embeddings, first: Rows, second: Rows) -> Float[Tensor, "n p"]:
        """Compare arcs of pairs, or samples, with every arc; where they overlap or there are none,
        with its ends."""
        distance = self.loss.distance
        points = self.anchors == "samples"

        def nearer_end(compared: Tensor) -> Tensor:
            """Compare each pair as the closer of its two rows is compared."""
            ends = [compared.index_select(0, rows) for rows in (first, second)]
            return distance.nearest(torch.stack(ends), dim=0)

        arcs = None
        if distance.normalize:
            arcs = distance.between_arcs(embeddings, first, second, points=points)
            if self.overlap == "arcs":
                return arcs
        to_samples = distance(embeddings)
        nearest = nearer_end(to_samples).T  # [n p]
        if not points:
            nearest = nearer_end(nearest)
        if arcs is None:
            return nearest
        closer = distance.larger_is_closer
        length = to_samples.detach()[first, second]
        if not points:
            length = (torch.minimum if closer else torch.maximum)(length[:, None], length)
        return torch.where(arcs > length if closer else arcs < length, nearest, arcs)


@dataclass(eq=False, repr=False)
class ExpandedNegatives(NegativesBetweenPairs):
    """A loss over positive pairs, whose negatives are the nearest of a few points between their
    members.

        x_k = ((n + 1 - k) x_i + k x_j) / (n + 1),   k = 1 ... n,    put back on the sphere
            Ko and Gu 2020

    Of two pairs of different classes, all (n + 2)² distances between their points, members among
    them, are looked at, and the smallest stands for both pairs: LoOp's exact minimum on a grid.
    Synthetic points serve as negatives only; positives are real, as in the paper. Without points
    (n = 0) it is the nearest of the four real distances.

    Differs: in the paper each member of a pair is an anchor of its own; a pair is one row here, as
    in ``OptimalNegatives``, so that the two differ in their points alone.

    Args:
        loss: as of ``NegativesBetweenPairs``; on the sphere points are put on it, else (N-pair)
            they stay on the line.
        points: n; the paper's best is 2.
        pairing: as of ``NegativesBetweenPairs``; the paper's is ``"consecutive"``.
    """

    _: KW_ONLY
    points: Natural = 2

    def negatives(self, embeddings: Embeddings, first: Rows, second: Rows) -> Float[Tensor, "p p"]:
        rows = unit_rows(embeddings) if self.loss.distance.normalize else embeddings
        starts = rows[first]
        ends = rows[second]
        share = torch.linspace(0, 1, self.points + 2).to(rows)[:, None, None]
        points = starts + share * (ends - starts)  # the loss puts them on its sphere
        several, count = points.shape[:2]
        compared = self.loss.distance(points.flatten(0, 1)).view(several, count, several, count)
        return self.loss.distance.nearest(compared, dim=(0, 2))


def pairable(loss: nn.Module) -> Loss:
    """Return ``loss`` if a positive pair can be one of its anchors."""
    name = type(loss).__name__
    pairs = loss if has_proxies(loss) else tuple_loss(loss, "LoOp")
    if pairs.pair_rows is None and not has_proxies(loss):
        names = ", ".join(name for name, kind in LOSSES.items() if kind.pair_rows is not None)
        raise ConfigError(
            f"negatives between pairs need proxies, or a loss in which a positive pair can be an "
            f"anchor, got {name}. Use one of {names}."
        )
    if block_layout(loss) is not None:
        raise ConfigError(
            f"negatives between pairs take batches of classes, but {name} has blocks=True, a "
            "layout of its own. Set loss.blocks=false and sampler=classes."
        )
    if not pairs.distance.normalize and not pairs.pairs_off_sphere:
        raise ConfigError(
            f"arcs lie on the unit sphere, but {name} has normalize=False. Set loss.normalize=true."
        )
    return pairs


# -- methods ---------------------------------------------------------------------------------------


class BetweenPairs(Method):
    """One loss, one optimizer; the loss's negatives lie between the members of positive pairs.

    Nothing is generated and nothing is added to the network: a step costs the plain step and a
    little arithmetic on inner products.

    Charts:
        hardest_negative: What the hardest negative is to the loss (a distance; for N-pair and
            multi-similarity loss a similarity) on average: of each sample the hardest real one, of
            each anchor, a sample or a positive pair, the hardest point between two of another
            class. The two should stay apart. Together: arcs are so short that nothing lies between
            their ends, as when classes have collapsed, or they overlap and samples stand for them
            (overlap=samples). With overlap=arcs, a distance of 0 all along: arcs of different
            classes cross, so classes overlap, and what lies between two samples of a class need not
            be of it.
    """

    layouts = ("classes",)
    consecutive: ClassVar[str]  # the form that pairs rows of a class as they come

    @property
    def pairing(self) -> Pairing:
        return "consecutive" if self.form == self.consecutive else "all"

    def check(self, loss: nn.Module, sampler: object) -> None:
        super().check(loss, sampler)
        pairable(loss)
        per_class = sampler.per_class if isinstance(sampler, PKSampler) else 2
        if self.pairing == "consecutive" and per_class % 2:
            raise ConfigError(
                "consecutive rows are pairs of an even number of samples of each class, got "
                f"per_class={per_class}. Set sampler.per_class={per_class + 1}."
            )

    @torch.no_grad()
    def diagnostics(self, result: StepResult) -> dict[str, Tensor]:
        """Add the mean of the hardest negative between pairs, and of the hardest that is a
        sample."""
        described = super().diagnostics(result)
        distance = self.loss.loss.distance
        far = -torch.inf if distance.larger_is_closer else torch.inf
        for name, loss in {"sample": self.loss.loss, "between": self.loss}.items():
            c = loss.comparisons(result.embeddings, result.labels)
            values, keep = c.negative, c.keep_negative
            there = keep.any(dim=1)
            hardest = distance.nearest(values.masked_fill(~keep, far), dim=1)
            hardest = hardest.masked_fill(~there, 0)
            described[f"hardest_negative/{name}"] = hardest.sum() / there.sum().clamp(min=1)
        return described


@dataclass(eq=False)
class LoOp(BetweenPairs):
    """LoOp (Vasudeva et al. 2021): the loss's negatives are the nearest points between arcs of
    positive pairs.

    Differs: in ``form="ours"`` samples stand for arcs that overlap, samples are the anchors, the
    loss begins alone, and the mean is over its terms. Held-out classes chose them with
    multi-similarity: on Cars196 R@1 was 73.3 with arcs, 79.8 with samples and 80.5 without LoOp
    (one seed), with arcs waiting for a third of the run gained 0.5 MAP@R (two others); on CUB-200
    samples as anchors gained 0.5 and 0.1.

    Attributes:
        form: ``"paper"``: arcs are compared with arcs from the first step, wherever they lie, and
            the mean is over pairs, 1/|P|. ``"authors"``: the same over consecutive rows of a class,
            as their code pairs them. ``"ours"``: see above. Arguments that are None are those of
            the form.
        overlap: what stands for two arcs that are closer to each other than the ends of one of them
            are: the hardest of their four ``"samples"``, or the nearest points of the ``"arcs"``. A
            point between two samples of a class need not be of that class while classes overlap.
        anchors: what is compared with arcs of other classes: the arcs of ``"pairs"``, or
            ``"samples"``, each with its own positives, as in the loss alone.
        wait: steps with the loss alone before LoOp begins, so that classes part first; ours are at
            most 64, an epoch and a twentieth of the run.
    """

    form: Literal["ours", "paper", "authors"] = "ours"
    overlap: Overlap | None = None
    anchors: Anchors | None = None
    wait: Natural | None = None

    consecutive = "authors"

    def setup(self, parts: Parts) -> None:
        super().setup(parts)
        ours = self.form == "ours"
        self.loss = OptimalNegatives(
            self.loss,
            pairing=self.pairing,
            overlap=self.overlap or ("samples" if ours else "arcs"),
            anchors=self.anchors or ("samples" if ours else "pairs"),
            over_pairs=not ours,
        )
        if self.wait is not None:
            self.acts_from = self.wait
        elif ours:
            self.acts_from = parts.early

    @property
    def phase(self) -> str:
        steps = self.schedule.last_epoch  # so far, also of a resumed run
        return "LoOp" if steps >= self.acts_from else "loss alone"

    def step(self, batch: Batch) -> StepResult:
        return self.step_by(self.loss if self.phase == "LoOp" else self.loss.loss, batch)


@dataclass(eq=False)
class EmbeddingExpansion(BetweenPairs):
    """Embedding Expansion (Ko and Gu 2020): negatives are the nearest of a few points between
    members of pairs.

    Attributes:
        form: ``"paper"`` pairs consecutive rows of a class, ``"ours"`` every two of them.
        points: number of points between the two members of a pair; the paper's best is 2.
    """

    form: Form = "ours"
    points: Natural = 2

    title = "Embedding Expansion"
    consecutive = "paper"

    def setup(self, parts: Parts) -> None:
        super().setup(parts)
        self.loss = ExpandedNegatives(self.loss, points=self.points, pairing=self.pairing)

"""Negatives between positive pairs: LoOp (Vasudeva et al. 2021) and Embedding Expansion (Ko and Gu 2020)."""

from typing import Literal, NamedTuple, TypeVar, get_args

import torch
from jaxtyping import Bool, Float, Int, Integer
from torch import Tensor, nn

from vicinal.distances import at_least_float32, cosine_similarity, unit_rows
from vicinal.errors import ConfigError, DataError, unknown
from vicinal.losses import LOSSES
from vicinal.losses.loss import Comparisons, Loss, Terms, reduce
from vicinal.tuples import other_class, positives

Pairing = Literal["all", "consecutive", "nearest"]
Overlap = Literal["samples", "arcs"]
Choice = TypeVar("Choice", bound=str)


class OptimalNegatives(nn.Module):
    """A loss over positive pairs, whose negatives are the nearest points between their arcs instead of samples.

        L'_tri  = [d_ij - d_ijkl + m]_+                                  Vasudeva et al. 2021, from their triplet loss
        L'_HPHN = [max(max_k d_ik, max_l d_jl) + m - min_kl d_ijkl]_+
        L'_LS   = [d_ij + m - min_kl d_ijkl]_+                           from Eq. (16), ``form="min"``

    d_ijkl is the smallest distance between a point of the arc from i to j and one of the arc from k to l, a positive
    pair of another class. It enters through the loss's core: a row is a pair (i, j), its negatives are the arcs of
    other classes. Its positives are (i, j), or, where the loss looks at a whole class (HPHN, multi-similarity, DANML),
    those of both members. Similarities take the largest cosine in place of the smallest distance.

    N-pair loss on unnormalised embeddings has no arcs: as in the authors' code its negative is the largest of the four
    inner products of the ends.

    Differs: the mean is over the loss's terms (pairs, or pairs of pairs), where the paper divides by the pairs and the
    authors' code sums; ``pairing="all"`` uses every positive pair, the authors consecutive rows; no pair is left out
    because its members nearly agree, since nothing here divides by their angle; where classes overlap, samples stand
    for arcs (``overlap="samples"``). ``overlap="arcs"`` is the paper's d_ijkl throughout.

    Args:
        loss: triplet, batch-all, batch-hard, HPHN, lifted, N-pair, multi-similarity or adaptive neighbourhood loss.
        pairing: ``"all"`` positive pairs, each once, or ``"consecutive"`` rows (0, 1), (2, 3), ... as the authors pair
            batches of class after class with an even number of samples each, or each row with the ``"nearest"`` of its
            class (ours).
        overlap: what stands for two arcs that are closer to each other than the ends of one of them are: ``"samples"``
            (ours), the hardest of their four ends, or ``"arcs"`` as published. A point between two samples of a class
            need not be of that class while classes overlap.
    """

    def __init__(self, loss: Loss, *, pairing: Pairing = "all", overlap: Overlap = "samples") -> None:
        super().__init__()
        self.loss, self.pairing = pairable(loss), checked("pairing", pairing, Pairing)
        self.overlap = checked("overlap", overlap, Overlap)

    def comparisons(self, embeddings: Float[Tensor, "n d"], labels: Integer[Tensor, "n"]) -> Comparisons:
        """Each positive pair as a row; see ``pair_comparisons``."""
        embeddings = checked_batch(embeddings, labels)
        pairs = positive_pairs(labels, self.pairing, embeddings, self.loss.largest_class)
        negative = optimal_negatives(self.loss, embeddings, pairs)
        if self.overlap == "samples" and self.loss.distance.normalize:
            negative = without_overlap(self.loss, embeddings, pairs, negative)
        return pair_comparisons(self.loss, embeddings, labels, pairs, negative)

    def forward(
        self, embeddings: Float[Tensor, "n d"], labels: Integer[Tensor, "n"]
    ) -> Float[Tensor, ""] | Float[Tensor, "p"]:
        return reduce_pairs(self.loss, self.comparisons(embeddings, labels))


class EmbeddingExpansion(nn.Module):
    """A loss over positive pairs, whose negatives are the nearest of a few points between their members.

        x_k = ((n + 1 - k) x_i + k x_j) / (n + 1),   k = 1 ... n,    put back on the sphere        Ko and Gu 2020

    Of two pairs of different classes, all (n + 2)² distances between their points, members among them, are looked at,
    and the smallest stands for both pairs: LoOp's exact minimum on a grid. Synthetic points serve as negatives only;
    positives are real, as in the paper. Without points (n = 0) it is the nearest of the four real distances.

    Differs: the paper pairs consecutive rows (``pairing="consecutive"``), and each member of a pair is an anchor of its
    own; a pair is one row here, as in ``OptimalNegatives``, so that the two differ in their points alone.

    Args:
        loss: as of ``OptimalNegatives``; on the sphere points are put on it, else (N-pair) they stay on the line.
        points: n; the paper's best is 2.
        pairing: as of ``OptimalNegatives``.
    """

    def __init__(self, loss: Loss, *, points: int = 2, pairing: Pairing = "all") -> None:
        super().__init__()
        if points < 0:
            raise ConfigError(f"points between the members of a pair are 0 or more, got points={points}.")
        self.loss, self.points, self.pairing = pairable(loss), points, checked("pairing", pairing, Pairing)

    def comparisons(self, embeddings: Float[Tensor, "n d"], labels: Integer[Tensor, "n"]) -> Comparisons:
        """Each positive pair as a row; see ``pair_comparisons``."""
        embeddings = checked_batch(embeddings, labels)
        pairs = positive_pairs(labels, self.pairing, embeddings, self.loss.largest_class)
        negative = expanded_negatives(self.loss, embeddings, pairs, self.points)
        return pair_comparisons(self.loss, embeddings, labels, pairs, negative)

    def forward(
        self, embeddings: Float[Tensor, "n d"], labels: Integer[Tensor, "n"]
    ) -> Float[Tensor, ""] | Float[Tensor, "p"]:
        return reduce_pairs(self.loss, self.comparisons(embeddings, labels))


class PositivePairs(NamedTuple):
    """Rows of a batch, two of a class each; ``keep`` marks what is not padding."""

    first: Int[Tensor, "p"]
    second: Int[Tensor, "p"]
    keep: Bool[Tensor, "p"]


def positive_pairs(
    labels: Integer[Tensor, "n"],
    pairing: Pairing,
    embeddings: Float[Tensor, "n d"] | None = None,
    largest_class: int | None = None,
) -> PositivePairs:
    """Every two rows of a class once, consecutive rows, or each row with the nearest of its class by ``embeddings``.

    Row number r of a class of c goes with those at r + 1, ..., r + c/2, round and round: in a class of 5 each goes with
    2 others, in a class of 4 with 1 and, every second one, with another.

    >>> pairs = positive_pairs(torch.tensor([7, 3, 7, 7]), "all")
    >>> torch.stack(pairs[:2], dim=1)[pairs.keep].tolist()
    [[0, 2], [2, 3], [3, 0]]
    """
    rows = torch.arange(len(labels), device=labels.device)
    if pairing == "consecutive":
        if len(labels) % 2:
            raise DataError(f"consecutive rows go in pairs, got {len(labels)} rows. Use an even number per class.")
        first, second = rows.view(-1, 2).unbind(dim=1)
        return PositivePairs(first, second, labels[first] == labels[second])
    columns, keep = positives(labels, largest_class=largest_class)
    if pairing == "nearest":
        if embeddings is None:
            raise ConfigError('pairing="nearest" compares embeddings, got None. Give them.')
        if not columns.shape[1]:
            return PositivePairs(rows, rows, torch.zeros_like(rows, dtype=torch.bool))
        with torch.no_grad():
            similarity = cosine_similarity(embeddings).gather(1, columns).masked_fill(~keep, -torch.inf)
        nearest = columns.gather(1, similarity.argmax(dim=1, keepdim=True))[:, 0]
        return PositivePairs(rows, nearest, keep.any(dim=1))
    rank = ((columns < rows[:, None]) & keep).sum(dim=1, keepdim=True)
    size = 1 + keep.sum(dim=1, keepdim=True)
    step = 1 + torch.arange((columns.shape[1] + 1) // 2, device=labels.device)
    other = (rank + step) % size
    second = columns.gather(1, other - (other > rank).long())  # an anchor's list of its class steps over itself
    once = (2 * step < size) | ((2 * step == size) & (rank < step))
    found = PositivePairs(rows[:, None].expand_as(second).flatten(), second.flatten(), once.flatten())
    if labels.device.type == "cpu":  # where nobody waits to count them, padding is dropped: half of the work or more
        return PositivePairs(*(part[found.keep] for part in found))
    return found


def optimal_negatives(loss: Loss, embeddings: Float[Tensor, "n d"], pairs: PositivePairs) -> Float[Tensor, "p p"]:
    """Each pair's arc compared with every pair's arc, as ``loss`` compares: the hardest that two points of them are."""
    starts, ends = embeddings[pairs.first], embeddings[pairs.second]
    if not loss.distance.normalize:
        return hardest_of_points(loss, torch.stack([starts, ends]))
    return loss.distance.between_arcs(starts, ends)


def expanded_negatives(
    loss: Loss, embeddings: Float[Tensor, "n d"], pairs: PositivePairs, points: int
) -> Float[Tensor, "p p"]:
    """The hardest that points of each pair and of every other pair are to ``loss``; their members are among them."""
    rows = unit_rows(embeddings) if loss.distance.normalize else embeddings
    starts, ends = rows[pairs.first], rows[pairs.second]
    share = torch.linspace(0, 1, points + 2, dtype=rows.dtype, device=rows.device)[:, None, None]
    return hardest_of_points(loss, starts + share * (ends - starts))  # the loss puts them on its sphere


def without_overlap(
    loss: Loss, embeddings: Float[Tensor, "n d"], pairs: PositivePairs, negative: Float[Tensor, "p p"]
) -> Float[Tensor, "p p"]:
    """Replace ``negative`` by the hardest of four ends where two arcs are closer than the ends of one of them are."""
    starts, ends = embeddings[pairs.first], embeddings[pairs.second]
    samples = hardest_of_points(loss, torch.stack([starts, ends]))
    with torch.no_grad():
        length = loss.distance(starts, ends[:, None])  # of each arc, as the loss compares
        longer = torch.minimum(length, length.T) if loss.distance.larger_is_closer else torch.maximum(length, length.T)
        overlapping = negative > longer if loss.distance.larger_is_closer else negative < longer
    return torch.where(overlapping, samples, negative)


def hardest_of_points(loss: Loss, points: Float[Tensor, "s p d"]) -> Float[Tensor, "p p"]:
    """The hardest that a pair's points ``[s d]`` and another pair's points are to ``loss``, of the s² there are."""
    several, count = points.shape[:2]
    compared = loss.distance(points.flatten(0, 1)).view(several, count, several, count)
    return loss.distance.nearest(compared, dim=(0, 2))


def pair_comparisons(
    loss: Loss,
    embeddings: Float[Tensor, "n d"],
    labels: Integer[Tensor, "n"],
    pairs: PositivePairs,
    negative: Float[Tensor, "p p"],
) -> Comparisons:
    """Each positive pair as a row of the loss's core; ``negative`` holds what it has against the other pairs."""
    first, second, keep = pairs
    keep_negative = other_class(labels[first]) & keep[:, None] & keep
    penalty = None
    if loss.pair_rows == "class":
        columns, there = positives(labels, largest_class=loss.largest_class)
        compared = loss.distance(embeddings).gather(1, columns)
        twice = columns[second] == first[:, None]  # (i, j) stands in both lists
        positive = torch.cat([compared[first], compared[second]], dim=1)
        keep_positive = torch.cat([there[first], there[second] & ~twice], dim=1) & keep[:, None]
    else:
        positive = loss.distance(embeddings[first], embeddings[second][:, None])
        keep_positive = keep[:, None]
    each = loss.penalty(embeddings, embeddings)
    if each is not None:
        penalty = (each[first] + each[second]) / 2
    return Comparisons(positive, keep_positive, negative, keep_negative, penalty=penalty)


def reduce_pairs(loss: Loss, comparisons: Comparisons) -> Float[Tensor, ""] | Float[Tensor, "p"]:
    """The loss of rows that are pairs; padding is no row that a mean could count."""
    terms, there = loss.core(comparisons), comparisons.keep_positive.any(dim=1)
    return reduce(Terms(terms.sums.masked_fill(~there, 0), terms.counts * there), loss.reduction)


def pairable(loss: nn.Module) -> Loss:
    """Return ``loss`` if a positive pair can be one of its anchors."""
    if getattr(loss, "pair_rows", None) is None:
        names = ", ".join(name for name, kind in LOSSES.items() if kind.pair_rows is not None)
        raise ConfigError(
            f"negatives between pairs need a loss in which a positive pair can be an anchor, got "
            f"{type(loss).__name__}. Use one of {names}."
        )
    pairs: Loss = loss  # type: ignore[assignment]  # only a Loss has pair_rows
    if getattr(loss, "blocks", False):
        raise ConfigError(
            f"negatives between pairs take batches of classes, but {type(loss).__name__} has blocks=True, a layout of "
            f"its own. Set loss.blocks=false and sampler=classes."
        )
    if not pairs.distance.normalize and not pairs.pairs_off_sphere:
        raise ConfigError(
            f"arcs lie on the unit sphere, but {type(loss).__name__} has normalize=False. Set loss.normalize=true."
        )
    return pairs


def checked(setting: str, value: Choice, choices: object) -> Choice:
    """Return the value of a setting if it is one of its choices."""
    if value not in get_args(choices):
        raise ConfigError(unknown(setting, str(value), get_args(choices)))
    return value


def checked_batch(embeddings: Tensor, labels: Tensor) -> Float[Tensor, "n d"]:
    """``embeddings`` in float32 or more, if there is one label for each."""
    if embeddings.ndim != 2 or labels.shape != embeddings.shape[:1]:
        raise DataError(
            f"a loss takes embeddings [n d] and labels [n], got {list(embeddings.shape)} and {list(labels.shape)}. "
            f"Give one label for each embedding."
        )
    return at_least_float32(embeddings)

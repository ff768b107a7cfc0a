"""The base of all losses: compare embeddings by their labels, then score the comparisons by a pure formula."""

import inspect
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, NamedTuple, get_args

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor, nn

from vicinal.distances import Distance, at_least_float32
from vicinal.errors import ConfigError, DataError, unknown
from vicinal.tuples import Triplets, other_class, positives

Layout = Literal["pairs", "triplets"]
Reduction = Literal["mean", "sum", "none"]


class Terms(NamedTuple):
    """What each anchor contributes to a loss: its terms added up, and how many terms it divides the mean by.

    A term is what the loss's formula sums over: a triplet, an (anchor, positive) tuple, an anchor. An anchor that
    can form none has 0 of both, so that a batch without terms costs 0 and passes gradient 0, never NaN.
    """

    sums: Float[Tensor, "n"]
    counts: Float[Tensor, "n"]


def reduce(terms: Terms, reduction: Reduction) -> Float[Tensor, ""] | Float[Tensor, "n"]:
    """The mean over all terms, their sum, or one value for each anchor: the mean over its own terms.

    So ``"none"`` weighted by the counts and averaged is ``"mean"``.

    >>> import torch
    >>> terms = Terms(torch.tensor([3.0, 1.0, 0.0]), torch.tensor([3.0, 1.0, 0.0]))
    >>> [reduce(terms, how).tolist() for how in ("mean", "sum", "none")]
    [1.0, 4.0, [1.0, 1.0, 0.0]]
    """
    match reduction:
        case "mean":
            return terms.sums.sum() / terms.counts.sum().clamp(min=1)
        case "sum":
            return terms.sums.sum()
        case "none":
            return terms.sums / terms.counts.clamp(min=1)


@dataclass(frozen=True)
class Comparisons:
    """What each anchor is compared with: all that the core of a loss sees.

    The numbers are distances or similarities, as the loss's ``distance`` makes them. Whoever makes them otherwise
    (synthetic negatives, distances between arcs, margins per pair of classes subtracted from ``negative``) puts
    them here; a row need not be a sample: for explicit tuples it is a tuple.

    Attributes:
        positive: the anchor and its positives.
        keep_positive: which of them are there; the rest is padding.
        negative: the anchor and its negatives.
        keep_negative: which of them are there.
        positive_weights: factors of the terms in which a positive stands; None is 1.
        negative_weights: factors of the terms in which a negative stands; None is 1.
        penalty: what an anchor's embeddings cost in themselves, for losses that ask it; added to each of its terms.
        boundary: where an anchor's positives and negatives should part, for losses that learn it.
        partner: the row in which each positive is itself the anchor, for losses that look at both members of a pair;
            the negatives of the two stand in the same columns. None: a row's negatives are those of both members.
        partners: the comparisons whose rows ``partner`` names; None: these.
    """

    positive: Float[Tensor, "n p"]
    keep_positive: Bool[Tensor, "n p"]
    negative: Float[Tensor, "n m"]
    keep_negative: Bool[Tensor, "n m"]
    positive_weights: Float[Tensor, "n p"] | None = None
    negative_weights: Float[Tensor, "n m"] | None = None
    penalty: Float[Tensor, "n"] | None = None
    boundary: Float[Tensor, "n"] | None = None
    partner: Integer[Tensor, "n p"] | None = None
    partners: "Comparisons | None" = None

    def of_partners(self) -> "Comparisons":
        """The comparisons in which the positives are anchors."""
        return self if self.partners is None else self.partners

    def add_up(self, pull: Float[Tensor, "n p"], push: Float[Tensor, "n m"]) -> Float[Tensor, "n"]:
        """For each anchor the sum of what its positives and its negatives cost, weighted."""
        pull = pull if self.positive_weights is None else pull * self.positive_weights
        push = push if self.negative_weights is None else push * self.negative_weights
        return pull.masked_fill(~self.keep_positive, 0).sum(dim=1) + push.masked_fill(~self.keep_negative, 0).sum(dim=1)

    def count_pairs(self) -> Float[Tensor, "n"]:
        """For each anchor the number of its positives and negatives."""
        return (self.keep_positive.sum(dim=1) + self.keep_negative.sum(dim=1)).to(self.negative.dtype)


class Loss(nn.Module, ABC):
    """A loss over labelled embeddings: ``loss(embeddings, labels)`` = ``reduce(core(comparisons(...)))``.

    A loss is final and brings two things: ``distance``, by which embeddings are compared, and ``core``, its formula. It
    keeps its constructor's arguments as attributes of the same names. Where it needs more than labels give, it
    extends ``comparisons``. All of it is differentiable, in float32 at least, on any device.

    Attributes:
        distance: how embeddings are compared.
        largest_class: rows of one class in a batch at most, where the caller knows it; None for counting, for which a
            GPU is waited for. Set by `Method` for the time of a step.
        both_members: whether the core looks at a positive pair from both of its ends and so wants ``partner``.
        takes_reference: whether other rows may take the batch's place; not for proxies or a clustering of the batch.
        capturable: whether a step can be captured as a CUDA graph: the loss depends on tensors alone, on nothing
            that it counts or decides in Python.
        layout: the block layout that ``blocks=True`` expects, named after its sampler: ``"pairs"`` for ``[a; p]``,
            ``"triplets"`` for ``[a; p; n]``; None where the loss has no such argument.
        pair_rows: how a positive pair can be a row of ``core`` (LoOp): with its own comparison as the only positive
            (``"pair"``), with all positives of both members (``"class"``), or not at all (None).
        pairs_off_sphere: whether LoOp may use the ends of a pair where the loss is not on the sphere and has no arcs.
        single_negatives: whether each negative is compared with the anchor alone, so that it can be replaced (HDML).
    """

    both_members: bool = False
    takes_reference: bool = True
    capturable: bool = True
    layout: ClassVar[Layout | None] = None
    pair_rows: ClassVar[Literal["pair", "class"] | None] = None
    pairs_off_sphere: ClassVar[bool] = False
    single_negatives: ClassVar[bool] = True

    def __init__(self, distance: Distance, reduction: Reduction) -> None:
        super().__init__()
        if reduction not in get_args(Reduction):
            raise ConfigError(unknown("reduction", str(reduction), get_args(Reduction)))
        self.distance, self.reduction = distance, reduction
        self.largest_class: int | None = None

    @abstractmethod
    def core(self, comparisons: Comparisons) -> Terms:
        """The formula: what each anchor contributes."""

    def penalty(self, anchors: Float[Tensor, "n d"], others: Float[Tensor, "*m d"]) -> Float[Tensor, "n"] | None:
        """What the embeddings themselves add to the loss of each anchor; None for most losses."""
        return None

    def comparisons(
        self,
        embeddings: Float[Tensor, "n d"],
        labels: Integer[Tensor, "n"],
        reference: Float[Tensor, "m d"] | None = None,
        reference_labels: Integer[Tensor, "m"] | None = None,
        own: Integer[Tensor, "n"] | None = None,
    ) -> Comparisons:
        """Each embedding as an anchor with all of its positives and negatives; arguments as in ``forward``."""
        most = self.largest_class if reference is None else None
        found, columns = self._pairs(embeddings, labels, reference, reference_labels, own, most)
        if not self.both_members:
            return found
        if reference is None or reference_labels is None:
            return replace(found, partner=columns)
        # Of a memory only the rows that are somebody's positives: all of it against itself would be too much.
        rows, partner = torch.unique(columns, return_inverse=True)
        theirs, _ = self._pairs(reference[rows], reference_labels[rows], reference, reference_labels, rows, None)
        return replace(found, partner=partner, partners=theirs)

    def _pairs(
        self,
        embeddings: Float[Tensor, "n d"],
        labels: Integer[Tensor, "n"],
        reference: Float[Tensor, "m d"] | None,
        reference_labels: Integer[Tensor, "m"] | None,
        own: Integer[Tensor, "n"] | None,
        largest_class: int | None,
    ) -> tuple[Comparisons, Integer[Tensor, "n p"]]:
        """Every pair of each anchor, and the columns in which its positives were found."""
        compared = self.distance(embeddings, reference)
        columns, keep = positives(labels, reference_labels, own, largest_class=largest_class)
        negative = other_class(labels, reference_labels)
        return Comparisons(compared.gather(1, columns), keep, compared, negative), columns

    def forward(
        self,
        embeddings: Float[Tensor, "n d"],
        labels: Integer[Tensor, "n"],
        reference: Float[Tensor, "m d"] | None = None,
        reference_labels: Integer[Tensor, "m"] | None = None,
        own: Integer[Tensor, "n"] | None = None,
    ) -> Float[Tensor, ""] | Float[Tensor, "rows"]:
        """The loss of a batch.

        Args:
            embeddings: the anchors; without a reference also what they are compared with.
            labels: class of each anchor.
            reference: what the anchors are compared with instead: a gallery, a memory, all processes' rows.
            reference_labels: class of each reference row.
            own: where each anchor itself stands in the reference, not to be compared with itself; None: nowhere.
        """
        _check_tensors(embeddings, labels)
        _check_shapes(embeddings, labels, reference, reference_labels, own)
        # Here, so that a half-precision gradient is rounded once and not once for each way that it comes.
        embeddings = at_least_float32(embeddings)
        reference = None if reference is None else at_least_float32(reference)
        return reduce(self.core(self.comparisons(embeddings, labels, reference, reference_labels, own)), self.reduction)

    def on_triplets(
        self,
        embeddings: Float[Tensor, "n d"],
        triplets: Triplets,
        weights: Float[Tensor, "t"] | None = None,
        labels: Integer[Tensor, "n"] | None = None,
    ) -> Float[Tensor, ""] | Float[Tensor, "t"]:
        """The loss of explicit triplets, each an anchor of its own; ``reduction="none"`` gives one value for each.

        Args:
            embeddings: what the triplets' row numbers count in.
            triplets: anchors, positives and negatives.
            weights: factors of the triplets' losses.
            labels: class of each embedding, for losses that learn something for each class.
        """
        sums, counts = self.core(self.triplet_comparisons(at_least_float32(embeddings), triplets, labels))
        return reduce(Terms(sums if weights is None else sums * weights, counts), self.reduction)

    def triplet_comparisons(
        self,
        embeddings: Float[Tensor, "n d"],
        triplets: Triplets,
        labels: Integer[Tensor, "n"] | None = None,
    ) -> Comparisons:
        """Explicit triplets as rows with one positive and one negative each; arguments as in ``on_triplets``."""
        anchors, others, negatives = (embeddings[rows] for rows in triplets)
        positive, negative = self.distance(anchors, others[:, None]), self.distance(anchors, negatives[:, None])
        there = torch.ones_like(positive, dtype=torch.bool)
        found = Comparisons(positive, there, negative, there)
        if not self.both_members:
            return found
        theirs = replace(found, negative=self.distance(others, negatives[:, None]))
        return replace(found, partner=torch.arange(len(there), device=there.device)[:, None], partners=theirs)

    def extra_repr(self) -> str:
        names = inspect.signature(type(self)).parameters
        return ", ".join(f"{name}={getattr(self, name, '?')!r}" for name in names)


def tuple_loss(loss: nn.Module, method: str) -> Loss:
    """Return ``loss`` if it compares anchors with rows of the batch; raise a ConfigError that names ``method``.

    >>> tuple_loss(nn.MSELoss(), "LoOp")
    Traceback (most recent call last):
    vicinal.errors.ConfigError: LoOp needs a tuple loss of vicinal.losses, got MSELoss. Use multi_similarity.
    """
    name = type(loss).__name__
    if not isinstance(loss, Loss):
        raise ConfigError(f"{method} needs a tuple loss of vicinal.losses, got {name}. Use multi_similarity.")
    if not loss.takes_reference:
        raise ConfigError(
            f"{method} needs a loss that compares samples with each other, but {name} compares them with proxies or "
            f"clusters. Use a loss over pairs or triplets such as multi_similarity."
        )
    return loss


def _check_tensors(*values: object) -> None:
    for value in values:
        if not isinstance(value, Tensor):
            raise DataError(f"a loss takes tensors, got {type(value).__name__}. Use torch.as_tensor.")


def _check_shapes(
    embeddings: Tensor, labels: Tensor, reference: Tensor | None, reference_labels: Tensor | None, own: Tensor | None
) -> None:
    """One clear sentence here instead of a broadcasting error deep inside."""
    if embeddings.ndim != 2 or labels.shape != embeddings.shape[:1]:
        raise DataError(
            f"a loss takes embeddings [n d] and labels [n], got {list(embeddings.shape)} and {list(labels.shape)}. "
            f"Give one label for each embedding."
        )
    if (reference is None) != (reference_labels is None):
        given = "reference" if reference is not None else "reference_labels"
        raise DataError(f"reference rows come with their labels, but only `{given}` was given. Give both or neither.")
    if reference is None or reference_labels is None:
        if own is not None:
            raise DataError("`own` names places among reference rows, but no `reference` was given. Leave it out.")
        return
    rows, width = reference_labels.shape, embeddings.shape[1]
    if len(rows) != 1 or reference.shape != (*rows, width):
        raise DataError(
            f"beside embeddings {list(embeddings.shape)} reference rows are [m {width}] with labels [m], got "
            f"{list(reference.shape)} and {list(rows)}. Embed both with the same network."
        )
    if own is not None and own.shape != labels.shape:
        raise DataError(f"`own` is one place for each of {len(labels)} anchors, got {list(own.shape)}.")

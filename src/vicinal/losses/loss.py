"""The base of all losses: compare embeddings by their labels, then score the comparisons by a pure
formula."""

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Integer, Shaped
from torch import Tensor, nn
from torch.nn.functional import softplus
from torch.utils.checkpoint import checkpoint

from vicinal.arguments import check_arguments
from vicinal.distances import Distance, Euclidean, Negative
from vicinal.errors import ConfigError, DataError
from vicinal.geometry import log_sum_exp
from vicinal.parallel import gather, part, processes, stacked
from vicinal.tuples import (
    Embeddings,
    Labels,
    Pairs,
    Reference,
    SingleLabels,
    Triplets,
    block_pairs,
    multi_hot,
    other_class,
    positives,
    same_class,
    wide_enough,
)

Layout = Literal["pairs", "triplets"]
PairRows = Literal["pair", "class"] | None
Reduction = Literal["mean", "sum", "none"]
BLOCK = 2**22  # triplets whose intermediate values may be kept for the backward pass


class Terms(NamedTuple):
    """What each anchor contributes to a loss: its terms added up, and how many terms it divides the
    mean by.

    A term is what the loss's formula sums over: a triplet, an (anchor, positive) tuple, an anchor.
    An anchor that can form none has 0 of both, so that a batch without terms costs 0 and passes
    gradient 0, never NaN.

    >>> Terms(torch.tensor([3.0, 0.0]), torch.tensor([2.0, 0.0])).counts  # the second forms none
    tensor([2., 0.])
    """

    sums: Float[Tensor, "n"]
    counts: Float[Tensor, "n"]

    @classmethod
    def of_anchors(cls, losses: Float[Tensor, "n"], formed: Bool[Tensor, "n"]) -> "Terms":
        """Return one term for each anchor that forms one."""
        return cls(losses.masked_fill(~formed, 0), formed.to(losses.dtype))


def reduce(terms: Terms, reduction: Reduction) -> Float[Tensor, ""] | Float[Tensor, "n"]:
    """Return the mean over all terms, their sum, or one value for each anchor: the mean over its
    own terms.

    So ``"none"`` weighted by the counts and averaged is ``"mean"``.

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

    The numbers are distances or similarities, as the loss's ``distance`` makes them. Whoever makes
    them otherwise (synthetic negatives, distances between arcs, margins per pair of classes
    subtracted from ``negative``) puts them here; a row need not be a sample: for explicit tuples it
    is a tuple.

    >>> from vicinal.losses import Comparisons, TripletLoss
    >>> anchors = Comparisons(
    ...     positive=torch.tensor([[0.5]]), keep_positive=torch.tensor([[True]]),
    ...     negative=torch.tensor([[0.9, 0.2]]), keep_negative=torch.tensor([[True, True]]),
    ... )
    >>> TripletLoss(margin=0.1, reduction="sum").core(anchors).sums  # 0.1 + 0.5 - 0.2
    tensor([0.4000])

    Attributes:
        positive: the anchor and its positives.
        keep_positive: which of them are there; the rest is padding.
        negative: the anchor and its negatives.
        keep_negative: which of them are there.
        positive_weights: how much of a positive each is, for losses with ``separate_sums``; None
            is 1.
        negative_weights: how much of a negative each is, likewise.
        penalty: what an anchor's embeddings cost in themselves, for losses that ask it; added to
            each of its terms.
        boundary: where an anchor's positives and negatives should part, for losses that learn it.
        partner: the row in which each positive is itself the anchor, for losses that look at both
            members of a pair; the negatives of the two stand in the same columns. None: a row's
            negatives are those of both members.
        partners: the comparisons whose rows ``partner`` names; None: these.
        divided: whether each of several processes has other negatives of the same anchors, or other
            anchors.
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
    divided: bool = False

    def total(self, values: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
        """Add up what the processes have, where they have divided comparisons."""
        return stacked(values).sum(dim=0) if self.divided else values

    def formed(self) -> Bool[Tensor, "n"]:
        """Return which anchors have positives and negatives."""
        return self.keep_positive.any(dim=1) & self.keep_negative.any(dim=1)

    def nothing(self) -> Float[Tensor, "n"]:
        """Return zeros that are part of the graph."""
        return 0 * (self.positive.sum(dim=1) + self.negative.sum(dim=1))

    def add_up(self, pull: Float[Tensor, "n p"], push: Float[Tensor, "n m"]) -> Float[Tensor, "n"]:
        """Return for each anchor the sum of what its positives and its negatives cost, weighted."""
        pushed = self.total(self.of_negatives(push).sum(dim=1))
        return self.of_positives(pull).sum(dim=1) + pushed

    def of_positives(self, values: Float[Tensor, "n p"]) -> Float[Tensor, "n p"]:
        """Return one value for each positive, weighted; 0 where there is none."""
        return _weighted(values, self.positive_weights).masked_fill(~self.keep_positive, 0)

    def of_negatives(self, values: Float[Tensor, "n m"]) -> Float[Tensor, "n m"]:
        """Return one value for each negative, weighted; 0 where there is none."""
        return _weighted(values, self.negative_weights).masked_fill(~self.keep_negative, 0)

    def count_pairs(self) -> Float[Tensor, "n"]:
        """Return for each anchor the number of its positives and negatives."""
        return (self.keep_positive.sum(dim=1) + self.keep_negative.sum(dim=1)).to(
            self.negative.dtype
        )

    def per_positive(
        self, losses: Float[Tensor, "n p"], against: Bool[Tensor, "n #p"] | None = None
    ) -> Terms:
        """Return one term for each positive that stands against a negative: its loss and the
        penalty.

        ``against`` says which do; the default is those of anchors with a negative.
        """
        if self.penalty is not None:
            losses = losses + self.penalty[:, None]
        if against is None:
            against = self.total(self.keep_negative.any(dim=1, keepdim=True).int()) > 0
        formed = self.keep_positive & against
        return Terms(losses.masked_fill(~formed, 0).sum(dim=1), formed.sum(dim=1).to(losses.dtype))

    def cross_entropy(
        self, own: Float[Tensor, "n p"], others: Float[Tensor, "n m"]
    ) -> Float[Tensor, "n p"]:
        """Return -log(exp(own) / (exp(own) + Σ exp(others))) of each positive against its anchor's
        negatives.

        As log(1 + Σ exp(others) / exp(own)), whose logarithm of a sum over nothing is so low that
        it is 0.
        """
        # E^-40 is 0 beside 1 in float64, too.
        return softplus(self.log_sum_exp(others)[:, None] - own, threshold=40.0)

    def log_sum_exp(self, values: Float[Tensor, "n m"]) -> Float[Tensor, "n"]:
        """Return log Σ exp of one value for each negative, for each anchor."""
        found = log_sum_exp(values, self.keep_negative)
        return stacked(found).logsumexp(dim=0) if self.divided else found

    def count_triplets(self) -> Float[Tensor, "n"]:
        """Return for each anchor the number of its triplets."""
        return (self.keep_positive.sum(dim=1) * self.keep_negative.sum(dim=1)).to(
            self.negative.dtype
        )

    def sum_triplets(self, term: Callable[[Tensor], Tensor]) -> Float[Tensor, "n"]:
        """Return for each anchor the sum of a term of d_p - d_n over its triplets."""

        def sums_of(positive: Tensor, negative: Tensor) -> Tensor:
            terms = term(positive[:, None] - negative)
            return terms.masked_fill(~self.keep_negative, 0).sum(dim=1)

        total = self.nothing()
        columns = self.one_by_one(sums_of, self.positive, self.negative)
        for column, sums in enumerate(columns):
            total = total + sums.masked_fill(~self.keep_positive[:, column], 0)
        return total

    def one_by_one(
        self, function: Callable[..., Any], columns: Tensor, *given: Tensor
    ) -> Iterator[Any]:
        """Apply ``function`` to each column ``[n]`` of one value for each positive, and to what
        else is ``given``.

        A large batch keeps nothing but the inputs for its backward pass, so memory stays n x m;
        time is n x m x p.
        """
        large = self.positive.shape[1] * self.negative.numel() > BLOCK
        for column in columns.unbind(dim=1):
            if large:
                yield checkpoint(
                    function, column, *given, use_reentrant=False, preserve_rng_state=False
                )
            else:
                yield function(column, *given)


def _weighted(values: Tensor, weights: Tensor | None) -> Tensor:
    return values if weights is None else values * weights


class SettingsModule(nn.Module):
    """A module that is a dataclass (``eq=False``) of its settings, each within the limits of its
    annotation."""

    def __new__(cls, *args: object, **settings: object) -> Any:
        module = super().__new__(cls)
        nn.Module.__init__(module)  # before a dataclass sets its fields
        return module

    def __post_init__(self) -> None:
        check_arguments(self)


@dataclass(eq=False, repr=False)
class Loss(SettingsModule, ABC):
    """A loss over labeled embeddings: ``loss(embeddings, labels)`` =
    ``reduce(core(comparisons(...)))``.

    A loss is a dataclass (``eq=False, repr=False``) whose fields are its arguments. It brings
    ``core``, its formula, and ``distance``, where that is not the Euclidean one. Where it needs
    more than labels give, it extends ``comparisons``. All of it is differentiable, in float32 at
    least, on any device.

    >>> from vicinal.losses import Comparisons, Loss, Terms
    >>> @dataclass(eq=False, repr=False)
    ... class MeanDistance(Loss):
    ...     def core(self, comparisons: Comparisons) -> Terms:
    ...         positive, keep = comparisons.positive, comparisons.keep_positive
    ...         return Terms((positive * keep).sum(dim=1), keep.sum(dim=1).to(positive.dtype))
    >>> MeanDistance()(torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]]), torch.tensor([0, 0, 1]))
    tensor(0.8944)

    Attributes:
        reduction: as in ``torch.nn``.
        both_members: whether the core looks at a positive pair from both of its ends and so wants
            ``partner``.
        takes_reference: whether other rows may take the batch's place; not for proxies or a
            clustering of the batch.
        no_tuples: what a loss that takes no other rows does in place of that.
        capturable: whether a step can be captured as a CUDA graph: the loss depends on tensors
            alone, on nothing that it counts or decides in Python.
        blocks: whether rows lie in blocks, an argument of some losses.
        layout: the block layout that ``blocks=True`` expects, named after its sampler: ``"pairs"``
            for ``[a; p]``, ``"triplets"`` for ``[a; p; n]``; None where the loss has no such
            argument.
        pair_rows: how a positive pair can be a row of ``core`` (LoOp): with its own comparison as
            the only positive (``"pair"``), with all positives of both members (``"class"``), or not
            at all (None).
        pairs_off_sphere: whether LoOp may use the ends of a pair where the loss is not on the
            sphere and has no arcs.
        single_negatives: whether each negative is compared with the anchor alone, so that it can be
            replaced (HDML).
        separate_sums: whether an anchor's positives enter by one sum and its negatives by another,
            so that an example can be both in part (Metrix).
        relative: whether similarities enter by their differences alone, so that minus a distance
            is as good as they.
        shared: whether each of several processes, which all give the gathered batch, scores a share
            of the anchors (`share_anchors`).
        divided: whether each process has a share of what the anchors are compared with.
    """

    _: KW_ONLY
    reduction: Reduction = "mean"

    both_members: ClassVar[bool] = False
    takes_reference: ClassVar[bool] = True
    no_tuples: ClassVar[str] = "compares them with proxies or clusters"
    layout: ClassVar[Layout | None] = None
    pair_rows: ClassVar[PairRows] = None
    pairs_off_sphere: ClassVar[bool] = False
    single_negatives: ClassVar[bool] = True
    separate_sums: ClassVar[bool] = False
    relative: ClassVar[bool] = False
    capturable = True
    blocks = False
    shared = False
    divided = False

    @cached_property
    def distance(self) -> Distance:
        """How embeddings are compared: by the Euclidean distance, as ``squared`` and ``normalize``
        say."""
        return Euclidean(
            squared=getattr(self, "squared", False), normalize=getattr(self, "normalize", True)
        )

    def with_distance(self, distance: Distance) -> "Loss":
        """Return this loss over another distance, such as that of the Poincaré ball.

        It takes the place of a plain Euclidean distance. A loss over differences of similarities
        takes minus the distance, as the cross-entropy of Ermolov et al. (2022) does; a margin or
        threshold of a cosine has no meaning there.
        """
        usual = self.distance
        if self.relative and usual.larger_is_closer:
            distance = Negative(distance)
        elif (
            not self.takes_reference
            or type(usual) is not Euclidean
            or usual.squared
            or usual.scale != 1
        ):
            raise ConfigError(
                f"only a loss over plain distances can compare by {type(distance).__name__}, got "
                f"{self!r}. Set loss=info_nce and loss.temperature=0.2."
            )
        found = copy.deepcopy(self)
        found.distance = distance
        return found

    @abstractmethod
    def core(self, c: Comparisons) -> Terms:
        """Score the comparisons by the formula: what each anchor contributes."""

    def score(self, c: Comparisons) -> Float[Tensor, ""] | Float[Tensor, "n"]:
        """Return the loss of comparisons, however they were made."""
        return reduce(self.core(c), self.reduction)

    def penalty(
        self, anchors: Embeddings, others: Float[Tensor, "*m d"]
    ) -> Float[Tensor, "n"] | None:
        """Return what the embeddings cost each anchor in themselves, where the formula has such a
        term; ``others`` are the rows that anchors are compared with."""
        return None

    @property
    def indivisible(self) -> str | None:
        """Why no share of the anchors can be scored apart; None where it can."""
        return "its rows lie in blocks" if self.blocks else None

    @property
    def multi_label(self) -> bool:
        """Whether rows may have several labels: it looks at nothing but which rows are positives
        and negatives."""
        return self.takes_reference and not self.blocks

    def comparisons(
        self, embeddings: Embeddings, labels: Labels, reference: Reference | None = None
    ) -> Comparisons:
        """Compare each anchor with every positive and negative that labels give it."""
        if self.blocks and self.layout == "pairs" and reference is None:
            embeddings, labels, reference = block_pairs(embeddings, labels)
        penalty = self.penalty(embeddings, embeddings if reference is None else reference.rows)
        found, columns = self._pairs(embeddings, labels, reference)
        found = replace(found, penalty=penalty)
        if not self.both_members:
            return found
        if reference is None:
            return replace(found, partner=columns)
        # Of a memory only the rows that are somebody's positives: all of it against itself would be
        # too much.
        rows, partner = torch.unique(columns, return_inverse=True)
        theirs, _ = self._pairs(
            reference.rows[rows], reference.labels[rows], reference._replace(own=rows)
        )
        return replace(found, partner=partner, partners=theirs)

    def _pairs(
        self, embeddings: Tensor, labels: Tensor, reference: Reference | None
    ) -> tuple[Comparisons, Integer[Tensor, "n p"]]:
        """Return every pair of each anchor, and the columns in which its positives were found."""
        rows, classes, own = (None, None, None) if reference is None else reference
        compared = self.distance(embeddings, rows)
        columns, keep = same = positives(labels, classes, own)
        # A GPU compares all labels as fast.
        others = other_class(labels, classes, None if labels.is_cuda else same)
        return Comparisons(compared.gather(1, columns), keep, compared, others), columns

    def forward(
        self,
        embeddings: Embeddings,
        labels: SingleLabels | Shaped[Tensor, "n k"],
        reference: Float[Tensor, "m d"] | None = None,
        reference_labels: Integer[Tensor, "m"] | Shaped[Tensor, "m k"] | None = None,
        own: Integer[Tensor, "n"] | None = None,
    ) -> Float[Tensor, ""] | Float[Tensor, "rows"]:
        """Return the loss of a batch.

        Args:
            embeddings: the anchors; without a reference also what they are compared with.
            labels: class of each anchor; or a matrix ``[n k]`` of zeros and ones where a row has
                several classes, and rows that share one are positives.
            reference: what the anchors are compared with instead: a gallery, a memory, all
                processes' rows.
            reference_labels: class of each reference row.
            own: where each anchor itself stands in the reference, not to be compared with itself;
                None: nowhere.
        """
        others = Reference.checked(
            embeddings, labels, reference, reference_labels, own, several=self.multi_label
        )
        if others is not None and not self.takes_reference:
            raise ConfigError(
                f"{type(self).__name__} does not compare samples with each other, so `reference` "
                "rows have no meaning for it. Leave them out."
            )
        labels = multi_hot(labels)
        dtype = torch.promote_types(embeddings.dtype, torch.float32)
        # Here, so that a half-precision gradient is rounded once and not once for each way that it
        # comes.
        embeddings, rows = wide_enough(embeddings, reference)
        if others is not None and rows is not None:
            others = others._replace(rows=rows, labels=multi_hot(others.labels))
        shared = self.shared and processes() > 1 and len(labels) % processes() == 0
        if shared:
            places = torch.arange(len(labels), device=labels.device)
            others = others or Reference(embeddings, labels, places)
            own = None if others.own is None else part(others.own)
            others = others._replace(own=own)
            embeddings = part(embeddings)
            labels = part(labels)
        terms = self.core(self.comparisons(embeddings, labels, others))
        if shared:
            terms = Terms(*gather(*terms))
        return reduce(terms, self.reduction).to(dtype)

    def on_triplets(
        self,
        embeddings: Embeddings,
        triplets: Triplets,
        labels: SingleLabels | None = None,
    ) -> Float[Tensor, ""] | Float[Tensor, "t"]:
        """Return the loss of explicit triplets, each an anchor of its own; ``reduction="none"`` has
        a value for each.

        Args:
            embeddings: what the triplets' row numbers count in.
            triplets: anchors, positives and negatives.
            labels: class of each embedding, for losses that learn something for each class.
        """
        triplets.check(embeddings)
        dtype = torch.promote_types(embeddings.dtype, torch.float32)
        embeddings, _ = wide_enough(embeddings)
        found = self.score(self.triplet_comparisons(embeddings, triplets, labels))
        return (found + 0 * embeddings.sum()).to(dtype)  # also of rows in no triplet

    def on_pairs(
        self,
        embeddings: Embeddings,
        labels: SingleLabels,
        positive: Pairs,
        negative: Pairs,
        reference: Reference | None = None,
    ) -> Float[Tensor, ""] | Float[Tensor, "n"]:
        """Return the loss of the batch over these of its pairs alone, each once, as if there were
        no others.

        Args:
            embeddings: the anchors; without a reference also what they are compared with.
            labels: class of each anchor.
            positive: pairs of one class.
            negative: pairs of two classes.
            reference: the rows among which the second members of pairs are numbered.
        """
        rows, classes, own = (None, None, None) if reference is None else reference
        dtype = torch.promote_types(embeddings.dtype, torch.float32)
        embeddings, rows = wide_enough(embeddings, rows)
        others = Reference.checked(embeddings, labels, rows, classes, own)
        shape = len(embeddings), len(embeddings if rows is None else rows)
        masks = [torch.zeros(shape, dtype=torch.bool, device=embeddings.device) for _ in range(2)]
        for mask, pairs in zip(masks, (positive, negative), strict=True):
            mask[pairs.anchor, pairs.other] = True
        allowed = same_class(labels, classes, own), other_class(labels, classes)
        if any(bool((mask & ~fits).any()) for mask, fits in zip(masks, allowed, strict=True)):
            raise DataError(
                "mined pairs contradict the labels: a positive pair is of one class, a negative "
                "of two."
            )
        seen = self.comparisons(embeddings, labels, others)
        columns, _ = positives(labels, classes, own)
        in_pairs = seen.keep_positive.shape == columns.shape and seen.keep_negative.shape == shape
        if self.blocks or not in_pairs or seen.partners is not None:
            raise ConfigError(
                f"{type(self).__name__} does not see all rows in pairs here, so that mined pairs "
                "have no meaning for it. Give it triplets or all rows, or leave reference rows out."
            )
        keep = seen.keep_positive & masks[0].gather(1, columns), seen.keep_negative & masks[1]
        found = self.score(replace(seen, keep_positive=keep[0], keep_negative=keep[1]))
        return (found + 0 * embeddings.sum()).to(dtype)  # also of rows in no pair

    def triplet_comparisons(
        self, embeddings: Embeddings, triplets: Triplets, labels: SingleLabels | None = None
    ) -> Comparisons:
        """Return explicit triplets as rows with one positive and one negative each; arguments as in
        ``on_triplets``."""
        if not self.takes_reference:
            raise ConfigError(
                f"{type(self).__name__} does not compare samples with each other, so triplets "
                "have no meaning for it. Use a loss over triplets, such as TripletLoss."
            )
        rows, distance = self.distance.normalized_once(embeddings)
        anchors, others, negatives = (rows[members] for members in triplets)
        positive = distance(anchors, others[:, None])
        negative = distance(anchors, negatives[:, None])
        there = torch.ones_like(positive, dtype=torch.bool)
        anchor, *compared = (embeddings[members] for members in triplets)
        penalty = self.penalty(anchor, torch.cat(compared))
        found = Comparisons(positive, there, negative, there, penalty=penalty)
        if not self.both_members:
            return found
        theirs = replace(found, negative=distance(others, negatives[:, None]))
        return replace(
            found, partner=torch.arange(len(there), device=there.device)[:, None], partners=theirs
        )

    def extra_repr(self) -> str:
        return ", ".join(
            f"{name}={getattr(self, name)!r}" for name in inspect.signature(type(self)).parameters
        )


def share_anchors(module: nn.Module) -> tuple[str, ...]:
    """Let each of several processes score its own anchors, in every loss of ``module`` that can;
    return why parts of it cannot."""
    reasons = []
    for each in module.modules():
        reason = getattr(each, "indivisible", None)
        if isinstance(each, Loss):
            each.shared = reason is None and not each.divided
        if reason is not None:
            reasons.append(f"{type(each).__name__}: {reason}")
    return tuple(reasons)


def compares_rows(loss: nn.Module) -> bool:
    """Return whether a loss compares rows with each other, not with proxies."""
    return isinstance(loss, Loss) and loss.takes_reference


def block_layout(loss: nn.Module) -> Layout | None:
    """Return the layout of batches that a loss reads by the places of rows; None where it goes by
    labels alone."""
    return loss.layout if isinstance(loss, Loss) and loss.blocks else None


def tuple_loss(loss: nn.Module, method: str) -> Loss:
    """Return ``loss`` if it compares anchors with rows of the batch; raise a ConfigError that names
    ``method``.

    >>> tuple_loss(nn.MSELoss(), "LoOp")
    Traceback (most recent call last):
    vicinal.errors.ConfigError: LoOp needs a tuple loss of vicinal.losses, got MSELoss. Use
    multi_similarity.
    """
    name = type(loss).__name__
    if not isinstance(loss, Loss):
        raise ConfigError(
            f"{method} needs a tuple loss of vicinal.losses, got {name}. Use multi_similarity."
        )
    if not loss.takes_reference:
        raise ConfigError(
            f"{method} needs a loss that compares samples with each other, but {name} "
            f"{loss.no_tuples}. Use a loss over pairs or triplets such as multi_similarity."
        )
    return loss

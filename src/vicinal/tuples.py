"""Labels to masks, pairs and triplets: the only place where labels become indices.

Rows are anchors, columns are what they are compared with: the batch itself, or *reference* rows (a
gallery, a memory, the other processes). An anchor is never compared with itself: in the batch that
is the diagonal; among reference rows ``own`` says where each anchor stands, and without ``own`` no
anchor is among them.

A row has one label, ``[n]``, or several, as a row of a boolean matrix ``[n k]``: rows that share a
label are then positives, all others negatives. A row without any label is no anchor and nobody's
positive.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Integer, Shaped
from torch import Tensor

from vicinal.errors import ConfigError, DataError

Scalar = Float[Tensor, ""]
Embeddings = Float[Tensor, "n d"]
SingleLabels = Integer[Tensor, "n"]
Labels = SingleLabels | Bool[Tensor, "n k"]
ReferenceLabels = Integer[Tensor, "m"] | Bool[Tensor, "m k"]


class SizedLabels(Tensor):
    """Labels that know how many rows of their batch are of one class at most, so that nobody waits
    for a GPU to count them. What is computed from them is a plain tensor.

    >>> labels = SizedLabels.of(torch.tensor([3, 3, 5]), 2)
    >>> labels.largest_class, type(labels[:2]).__name__
    (2, 'Tensor')
    """

    largest_class: int
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def of(cls, labels: Tensor, largest_class: int | None) -> Tensor:
        """Return ``labels`` with what is known of them; as they are where nothing is."""
        if largest_class is None:
            return labels
        sized = labels.as_subclass(cls)
        sized.largest_class = largest_class
        return sized


def wide_enough(x: Tensor, y: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
    """Rows in float32 at least, and in float64 where products of their lengths leave its range. A
    GPU is not waited for."""
    dtype = torch.promote_types(x.dtype, torch.float32)
    short = torch.finfo(torch.float32).tiny ** 0.25
    long = torch.finfo(torch.float32).max ** 0.25
    for rows in (x, y):
        if rows is not None and dtype == torch.float32 and not rows.is_cuda and rows.numel():
            lengths = torch.linalg.vector_norm(rows.detach().float(), dim=-1)
            if not ((lengths == 0) | ((lengths > short) & (lengths < long))).all():
                dtype = torch.float64
    return x.to(dtype), None if y is None else y.to(dtype)


def being_captured(rows: Tensor) -> bool:
    """Return whether a step on these rows is being captured as a CUDA graph: no value can be read
    then."""
    return rows.is_cuda and torch.cuda.is_current_stream_capturing()


class Positives(NamedTuple):
    """For each anchor the columns of its class, padded to the longest list; ``keep`` marks what is
    not padding."""

    columns: Int[Tensor, "n p"]
    keep: Bool[Tensor, "n p"]


class Pairs(NamedTuple):
    """Row numbers of explicit pairs."""

    anchor: Int[Tensor, "t"]
    other: Int[Tensor, "t"]


class Triplets(NamedTuple):
    """Row numbers of explicit triplets."""

    anchor: Int[Tensor, "t"]
    positive: Int[Tensor, "t"]
    negative: Int[Tensor, "t"]

    def check(self, embeddings: Tensor) -> None:
        """Raise a DataError where these are no triplets of rows of ``embeddings``."""
        counts = [len(rows) for rows in self]
        if len(set(counts)) > 1:
            raise DataError(
                f"triplets are as many anchors, positives and negatives, got {counts[0]}, "
                f"{counts[1]} and {counts[2]}."
            )
        named = torch.cat(list(self))
        # A device is not waited for; out of range it ends the process itself.
        if len(named) and not named.is_cuda:
            low, high = (int(bound) for bound in named.aminmax())
            if low < 0 or high >= len(embeddings):
                raise DataError(
                    f"triplets name rows from 0 to {len(embeddings) - 1}, got "
                    f"{low if low < 0 else high}. Number the rows of `embeddings`."
                )


class Reference(NamedTuple):
    """Rows that anchors are compared with in the place of their own batch: a gallery, a memory,
    another process.

    Attributes:
        rows: the embeddings.
        labels: class of each.
        own: where each anchor itself stands among them, not to be compared with itself; None:
            nowhere.
    """

    rows: Float[Tensor, "m d"]
    labels: ReferenceLabels
    own: Integer[Tensor, "n"] | None = None

    @classmethod
    def checked(
        cls,
        embeddings: Any,
        labels: Any,
        reference: Any = None,
        reference_labels: Any = None,
        own: Any = None,
        *,
        several: bool = False,
    ) -> "Reference | None":
        """Check the arguments of a loss or miner; return the reference, or None where there is
        none.

        ``several`` allows several labels for each row.
        """
        for name, value in (("embeddings", embeddings), ("labels", labels)):
            if not isinstance(value, Tensor):
                raise DataError(
                    f"`{name}` must be a tensor, got {type(value).__name__}. Use torch.as_tensor."
                )
        if (
            embeddings.ndim != 2
            or labels.shape[:1] != embeddings.shape[:1]
            or labels.ndim > 1 + several
        ):
            raise DataError(
                f"embeddings are [n d] and labels [n], got {list(embeddings.shape)} and "
                f"{list(labels.shape)}. Give one label for each embedding."
            )
        _check_types(embeddings, labels)
        if (reference is None) != (reference_labels is None):
            given = "reference" if reference is not None else "reference_labels"
            raise DataError(
                f"reference rows come with their labels, got `{given}` alone. Give both or neither."
            )
        if reference is None or reference_labels is None:
            if own is not None:
                raise DataError(
                    "`own` names places among reference rows, got no `reference`. Leave `own` out."
                )
            return None
        one_each = (
            reference_labels.ndim == labels.ndim and reference_labels.shape[1:] == labels.shape[1:]
        )
        if not one_each or reference.shape != (len(reference_labels), embeddings.shape[1]):
            raise DataError(
                f"beside embeddings {list(embeddings.shape)} reference rows are [m "
                f"{embeddings.shape[1]}] with labels [m], got {list(reference.shape)} and "
                f"{list(reference_labels.shape)}. Embed both with the same network."
            )
        _check_types(reference, reference_labels)
        if own is not None and own.shape != labels.shape[:1]:
            raise DataError(
                f"`own` is one place for each of {len(labels)} anchors, got {list(own.shape)}."
            )
        return cls(reference, reference_labels, own)


def _check_types(embeddings: Tensor, labels: Tensor) -> None:
    if not embeddings.is_floating_point():
        raise DataError(
            f"embeddings are floating-point numbers, got {embeddings.dtype}. Use `.float()`."
        )
    if labels.ndim == 1 and (labels.is_floating_point() or labels.is_complex()):
        raise DataError(
            f"labels must be integers, got {labels.dtype}. Number the classes, with "
            "torch.unique(labels, return_inverse=True) for example."
        )


def multi_hot(labels: Tensor) -> Tensor:
    """Return a matrix ``[n k]`` of zeros and ones as boolean, and labels ``[n]`` as they are."""
    if labels.ndim == 1 or labels.dtype == torch.bool:
        return labels
    if bool(((labels != 0) & (labels != 1)).any()):
        raise DataError(
            "several labels for each row are a matrix of zeros and ones, one column for each "
            f"class, got {list(labels.shape)} with values up to {labels.max().item()}. Use "
            "torch.nn.functional.one_hot and add up."
        )
    return labels.bool()


def same_class(
    labels: Labels,
    reference_labels: ReferenceLabels | None = None,
    own: Integer[Tensor, "n"] | None = None,
) -> Bool[Tensor, "n m"]:
    """Return which column is of the anchor's class, the anchor itself left out.

    >>> same_class(torch.tensor([0, 0, 1])).int().tolist()
    [[0, 1, 0], [1, 0, 0], [0, 0, 0]]
    >>> same_class(torch.tensor([0, 1]), torch.tensor([1, 0, 0])).int().tolist()
    [[0, 1, 1], [1, 0, 0]]
    """
    same = shared(labels, labels if reference_labels is None else reference_labels)
    if reference_labels is None:
        return same.fill_diagonal_(False)
    return same if own is None else same.scatter_(1, own.long()[:, None], False)


def other_class(
    labels: Labels, reference_labels: ReferenceLabels | None = None, same: Positives | None = None
) -> Bool[Tensor, "n m"]:
    """Return which column is of another class than the anchor.

    Of a batch among itself with one label a row, the columns of the anchor's class may be given as
    ``same``: to mark these few takes a CPU a tenth of the time of comparing all labels.

    >>> other_class(torch.tensor([0, 0, 1])).int().tolist()
    [[0, 0, 1], [0, 0, 1], [1, 1, 0]]
    >>> several = torch.tensor([[1, 1, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]], dtype=torch.bool)
    >>> other_class(several).int().tolist()
    [[0, 0, 1, 1], [0, 0, 1, 1], [1, 1, 0, 1], [0, 0, 0, 0]]
    """
    if same is not None and reference_labels is None and labels.ndim == 1:
        own = torch.arange(len(labels), device=labels.device)[:, None]
        other = torch.ones(len(labels), len(labels), dtype=torch.bool, device=labels.device)
        return other.scatter_(1, torch.where(same.keep, same.columns, own), False).fill_diagonal_(
            False
        )
    other = ~shared(labels, labels if reference_labels is None else reference_labels)
    return other if labels.ndim == 1 else other & labels.any(dim=1, keepdim=True)


def shared(labels: Tensor, others: Tensor) -> Tensor:
    """Return which rows and columns have a label in common."""
    return labels[:, None] == others if labels.ndim == 1 else labels.float() @ others.float().T > 0


def positives(
    labels: Labels,
    reference_labels: ReferenceLabels | None = None,
    own: Integer[Tensor, "n"] | None = None,
) -> Positives:
    """Return the columns that ``same_class`` marks, as lists: with K samples a class K - 1 columns
    take the place of n.

    The longest list sets the width. It is counted, and a GPU is waited for, unless the labels of
    the columns are `SizedLabels`.

    >>> positives(torch.tensor([0, 1, 0, 0])).columns[0].tolist()
    [2, 3]
    """
    if labels.ndim == 2:
        same = same_class(labels, reference_labels, own)
        order = same.int().argsort(dim=1, descending=True, stable=True)
        order = order[:, : int(same.sum(dim=1).max()) if len(same) else 0]
        return Positives(order, same.gather(1, order))
    if reference_labels is None:
        reference_labels = labels
        own = torch.arange(len(labels), device=labels.device)
    wanted = labels.long()
    columns = reference_labels.long()
    grouped, order = columns.sort(stable=True)
    first = torch.searchsorted(grouped, wanted)
    count = torch.searchsorted(grouped, wanted, right=True) - first
    if own is not None:
        place = torch.empty_like(order).scatter_(
            0, order, torch.arange(len(order), device=order.device)
        )
        count = count - 1
    if isinstance(reference_labels, SizedLabels):
        most = reference_labels.largest_class - 1  # the anchor itself is one of its class
    else:
        most = int(count.max()) if len(count) and len(columns) else 0
    step = torch.arange(most, device=labels.device)
    keep = step < count[:, None]
    if own is not None:
        # Step over the anchor's own place in its class.
        step = step + (step >= (place[own.long()] - first)[:, None])
    return Positives(order[torch.where(keep, first[:, None] + step, 0)], keep)


def block_pairs(
    embeddings: Embeddings, labels: SingleLabels
) -> tuple[Float[Tensor, "half d"], Integer[Tensor, "half"], Reference]:
    """Return the anchors of a batch laid out ``[a; p]``, as ``NPairSampler`` lays it, their labels,
    and the others."""
    if len(embeddings) % 2:
        raise DataError(
            f"a batch in blocks [a; p] has two rows for each pair, got {len(embeddings)} rows. "
            f"Use NPairSampler, or a loss without `blocks`."
        )
    anchors, others = embeddings.chunk(2)
    of_anchors, of_others = labels.chunk(2)
    if isinstance(labels, SizedLabels):
        of_others = SizedLabels.of(of_others, labels.largest_class)
    return anchors, of_anchors, Reference(others, of_others)


def block_triplets(rows: Shaped[Tensor, "b *shape"]) -> tuple[Tensor, ...]:
    """Return a, p and n of a batch laid out ``[a; p; n]``, as ``TripletSampler`` lays it: rows t, T
    + t and 2T + t.

    >>> [part.tolist() for part in block_triplets(torch.tensor([0, 1, 0, 1, 2, 3]))]
    [[0, 1], [0, 1], [2, 3]]
    """
    if len(rows) % 3:
        raise ConfigError(
            f"a batch in blocks [a; p; n] has three rows for each triplet, got {len(rows)} rows. "
            f"Use TripletSampler, or a loss without `blocks`."
        )
    return rows.reshape(3, len(rows) // 3, *rows.shape[1:]).unbind()

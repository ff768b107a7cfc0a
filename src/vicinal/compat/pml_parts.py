"""What pytorch-metric-learning's losses and miners are made of: its distances and reducers, by its
names.

A distance here is also one of ours: losses and miners of vicinal take it. A reducer makes one
number of the losses of pairs, triplets or elements, ``{name: {"losses": ..., "indices": ...,
"reduction_type": ...}}``.
"""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, pairwise_distance

from vicinal.distances import (
    Distance,
    SignalToNoise,
    at_least_float32,
    inner_products,
    pairwise_distances,
)
from vicinal.errors import ConfigError, DataError

Number = int | float  # programs for the package write 2 where 2.0 is meant
LossDict = Mapping[str, Mapping[str, Any]]


class BaseDistance(Distance):
    """The base of distances: ``distance(query_emb, ref_emb)`` is a matrix.

    A subclass brings ``compute_mat``, of rows that are normalized already, and
    ``pairwise_distance``, row by row.
    """

    normalize_embeddings: bool
    p: Number
    power: Number
    is_inverted: bool

    def __init__(
        self,
        normalize_embeddings: bool = True,
        p: Number = 2.0,
        power: Number = 1.0,
        is_inverted: bool = False,
    ) -> None:
        object.__setattr__(self, "normalize", normalize_embeddings)
        object.__setattr__(self, "larger_is_closer", is_inverted)
        self.normalize_embeddings, self.p, self.power, self.is_inverted = (
            normalize_embeddings,
            p,
            power,
            is_inverted,
        )

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)  # a subclass of the user's own may keep what it likes

    def __call__(self, query_emb: Tensor, ref_emb: Tensor | None = None) -> Tensor:
        query, reference = (
            None if rows is None else self.maybe_normalize(at_least_float32(rows))
            for rows in (query_emb, ref_emb)
        )
        found: Tensor = self.compute_mat(query, reference)
        return found if self.power == 1 else found**self.power

    def compute_mat(self, query_emb: Any, ref_emb: Any) -> Any:
        """Compare each row with each; no reference stands for the rows themselves."""
        raise NotImplementedError

    def pairwise_distance(self, query_emb: Tensor, ref_emb: Tensor) -> Tensor:
        """Compare each row with the row at the same place."""
        raise NotImplementedError

    def maybe_normalize(self, embeddings: Tensor, dim: int = 1) -> Tensor:
        """Put rows on the unit sphere where the distance wants that."""
        return (
            normalize(embeddings, p=float(self.p), dim=dim)
            if self.normalize_embeddings
            else embeddings
        )

    def margin(self, x: Tensor, y: Tensor) -> Tensor:
        """Return by how much x is farther than y."""
        return y - x if self.is_inverted else x - y

    def smallest_dist(self, *values: Any, **options: Any) -> Any:
        """Return the nearest, as ``torch.min`` does."""
        return (torch.max if self.is_inverted else torch.min)(*values, **options)

    def largest_dist(self, *values: Any, **options: Any) -> Any:
        """Return the farthest, as ``torch.max`` does."""
        return (torch.min if self.is_inverted else torch.max)(*values, **options)


class LpDistance(BaseDistance):
    """The p-norm of the difference, to a power; with p = 2 accurate where rows meet."""

    def __init__(
        self, normalize_embeddings: bool = True, p: Number = 2.0, power: Number = 1.0
    ) -> None:
        super().__init__(normalize_embeddings, p, power)

    def compute_mat(self, query_emb: Any, ref_emb: Any) -> Any:
        if self.p == 2:
            return pairwise_distances(query_emb, ref_emb, squared=False)
        return torch.cdist(query_emb, query_emb if ref_emb is None else ref_emb, p=float(self.p))

    def pairwise_distance(self, query_emb: Tensor, ref_emb: Tensor) -> Tensor:
        return pairwise_distance(query_emb, ref_emb, p=float(self.p))


class DotProductSimilarity(BaseDistance):
    """The inner product; of normalized rows the cosine."""

    def __init__(
        self, normalize_embeddings: bool = True, p: Number = 2.0, power: Number = 1.0
    ) -> None:
        super().__init__(normalize_embeddings, p, power, is_inverted=True)

    def compute_mat(self, query_emb: Any, ref_emb: Any) -> Any:
        return inner_products(query_emb, ref_emb)

    def pairwise_distance(self, query_emb: Tensor, ref_emb: Tensor) -> Tensor:
        return (query_emb * ref_emb).sum(dim=1)


class CosineSimilarity(DotProductSimilarity):
    """The cosine."""

    def __init__(self, p: Number = 2.0, power: Number = 1.0) -> None:
        super().__init__(True, p, power)


class SNRDistance(BaseDistance):
    """The signal-to-noise distance, `vicinal.distances.SignalToNoise`."""

    def __init__(
        self, normalize_embeddings: bool = True, p: Number = 2.0, power: Number = 1.0
    ) -> None:
        super().__init__(normalize_embeddings, p, power)

    def compute_mat(self, query_emb: Any, ref_emb: Any) -> Any:
        return SignalToNoise(normalize=False)(query_emb, ref_emb)

    def pairwise_distance(self, query_emb: Tensor, ref_emb: Tensor) -> Tensor:
        return (query_emb - ref_emb).var(dim=1) / query_emb.var(dim=1)


class BaseReducer(nn.Module):
    """The base of reducers; a subclass brings ``element_reduction``, and others where they differ
    from it."""

    def forward(self, loss_dict: LossDict, embeddings: Tensor, labels: Tensor | None) -> Any:
        """Return the reduced loss."""
        if len(loss_dict) != 1:
            raise ConfigError(
                f"a reducer takes one kind of losses, got {', '.join(loss_dict)}. Use "
                "MultipleReducers."
            )
        (found,) = loss_dict.values()
        losses, indices, kind = found["losses"], found["indices"], found["reduction_type"]
        if not isinstance(losses, Tensor):
            return self.zero_loss(embeddings)
        if kind == "already_reduced":
            return losses
        given = {"divisor": found["divisor"]} if isinstance(self, DivisorReducer) else {}
        return getattr(self, f"{kind}_reduction")(losses, indices, embeddings, labels, **given)

    def element_reduction(
        self, losses: Any, loss_indices: Any, embeddings: Any, labels: Any
    ) -> Any:
        """Reduce the losses of single rows, ``loss_indices`` of the batch."""
        raise NotImplementedError

    def pos_pair_reduction(
        self, losses: Any, loss_indices: Any, embeddings: Any, labels: Any, **given: Any
    ) -> Any:
        """Reduce the losses of positive pairs, negative pairs or triplets; by default as those of
        their anchors."""
        return self.element_reduction(losses, loss_indices[0], embeddings, labels, **given)

    neg_pair_reduction = triplet_reduction = pos_pair_reduction

    def zero_loss(self, embeddings: Tensor) -> Tensor:
        """Return a loss of 0 that is part of the graph."""
        return (embeddings * 0).sum()


AnyDistance = BaseDistance | None
AnyReducer = BaseReducer | None


class MeanReducer(BaseReducer):
    """The mean."""

    def element_reduction(
        self, losses: Any, loss_indices: Any, embeddings: Any, labels: Any
    ) -> Any:
        return losses.mean()


class SumReducer(BaseReducer):
    """The sum."""

    def element_reduction(
        self, losses: Any, loss_indices: Any, embeddings: Any, labels: Any
    ) -> Any:
        return losses.sum()


class ThresholdReducer(BaseReducer):
    """The mean of the losses between two bounds, which are not included."""

    def __init__(self, low: Number | None = None, high: Number | None = None) -> None:
        super().__init__()
        if low is None and high is None:
            raise ConfigError("ThresholdReducer needs `low` or `high`, got neither.")
        self.low, self.high, self.num_past_filter = low, high, 0

    def element_reduction(
        self, losses: Any, loss_indices: Any, embeddings: Any, labels: Any
    ) -> Any:
        kept = losses[
            torch.ones_like(losses, dtype=torch.bool) if self.low is None else losses > self.low
        ]
        kept = kept if self.high is None else kept[kept < self.high]
        self.num_past_filter = len(kept)
        return kept.mean() if len(kept) else self.zero_loss(embeddings)


class AvgNonZeroReducer(ThresholdReducer):
    """The mean of the losses above 0."""

    def __init__(self) -> None:
        super().__init__(low=0.0)


class ClassWeightedReducer(BaseReducer):
    """The mean of losses that are weighted by the class of their anchor."""

    def __init__(self, weights: Tensor) -> None:
        super().__init__()
        self.weights = weights

    def element_reduction(
        self, losses: Any, loss_indices: Any, embeddings: Any, labels: Any
    ) -> Any:
        return (losses * self.weights.to(losses)[labels[loss_indices]]).mean()


class DivisorReducer(BaseReducer):
    """The sum over the divisor that a loss gives; 0 where that is 0."""

    def element_reduction(
        self, losses: Any, loss_indices: Any, embeddings: Any, labels: Any, divisor: Any = 1
    ) -> Any:
        return losses.sum() / divisor if divisor != 0 else self.zero_loss(embeddings)


class DoNothingReducer(BaseReducer):
    """The losses as they are."""

    def forward(self, loss_dict: LossDict, embeddings: Tensor, labels: Tensor | None) -> Any:
        return loss_dict


class PerAnchorReducer(BaseReducer):
    """First the mean over the pairs of each anchor, then another reducer over anchors."""

    def __init__(self, reducer: BaseReducer | None = None) -> None:
        super().__init__()
        self.reducer = MeanReducer() if reducer is None else reducer

    def element_reduction(
        self, losses: Any, loss_indices: Any, embeddings: Any, labels: Any
    ) -> Any:
        found = {"losses": losses, "indices": loss_indices, "reduction_type": "element"}
        return self.reducer({"loss": found}, embeddings, labels)

    def pos_pair_reduction(
        self, losses: Any, loss_indices: Any, embeddings: Any, labels: Any, **given: Any
    ) -> Any:
        none = losses.new_zeros(len(embeddings))
        sums, counts = (
            none.index_add(0, loss_indices[0], each) for each in (losses, torch.ones_like(losses))
        )
        rows = torch.arange(len(embeddings), device=losses.device)
        return self.element_reduction(sums / counts.clamp(min=1), rows, embeddings, labels)

    neg_pair_reduction = pos_pair_reduction

    def triplet_reduction(
        self, losses: Any, loss_indices: Any, embeddings: Any, labels: Any, **given: Any
    ) -> Any:
        raise DataError(
            "PerAnchorReducer takes losses of pairs or of rows, got triplets. Use a MeanReducer."
        )


class MultipleReducers(BaseReducer):
    """A reducer for each kind of losses; the results are added up."""

    def __init__(
        self, reducers: Mapping[str, BaseReducer], default_reducer: BaseReducer | None = None
    ) -> None:
        super().__init__()
        self.reducers = nn.ModuleDict(dict(reducers))
        self.default_reducer = MeanReducer() if default_reducer is None else default_reducer

    def forward(self, loss_dict: LossDict, embeddings: Tensor, labels: Tensor | None) -> Any:
        own = dict(self.reducers.items())
        reducers = (
            (own.get(name, self.default_reducer), {name: one}) for name, one in loss_dict.items()
        )
        return torch.stack(
            [reducer(one, embeddings, labels).reshape(()) for reducer, one in reducers]
        ).sum()


def for_each(reducer: BaseReducer, names: tuple[str, ...]) -> BaseReducer:
    """Return a reducer of losses with these names: a copy for each, unless it knows how to reduce
    several."""
    if len(names) == 1 or isinstance(reducer, MultipleReducers | DoNothingReducer):
        return reducer
    return MultipleReducers({name: copy.deepcopy(reducer) for name in names})

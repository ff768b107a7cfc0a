"""Mining: which tuples of a batch are worth learning from.

A miner is a function of embeddings and labels (and, where it draws, of a generator), so equal seeds
give equal tuples in every process. It gives row numbers; ``loss.on_triplets(embeddings,
miner(embeddings, labels))`` learns from triplets, ``loss.on_pairs(embeddings, labels,
*miner(embeddings, labels))`` from pairs.

Batch-hard (Hermans et al., 2017), easy positives (Xuan et al., WACV 2020), semi-hard negatives
(Schroff et al., CVPR 2015), distance-weighted negatives (Wu et al., ICCV 2017) and multi-similarity
(Wang et al., CVPR 2019). `vicinal.compat.pml.FromPML` takes pytorch-metric-learning's own miners.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, TypedDict, Unpack

import torch
from jaxtyping import Bool, Float, Int, Integer
from torch import Tensor, nn
from torch.nn.functional import pad

from vicinal.arguments import coerce
from vicinal.distances import Euclidean, cosine_similarity
from vicinal.errors import ConfigError, check_known
from vicinal.losses.loss import Comparisons, tuple_loss
from vicinal.losses.multi_similarity import informative
from vicinal.losses.triplet import nearest_else_farthest
from vicinal.tuples import (
    Embeddings,
    Pairs,
    Reference,
    Scalar,
    SingleLabels,
    Triplets,
    other_class,
    positives,
    same_class,
)

EasyNegative = Literal["semi_hard", "hardest"]
SemiHardRule = Literal["nearest", "random", "nearest_else_farthest", "all"]
# Three int64 columns of this length are 384 MiB; whoever needs more should not list tuples.
MOST_TUPLES = 2**24


class ReferenceRows(TypedDict, total=False):
    """Rows to choose from instead of the batch; positives and negatives are then numbered among
    them.

    Attributes:
        reference: the rows.
        reference_labels: class of each.
        own: where each anchor stands among them; None: nowhere.
    """

    reference: Float[Tensor, "m d"] | None
    reference_labels: Integer[Tensor, "m"] | None
    own: Integer[Tensor, "n"] | None


class MinedPairs(NamedTuple):
    """The positive and the negative pairs that mining leaves."""

    positive: Pairs
    negative: Pairs


class Candidates(NamedTuple):
    """Distances from each anchor, positives packed as ``tuples.positives`` packs them."""

    positive: Float[Tensor, "n p"]
    keep_positive: Bool[Tensor, "n p"]
    columns: Int[Tensor, "n p"]
    negative: Float[Tensor, "n m"]
    keep_negative: Bool[Tensor, "n m"]

    @classmethod
    @torch.no_grad()
    def of(
        cls, embeddings: Tensor, labels: Tensor, among: ReferenceRows, distance: Euclidean
    ) -> "Candidates":
        """Measure the anchors against the batch or the reference rows; where there are none,
        against padding alone."""
        rows, classes, own = Reference.checked(embeddings, labels, **among) or (None, None, None)
        distances = distance(embeddings, rows)
        apart = other_class(labels, classes)
        columns, keep = positives(labels, classes, own)
        if not distances.shape[1]:
            distances = pad(distances, (0, 1), value=torch.inf)
            apart = pad(apart, (0, 1))
        if not columns.shape[1]:
            columns = pad(columns, (0, 1))
            keep = pad(keep, (0, 1))
        return cls(distances.gather(1, columns), keep, columns, distances, apart)

    def triplets(self, keep: Bool[Tensor, "n p"], negative: Int[Tensor, "n p"]) -> Triplets:
        """Return the marked anchors and positives, each with its negative."""
        anchor, place = keep.nonzero().unbind(dim=1)
        return Triplets(anchor, self.columns[anchor, place], negative[anchor, place])

    def one_each(self, place: Int[Tensor, "n 1"], allowed: Bool[Tensor, "n m"]) -> Triplets:
        """Return one triplet for each anchor that has both: the positive at ``place`` and the
        nearest negative that is allowed."""
        nearest = self.negative.masked_fill(~allowed, torch.inf).argmin(dim=1, keepdim=True)
        there = self.keep_positive.gather(1, place) & allowed.gather(1, nearest)
        keep = torch.zeros_like(self.keep_positive).scatter_(1, place, there)
        return self.triplets(keep, nearest.expand_as(keep))


def hardest(
    embeddings: Embeddings,
    labels: SingleLabels,
    *,
    normalize: bool = True,
    **among: Unpack[ReferenceRows],
) -> Triplets:
    """Mine one triplet for each anchor: its farthest positive and nearest negative (Hermans et al.
    2017, Eq. (5)).

    Args:
        embeddings: the anchors; without a reference also what they are compared with.
        labels: class of each anchor.
        normalize: whether embeddings are put on the unit sphere first.
        among: see `ReferenceRows`.

    >>> line, labels = torch.tensor([[0.0], [1.0], [3.0]]), torch.tensor([0, 0, 1])
    >>> [part.tolist() for part in hardest(line, labels, normalize=False)]
    [[0, 1], [1, 0], [2, 2]]
    """
    c = Candidates.of(embeddings, labels, among, Euclidean(normalize))
    farthest = c.positive.masked_fill(~c.keep_positive, -torch.inf).argmax(dim=1, keepdim=True)
    return c.one_each(farthest, c.keep_negative)


def easy_positive(
    embeddings: Embeddings,
    labels: SingleLabels,
    *,
    negative: EasyNegative = "semi_hard",
    normalize: bool = True,
    **among: Unpack[ReferenceRows],
) -> Triplets:
    """Mine at most one triplet for each anchor, with its nearest positive (Xuan et al. 2020).

    An anchor need only be near some of its class, which leaves classes their shape.

    Args:
        embeddings: the anchors; without a reference also what they are compared with.
        labels: class of each anchor.
        negative: ``"semi_hard"``, the nearest negative that is farther than the positive (the
            paper's EPSHN; an anchor without one forms no triplet), or ``"hardest"``, the nearest of
            all (EPHN).
        normalize: whether embeddings are put on the unit sphere first.
        among: see `ReferenceRows`.
    """
    coerce(negative, EasyNegative, "negative")
    c = Candidates.of(embeddings, labels, among, Euclidean(normalize))
    nearest = c.positive.masked_fill(~c.keep_positive, torch.inf).argmin(dim=1, keepdim=True)
    allowed = c.keep_negative
    if negative == "semi_hard":
        allowed = allowed & (c.negative > c.positive.gather(1, nearest))
    return c.one_each(nearest, allowed)


def semi_hard(
    embeddings: Embeddings,
    labels: SingleLabels,
    margin: float = 0.2,
    *,
    rule: SemiHardRule = "nearest",
    generator: torch.Generator | None = None,
    squared: bool = True,
    normalize: bool = True,
    **among: Unpack[ReferenceRows],
) -> Triplets:
    """Mine semi-hard negatives for each anchor and positive, d_ap < d_an < d_ap + margin (Schroff
    et al. 2015).

    The negatives of an anchor are sorted once; those of a positive are a range of them, found by
    binary search: O(n m log m) time, O(n m) memory.

    Args:
        embeddings: the anchors; without a reference also what they are compared with.
        labels: class of each anchor.
        margin: how much farther a negative may be; 0 leaves none.
        rule: which of a pair's negatives: the ``"nearest"``, one at ``"random"``, or ``"all"``.
            ``"nearest_else_farthest"`` is TensorFlow's rule instead: the nearest negative beyond
            the positive, however far; where there is none, the farthest of all.
        generator: what ``"random"`` draws from, on any device.
        squared: whether distances are squared, as FaceNet's are.
        normalize: whether embeddings are put on the unit sphere first.
        among: see `ReferenceRows`.
    """
    coerce(rule, SemiHardRule, "rule")
    if rule == "random" and generator is None:
        raise ConfigError(
            "semi-hard mining at random draws from a `generator`, got None. Give a seeded one."
        )
    c = Candidates.of(embeddings, labels, among, Euclidean(normalize, squared))
    if rule == "nearest_else_farthest":
        negative, there = nearest_else_farthest(c.positive, c.negative, c.keep_negative)
        return c.triplets(c.keep_positive & there[:, None], negative)
    ordered, order = c.negative.masked_fill(~c.keep_negative, torch.inf).sort(dim=1)
    first = torch.searchsorted(ordered, c.positive, right=True)
    count = torch.searchsorted(ordered, c.positive + margin) - first
    count = count.masked_fill(~c.keep_positive, 0).clamp(min=0)  # none against padding
    if rule == "all":
        return _listed(first, count, c.columns, order)
    if generator is not None:
        draws = torch.rand(count.shape, generator=generator, device=generator.device).to(
            count.device
        )
        # Rounding may reach count.
        first = first + torch.minimum((draws * count).long(), (count - 1).clamp(min=0))
    negative = order.gather(1, first.clamp(max=order.shape[1] - 1))
    return c.triplets(count > 0, negative)


def distance_weighted(
    embeddings: Embeddings,
    labels: SingleLabels,
    *,
    generator: torch.Generator,
    cutoff: float = 0.5,
    farthest: float = 1.4,
    **among: Unpack[ReferenceRows],
) -> Triplets:
    """Draw one negative for each anchor and positive, so that every distance is as likely as any
    other.

        p(n | a) ∝ min(λ, 1 / q(D_an)),   q(D) = D^(d-2) · (1 - D²/4)^((d-3)/2)       Wu et al. 2017

    where q is the density of distances between uniform points of the unit sphere in d dimensions,
    on which embeddings are put first, and λ = 1 / q(``cutoff``) keeps the nearest, noisiest ones
    from being drawn all the time. In 512 dimensions 1 / q spans far more than a float32 holds, so
    weights are logarithms until they are compared.

    Args:
        embeddings: the anchors; without a reference also what they are compared with.
        labels: class of each anchor.
        generator: what is drawn from, on any device; equal seeds draw equally in every process.
        cutoff: the distance below which no negative is likelier than at it.
        farthest: negatives at this distance or beyond are not drawn, for the margin loss of the
            paper does not feel them; an anchor that has no nearer one forms no triplet.
        among: see `ReferenceRows`.
    """
    c = Candidates.of(embeddings, labels, among, Euclidean())
    drawable = c.keep_negative & (c.negative < farthest)
    weights = log_weights(c.negative, embeddings.shape[1], cutoff)
    draws = torch.rand(
        c.positive.shape, generator=generator, device=generator.device, dtype=torch.float64
    )
    # Columns drawn with probability ∝ exp(weight): where a share of the running sum is passed.
    kept = weights.double().masked_fill(~drawable, -torch.inf)
    # A row may keep nothing.
    likeliest = kept.amax(dim=1, keepdim=True).clamp(min=torch.finfo(torch.float64).min)
    sums = (kept - likeliest).exp().cumsum(dim=1)
    total = sums[:, -1:].contiguous()
    drawn = torch.searchsorted(sums, draws.to(embeddings.device) * total, right=True)
    # Rounding may pass the last that can be drawn.
    negative = torch.minimum(drawn, torch.searchsorted(sums, total))
    return c.triplets(c.keep_positive & drawable.gather(1, negative), negative)


@torch.no_grad()
def multi_similarity(
    embeddings: Embeddings,
    labels: SingleLabels,
    epsilon: float = 0.1,
    **among: Unpack[ReferenceRows],
) -> MinedPairs:
    """Mine the pairs that the multi-similarity loss sees, by cosine similarity S (Wang et al.
    2019).

    A negative stays if S + ε > min over positives, a positive if S - ε < max over negatives; where
    one kind is missing nothing stays of the other.

    Args:
        embeddings: the anchors; without a reference also what they are compared with.
        labels: class of each anchor.
        epsilon: ε.
        among: see `ReferenceRows`.
    """
    rows, classes, own = Reference.checked(embeddings, labels, **among) or (None, None, None)
    similarity = cosine_similarity(embeddings, rows)
    positive = same_class(labels, classes, own)
    negative = other_class(labels, classes)
    kept = informative(Comparisons(similarity, positive, similarity, negative), epsilon)
    return MinedPairs(*(Pairs(*marked.nonzero().unbind(dim=1)) for marked in kept))


# The miners by the names that `loss.miner` takes.
MINERS: dict[str, Callable[..., Triplets | MinedPairs]] = {
    miner.__name__: miner
    for miner in (distance_weighted, easy_positive, hardest, multi_similarity, semi_hard)
}
__all__ = ["MINERS", "Mined", *MINERS]


class Mined(nn.Module):
    """A loss over the triplets or pairs that a miner chooses, in place of all tuples of the batch.

    A miner that draws (``distance_weighted``, ``semi_hard`` with ``rule="random"``) is given a
    generator, which follows from ``seed`` and the number of training batches so far; that number is
    part of ``state_dict``, so a resumed run draws the same tuples.

    Args:
        loss: a tuple loss, scored by its ``on_triplets`` or ``on_pairs``.
        miner: a name in ``vicinal.miners.MINERS``, or a function of embeddings and labels like
            those.
        arguments: keyword arguments of the miner.
        seed: seed of what the miner draws.
    """

    capturable = False  # the number of tuples changes from batch to batch
    indivisible = "miners choose among the whole batch"

    def __init__(
        self,
        loss: nn.Module,
        miner: str | Callable[..., Triplets | MinedPairs],
        *,
        arguments: Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.loss = tuple_loss(loss, "mining")
        self.miner = miner
        self.arguments = arguments
        self.seed = seed
        if getattr(loss, "blocks", False):
            raise ConfigError(
                "a miner chooses among all rows, but the loss has blocks=True. Set sampler=classes."
            )
        if isinstance(miner, str):
            check_known("miner", miner, MINERS)
        self.calls = 0

    def forward(self, embeddings: Embeddings, labels: SingleLabels) -> Scalar | Float[Tensor, "t"]:
        """Mine the tuples of the batch and return their loss."""
        mined = self.mine(embeddings.detach(), labels)
        if isinstance(mined, MinedPairs):
            return self.loss.on_pairs(embeddings, labels, *mined)
        return self.loss.on_triplets(embeddings, mined, labels=labels)

    def mine(self, embeddings: Embeddings, labels: SingleLabels) -> Triplets | MinedPairs:
        """Choose the tuples of a batch."""
        given = dict(self.arguments or {})
        if self.miner == "distance_weighted" or given.get("rule") == "random":
            given["generator"] = torch.Generator().manual_seed(
                (self.seed * 2**32 + self.calls) % 2**63
            )
        if self.training and torch.is_grad_enabled():
            self.calls += 1
        miner = MINERS[self.miner] if isinstance(self.miner, str) else self.miner
        return miner(embeddings, labels, **given)

    def get_extra_state(self) -> Integer[Tensor, ""]:
        """The number of training batches so far, for ``state_dict``."""
        return torch.tensor(self.calls)

    def set_extra_state(self, state: Integer[Tensor, ""]) -> None:
        self.calls = int(state)


def log_weights(distances: Float[Tensor, "n m"], dim: int, cutoff: float) -> Float[Tensor, "n m"]:
    """Compute log min(λ, 1 / q(D)), up to a constant."""
    floor = torch.finfo(distances.dtype).tiny

    def log_inverse_density(distance: Tensor) -> Tensor:
        rest = (1 - distance.square() / 4).clamp(min=floor)
        return (2 - dim) * distance.clamp(min=floor).log() - (dim - 3) / 2 * rest.log()

    most = log_inverse_density(distances.new_full((), cutoff))
    return torch.minimum(log_inverse_density(distances), most) - most


def _listed(first: Tensor, count: Tensor, columns: Tensor, order: Tensor) -> Triplets:
    """Return every triplet of the ranges that begin at ``first`` and are ``count`` long."""
    total = int(count.sum())
    if total > MOST_TUPLES:
        raise ConfigError(
            f"triplets of the batch were asked for as a list, but there are {total:,}, more than "
            f"{MOST_TUPLES:,}. Use a loss that lists none, such as SemiHardTripletLoss, or a "
            "smaller batch."
        )
    flat = count.flatten()
    pair = torch.repeat_interleave(
        torch.arange(len(flat), device=flat.device), flat, output_size=total
    )
    within = torch.arange(total, device=flat.device) - (flat.cumsum(dim=0) - flat)[pair]
    anchor = pair // count.shape[1]
    return Triplets(anchor, columns.flatten()[pair], order[anchor, first.flatten()[pair] + within])

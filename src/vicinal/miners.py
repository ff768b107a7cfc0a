"""Mining: which tuples of a batch are worth learning from.

A miner is a function of embeddings and labels (and, where it draws, of a generator), so equal seeds
give equal tuples in every process. It gives row numbers; ``loss.on_triplets(embeddings,
miner(embeddings, labels))`` learns from triplets, ``loss.on_pairs(embeddings, labels,
*miner(embeddings, labels))`` from pairs.

Batch-hard (Hermans et al., 2017), easy positives (Xuan et al., WACV 2020), semi-hard negatives
(Schroff et al., CVPR 2015), distance-weighted negatives (Wu et al., ICCV 2017), multi-similarity
(Wang et al., CVPR 2019), and what pytorch-metric-learning adds: triplets by margin or angle, pairs
by margin, by rank or evenly over their distances.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, TypedDict, Unpack

import torch
from jaxtyping import Bool, Float, Int, Integer
from torch import Tensor, nn
from torch.nn.functional import pad

from vicinal.arguments import coerce
from vicinal.distances import (
    Distance,
    Euclidean,
    at_least_float32,
    cosine_similarity,
    pairwise_distances,
    unit_rows,
)
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
TripletKind = Literal["all", "hard", "semi_hard", "easy"]
Rank = Literal["hard", "semi_hard", "easy", "all"]


EUCLIDEAN = Euclidean()
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
        cls, embeddings: Tensor, labels: Tensor, among: ReferenceRows, distance: Distance
    ) -> "Candidates":
        """Measure the anchors against the batch or the reference rows; where there are none,
        against padding alone.

        The numbers are distances: similarities of a ``distance`` that is one are negated.
        """
        rows, classes, own = _reference(embeddings, labels, among)
        distances = distance(embeddings, rows)
        apart = other_class(labels, classes)
        columns, keep = positives(labels, classes, own)
        if distance.larger_is_closer:
            distances = -distances
        if not distances.shape[1]:
            distances = pad(distances, (0, 1), value=torch.inf)
            apart = pad(apart, (0, 1))
        if not columns.shape[1]:
            columns = pad(columns, (0, 1))
            keep = pad(keep, (0, 1))
        return cls(distances.gather(1, columns), keep, columns, distances, apart)

    def counted(self, count: Int[Tensor, "n p"]) -> Int[Tensor, "n p"]:
        """Return how many negatives stand against each positive: none against padding."""
        return count.masked_fill(~self.keep_positive, 0).clamp_(min=0)

    def triplets(self, keep: Bool[Tensor, "n p"], negative: Int[Tensor, "n p"]) -> Triplets:
        """Return the marked anchors and positives, each with its negative."""
        anchor, place = keep.nonzero().unbind(dim=1)
        return Triplets(anchor, self.columns[anchor, place], negative[anchor, place])

    def pairs(self, positive: Bool[Tensor, "n p"], negative: Bool[Tensor, "n m"]) -> MinedPairs:
        """Return the marked pairs."""
        anchor, place = positive.nonzero().unbind(dim=1)
        apart = Pairs(*negative.nonzero().unbind(dim=1))
        return MinedPairs(Pairs(anchor, self.columns[anchor, place]), apart)


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
    hard = batch_easy_hard(
        embeddings,
        labels,
        positive="hard",
        negative="hard",
        distance=Euclidean(normalize),
        **among,
    )
    return Triplets(*hard.positive, hard.negative.other)


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
    easy = batch_easy_hard(
        embeddings,
        labels,
        negative="semi_hard" if negative == "semi_hard" else "hard",
        distance=Euclidean(normalize),
        **among,
    )
    return Triplets(*easy.positive, easy.negative.other)


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
    count = c.counted(torch.searchsorted(ordered, c.positive + margin) - first)
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
    c = Candidates.of(embeddings, labels, among, EUCLIDEAN)
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


def triplet_margin(
    embeddings: Embeddings,
    labels: SingleLabels,
    margin: float = 0.2,
    *,
    kind: TripletKind = "all",
    distance: Distance = EUCLIDEAN,
    **among: Unpack[ReferenceRows],
) -> Triplets:
    """Mine every triplet that violates a margin, d_an ≤ d_ap + margin, or one kind of them.

    Args:
        embeddings: the anchors; without a reference also what they are compared with.
        labels: class of each anchor.
        margin: how much farther, or less similar, than the positive a negative should be.
        kind: ``"all"`` that violate it; of these the ``"hard"`` ones, d_an ≤ d_ap, or the
            ``"semi_hard"`` ones, d_an > d_ap; or the ``"easy"`` triplets, which do not violate it.
        distance: how embeddings are compared.
        among: see `ReferenceRows`.

    >>> line, labels = torch.tensor([[0.0], [1.0], [1.1]]), torch.tensor([0, 0, 1])
    >>> mined = triplet_margin(line, labels, kind="hard", distance=Euclidean(normalize=False))
    >>> [part.tolist() for part in mined]
    [[1], [0], [2]]
    """
    coerce(kind, TripletKind, "kind")
    c = Candidates.of(embeddings, labels, among, distance)
    ordered, order = c.negative.masked_fill(~c.keep_negative, torch.inf).sort(dim=1)
    near, within = (
        torch.searchsorted(ordered, c.positive + beyond, right=True) for beyond in (0, margin)
    )
    there = c.keep_negative.sum(dim=1, keepdim=True)
    first, last = {
        "all": (torch.zeros_like(near), within),
        "hard": (torch.zeros_like(near), torch.minimum(near, within)),
        "semi_hard": (near, within),
        "easy": (within, there),
    }[kind]
    return _listed(first, c.counted(torch.minimum(last, there) - first), c.columns, order)


@torch.no_grad()
def angular(
    embeddings: Embeddings,
    labels: SingleLabels,
    angle: float = 20.0,
    *,
    normalize: bool = True,
    **among: Unpack[ReferenceRows],
) -> Triplets:
    """Mine the triplets whose angle at the negative is larger than ``angle``, as the angular loss
    measures it.

        tan α = ‖x_a - x_p‖ / (2 ‖x_n - x_c‖),   x_c = (x_a + x_p) / 2              Wang et al. 2017

    Args:
        embeddings: the anchors; without a reference also what they are compared with.
        labels: class of each anchor.
        angle: α in degrees, below 90.
        normalize: whether embeddings are put on the unit sphere first.
        among: see `ReferenceRows`.

    >>> rows = torch.tensor([[-1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 5.0]])
    >>> mined = angular(rows, torch.tensor([0, 0, 1, 2]), angle=40.0, normalize=False)
    >>> [part.tolist() for part in mined]  # 45 and 11 degrees
    [[0, 1], [1, 0], [2, 2]]
    """
    c = Candidates.of(embeddings, labels, among, Euclidean(normalize))
    reference = among.get("reference")
    anchors = at_least_float32(embeddings)
    rows = at_least_float32(embeddings if reference is None else reference)
    if normalize:
        anchors = unit_rows(anchors)
        rows = unit_rows(rows)
    found = [Triplets(*c.columns.new_empty(3, 0))]
    total = 0
    # A positive of each anchor at a time: memory stays n x m.
    for place, column in enumerate(c.columns.unbind(dim=1)):
        if not c.keep_positive[:, place].any():
            continue  # padding, where there may be no rows
        far = pairwise_distances((anchors + rows[column]) / 2, rows, squared=False)
        wide = c.positive[:, place, None] > 2 * math.tan(math.radians(angle)) * far
        anchor, negative = (
            (wide & c.keep_positive[:, place, None] & c.keep_negative).nonzero().unbind(dim=1)
        )
        found.append(Triplets(anchor, column[anchor], negative))
        total += len(anchor)
        _check_total(total)
    together = [torch.cat(parts) for parts in zip(*found, strict=True)]
    order = together[0].argsort(stable=True)
    return Triplets(*(part[order] for part in together))


def batch_easy_hard(
    embeddings: Embeddings,
    labels: SingleLabels,
    *,
    positive: Rank = "easy",
    negative: Rank = "hard",
    distance: Distance = EUCLIDEAN,
    **among: Unpack[ReferenceRows],
) -> MinedPairs:
    """Mine one positive and one negative pair of each anchor, each by its rank, or all of a kind.

    The easy positive is the nearest, the hard one the farthest; the easy negative is the farthest,
    the hard one the nearest. A semi-hard negative is the nearest that is farther than the chosen
    positive, a semi-hard positive the farthest that is nearer than the chosen negative. An anchor
    without one of the two has no pair.

    Args:
        embeddings: the anchors; without a reference also what they are compared with.
        labels: class of each anchor.
        positive: which positive; ``"all"`` keeps every positive pair.
        negative: which negative; not both may be semi-hard, nor one semi-hard and the other all.
        distance: how embeddings are compared.
        among: see `ReferenceRows`.

    >>> line, labels = torch.tensor([[0.0], [1.0], [3.0], [7.0]]), torch.tensor([0, 0, 0, 1])
    >>> pairs = batch_easy_hard(line, labels, distance=Euclidean(normalize=False))
    >>> pairs.positive.other.tolist(), pairs.negative.other.tolist()
    ([1, 0, 1], [3, 3, 3])
    """
    coerce(positive, Rank, "positive")
    coerce(negative, Rank, "negative")
    if "semi_hard" in (positive, negative) and {positive, negative} <= {"semi_hard", "all"}:
        raise ConfigError(
            "semi-hard pairs are found beside one pair of the other kind, got "
            f"positive={positive!r} and negative={negative!r}. Use easy or hard for one of them."
        )
    c = Candidates.of(embeddings, labels, among, distance)
    values = {"positive": c.positive, "negative": c.negative}
    keep = {"positive": c.keep_positive, "negative": c.keep_negative}
    ranks = {"positive": positive, "negative": negative}
    bound: Tensor | None = None  # the distance of the pair that was chosen first
    for side in sorted(keep, key=lambda side: ranks[side] == "semi_hard"):
        if ranks[side] == "all":
            continue
        if ranks[side] == "semi_hard" and bound is not None:
            beyond = values[side] < bound if side == "positive" else values[side] > bound
            keep[side] = keep[side] & beyond
        nearest = (ranks[side] == "easy") == (side == "positive")
        ordered = values[side].masked_fill(~keep[side], torch.inf if nearest else -torch.inf)
        bound, place = (ordered.min if nearest else ordered.max)(dim=1, keepdim=True)
        keep[side] = torch.zeros_like(keep[side]).scatter_(1, place, value=True) & keep[side]
    if "all" not in (positive, negative):
        both = [kept.any(dim=1, keepdim=True) for kept in keep.values()]
        keep = {side: kept & both[0] & both[1] for side, kept in keep.items()}
    return c.pairs(keep["positive"], keep["negative"])


def pair_margin(
    embeddings: Embeddings,
    labels: SingleLabels,
    *,
    positive_margin: float = 0.2,
    negative_margin: float = 0.8,
    distance: Distance = EUCLIDEAN,
    **among: Unpack[ReferenceRows],
) -> MinedPairs:
    """Mine the positive pairs farther apart than one margin and the negative pairs nearer than
    another.

    Args:
        embeddings: the anchors; without a reference also what they are compared with.
        labels: class of each anchor.
        positive_margin: positive pairs at this distance, or similarity, or nearer are left out.
        negative_margin: negative pairs at this distance, or similarity, or farther are left out.
        distance: how embeddings are compared.
        among: see `ReferenceRows`.

    >>> line, labels = torch.tensor([[0.0], [1.0], [1.5]]), torch.tensor([0, 0, 1])
    >>> pairs = pair_margin(line, labels, distance=Euclidean(normalize=False))
    >>> pairs.positive.other.tolist(), pairs.negative.anchor.tolist()
    ([1, 0], [1, 2])
    """
    c = Candidates.of(embeddings, labels, among, distance)
    sign = -1 if distance.larger_is_closer else 1
    return c.pairs(
        c.keep_positive & (c.positive > sign * positive_margin),
        c.keep_negative & (c.negative < sign * negative_margin),
    )


def uniform_histogram(
    embeddings: Embeddings,
    labels: SingleLabels,
    *,
    generator: torch.Generator,
    bins: int = 100,
    positives_per_bin: int = 10,
    negatives_per_bin: int = 10,
    distance: Distance = EUCLIDEAN,
    **among: Unpack[ReferenceRows],
) -> MinedPairs:
    """Draw positive and negative pairs evenly over their distances: as many from each bin of a
    histogram.

    The bins of each kind have equal width, from its least distance to its largest.

    Differs: pytorch-metric-learning draws with replacement; here no pair is drawn twice, and a bin
        that has fewer pairs
    than wanted gives them all.

    Args:
        embeddings: the anchors; without a reference also what they are compared with.
        labels: class of each anchor.
        generator: what is drawn from, on any device; equal seeds draw equally in every process.
        bins: number of bins of each kind.
        positives_per_bin: positive pairs drawn from each bin.
        negatives_per_bin: negative pairs drawn from each bin.
        distance: how embeddings are compared.
        among: see `ReferenceRows`.

    >>> line, labels = torch.tensor([[0.0], [1.0], [3.0], [7.0]]), torch.tensor([0, 0, 0, 0])
    >>> options = {"generator": torch.Generator(), "distance": Euclidean(normalize=False)}
    >>> drawn = uniform_histogram(line, labels, bins=2, positives_per_bin=3, **options)
    >>> lengths = (line[drawn.positive.anchor] - line[drawn.positive.other]).abs().flatten()
    >>> lengths.sort().values[3:].tolist()
    [4.0, 6.0, 7.0]
    """
    c = Candidates.of(embeddings, labels, among, distance)
    return c.pairs(
        _evenly(c.positive, c.keep_positive, bins, positives_per_bin, generator),
        _evenly(c.negative, c.keep_negative, bins, negatives_per_bin, generator),
    )


def _evenly(
    values: Float[Tensor, "n m"],
    keep: Bool[Tensor, "n m"],
    bins: int,
    each: int,
    generator: torch.Generator,
) -> Bool[Tensor, "n m"]:
    """Draw up to ``each`` kept places from each of ``bins`` equal intervals of their values."""
    kept = values[keep]
    if not len(kept):
        return keep
    low, high = kept.aminmax()
    interval = (
        ((kept - low) / (high - low).clamp(min=torch.finfo(kept.dtype).tiny) * bins)
        .long()
        .clamp(0, bins - 1)
    )
    draws = torch.rand(
        len(kept), generator=generator, device=generator.device, dtype=torch.float64
    ).to(kept.device)
    order = (interval + draws.clamp(max=1 - 1e-9)).argsort()  # bin by bin, shuffled inside
    first = torch.searchsorted(interval[order], interval[order])
    drawn = torch.zeros_like(interval, dtype=torch.bool)
    drawn[order] = torch.arange(len(order), device=order.device) - first < each
    return keep.masked_scatter(keep, drawn)


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
    rows, classes, own = _reference(embeddings, labels, among)
    similarity = cosine_similarity(embeddings, rows)
    positive = same_class(labels, classes, own)
    negative = other_class(labels, classes)
    kept = informative(Comparisons(similarity, positive, similarity, negative), epsilon)
    return MinedPairs(*(Pairs(*marked.nonzero().unbind(dim=1)) for marked in kept))


# The miners by the names that `loss.miner` takes.
_OF_TRIPLETS = (angular, distance_weighted, easy_positive, hardest, semi_hard, triplet_margin)
_OF_PAIRS = (batch_easy_hard, multi_similarity, pair_margin, uniform_histogram)
MINERS: dict[str, Callable[..., Triplets | MinedPairs]] = {
    miner.__name__: miner for miner in (*_OF_TRIPLETS, *_OF_PAIRS)
}
__all__ = ["MINERS", "Mined", *MINERS]


class Mined(nn.Module):
    """A loss over the triplets or pairs that a miner chooses, in place of all tuples of the batch.

    A miner that draws (``distance_weighted``, ``uniform_histogram``, ``semi_hard`` with
    ``rule="random"``) is given a generator, which follows from ``seed`` and the number of training
    batches so far; that number is part of ``state_dict``, so a resumed run draws the same tuples.

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
        if (
            self.miner in ("distance_weighted", "uniform_histogram")
            or given.get("rule") == "random"
        ):
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


def _reference(
    embeddings: Tensor, labels: Tensor, among: ReferenceRows
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    return Reference.checked(embeddings, labels, **among) or (None, None, None)


def _check_total(total: int) -> None:
    if total > MOST_TUPLES:
        raise ConfigError(
            f"triplets of the batch were asked for as a list, but there are {total:,}, more than "
            f"{MOST_TUPLES:,}. Use a loss that lists none, such as SemiHardTripletLoss, or a "
            "smaller batch."
        )


def _listed(first: Tensor, count: Tensor, columns: Tensor, order: Tensor) -> Triplets:
    """Return every triplet of the ranges that begin at ``first`` and are ``count`` long."""
    total = int(count.sum())
    _check_total(total)
    flat = count.flatten()
    pair = torch.repeat_interleave(
        torch.arange(len(flat), device=flat.device), flat, output_size=total
    )
    within = torch.arange(total, device=flat.device) - (flat.cumsum(dim=0) - flat)[pair]
    anchor = pair // count.shape[1]
    return Triplets(anchor, columns.flatten()[pair], order[anchor, first.flatten()[pair] + within])

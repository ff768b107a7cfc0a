"""Each loss against its formula as printed, one term at a time: no masks, no batching, no
log-sum-exp trick.

A formula gives the terms of one anchor ``i`` from what ``d(i, j)`` is for the others of its class
(``near``) and for all of other classes (``far``); the loss is the mean over all terms.
"""

import math

import pytest
import torch
from torch.autograd import grad

from vicinal.arguments import parameters
from vicinal.losses import (
    LOSSES,
    AdaptiveNeighborhoodLoss,
    AngularLoss,
    ArcFaceLoss,
    BatchAllTripletLoss,
    BatchHardTripletLoss,
    CircleLoss,
    ContrastiveLoss,
    CosFaceLoss,
    DiscriminativeDeepMetricLoss,
    FastAPLoss,
    HardExemplarLoss,
    HPHNLoss,
    ImprovedLiftedStructureLoss,
    ImprovedNPairLoss,
    ImprovedProxyNCALoss,
    InfoNCELoss,
    InstanceLoss,
    IntraPairVarianceLoss,
    LiftedStructureLoss,
    MarginLoss,
    MultiSimilarityLoss,
    NormalizedSoftmaxLoss,
    NPairLoss,
    P2SGradLoss,
    PNPLoss,
    PotentialFieldLoss,
    ProxyAnchorLoss,
    ProxyNCALoss,
    RankedListLoss,
    RecallAtKLoss,
    ROADMAPLoss,
    SemiHardTripletLoss,
    SigmoidLoss,
    SignalToNoiseContrastiveLoss,
    SmoothAPLoss,
    SoftTripleLoss,
    SubCenterArcFaceLoss,
    SupervisedContrastiveLoss,
    ThresholdConsistentMarginLoss,
    TripletLoss,
    TupletMarginLoss,
)

LABELINGS = {
    "two each": [0, 0, 1, 1, 2, 2],
    "uneven": [0, 1, 1, 2, 2, 2, 3],
    "many positives": [0] * 7 + [1] * 3 + [2],
    "one class": [0, 0, 0],
    "none alike": [0, 1, 2],
}


def mean(values):
    return sum(values) / max(1, len(values))


def exp_sum(values):
    return sum(map(math.exp, values))


def hinge(value):
    return max(0.0, value)


def sigmoid(t):
    return 1 / (1 + math.exp(-t)) if t > -700 else 0.0


def unit(row):
    return row / row.norm()


# -- how rows are compared


def euclidean(loss, x, y):
    if loss.normalize:
        x = unit(x)
        y = unit(y)
    return math.dist(x.tolist(), y.tolist()) ** (2 if getattr(loss, "squared", False) else 1)


def cosine(loss, x, y):
    return float(unit(x) @ unit(y))


def dot(loss, x, y):
    return float(unit(x) @ unit(y) if loss.normalize else x @ y)


def minus_cosine_or_distance(loss, x, y):
    return -cosine(loss, x, y) if loss.similarity == "cosine" else euclidean(loss, x, y)


def dot_or_minus_distance(loss, x, y):
    return dot(loss, x, y) if loss.similarity == "dot" else -euclidean(loss, x, y)


def improved_lifted_similarity(loss, x, y):
    if loss.cosine:
        return cosine(loss, x, y)
    return -math.dist(unit(x).tolist(), unit(y).tolist())


def noise(loss, x, y):
    return float((x - y).var() / x.var())


class Batch:
    """``d(i, j)`` of a batch, with its rows and labels."""

    def __init__(self, loss, compare, rows, labels):
        self.compared = [[compare(loss, x, y) for y in rows] for x in rows]
        self.rows = rows
        self.labels = labels

    def __call__(self, i, j):
        return self.compared[i][j]


# -- pairs


def contrastive(loss, d, i, near, far):
    return [d(i, j) ** 2 / 2 for j in near] + [hinge(loss.margin - d(i, k)) ** 2 / 2 for k in far]


def signal_to_noise(loss, d, i, near, far):
    return [d(i, j) for j in near] + [hinge(loss.margin - d(i, k)) for k in far]


def discriminative(loss, d, i, near, far):
    excess = [1 - loss.tau + d(i, j) for j in near] + [1 + loss.tau - d(i, k) for k in far]
    return [math.log1p(math.exp(loss.beta * z)) / loss.beta / 2 for z in excess]


def margin(loss, d, i, near, far):
    boundary = loss.boundary.item()
    if loss.deviations is not None:
        boundary += loss.deviations[d.labels[i]].item()
    pull = [loss.margin + d(i, j) - boundary for j in near]
    push = [loss.margin - d(i, k) + boundary for k in far]
    return [cost for cost in pull + push if cost > 0]


def ranked_list(loss, d, i, near, far):
    inner = loss.alpha - loss.margin
    outside = [d(i, j) - inner for j in near if d(i, j) > inner]
    inside = [loss.alpha - d(i, k) for k in far if d(i, k) < loss.alpha]
    weights = [math.exp(loss.temperature * excess) for excess in inside]
    push = sum(w * excess for w, excess in zip(weights, inside, strict=True))
    return [(1 - loss.balance) * mean(outside) + loss.balance * push / (sum(weights) or 1)]


def circle(loss, d, i, near, far):
    m = loss.relaxation
    gamma = loss.gamma
    push = exp_sum(gamma * hinge(d(i, k) + m) * (d(i, k) - m) for k in far)
    pull = exp_sum(-gamma * hinge(1 + m - d(i, j)) * (d(i, j) - (1 - m)) for j in near)
    return [math.log1p(push * pull)] if near and far else []


# -- triplets


def triplet(loss, d, i, near, far):
    excesses = [d(i, j) - d(i, k) + loss.margin for j in near for k in far]
    return [math.log1p(math.exp(e)) if loss.soft else hinge(e) for e in excesses]


def batch_all(loss, d, i, near, far):
    terms = triplet(loss, d, i, near, far)
    return terms if loss.average == "all" else [term for term in terms if term > 0]


def batch_hard(loss, d, i, near, far):
    return [max(triplet(loss, d, i, near, far))] if near and far else []


def semi_hard(loss, d, i, near, far):
    terms = []
    for j in near:
        beyond = [d(i, k) for k in far if d(i, k) > d(i, j)]
        if loss.rule == "all":
            chosen = [distance for distance in beyond if distance < d(i, j) + loss.margin]
        else:
            chosen = [min(beyond) if beyond else max(d(i, k) for k in far)] if far else []
        terms += [hinge(d(i, j) - distance + loss.margin) for distance in chosen]
    return terms


def her_weight(loss, gap, compared):
    m = loss.margin * (loss.scale**2 if loss.squared else loss.scale)
    if not loss.weighted:
        return 1.0
    if gap >= m:
        return loss.epsilon / (compared if loss.epsilon_over == "batch" else m / 2)
    return -math.log2(1 / (1 + math.exp(m / 2 - hinge(gap))))


def hard_exemplar(loss, d, i, near, far):
    scale = loss.scale**2 if loss.squared else loss.scale
    gaps = [scale * (d(i, k) - d(i, j)) for j in near for k in far]
    return [her_weight(loss, g, len(near + far)) * math.log1p(math.exp(-g)) for g in gaps]


def lifted(loss, d, i, near, far):
    if not near or not far:
        return []
    if loss.form == "smooth":
        pull = math.log(exp_sum(d(i, j) for j in near))
        return [hinge(pull + math.log(exp_sum(-d(i, k) for k in far)) + loss.margin)]
    terms = []
    for j in near:
        around = [d(member, k) for member in (i, j) for k in far]
        if loss.form == "min":
            terms.append(hinge(d(i, j) + loss.margin - min(around)))
        else:
            crowd = math.log(exp_sum(loss.margin - distance for distance in around))
            terms.append(hinge(d(i, j) + crowd) ** 2 / 2)
    return terms


def hphn(loss, d, i, near, far):
    terms = []
    for j in near if far else []:
        positive = [d(member, k) for member in (i, j) for k in [i, *near]]
        negative = [d(member, k) for member in (i, j) for k in far]
        terms.append(hinge(max(positive) + loss.margin - min(negative)))
    return terms


def improved_lifted(loss, s, i, near, far):
    if not near or not far:
        return []
    sign = 1 if loss.cosine else -1
    pull = exp_sum(-loss.gamma1 * s(i, j) for j in near)
    push = exp_sum(loss.gamma2 * s(i, k) for k in far)
    if loss.lambda1 is not None:
        pull += math.exp(-loss.gamma1 * sign * loss.lambda1)
    if loss.lambda2 is not None:
        push += math.exp(loss.gamma2 * sign * loss.lambda2)
    return [hinge(math.log(pull) / loss.gamma1 + math.log(push) / loss.gamma2 + loss.margin)]


# -- soft maxima


def lengths(loss, s, i):
    squares = [float(row @ row) for row in s.rows]
    return loss.l2 / 4 * (squares[i] + mean(squares))


def n_pair(loss, s, i, near, far):
    sums = [exp_sum(s(i, k) - s(i, j) for k in far) for j in near]
    return [math.log1p(summed) + lengths(loss, s, i) for summed in sums if far]


def improved_n_pair(loss, s, i, near, far):
    sums = [exp_sum(loss.gamma * (s(i, k) - s(i, j) - loss.offset) for k in far) for j in near]
    return [math.log1p(summed) / loss.gamma + lengths(loss, s, i) for summed in sums if far]


def angular(loss, s, i, near, far):
    steep = math.tan(loss.angle * math.pi / 180) ** 2
    terms = []
    for j in near if far else []:
        bounds = [4 * steep * (s(i, k) + s(j, k)) - 2 * (1 + steep) * s(i, j) for k in far]
        value = math.log1p(exp_sum(bounds))
        if loss.n_pair:
            value = math.log1p(exp_sum(s(i, k) - s(i, j) for k in far)) + loss.weight * value
        terms.append(value)
    return terms


def multi_similarity(loss, s, i, near, far):
    positive = [s(i, j) for j in near]
    negative = [s(i, k) for k in far]
    if loss.epsilon is not None:
        weakest = min(positive, default=math.inf)
        strongest = max(negative, default=-math.inf)
        positive = [value for value in positive if value - loss.epsilon < strongest]
        negative = [value for value in negative if value + loss.epsilon > weakest]
    pull = exp_sum(-loss.alpha * (value - loss.base) for value in positive)
    push = exp_sum(loss.beta * (value - loss.base) for value in negative)
    return [math.log1p(pull) / loss.alpha + math.log1p(push) / loss.beta]


def danml(loss, d, i, near, far):
    def soft(gamma, values):
        return -math.log(mean([math.exp(-gamma * value) for value in values])) / gamma

    def mean_of(k, values):
        return mean(sorted(values, reverse=k < 0)[: abs(k)])

    positive = [d(i, j) for j in near]
    negative = [d(i, k) for k in far]
    if not positive or not negative:
        return []
    if loss.epsilon is not None:
        farthest = max(positive)
        nearest = min(negative)
        positive = [value for value in positive if value + loss.epsilon > nearest]
        negative = [value for value in negative if value - loss.epsilon < farthest]
    if not positive or not negative:
        return [0.0]
    sign = -1 if loss.similarity == "cosine" else 1
    positive += [] if loss.lambda1 is None else [sign * loss.lambda1]
    negative += [] if loss.lambda2 is None else [sign * loss.lambda2]
    if loss.radius == "gamma":
        excess = soft(-loss.alpha, positive) - soft(loss.beta, negative)
    else:
        excess = mean_of(loss.k1, positive) - mean_of(loss.k2, negative)
    if loss.outer == "identity":
        return [excess]
    return [math.log1p(math.exp(loss.scale * excess)) / loss.scale]


def info_nce(loss, s, i, near, far):
    sums = [exp_sum((s(i, k) - s(i, j)) / loss.temperature for k in far) for j in near]
    return [math.log1p(summed) for summed in sums if far]


def tuplet_margin(loss, s, i, near, far):
    eased = [math.cos(math.acos(s(i, j)) - loss.slack) for j in near]
    return [math.log1p(exp_sum(loss.scale * (s(i, k) - e) for k in far)) for e in eased if far]


def supervised_contrastive(loss, s, i, near, far):
    everyone = exp_sum(s(i, j) / loss.temperature for j in near + far)
    logs = [math.log(everyone) - s(i, j) / loss.temperature for j in near]
    return [mean(logs)] if near else []


def pairwise_sigmoid(loss, s, i, near, far):
    logits = [loss.temperature * s(i, j) + loss.bias for j in near]
    logits += [-(loss.temperature * s(i, k) + loss.bias) for k in far]
    return [-sum(math.log(sigmoid(logit)) for logit in logits)]


# -- ranks


def ranking(formula):
    """A formula of the similarities of an anchor's positives and negatives, if it has positives."""

    def terms(loss, s, i, near, far):
        positive = [s(i, j) for j in near]
        return [formula(loss, positive, [s(i, k) for k in far])] if near else []

    return terms


def others_of(values, place):
    return [value for j, value in enumerate(values) if j != place]


@ranking
def fast_ap(loss, positive, negative):
    width = 4 / loss.bins
    bins = range(loss.bins + 1)
    near, far = (
        [sum(hinge(1 - abs(2 - 2 * s - j * width) / width) for s in kind) for j in bins]
        for kind in (positive, negative)
    )
    total = 0.0
    for j in bins:
        everyone = sum(near[: j + 1]) + sum(far[: j + 1])
        total += near[j] * sum(near[: j + 1]) / everyone if everyone else 0
    return 1 - total / len(positive)


@ranking
def smooth_ap(loss, positive, negative):
    positive = [*positive, 1.0] if loss.anchor else positive
    precision = []
    for place, s in enumerate(positive):
        rivals = others_of(positive, place)
        among = 1 + sum(sigmoid((t - s) / loss.temperature) for t in rivals)
        before = sum(sigmoid((t - s) / loss.temperature) for t in negative)
        precision.append(among / (among + before))
    return 1 - mean(precision)


@ranking
def roadmap(loss, positive, negative):
    def bound(t):
        if t <= 0:
            return sigmoid(t / loss.temperature)
        if t <= loss.width:
            return sigmoid(t / loss.temperature) + 0.5
        return loss.slope * (t - loss.width) + sigmoid(loss.width / loss.temperature) + 0.5

    precision = []
    for place, s in enumerate(positive):
        among = 1 + sum(t >= s for t in others_of(positive, place))
        precision.append(among / (among + sum(bound(t - s) for t in negative)))
    calibration = mean([hinge(loss.positive_margin - s) for s in positive])
    calibration += mean([hinge(t - loss.negative_margin) for t in negative])
    return (1 - loss.calibration) * (1 - mean(precision)) + loss.calibration * calibration


@ranking
def recall_at_k(loss, positive, negative):
    ranks = []
    for place, s in enumerate(positive):
        others = others_of(positive, place) + negative
        ranks.append(1 + sum(sigmoid((t - s) / loss.temperature) for t in others))
    recalls = []
    for k in loss.ks:
        found = sum(sigmoid((k - rank) / loss.rank_temperature) for rank in ranks)
        recalls.append(min(k, found) / min(k, len(positive)))
    return 1 - mean(recalls)


@ranking
def pnp(loss, positive, negative):
    positive = [*positive, 1.0] if loss.anchor else positive
    penalty = {
        "O": lambda r: r,
        "Ds": lambda r: math.log(1 + r),
        "Dq": lambda r: 1 - 1 / (1 + r) ** loss.alpha,
        "Iu": lambda r: (1 + r) * math.log(1 + r),
        "Ib": lambda r: (loss.b * r - math.log(1 + loss.b * r)) / loss.b**2,
    }[loss.variant]
    before = [sum(sigmoid((t - s) / loss.temperature) for t in negative) for s in positive]
    return mean([penalty(r) for r in before])


def learned_boundaries():
    """As training leaves them: not all alike."""
    loss = MarginLoss(class_boundaries=4)
    with torch.no_grad():
        loss.boundary.add_(0.1)
        loss.deviations.copy_(torch.tensor([0.3, -0.2, 0.1, 0.0]))
    return loss


CASES = {
    (contrastive, euclidean): [ContrastiveLoss(2.5), ContrastiveLoss(0.5, normalize=True)],
    (signal_to_noise, noise): [SignalToNoiseContrastiveLoss(3.0)],
    (discriminative, euclidean): [
        DiscriminativeDeepMetricLoss(),
        DiscriminativeDeepMetricLoss(1.5, 2.0, squared=False),
    ],
    (margin, euclidean): [MarginLoss(), learned_boundaries()],
    (ranked_list, euclidean): [RankedListLoss(), RankedListLoss(1.4, 0.2, 0.0, 0.3)],
    (circle, cosine): [CircleLoss(gamma=8.0), CircleLoss(0.25, 20.0, detach_weights=False)],
    (triplet, euclidean): [
        TripletLoss(0.3),
        TripletLoss(0.3, soft=True),
        TripletLoss(-0.2, squared=False, normalize=False),
    ],
    (batch_all, euclidean): [
        BatchAllTripletLoss(0.3),
        BatchAllTripletLoss(0.3, soft=True),
        BatchAllTripletLoss(-0.2, average="all", squared=True),
    ],
    (batch_hard, euclidean): [
        BatchHardTripletLoss(0.3, normalize=True),
        BatchHardTripletLoss(0.3, soft=True),
    ],
    (semi_hard, euclidean): [
        SemiHardTripletLoss(margin, rule=rule)
        for rule in ("all", "nearest_else_farthest")
        for margin in (0.5, 0.0, 2.0)
    ],
    (hard_exemplar, euclidean): [
        HardExemplarLoss(),
        HardExemplarLoss(scale=2.0, squared=False),
        HardExemplarLoss(2.0, scale=1.0, normalize=False),
        HardExemplarLoss(weighted=False),
        HardExemplarLoss(epsilon=0.3, epsilon_over="beta"),
    ],
    (lifted, minus_cosine_or_distance): [
        LiftedStructureLoss(margin, form=form, **options)
        for form in ("original", "min", "smooth")
        for margin, options in (
            (1.0, {}),
            (-1.5, {"squared": True, "normalize": False}),
            (1.0, {"similarity": "cosine"}),
        )
    ],
    (hphn, euclidean): [HPHNLoss(), HPHNLoss(-0.3, squared=True)],
    (improved_lifted, improved_lifted_similarity): [
        ImprovedLiftedStructureLoss(),
        ImprovedLiftedStructureLoss(lambda1=None),
        ImprovedLiftedStructureLoss(lambda2=None),
        ImprovedLiftedStructureLoss(cosine=False),
        ImprovedLiftedStructureLoss(-1.0, 0.5),
    ],
    (n_pair, dot_or_minus_distance): [
        NPairLoss(l2=0.5),
        NPairLoss("distance"),
        NPairLoss("distance", squared=True),
        NPairLoss(normalize=True),
    ],
    (improved_n_pair, dot_or_minus_distance): [
        ImprovedNPairLoss(offset=0.3),
        ImprovedNPairLoss(gamma=0.5, offset=-1.0),
    ],
    (angular, dot): [
        AngularLoss(),
        AngularLoss(36.0, n_pair=True, weight=3.0),
        AngularLoss(normalize=False),
    ],
    (multi_similarity, cosine): [
        MultiSimilarityLoss(beta=10.0, epsilon=epsilon) for epsilon in (None, 0.1, -0.3)
    ],
    (danml, minus_cosine_or_distance): [
        AdaptiveNeighborhoodLoss(**options)
        for options in (
            {},
            {"epsilon": None},
            {"outer": "identity"},
            {"scale": 5.0},
            {"lambda1": None, "lambda2": None},
            {"alpha": -2.0},
            {"similarity": "distance", "squared": True},
            {"radius": "exact", "k1": -3, "k2": 3},
            {"radius": "exact", "k1": 2, "k2": 1, "epsilon": None, "similarity": "distance"},
        )
    ],
    (info_nce, cosine): [InfoNCELoss(0.5)],
    (tuplet_margin, cosine): [TupletMarginLoss(0.2, 8.0)],
    (supervised_contrastive, dot): [
        SupervisedContrastiveLoss(),
        SupervisedContrastiveLoss(2.0, normalize=False),
    ],
    (pairwise_sigmoid, cosine): [SigmoidLoss(4.0, -2.0)],
    (fast_ap, cosine): [FastAPLoss(), FastAPLoss(7)],
    (smooth_ap, cosine): [SmoothAPLoss(0.05), SmoothAPLoss(anchor=True)],
    (roadmap, cosine): [
        ROADMAPLoss(),
        ROADMAPLoss(0.0, temperature=0.1, slope=3.0, width=0.3),
    ],
    (recall_at_k, cosine): [
        RecallAtKLoss(),
        RecallAtKLoss((1, 3), temperature=0.1, rank_temperature=0.3),
    ],
    (pnp, cosine): [
        *(PNPLoss(variant, 0.05, alpha=1.5, b=3.0) for variant in ("O", "Ds", "Dq", "Iu", "Ib")),
        PNPLoss(anchor=True),
    ],
}


@pytest.mark.parametrize("labels", LABELINGS.values(), ids=LABELINGS)
@pytest.mark.parametrize(
    ("formula", "compare", "loss"),
    [
        pytest.param(*formula, loss, id=repr(loss))
        for formula, losses in CASES.items()
        for loss in losses
    ],
)
def test_equals_the_printed_formula(formula, compare, loss, labels, rng):
    rows = torch.randn(len(labels), 3, generator=rng, dtype=torch.float64)
    batch = Batch(loss, compare, rows, labels)
    everyone = range(len(labels))
    terms = []
    for i in everyone:
        near = [j for j in everyone if j != i and labels[j] == labels[i]]
        far = [k for k in everyone if labels[k] != labels[i]]
        terms += formula(loss, batch, i, near, far)
    found = loss(rows, torch.tensor(labels)).item()
    assert found == pytest.approx(mean(terms), rel=1e-6, abs=1e-9)


# -- statistics of all pairs of the batch


@pytest.mark.parametrize("slack", [0.01, 0.5])
@pytest.mark.parametrize("labels", LABELINGS.values(), ids=LABELINGS)
def test_means_over_all_pairs_equal_the_printed_formulas(labels, slack, rng):
    rows = torch.randn(len(labels), 4, generator=rng, dtype=torch.float64)
    kinds = {True: [], False: []}
    for i, row in enumerate(rows):
        for k, other in enumerate(rows):
            if i != k:
                kinds[labels[i] == labels[k]].append(cosine(None, row, other))
    positive = kinds[True]
    negative = kinds[False]
    pull = mean([hinge((1 - slack) * mean(positive) - s) ** 2 for s in positive])
    push = mean([hinge(s - 1.01 * mean(negative)) ** 2 for s in negative])
    variance = IntraPairVarianceLoss(slack)(rows, torch.tensor(labels))
    assert variance.item() == pytest.approx(pull + push)
    weak = [0.9 - s for s in positive if s <= 0.9]
    strong = [s - 0.2 for s in negative if s >= 0.2]
    margins = ThresholdConsistentMarginLoss(0.9, 0.2, 2.0, 3.0)(rows, torch.tensor(labels))
    assert margins.item() == pytest.approx(2 * mean(weak) + 3 * mean(strong))


# -- proxies: ``d`` are what a row is to each class, ``own`` the number of its class


CLASSES = 6
DIM = 4


def distances_to(loss, row):
    return [euclidean(loss, row, proxy) for proxy in loss.proxies.detach().double()]


def cosines_to(loss, row):
    """To the nearest of several centers."""
    centers = loss.proxies.detach().double().reshape(CLASSES, -1, DIM)
    return [max(cosine(loss, row, center) for center in of_class) for of_class in centers]


def products_with(loss, row):
    return [dot(loss, row, proxy) for proxy in loss.proxies.detach().double()]


def relaxed_cosines_to(loss, row):
    found = []
    for of_class in loss.proxies.detach().double().reshape(CLASSES, -1, DIM):
        s = [cosine(loss, row, center) for center in of_class]
        shares = [math.exp(x / loss.gamma) for x in s]
        found.append(sum(share * x for share, x in zip(shares, s, strict=True)) / sum(shares))
    return found


def cross_entropy(logits, own):
    return math.log(exp_sum(logits)) - logits[own]


def proxy_nca(loss, d, own):
    others = d if loss.full_softmax else others_of(d, own)
    return d[own] / loss.temperature + math.log(exp_sum(-z / loss.temperature for z in others))


def improved_proxy_nca(loss, d, own):
    others = [loss.gamma * (d[own] - z - loss.offset) for z in others_of(d, own)]
    return math.log1p(exp_sum(others)) / loss.gamma


def normalized_softmax(loss, s, own):
    return cross_entropy([z / loss.temperature for z in s], own)


def cos_face(loss, s, own):
    return cross_entropy(
        [loss.scale * (z - loss.margin * (c == own)) for c, z in enumerate(s)], own
    )


def arc_face(loss, s, own):
    angle = math.acos(s[own])
    logits = list(s)
    beyond = angle > math.pi - loss.margin
    logits[own] = (
        s[own] - loss.margin * math.sin(loss.margin) if beyond else math.cos(angle + loss.margin)
    )
    return cross_entropy([loss.scale * z for z in logits], own)


def p2s_grad(loss, s, own):
    return sum((z - (c == own)) ** 2 for c, z in enumerate(s)) / 2


def instance(loss, s, own):
    return cross_entropy([loss.scale * z for z in s], own)


def soft_triple(loss, s, own):
    apart = 0.0
    for of_class in loss.proxies.detach().double().reshape(CLASSES, -1, DIM):
        for k, first in enumerate(of_class):
            apart += sum(
                math.dist(unit(first).tolist(), unit(other).tolist()) for other in of_class[k + 1 :]
            )
    spread = loss.merge * apart / max(1, loss.classes * loss.centers * (loss.centers - 1))
    logits = [loss.scale * (z - loss.margin * (c == own)) for c, z in enumerate(s)]
    return cross_entropy(logits, own) + spread


OVER_PROXIES = {
    (proxy_nca, distances_to, ProxyNCALoss): [
        {},
        {"full_softmax": True},
        {"temperature": 1 / 9},
        {"squared": False, "normalize": False},
    ],
    (improved_proxy_nca, distances_to, ImprovedProxyNCALoss): [
        {"offset": 0.2},
        {"squared": False, "gamma": 2.0},
    ],
    (normalized_softmax, cosines_to, NormalizedSoftmaxLoss): [{}, {"centers": 3}],
    (cos_face, cosines_to, CosFaceLoss): [{"scale": 8.0}],
    (arc_face, cosines_to, ArcFaceLoss): [
        {"scale": 8.0},
        {"scale": 8.0, "margin": 1.5},  # half are beyond π - m
    ],
    (arc_face, cosines_to, SubCenterArcFaceLoss): [{"scale": 8.0}],
    (p2s_grad, cosines_to, P2SGradLoss): [{}],
    (instance, products_with, InstanceLoss): [{"scale": 2.0}],
    (soft_triple, relaxed_cosines_to, SoftTripleLoss): [
        {},
        {"centers": 1},
        {"centers": 2, "scale": 5.0, "margin": 0.2, "merge": 0.0},
    ],
}


@pytest.mark.parametrize(
    ("formula", "compare", "kind", "options"),
    [(*formula, options) for formula, cases in OVER_PROXIES.items() for options in cases],
)
def test_losses_with_proxies_equal_the_printed_formula(formula, compare, kind, options, rng):
    rows = torch.randn(40, DIM, generator=rng, dtype=torch.float64)
    labels = torch.arange(40) % 5  # one class never occurs
    loss = kind(CLASSES, DIM, reduction="none", **options)
    pairs = zip(rows, labels.tolist(), strict=True)
    expected = [formula(loss, compare(loss, row), own) for row, own in pairs]
    assert loss(rows, labels).tolist() == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("labels", [[0, 1, 2, 0, 1, 2], [0, 0, 0], [4], []])
def test_proxy_anchor_equals_the_printed_formula(labels, rng):
    rows = torch.randn(len(labels), DIM, generator=rng, dtype=torch.float64)
    loss = ProxyAnchorLoss(5, DIM, alpha=8.0)
    pulls = []
    pushes = []
    for label, proxy in enumerate(loss.proxies.detach().double()):
        s = [(cosine(loss, row, proxy), y) for row, y in zip(rows, labels, strict=True)]
        own = [-loss.alpha * (value - loss.margin) for value, y in s if y == label]
        others = [loss.alpha * (value + loss.margin) for value, y in s if y != label]
        pulls += [math.log1p(exp_sum(own))] if own else []
        pushes.append(math.log1p(exp_sum(others)))
    found = loss(rows, torch.tensor(labels, dtype=torch.long)).item()
    assert found == pytest.approx(mean(pulls) + mean(pushes))


@pytest.mark.parametrize("options", [{}, {"centers": 1, "alpha": 1.0, "delta": 0.8}])
def test_potential_field_equals_the_printed_energy_and_its_gradient(options, rng):
    rows = torch.randn(9, DIM, generator=rng, dtype=torch.float64)
    rows[5:7] = rows[:2] + 0.02  # nearer than δ: a row of another class and one of its own
    labels = [0, 1, 1, 2, 4, 2, 1, 4, 4]
    loss = PotentialFieldLoss(5, DIM, reduction="sum", **options).double()
    rows.requires_grad_()
    points = [(unit(row), y) for row, y in zip(rows, labels, strict=True)]
    centers = loss.proxies.reshape(5, -1, DIM)
    points += [(unit(p), y) for y, of_class in enumerate(centers) for p in of_class]
    energy = 0.0
    for i, (point, y) in enumerate(points):
        for k, (other, z) in enumerate(points):
            distance = torch.dist(point, other)
            if i != k and y == z:
                energy = energy - (loss.delta if distance < loss.delta else distance) ** -loss.alpha
            elif i != k:
                energy = energy + (distance if distance < loss.delta else loss.delta) ** -loss.alpha
    found = loss(rows, torch.tensor(labels))
    assert found.item() == pytest.approx(energy.item(), rel=1e-9)
    ours, printed = (grad(value, [rows, loss.proxies]) for value in (found, energy))
    for gradient, expected in zip(ours, printed, strict=True):
        torch.testing.assert_close(gradient, expected, rtol=1e-9, atol=1e-9)


SHARP = {"temperature": 1e-4, **dict.fromkeys(("gamma", "gamma1", "gamma2", "scale"), 1e4)}
SHARP |= dict.fromkeys(("alpha", "beta"), 5e3)  # but what is a radius, a weight or a boundary


@pytest.mark.parametrize(
    ("name", "switched"),
    [
        (name, switched)
        for name, kind in LOSSES.items()
        for switched in ({}, {"normalize": False}, {"full_softmax": True})
        if {*switched} <= {*parameters(kind)}
    ],
)
def test_stays_finite_where_a_plain_exponential_overflows(name, switched, rng):
    sharp = {} if name in ("ranked_list", "margin", "potential_field") else SHARP
    given = {"classes": 4, "dim": 4, **switched, **sharp}
    loss = LOSSES[name](**{key: given[key] for key in given.keys() & parameters(LOSSES[name])})
    rows = (1e3 * torch.randn(12, 4, generator=rng)).requires_grad_()
    value = loss(rows, torch.arange(12) // 3)
    assert value.isfinite() and grad(value, rows)[0].isfinite().all()

"""AdaptiveNeighborhoodLoss against Eq. (22), one term at a time, and the losses that are its
special cases."""

import inspect
import math
from dataclasses import replace

import pytest
import torch

from vicinal.errors import ConfigError
from vicinal.losses import (
    AdaptiveNeighborhoodLoss,
    BatchHardTripletLoss,
    MultiSimilarityLoss,
    reduce,
)

LABELS = {
    "three each": [0, 0, 0, 1, 1, 1, 2, 2, 2],
    "uneven": [0, 0, 1, 2, 2, 2],
    "none alike": [0, 1, 2, 3],
    "one class": [0, 0, 0],
}
UNMINED = {"epsilon": None, "reduction": "none"}
BARE = {"lambda1": None, "lambda2": None, **UNMINED}


def by_hand(loss, embeddings, labels):
    """The formula as printed, mining first: no masks, no batching, no log-sum-exp trick."""

    def distance(x, y):
        if loss.similarity == "cosine":
            return -float(x @ y)
        square = float(((x - y) ** 2).sum())
        return square if loss.squared else math.sqrt(square)

    def soft(gamma, values):
        return -math.log(sum(math.exp(-gamma * value) for value in values) / len(values)) / gamma

    def mean(k, values):
        chosen = sorted(values, reverse=k < 0)[: abs(k)]
        return sum(chosen) / len(chosen)

    sign = -1 if loss.similarity == "cosine" else 1
    per_anchor = []
    for i, anchor in enumerate(embeddings):
        positive = [
            distance(anchor, x)
            for k, x in enumerate(embeddings)
            if k != i and labels[k] == labels[i]
        ]
        negative = [distance(anchor, x) for k, x in enumerate(embeddings) if labels[k] != labels[i]]
        if loss.epsilon is not None:
            hardest = max(positive, default=-math.inf), min(negative, default=math.inf)
            positive = [d for d in positive if d + loss.epsilon > hardest[1]]
            negative = [d for d in negative if d - loss.epsilon < hardest[0]]
        if not positive or not negative:
            per_anchor.append(0.0)
            continue
        positive += [] if loss.lambda1 is None else [sign * loss.lambda1]
        negative += [] if loss.lambda2 is None else [sign * loss.lambda2]
        if loss.radius == "gamma":
            excess = soft(-loss.alpha, positive) - soft(loss.beta, negative)
        else:
            k1 = (
                loss.k1
                if loss.without_farthest is None
                else max(1, len(positive) - loss.without_farthest)
            )
            excess = mean(k1, positive) - mean(loss.k2, negative)
        logistic = loss.outer == "logistic"
        per_anchor.append(
            math.log1p(math.exp(loss.scale * excess)) / loss.scale if logistic else excess
        )
    return torch.tensor(per_anchor, dtype=embeddings.dtype)


def gradient(value, embeddings):
    return torch.autograd.grad(value, embeddings)[0]


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"epsilon": None},
        {"outer": "identity"},
        {"scale": 5.0},
        {"lambda1": None, "lambda2": None},
        {"lambda1": None},
        {"alpha": -2.0},
        {"similarity": "distance"},
        {"similarity": "distance", "squared": True},
        {"radius": "exact", "k1": -2, "k2": 3},
        {"radius": "exact", "k1": 2, "k2": 1, "epsilon": None, "similarity": "distance"},
        {"radius": "exact", "without_farthest": 1},
        {"radius": "count", "k1": -2, "k2": 3},
        {"radius": "count", "without_farthest": 1, "epsilon": None},
        {"radius": "count", "without_farthest": 99, "lambda1": None, "epsilon": None},
    ],
    ids=str,
)
def test_equals_the_printed_formula(labels, options, unit_vectors):
    embeddings = unit_vectors(len(labels), dim=3)
    loss = AdaptiveNeighborhoodLoss(reduction="none", **options)
    torch.testing.assert_close(
        loss(embeddings, torch.tensor(labels)),
        by_hand(loss, embeddings, labels),
        rtol=1e-6,
        atol=1e-9,
    )


@pytest.mark.parametrize("epsilon", [None, 0.1, -0.3])
def test_multi_similarity_is_the_identity_with_one_lambda_and_has_the_same_gradient(
    unit_vectors, epsilon
):
    """Proposition 7: u_i = MS_i - log(|P_i| + 1)/α - log(|N_i| + 1)/β, where base cancels."""
    embeddings, labels = unit_vectors(20, dim=3).requires_grad_(), torch.arange(20) // 4
    similarity = MultiSimilarityLoss(2.0, 30.0, 0.5, epsilon)
    ours = AdaptiveNeighborhoodLoss(2.0, 30.0, 0.5, 0.5, epsilon, outer="identity")
    torch.testing.assert_close(
        *(gradient(loss(embeddings, labels), embeddings) for loss in (ours, similarity)),
        rtol=1e-10,
        atol=1e-13,
    )
    if epsilon is None:
        offset = math.log(3 + 1) / 2.0 + math.log(16 + 1) / 30.0
        torch.testing.assert_close(
            ours(embeddings, labels) + offset, similarity(embeddings, labels)
        )
        elsewhere = AdaptiveNeighborhoodLoss(2.0, 30.0, 0.5, 0.52, epsilon, outer="identity")
        assert not torch.allclose(
            gradient(elsewhere(embeddings, labels), embeddings),
            gradient(similarity(embeddings, labels), embeddings),
        )


def test_multi_similarity_through_the_logistic_is_another_loss(unit_vectors):
    """The same constants, so only the outer function differs: it weighs anchors by the sigmoid of
    their excess."""
    embeddings, labels = unit_vectors(12, dim=3).requires_grad_(), torch.arange(12) // 3
    plain = AdaptiveNeighborhoodLoss(2.0, 30.0, 0.5, 0.5, None, outer="identity", reduction="none")
    bent = AdaptiveNeighborhoodLoss(2.0, 30.0, 0.5, 0.5, None)
    excess = plain(embeddings, labels)
    weighted = (excess.detach().sigmoid() * excess).mean()
    torch.testing.assert_close(
        gradient(bent(embeddings, labels), embeddings), gradient(weighted, embeddings)
    )


def test_triplet_limits_are_the_farthest_positive_and_the_nearest_negative(unit_vectors):
    embeddings, labels = unit_vectors(12), torch.arange(12) // 4
    hard = BatchHardTripletLoss(0.0, normalize=True, soft=True, reduction="none")(
        embeddings, labels
    )
    sharp = AdaptiveNeighborhoodLoss(1e5, 1e5, similarity="distance", **BARE)
    exact = AdaptiveNeighborhoodLoss(radius="exact", k1=-1, k2=1, similarity="distance", **BARE)
    torch.testing.assert_close(exact(embeddings, labels), hard)
    torch.testing.assert_close(sharp(embeddings, labels), hard, rtol=0, atol=1e-4)
    hinge = BatchHardTripletLoss(0.0, normalize=True, reduction="none")(embeddings, labels)
    steep = AdaptiveNeighborhoodLoss(
        radius="exact", k1=-1, k2=1, similarity="distance", scale=1e6, **BARE
    )
    torch.testing.assert_close(steep(embeddings, labels), hinge, rtol=0, atol=1e-6)


def test_towards_gamma_0_radii_are_means(unit_vectors):
    embeddings, labels = unit_vectors(12), torch.arange(12) // 4
    mean = AdaptiveNeighborhoodLoss(radius="exact", k1=99, k2=99, **BARE)(embeddings, labels)
    for dial in (0.0, 1e-9, -1e-9):
        near = AdaptiveNeighborhoodLoss(dial, dial, **BARE)
        torch.testing.assert_close(near(embeddings, labels), mean, rtol=0, atol=1e-8)


def test_a_count_has_the_exact_value_and_a_smoother_gradient(unit_vectors):
    embeddings, labels = unit_vectors(24).requires_grad_(), torch.arange(24) // 6
    smooth, exact = (
        AdaptiveNeighborhoodLoss(radius=radius, k1=-2, k2=4, outer="identity", **BARE)
        for radius in ("count", "exact")
    )
    torch.testing.assert_close(
        smooth(embeddings, labels), exact(embeddings, labels), rtol=0, atol=1e-9
    )
    for loss, reached in ((smooth, 18), (exact, 4)):
        c = loss.comparisons(embeddings.detach(), labels)
        negative = c.negative.clone().requires_grad_()
        pushes = gradient(loss.core(replace(c, negative=negative)).sums.sum(), negative)
        assert ((pushes != 0).sum(dim=1) == reached).all()
        torch.testing.assert_close(pushes.sum(dim=1), -torch.ones(24, dtype=torch.float64))


def test_the_radius_without_the_2_farthest_positives_does_not_see_how_far_they_are(unit_vectors):
    embeddings, labels = unit_vectors(12), torch.arange(12) // 6
    for radius in ("count", "exact"):
        loss = AdaptiveNeighborhoodLoss(radius=radius, without_farthest=2, **BARE)
        c = loss.comparisons(embeddings, labels)
        farthest = c.positive >= c.positive.topk(2, dim=1).values[:, 1:]
        moved = replace(c, positive=c.positive + 0.5 * farthest)
        torch.testing.assert_close(loss.core(moved).sums, loss.core(c).sums, rtol=0, atol=1e-9)


@pytest.mark.filterwarnings(
    "ignore:`torch.jit.script:DeprecationWarning"
)  # torch's own, in forward mode
def test_the_gamma_of_a_count_is_a_constant_in_forward_mode_too(unit_vectors):
    embeddings, labels, direction = unit_vectors(12), torch.arange(12) // 4, unit_vectors(12)
    loss = AdaptiveNeighborhoodLoss(radius="count", k2=3)
    slope = torch.func.jvp(lambda e: loss(e, labels), (embeddings,), (direction,))[1]
    embeddings.requires_grad_()
    torch.testing.assert_close(
        slope, (gradient(loss(embeddings, labels), embeddings) * direction).sum()
    )


@pytest.mark.parametrize("radius", ["gamma", "count", "exact"])
def test_a_shift_of_all_distances_changes_nothing_and_a_scale_is_a_scale(unit_vectors, radius):
    embeddings, labels = unit_vectors(12), torch.arange(12) // 3
    options = {"similarity": "distance", "radius": radius, "outer": "identity"}
    loss = AdaptiveNeighborhoodLoss(2.0, 10.0, 0.5, 0.6, 0.1, **options)
    shifted = AdaptiveNeighborhoodLoss(2.0, 10.0, 0.8, 0.9, 0.1, **options)
    scaled = AdaptiveNeighborhoodLoss(1.0, 5.0, 1.0, 1.2, 0.2, **options)
    c = loss.comparisons(embeddings, labels)
    torch.testing.assert_close(
        shifted.core(replace(c, positive=c.positive + 0.3, negative=c.negative + 0.3)).sums,
        loss.core(c).sums,
    )
    torch.testing.assert_close(
        scaled.core(replace(c, positive=2 * c.positive, negative=2 * c.negative)).sums,
        2 * loss.core(c).sums,
    )


def test_one_minus_the_cosine_is_the_same_loss(unit_vectors):
    embeddings, labels = unit_vectors(12), torch.arange(12) // 3
    cosine = AdaptiveNeighborhoodLoss(lambda1=0.6, lambda2=0.63)
    apart = AdaptiveNeighborhoodLoss(lambda1=1 - 0.6, lambda2=1 - 0.63, similarity="distance")
    c = cosine.comparisons(embeddings, labels)
    shifted = replace(c, positive=1 + c.positive, negative=1 + c.negative)
    torch.testing.assert_close(reduce(apart.core(shifted), "mean"), cosine(embeddings, labels))


@pytest.mark.parametrize("radius", ["gamma", "count", "exact"])
def test_radii_are_means_so_that_everything_twice_changes_nothing(unit_vectors, radius):
    embeddings, labels = unit_vectors(9), torch.arange(9) // 3
    once = AdaptiveNeighborhoodLoss(radius=radius, k1=-1, k2=3, **BARE)
    twice = AdaptiveNeighborhoodLoss(radius=radius, k1=-2, k2=6, **BARE)
    c = once.comparisons(embeddings, labels)
    doubled = replace(
        c, **{name: torch.cat([getattr(c, name)] * 2, dim=1) for name in ("positive", "negative")},
        keep_positive=torch.cat([c.keep_positive] * 2, dim=1), keep_negative=torch.cat([c.keep_negative] * 2, dim=1),
    )  # fmt: skip
    torch.testing.assert_close(twice.core(doubled).sums, once.core(c).sums, rtol=0, atol=1e-8)


def test_lambda_counts_as_one_more_neighbor(unit_vectors):
    embeddings, labels = unit_vectors(9), torch.arange(9) // 3
    with_lambda = AdaptiveNeighborhoodLoss(lambda1=0.3, lambda2=0.4, **UNMINED)
    without = AdaptiveNeighborhoodLoss(**BARE)
    c = with_lambda.comparisons(embeddings, labels)
    column, there = torch.ones(9, 1, dtype=torch.float64), torch.ones(9, 1, dtype=torch.bool)
    longer = replace(
        c,
        positive=torch.cat([c.positive, -0.3 * column], dim=1),
        keep_positive=torch.cat([c.keep_positive, there], dim=1),
        negative=torch.cat([c.negative, -0.4 * column], dim=1),
        keep_negative=torch.cat([c.keep_negative, there], dim=1),
    )
    torch.testing.assert_close(without.core(longer).sums, with_lambda.core(c).sums)


@pytest.mark.parametrize("far", [1e4, 40.0])
def test_far_lambdas_switch_the_constants_off_but_for_the_divisors(unit_vectors, far):
    embeddings, labels = unit_vectors(9), torch.arange(9) // 3
    off = AdaptiveNeighborhoodLoss(lambda1=far, lambda2=-far, outer="identity", **UNMINED)
    original = AdaptiveNeighborhoodLoss(outer="identity", **BARE)
    divisors = math.log(3 / 2) / 2 + math.log(7 / 6) / 30
    torch.testing.assert_close(off(embeddings, labels) + divisors, original(embeddings, labels))


@pytest.mark.parametrize("radius", ["gamma", "exact"])
def test_a_weight_counts_a_neighbor_as_often(unit_vectors, radius):
    embeddings, labels = unit_vectors(9), torch.arange(9) // 3
    loss = AdaptiveNeighborhoodLoss(radius=radius, k1=-2, k2=3, lambda1=0.3, lambda2=0.4, **UNMINED)
    c = loss.comparisons(embeddings, labels)
    weights = torch.tensor(
        [2.0, 0.0, 1.0, 3.0, 1.0, 0.0, 2.0, 1.0, 1.0], dtype=torch.float64
    ).expand(9, 9)
    weighted = replace(c, positive_weights=weights[:, :2] + 0, negative_weights=weights + 0)
    positive, negative = ([i for i in range(n) for _ in range(int(weights[0, i]))] for n in (2, 9))
    listed = replace(
        c,
        positive=c.positive[:, positive],
        keep_positive=c.keep_positive[:, positive],
        negative=c.negative[:, negative],
        keep_negative=c.keep_negative[:, negative],
    )
    torch.testing.assert_close(loss.core(weighted).sums, loss.core(listed).sums)


def test_an_anchor_of_which_mining_leaves_nothing_is_at_rest_and_still_counts():
    embeddings = torch.tensor(
        [[1.0, 0.0], [1.0, 0.1], [-1.0, 0.0], [-1.0, 0.1]], requires_grad=True
    )
    loss = AdaptiveNeighborhoodLoss()
    sums, counts = loss.core(loss.comparisons(embeddings, torch.tensor([0, 0, 1, 1])))
    assert sums.eq(0).all() and counts.eq(1).all()
    assert gradient(sums.sum(), embeddings).eq(0).all()
    assert AdaptiveNeighborhoodLoss(epsilon=None)(embeddings, torch.tensor([0, 0, 1, 1])) > 0


def test_with_alpha_below_0_a_class_may_lie_in_two_clusters(unit_vectors):
    """Proposition 5: with α > 0 the farther cluster is pulled, with α < 0 hardly."""
    distances = torch.tensor([[0.1, 0.1, 2.0, 2.0]], dtype=torch.float64)
    pulls = {}
    for alpha in (20.0, -20.0):
        loss = AdaptiveNeighborhoodLoss(alpha, outer="identity", similarity="distance", **BARE)
        c = loss.comparisons(unit_vectors(1), torch.tensor([0]))
        positive = distances.clone().requires_grad_()
        there = torch.ones(1, 4, dtype=torch.bool)
        row = replace(
            c,
            positive=positive,
            keep_positive=there,
            negative=distances[:, :1],
            keep_negative=there[:, :1],
        )
        pulls[alpha] = gradient(loss.core(row).sums.sum(), positive)[0]
    assert pulls[20.0][2:].sum() > 0.999 and pulls[-20.0][2:].sum() < 0.001


def test_stays_finite_where_a_plain_exponential_overflows(unit_vectors):
    embeddings = (100 * unit_vectors(8)).float().requires_grad_()
    for radius in ("gamma", "count", "exact"):
        loss = AdaptiveNeighborhoodLoss(
            500.0, 500.0, radius=radius, similarity="distance", squared=True, normalize=False
        )
        value = loss(embeddings, torch.arange(8) // 2)
        assert value.isfinite() and gradient(value, embeddings).isfinite().all()


def test_errors_carry_names_and_numbers():
    build = inspect.unwrap(
        AdaptiveNeighborhoodLoss.__init__
    )  # without the tests' type checks, which would come first
    for settings, match in (
        ({"outer": "logistics"}, "did you mean 'logistic'"),
        ({"radius": "counts"}, "did you mean 'count'"),
        ({"similarity": "cosinus"}, "did you mean 'cosine'"),
        ({"alpha": math.inf}, "alpha is a finite number, got inf"),
        ({"beta": math.nan}, "beta is a finite number"),
        ({"scale": 0.0}, "scale must be above 0, got 0.0"),
        ({"k1": 0}, "k1 counts the nearest"),
        ({"k2": 0}, "k2 counts the nearest"),
        ({"without_farthest": -1}, "must be at least 0, got -1"),
        ({"without_farthest": 2}, "without_farthest=2 counts positives, got radius=gamma"),
    ):
        with pytest.raises(ConfigError, match=match):
            build(AdaptiveNeighborhoodLoss(), **settings)

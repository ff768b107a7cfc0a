"""The improved losses against Eqs. (25) and (31), one term at a time, and beside their
originals."""

import math
from dataclasses import replace

import pytest
import torch
from torch.autograd import gradcheck

from vicinal.errors import ConfigError
from vicinal.losses import (
    ImprovedLiftedStructureLoss,
    ImprovedNPairLoss,
    ImprovedProxyNCALoss,
    LiftedStructureLoss,
    NPairLoss,
    ProxyNCALoss,
)

LABELS = {
    "three each": [0, 0, 0, 1, 1, 1],
    "uneven": [0, 0, 1, 2, 2, 2],
    "one class": [0, 0],
    "none alike": [0, 1],
}


def gradient(value, embeddings):
    return torch.autograd.grad(value, embeddings)[0]


def lifted_by_hand(loss, embeddings, labels):
    """Eq. (25) as printed."""
    values = []
    for i, anchor in enumerate(embeddings):
        similarity = [
            float(anchor @ x) if loss.cosine else -math.dist(anchor, x) for x in embeddings
        ]
        sign = 1 if loss.cosine else -1
        positive = [s for k, s in enumerate(similarity) if k != i and labels[k] == labels[i]]
        negative = [s for k, s in enumerate(similarity) if labels[k] != labels[i]]
        if not positive or not negative:
            values.append(0.0)
            continue
        pull = sum(math.exp(-loss.gamma1 * s) for s in positive)
        push = sum(math.exp(loss.gamma2 * s) for s in negative)
        pull += 0 if loss.lambda1 is None else math.exp(-loss.gamma1 * sign * loss.lambda1)
        push += 0 if loss.lambda2 is None else math.exp(loss.gamma2 * sign * loss.lambda2)
        values.append(
            max(0.0, math.log(pull) / loss.gamma1 + math.log(push) / loss.gamma2 + loss.margin)
        )
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize(
    "options",
    [{}, {"lambda1": None}, {"lambda2": None}, {"cosine": False}, {"margin": -1.0, "gamma1": 0.5}],
    ids=str,
)
def test_lifted_equals_the_printed_formula(labels, options, unit_vectors):
    embeddings = unit_vectors(len(labels), dim=3)
    loss = ImprovedLiftedStructureLoss(reduction="none", **options)
    torch.testing.assert_close(
        loss(embeddings, torch.tensor(labels)), lifted_by_hand(loss, embeddings, labels)
    )


@pytest.mark.parametrize("cosine", [True, False])
def test_lifted_with_dials_of_1_and_no_constants_is_the_original(unit_vectors, cosine):
    embeddings, labels = unit_vectors(12).requires_grad_(), torch.arange(12) // 3
    original = LiftedStructureLoss(form="smooth", similarity="cosine" if cosine else "distance")
    for constants in ((None, None), (1e3, -1e3) if cosine else (-1e3, 1e3)):
        improved = ImprovedLiftedStructureLoss(1.0, 1.0, 1.0, *constants, cosine=cosine)
        torch.testing.assert_close(improved(embeddings, labels), original(embeddings, labels))
        torch.testing.assert_close(
            *(gradient(loss(embeddings, labels), embeddings) for loss in (improved, original)),
            rtol=1e-9,
            atol=1e-12,
        )


def test_lifted_with_large_dials_is_the_triplet_of_the_extremes(unit_vectors):
    """Proposition 6, where Eq. (24) should read S_min > D_max + m."""
    embeddings, labels = unit_vectors(12), torch.arange(12) // 3
    loss = ImprovedLiftedStructureLoss(0.2, 1e5, 1e5, None, None, reduction="none")
    c = loss.comparisons(embeddings, labels)
    nearest = c.negative.masked_fill(~c.keep_negative, torch.inf).amin(dim=1)
    expected = (c.positive.amax(dim=1) - nearest + 0.2).clamp(min=0)
    torch.testing.assert_close(loss(embeddings, labels), expected, rtol=0, atol=1e-4)


def n_pair_by_hand(loss, embeddings, labels):
    """Eq. (31), with the length term of the original."""
    tuples = []
    for i, anchor in enumerate(embeddings):
        scores = [
            float(anchor @ x) if loss.similarity == "dot" else -math.dist(anchor, x)
            for x in embeddings
        ]
        against = [s for s, label in zip(scores, labels, strict=True) if label != labels[i]]
        lengths = float(anchor @ anchor) + sum(float(x @ x) for x in embeddings) / len(embeddings)
        for p, label in enumerate(labels):
            if p != i and label == labels[i] and against:
                summed = sum(math.exp(loss.gamma * (s - scores[p] - loss.offset)) for s in against)
                tuples.append(math.log1p(summed) / loss.gamma + loss.l2 / 4 * lengths)
    return sum(tuples) / max(1, len(tuples))


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize(
    "options", [{}, {"offset": 0.3}, {"gamma": 0.5, "offset": -1.0}, {"similarity": "distance"}]
)
def test_n_pair_equals_the_printed_formula(labels, options, rng):
    embeddings = torch.randn(len(labels), 4, generator=rng, dtype=torch.float64)
    loss = ImprovedNPairLoss(**options)
    expected = n_pair_by_hand(loss, embeddings, labels)
    assert loss(embeddings, torch.tensor(labels)).item() == pytest.approx(expected)


@pytest.mark.parametrize(
    "options",
    [{}, {"blocks": True}, {"similarity": "distance"}, {"normalize": True}, {"l2": 0.5}],
    ids=str,
)
def test_n_pair_with_a_dial_of_1_and_no_offset_is_the_original(rng, options):
    embeddings = torch.randn(12, 4, generator=rng, dtype=torch.float64, requires_grad=True)
    labels = torch.arange(6).repeat(2)
    values = [
        loss(embeddings, labels)
        for loss in (ImprovedNPairLoss(gamma=1.0, **options), NPairLoss(**options))
    ]
    torch.testing.assert_close(*values)
    torch.testing.assert_close(*(gradient(value, embeddings) for value in values))


def test_n_pair_without_offset_is_a_temperature_alone(rng):
    """γ (s_n - s_p) are the inner products of √γ x: the original at temperature 1/γ, divided by
    γ."""
    embeddings, labels = (
        torch.randn(12, 4, generator=rng, dtype=torch.float64),
        torch.arange(12) // 3,
    )
    for gamma in (0.5, 4.0):
        original = NPairLoss(l2=0.0)(math.sqrt(gamma) * embeddings, labels) / gamma
        torch.testing.assert_close(
            ImprovedNPairLoss(gamma=gamma, l2=0.0)(embeddings, labels), original
        )


def test_the_offset_of_n_pair_is_a_weight_of_all_negatives_and_relaxes(rng):
    embeddings, labels = (
        torch.randn(12, 4, generator=rng, dtype=torch.float64),
        torch.arange(12) // 3,
    )
    plain, offset = ImprovedNPairLoss(gamma=3.0), ImprovedNPairLoss(gamma=3.0, offset=0.4)
    c = plain.comparisons(embeddings, labels)
    lighter = replace(c, negative_weights=torch.full_like(c.negative, math.exp(-3.0 * 0.4)))
    torch.testing.assert_close(plain.core(lighter).sums, offset.core(c).sums)
    values = [
        ImprovedNPairLoss(gamma=3.0, offset=by)(embeddings, labels).item()
        for by in (-0.4, 0.0, 0.4)
    ]
    assert values == sorted(values, reverse=True)


def test_a_large_dial_makes_n_pair_a_hinge_on_the_most_similar_negative(rng):
    embeddings, labels = torch.randn(8, 4, generator=rng, dtype=torch.float64), torch.arange(8) // 2
    loss = ImprovedNPairLoss(gamma=1e5, offset=0.3, l2=0.0, reduction="none")
    c = loss.comparisons(embeddings, labels)
    strongest = c.negative.masked_fill(~c.keep_negative, -torch.inf).amax(dim=1)
    expected = (strongest - c.positive[:, 0] - 0.3).clamp(min=0)
    torch.testing.assert_close(loss(embeddings, labels), expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    "options", [{}, {"offset": 0.2}, {"squared": False, "gamma": 2.0}, {"normalize": False}]
)
def test_proxy_nca_equals_its_formula(options, unit_vectors):
    embeddings, labels = unit_vectors(9), torch.arange(9) % 5
    loss = ImprovedProxyNCALoss(6, 4, reduction="none", **options)
    values = []
    for row, label in zip(embeddings, labels.tolist(), strict=True):
        distance = [
            math.dist(row, proxy) ** (2 if loss.squared else 1)
            for proxy in loss.proxies.detach().double()
        ]
        against = [
            math.exp(loss.gamma * (distance[label] - d - loss.offset))
            for z, d in enumerate(distance)
            if z != label
        ]
        values.append(math.log1p(sum(against)) / loss.gamma)
    torch.testing.assert_close(
        loss(embeddings, labels), torch.tensor(values).double(), rtol=1e-5, atol=1e-6
    )


def test_proxy_nca_without_offset_is_the_full_softmax_at_a_temperature(unit_vectors):
    embeddings, labels = unit_vectors(10).requires_grad_(), torch.arange(10) % 5
    improved, original = (
        ImprovedProxyNCALoss(5, 4, gamma=9.0),
        ProxyNCALoss(5, 4, temperature=1 / 9, full_softmax=True),
    )
    assert torch.equal(improved.proxies, original.proxies), "one seed, the same proxies"
    values = improved(embeddings, labels), original(embeddings, labels) / 9
    torch.testing.assert_close(*values)
    torch.testing.assert_close(*(gradient(value, embeddings) for value in values))


def test_a_large_dial_makes_proxy_nca_a_hinge_on_the_nearest_other_proxy(unit_vectors):
    embeddings, labels = unit_vectors(10), torch.arange(10) % 5
    loss = ImprovedProxyNCALoss(5, 4, gamma=1e5, offset=0.1, reduction="none")
    c = loss.comparisons(embeddings, labels)
    nearest = c.negative.masked_fill(~c.keep_negative, torch.inf).amin(dim=1)
    expected = (c.positive[:, 0] - nearest - 0.1).clamp(min=0)
    torch.testing.assert_close(loss(embeddings, labels), expected, rtol=0, atol=1e-4)


def test_proxies_learn(unit_vectors):
    loss = ImprovedProxyNCALoss(4, 3).double()
    embeddings, labels = unit_vectors(5, dim=3).requires_grad_(), torch.arange(5) % 4

    def value(embeddings, proxies):
        return torch.func.functional_call(loss, {"proxies": proxies}, (embeddings, labels))

    assert gradcheck(value, (embeddings, loss.proxies.detach().requires_grad_()))


def test_a_single_class_has_no_rivals_and_costs_nothing():
    embeddings = torch.ones(3, 2, requires_grad=True)
    value = ImprovedProxyNCALoss(1, 2)(embeddings, torch.zeros(3, dtype=torch.long))
    assert value == 0 and gradient(value, embeddings).eq(0).all()


def test_all_stay_finite_where_a_plain_exponential_overflows(rng):
    embeddings, labels = (
        (100 * torch.randn(8, 4, generator=rng)).requires_grad_(),
        torch.arange(8) // 2,
    )
    losses = (
        ImprovedLiftedStructureLoss(gamma1=1e4, gamma2=1e4),
        ImprovedNPairLoss(gamma=1e3, offset=5.0),
        ImprovedProxyNCALoss(4, 4, gamma=1e4, normalize=False),
    )
    for loss in losses:
        value = loss(embeddings, labels)
        assert value.isfinite() and gradient(value, embeddings).isfinite().all()


@pytest.mark.parametrize("gamma", [0.0, -1.0, math.inf, math.nan])
def test_a_dial_is_positive_and_finite(gamma):
    for build in (
        lambda: ImprovedLiftedStructureLoss(gamma1=gamma),
        lambda: ImprovedLiftedStructureLoss(gamma2=gamma),
        lambda: ImprovedNPairLoss(gamma=gamma),
        lambda: ImprovedProxyNCALoss(3, 2, gamma=gamma),
    ):
        with pytest.raises(ConfigError, match=r"must be above 0|is a finite number"):
            build()

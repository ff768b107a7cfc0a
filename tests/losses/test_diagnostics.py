"""The shares of active triplets and of inseparable samples against counts of them all."""

import math

import pytest
import torch
from tests.listed import triplets
from torch.utils._python_dispatch import TorchDispatchMode

from vicinal.distances import pairwise_distances
from vicinal.errors import ConfigError
from vicinal.losses import BatchAllTripletLoss, active_share, diagnostics, inseparable_shares
from vicinal.losses.diagnostics import inseparable_among
from vicinal.tuples import SizedLabels

LABELS = torch.arange(12) // 3


@pytest.mark.parametrize(("squared", "normalize"), [(False, True), (True, True), (False, False)])
@pytest.mark.parametrize("margin", [0.0, 0.2])
@pytest.mark.parametrize("at_once", [0, diagnostics.AT_ONCE])
def test_active_equals_a_count_of_listed_triplets(
    rng, monkeypatch, squared, normalize, margin, at_once
):
    monkeypatch.setattr(diagnostics, "AT_ONCE", at_once)
    embeddings = torch.randn(15, 3, generator=rng, dtype=torch.float64)
    labels = torch.arange(15) // 3
    rows = torch.nn.functional.normalize(embeddings) if normalize else embeddings
    distance = torch.cdist(rows, rows) ** (2 if squared else 1)
    a, p, n = triplets(labels)
    expected = (distance[a, n] < distance[a, p] + margin).double().mean()
    found = active_share(embeddings, labels, margin, squared=squared, normalize=normalize)
    torch.testing.assert_close(found, expected)


def test_active_is_what_batch_all_counts(rng):
    rows = torch.randn(12, 3, generator=rng)
    active, total = (
        loss.core(loss.comparisons(rows, LABELS)).counts.sum()
        for loss in (BatchAllTripletLoss(), BatchAllTripletLoss(average="all"))
    )
    torch.testing.assert_close(active_share(rows, LABELS, 0.2, normalize=False), active / total)


def inseparable_by_hand(embeddings, labels, k1=None, k2=None):
    """Every ball around every anchor; the best by the sum of both shares, then the smallest."""

    def shares(inner, outer, radius, rim):
        missed = sum(d > radius for d in inner) / len(inner)
        return missed, sum(d <= rim for d in outer) / len(outer)

    def radius_of(k, values):
        chosen = sorted(values, reverse=k < 0)[: abs(k)]
        return sum(chosen) / len(chosen)

    found = []
    for i, anchor in enumerate(embeddings):
        others = [
            (math.dist(anchor, x), y == labels[i]) for x, y in zip(embeddings, labels, strict=True)
        ]
        del others[i]
        inner = [d for d, same in others if same]
        outer = [d for d, same in others if not same]
        if not inner or not outer:
            continue
        if k1 is None:
            balls = [shares(inner, outer, r, r) for r in sorted([-1.0, *inner, *outer])]
            found.append(min(balls, key=lambda pair: round(sum(pair), 9)))
        else:
            found.append(shares(inner, outer, radius_of(k1, inner), radius_of(k2, outer)))
    return [sum(column) / len(found) for column in zip(*found, strict=True)]


@pytest.mark.parametrize("k", [(None, None), (2, 3), (-2, 5), (99, 99), (-1, 1)])
@pytest.mark.parametrize("spread", [0.2, 1.0, 5.0])
def test_inseparable_equals_a_search_over_every_ball(rng, k, spread):
    labels = torch.tensor([0] * 5 + [1] * 4 + [2] * 3 + [3])
    centers = torch.randn(4, 3, generator=rng, dtype=torch.float64)[labels]
    rows = centers + spread * torch.randn(13, 3, generator=rng, dtype=torch.float64)
    found = inseparable_shares(rows, labels, *k, normalize=False)
    assert list(found) == pytest.approx(inseparable_by_hand(rows.tolist(), labels.tolist(), *k))


def test_where_all_have_collapsed_all_is_active_and_nothing_separable():
    assert active_share(torch.ones(4, 3), torch.tensor([0, 0, 1, 1]), 0.2) == 1
    for labels in ([0, 0, 1, 1, 2, 2], [0, 0, 0, 0, 1, 1]):
        assert sum(inseparable_shares(torch.ones(6, 3), torch.tensor(labels))) == 1


def test_is_0_where_no_anchor_has_both_kinds(rng):
    rows = torch.randn(4, 3, generator=rng)
    for labels in (torch.zeros(4, dtype=torch.long), torch.arange(4), torch.arange(0)):
        assert active_share(rows[: len(labels)], labels) == 0
        for k in ((None, None), (1, 1)):
            assert inseparable_shares(rows[: len(labels)], labels, *k) == (0, 0)


def test_fixed_numbers_do_not_tell_learned_from_unlearned_but_the_best_ball_does(rng):
    """Why the best ball is the default: the printed radii move with what they are held against."""
    labels = torch.arange(60) // 6
    noise = torch.randn(60, 8, generator=rng)
    learned = 10 * torch.randn(10, 8, generator=rng)[labels] + noise
    printed = [sum(inseparable_shares(rows, labels, 3, 5)) for rows in (noise, learned)]
    assert abs(printed[0] - printed[1]) < 0.1
    best = [sum(inseparable_shares(rows, labels)) for rows in (noise, learned)]
    assert best[0] > 0.5 and best[1] < 0.05


def test_length_is_left_out_unless_asked_for_and_half_precision_is_taken(rng):
    rows = torch.randn(12, 3, generator=rng)
    longer = rows * (1 + torch.arange(12))[:, None]
    same = inseparable_shares(longer, LABELS)
    torch.testing.assert_close(same, inseparable_shares(rows, LABELS))
    assert inseparable_shares(longer, LABELS, normalize=False) != same
    coarse = rows.bfloat16().requires_grad_()
    found = (active_share(coarse, LABELS), *inseparable_shares(coarse, LABELS))
    assert all(part.isfinite() and not part.requires_grad for part in found)


class Watch(TorchDispatchMode):
    """Counts kernels and notes those that would make the host wait for a device."""

    WAITS = ("nonzero", "_local_scalar_dense", "unique", "masked_select")

    def __init__(self):
        super().__init__()
        self.count = 0
        self.largest = 0

    def __torch_dispatch__(self, function, _, given=(), options=None):
        self.count += 1
        assert not any(name in str(function) for name in self.WAITS)
        made = function(*given, **(options or {}))
        if isinstance(made, torch.Tensor):
            self.largest = max(self.largest, made.numel())
        return made


def test_inseparable_is_cheap_and_waits_for_nothing(rng):
    rows = torch.randn(60, 3, generator=rng)
    apart = pairwise_distances(rows, squared=False)  # this waits on the CPU, for near pairs
    with Watch() as watch:
        inseparable_among(apart, SizedLabels.of(torch.arange(60) // 20, 20))
    assert watch.count < 100 and watch.largest <= 60 * 60


@pytest.mark.parametrize("k", [(2, None), (None, 2), (0, 2), (2, 0)])
def test_one_number_alone_or_0_is_rejected(rng, k):
    with pytest.raises(ConfigError, match=f"got k1={k[0]} and k2={k[1]}. Give both, or none"):
        inseparable_shares(torch.randn(12, 3, generator=rng), LABELS, *k)

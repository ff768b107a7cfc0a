"""The shares of inseparable samples against a search over every ball."""

import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from vicinal.distances import pairwise_distances
from vicinal.errors import ConfigError
from vicinal.losses import inseparable_shares
from vicinal.losses.diagnostics import inseparable_among
from vicinal.tuples import SizedLabels


def by_hand(embeddings, labels, k1=None, k2=None):
    """Every ball around every anchor; the best by the sum of both shares, then the smallest."""
    similar, dissimilar = [], []
    for i, anchor in enumerate(embeddings):
        inner = [
            math.dist(anchor, x)
            for k, x in enumerate(embeddings)
            if k != i and labels[k] == labels[i]
        ]
        outer = [math.dist(anchor, x) for k, x in enumerate(embeddings) if labels[k] != labels[i]]
        if not inner or not outer:
            continue
        if k1 is None:
            shares = [
                (
                    sum(d > radius for d in inner) / len(inner),
                    sum(d <= radius for d in outer) / len(outer),
                )
                for radius in sorted([-1.0, *inner, *outer])
            ]
            best = min(shares, key=lambda pair: round(sum(pair), 9))
        else:
            a, b = (sorted(d, reverse=k < 0)[: abs(k)] for d, k in ((inner, k1), (outer, k2)))
            radius, rim = sum(a) / len(a), sum(b) / len(b)
            best = (
                sum(d > radius for d in inner) / len(inner),
                sum(d <= rim for d in outer) / len(outer),
            )
        similar.append(best[0])
        dissimilar.append(best[1])
    return sum(similar) / max(1, len(similar)), sum(dissimilar) / max(1, len(dissimilar))


@pytest.mark.parametrize("k", [(None, None), (2, 3), (-2, 5), (99, 99), (-1, 1)])
@pytest.mark.parametrize("spread", [0.2, 1.0, 5.0])
def test_equals_a_search_over_every_ball(rng, k, spread):
    labels = torch.tensor([0] * 5 + [1] * 4 + [2] * 3 + [3])
    centers = torch.randn(4, 3, generator=rng, dtype=torch.float64)[labels]
    embeddings = centers + spread * torch.randn(13, 3, generator=rng, dtype=torch.float64)
    found = inseparable_shares(embeddings, labels, *k, normalize=False)
    assert tuple(found) == pytest.approx(by_hand(embeddings, labels.tolist(), *k))


def test_separated_classes_have_none_and_a_stray_sample_is_counted():
    line = torch.tensor([[0.0], [1.0], [2.0], [10.0], [11.0], [12.0]])
    labels = torch.tensor([0, 0, 0, 1, 1, 1])
    assert inseparable_shares(line, labels, normalize=False) == (0, 0)
    line[2] = 12.5  # of class 0, among class 1
    similar, dissimilar = inseparable_shares(line, labels, normalize=False)
    # One of 2 similar ones for 0 and 1; around itself all of class 1 comes first. It comes first
    # for 12 alone.
    assert similar.item() == pytest.approx((0.5 + 0.5 + 1) / 6)
    assert dissimilar.item() == pytest.approx(1 / 3 / 6)


def test_where_all_have_collapsed_nothing_is_separable():
    for labels in ([0, 0, 1, 1, 2, 2], [0, 0, 0, 0, 1, 1]):
        assert sum(inseparable_shares(torch.ones(6, 3), torch.tensor(labels))) == 1


def test_fixed_numbers_do_not_tell_learnt_from_unlearnt_but_the_best_ball_does(rng):
    """Why the best ball is the default: the printed radii move with what they are held against."""
    labels = torch.arange(60) // 6
    noise, centers = (torch.randn(60, 8, generator=rng), torch.randn(10, 8, generator=rng)[labels])
    unlearnt, learnt = noise, 10 * centers + noise
    printed = [sum(inseparable_shares(rows, labels, 3, 5)) for rows in (unlearnt, learnt)]
    assert abs(printed[0] - printed[1]) < 0.1
    best = [sum(inseparable_shares(rows, labels)) for rows in (unlearnt, learnt)]
    assert best[0] > 0.5 and best[1] < 0.05


def test_is_0_where_no_anchor_has_both_kinds(rng):
    embeddings = torch.randn(4, 3, generator=rng)
    for labels in (torch.zeros(4, dtype=torch.long), torch.arange(4), torch.arange(0)):
        for k in ((None, None), (1, 1)):
            assert inseparable_shares(embeddings[: len(labels)], labels, *k) == (0, 0)


def test_length_is_left_out_unless_asked_for(rng):
    embeddings, labels = torch.randn(12, 3, generator=rng), torch.arange(12) // 3
    longer = embeddings * (1 + torch.arange(12))[:, None]
    torch.testing.assert_close(
        inseparable_shares(longer, labels), inseparable_shares(embeddings, labels)
    )
    assert inseparable_shares(longer, labels, normalize=False) != inseparable_shares(
        embeddings, labels
    )


class Watch(TorchDispatchMode):
    """Counts kernels and notes those that would make the host wait for a device."""

    def __init__(self):
        super().__init__()
        self.count, self.waits, self.largest = 0, [], 0

    def __torch_dispatch__(self, function, _, given=(), options=None):
        self.count += 1
        if any(
            name in str(function)
            for name in ("nonzero", "_local_scalar_dense", "unique", "masked_select")
        ):
            self.waits.append(str(function))
        made = function(*given, **(options or {}))
        if isinstance(made, torch.Tensor):
            self.largest = max(self.largest, made.numel())
        return made


def test_is_cheap_and_waits_for_nothing(rng):
    embeddings, labels = (
        torch.randn(60, 3, generator=rng, requires_grad=True),
        torch.arange(60) // 20,
    )
    apart = pairwise_distances(
        embeddings, squared=False
    )  # on the CPU this looks for near pairs, and waits
    with Watch() as watch:
        found = inseparable_among(apart, SizedLabels.of(labels, 20))
    assert not watch.waits and watch.count < 100 and watch.largest <= 60 * 60
    assert not found.similar.requires_grad


@pytest.mark.parametrize("k", [(2, None), (None, 2), (0, 2), (2, 0)])
def test_one_number_alone_or_0_is_rejected(rng, k):
    with pytest.raises(ConfigError, match=f"got k1={k[0]} and k2={k[1]}. Give both, or none"):
        inseparable_shares(torch.randn(12, 3, generator=rng), torch.arange(12) // 3, *k)


def test_half_precision_is_taken(rng):
    embeddings, labels = torch.randn(12, 3, generator=rng), torch.arange(12) // 3
    assert all(part.isfinite() for part in inseparable_shares(embeddings.bfloat16(), labels))

"""TAR at FAR and equal error rate against scikit-learn's ROC curve."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_curve

from vicinal.errors import ConfigError, DataError
from vicinal.evaluation import verification
from vicinal.evaluation.verification import verification_scores, verify


def curve(distances, same):
    """False and true accept rates at every threshold."""
    return roc_curve(same.numpy(), -distances.double().numpy(), drop_intermediate=False)[:2]


def pairs(rng, n, decimals):
    same = torch.rand(n, generator=rng) < 0.3
    same[:2] = torch.tensor([True, False])
    distances = torch.rand(n, generator=rng) + 0.3 * ~same
    # Few decimals: many ties within and across the kinds.
    return distances.round(decimals=decimals), same


@pytest.mark.parametrize("decimals", [1, 6])
@pytest.mark.parametrize("far", [0.01, 0.1, 0.29, 0.9])
def test_tar_equals_the_best_of_all_thresholds(rng, decimals, far):
    distances, same = pairs(rng, 300, decimals)
    rates, accepted = curve(distances, same)
    found = verification_scores(distances, same, fars=[far])[f"tar@far={far:g}"]
    assert found == pytest.approx(accepted[rates <= far + 1e-9].max(), abs=1e-12)


@pytest.mark.parametrize("decimals", [1, 2, 6])
def test_equal_error_rate_is_where_the_roc_curve_meets_the_diagonal(rng, decimals):
    distances, same = pairs(rng, 300, decimals)
    found = verification_scores(distances, same, fars=[])["eer"]
    far, tar = curve(distances, same)
    gap = far - (1 - tar)  # rises along the curve
    last = int(np.searchsorted(gap, 0.0))
    share = -gap[last - 1] / (gap[last] - gap[last - 1])
    expected = far[last - 1] + share * (far[last] - far[last - 1])
    assert found == pytest.approx(expected, abs=1e-12)


def test_a_far_means_its_decimal_number():
    apart = torch.arange(1.0, 101.0)
    near = torch.tensor([28.5, 29.5])  # 0.29 * 100 falls below 29 in floating point
    same = torch.tensor([False] * 100 + [True] * 2)
    assert verification_scores(torch.cat([apart, near]), same, fars=[0.29])["tar@far=0.29"] == 1.0


@pytest.mark.parametrize("tile", [7, 2048])
@pytest.mark.parametrize("asked", [None, 20])
def test_all_pairs_of_rows_equal_the_explicit_pairs(rng, tile, asked, monkeypatch):
    monkeypatch.setattr(verification, "_TILE", tile)
    rows = torch.randn(60, 4, generator=rng)
    labels = torch.randint(6, (60,), generator=rng)
    left, right = torch.triu_indices(60, 60, offset=1)
    sought = {}
    if asked:
        left, right = torch.cartesian_prod(torch.arange(asked), torch.arange(asked, 60)).T
        sought = {"gallery": rows[asked:], "gallery_labels": labels[asked:]}
    distances = (rows[left].double() - rows[right].double()).norm(dim=1).float()
    expected = verification_scores(distances, labels[left] == labels[right], fars=[0.01, 0.2])
    found = verify(rows[:asked], labels[:asked], **sought, fars=[0.01, 0.2])
    assert found == pytest.approx(expected, abs=1e-12)


def test_a_far_below_one_different_pair_is_rejected(rng):
    distances = torch.rand(10, generator=rng)
    same = torch.arange(10) < 5
    with pytest.raises(
        ConfigError, match=r"with 5 different pairs a FAR is at least 1/5 = 0\.2 .* got 0\.1"
    ):
        verification_scores(distances, same, fars=[0.1])
    with pytest.raises(ConfigError, match="below 1"):
        verification_scores(distances, same, fars=[1.0])


def test_pairs_of_one_kind_and_similarities_are_rejected():
    with pytest.raises(DataError, match="0 same and 3 different"):
        verification_scores(torch.ones(3), torch.zeros(3, dtype=torch.bool))
    with pytest.raises(DataError, match="pass 1 - similarity"):
        verification_scores(torch.tensor([0.9, -0.2]), torch.tensor([True, False]))
    with pytest.raises(DataError, match="finite"):
        verification_scores(torch.tensor([0.9, torch.nan]), torch.tensor([True, False]))

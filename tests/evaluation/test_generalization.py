"""Density and spectrum against all pairs and a plain singular value decomposition."""

import itertools
import math

import pytest
import torch

from vicinal.errors import DataError
from vicinal.evaluation.generalization import intra_inter_ratio, spectral_decay, spectrum


def ratio_by_hand(rows, labels):
    """Mean cosine distances over explicit pairs: within each class, then between the classes'
    directions."""

    def cosine_distance(a, b):
        return 1 - float(a @ b / (a.norm() * b.norm()))

    groups = [rows[labels == label] for label in labels.unique()]
    groups = [group / group.norm(dim=1, keepdim=True) for group in groups]
    intra = []
    for group in groups:
        pairs = list(itertools.combinations(group, 2))
        if pairs:
            intra.append(sum(cosine_distance(a, b) for a, b in pairs) / len(pairs))
    between = [
        cosine_distance(a.mean(dim=0), b.mean(dim=0)) for a, b in itertools.combinations(groups, 2)
    ]
    return (sum(intra) / len(intra)) / (sum(between) / len(between))


def test_ratio_equals_the_mean_over_explicit_pairs(rng):
    rows = torch.randn(40, 5, generator=rng, dtype=torch.float64)
    # And a class of one row.
    labels = torch.cat([torch.randint(6, (39,), generator=rng), torch.tensor([99])])
    assert intra_inter_ratio(rows, labels) == pytest.approx(ratio_by_hand(rows, labels), rel=1e-10)


def test_a_collapsed_embedding_has_a_finite_ratio_and_decay():
    rows = torch.ones(6, 4)
    labels = torch.tensor([0, 0, 0, 1, 1, 1])
    assert math.isfinite(intra_inter_ratio(rows, labels))
    assert spectrum(rows).tolist() == pytest.approx([1, 0, 0, 0], abs=1e-7)
    assert math.isfinite(spectral_decay(rows))
    assert math.isfinite(spectral_decay(torch.zeros(6, 4)))


def test_ratio_needs_two_classes_and_a_pair(rng):
    rows = torch.randn(3, 2, generator=rng)
    with pytest.raises(DataError, match="1 classes"):
        intra_inter_ratio(rows, torch.zeros(3, dtype=torch.long))
    with pytest.raises(DataError, match="at most 1 rows"):
        intra_inter_ratio(rows, torch.arange(3))


@pytest.mark.parametrize("shape", [(50, 8), (8, 50)])
def test_spectrum_is_the_normalised_singular_values(rng, shape):
    rows = torch.randn(*shape, generator=rng)
    values = torch.linalg.svdvals(rows.double())
    torch.testing.assert_close(spectrum(rows), values / values.sum())


def test_decay_is_the_divergence_from_uniform(rng):
    rows = torch.randn(50, 8, generator=rng, dtype=torch.float64)
    values = spectrum(rows)
    uniform = torch.full_like(values, 1 / 8)
    assert spectral_decay(rows) == pytest.approx(float((uniform * (uniform / values).log()).sum()))
    assert spectral_decay(torch.eye(6)) == pytest.approx(0, abs=1e-12)
    assert spectral_decay(rows * torch.logspace(0, -3, 8)) > spectral_decay(rows) + 1

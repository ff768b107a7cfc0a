"""The class tree against double loops over samples, and against chains of near classes."""

import itertools
import resource

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from tests.apart import alone
from torch.testing import assert_close

from vicinal.errors import ConfigError
from vicinal.samplers import AnchorNeighborSampler, class_tree
from vicinal.samplers.class_tree import ClassTree

SIZES = [4, 1, 6, 2, 3, 5, 2, 7]
LABELS = torch.repeat_interleave(torch.tensor([3, 5, 8, 9, 20, 21, 40, 41]), torch.tensor(SIZES))


@pytest.fixture
def embeddings(rng):
    """Classes of unequal size about centers that are themselves in groups."""
    centers = 2 * torch.randn(3, 6, generator=rng, dtype=torch.float64)[[0, 0, 0, 1, 1, 2, 2, 2]]
    centers = centers + torch.randn(8, 6, generator=rng, dtype=torch.float64)
    places = torch.unique(LABELS, return_inverse=True)[1]
    return centers[places] + 0.7 * torch.randn(len(LABELS), 6, generator=rng, dtype=torch.float64)


@pytest.fixture
def tree(embeddings):
    return ClassTree.build(embeddings, LABELS, levels=16)


def test_closed_forms_equal_sums_over_samples(tree, embeddings):
    rows = embeddings / embeddings.norm(dim=1, keepdim=True)
    members = [rows[label == LABELS] for label in tree.classes]
    for p, q in itertools.permutations(range(8), 2):
        expected = torch.cdist(members[p], members[q]).square().mean()
        assert_close(tree.distances(torch.tensor([p]))[0, q], expected.float())
    spreads = [
        float(torch.cdist(m, m).square().sum() / max(1, len(m) ** 2 - len(m))) for m in members
    ]
    assert_allclose(tree.spreads, spreads, atol=1e-5)
    assert tree.spreads[1] == 0, "one sample"
    several = [s for s, size in zip(spreads, SIZES, strict=True) if size > 1]
    assert tree.thresholds[0].item() == pytest.approx(np.mean(several), abs=1e-5)


def test_a_given_hierarchy_takes_the_place_of_merging(embeddings):
    of_class = torch.tensor([[0, 0], [0, 0], [1, 0], [1, 0], [2, 1], [2, 1], [3, 1], [3, 1]])
    groups = of_class[torch.unique(LABELS, return_inverse=True)[1]]
    tree = ClassTree.build(embeddings, LABELS, groups=groups)
    levels = (of_class[:, None] != of_class).sum(dim=2)
    assert_array_equal(tree.levels(), levels)
    distances = tree.distances(torch.arange(8))
    apart = ~torch.eye(8, dtype=torch.bool)
    means = [float(distances[apart & (levels == level)].mean()) for level in range(3)]
    least = float(ClassTree.build(embeddings, LABELS).thresholds[0])
    assert_allclose(tree.thresholds, np.maximum.accumulate([least, *means])[1:], rtol=1e-5)
    sampler = AnchorNeighborSampler(LABELS, anchors=1, neighborhood=2, per_class=1, seed=0)
    sampler.tree = tree
    for batch in sampler.epoch(0):
        one, other = torch.searchsorted(tree.classes, LABELS[batch])
        assert of_class[one, 0] == of_class[other, 0], "kin are nearest"


def test_a_level_is_the_first_at_which_a_chain_of_nearer_classes_connects_two(tree):
    distances = tree.distances(torch.arange(8)).numpy()
    apart = np.zeros((8, 8), dtype=int)
    for threshold in tree.thresholds[:-1].tolist():
        reach = (distances < threshold) | np.eye(8, dtype=bool)
        for k in range(8):
            reach |= reach[:, [k]] & reach[[k]]
        apart += ~reach
    assert_array_equal(tree.levels().numpy(), apart)
    assert len(np.unique(apart)) > 2


def test_levels_end_at_the_last_one_and_at_one_class():
    rows = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    opposite = ClassTree.build(rows, torch.tensor([0, 1]))
    assert opposite.levels()[0, 1] == 16, "at distance 4, no threshold is above it"
    single = ClassTree.build(torch.ones(2, 3), torch.tensor([1, 1]))
    assert single.nearest_distances().tolist() == [0] and single.levels().tolist() == [[0]]


def test_blocks_and_lengths_change_nothing(tree, embeddings, monkeypatch):
    distances = tree.distances(torch.arange(8)).fill_diagonal_(torch.inf)
    assert_close(tree.nearest_distances(), distances.amin(dim=1))
    monkeypatch.setattr(class_tree, "BLOCK", 17)
    again = ClassTree.build(7 * embeddings, LABELS)
    assert_close(again.means, tree.means)
    assert_close(again.nearest_distances(), tree.nearest_distances())
    assert torch.equal(again.levels(), tree.levels())
    assert torch.equal(ClassTree(**vars(tree)).levels(), tree.levels()), "rebuilt from its state"


@pytest.mark.parametrize("levels", [0, 256])
def test_levels_are_held_as_bytes(levels, embeddings):
    with pytest.raises(ConfigError, match=f"at least 1 and at most 255, got {levels}"):
        ClassTree.build(embeddings, LABELS, levels=levels)


def peak():
    """KiB that a tree of 11,318 classes takes at its most, beyond what the process held."""
    rows = torch.randn(2 * 11_318, 64, generator=torch.Generator().manual_seed(0))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ClassTree.build(rows, torch.arange(11_318).repeat(2)).levels()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before


@pytest.mark.slow
def test_the_classes_of_stanford_online_products_fit_in_2_gib():
    """In a process of its own: in this one, the peak of an earlier test would hide that of the
    tree."""
    assert 2**16 < alone(peak) < 2**21


def test_a_class_of_equal_rows_has_no_spread():
    """Rows of zeros have no direction, but they are equal as well."""
    rows = torch.cat([torch.zeros(3, 4), torch.ones(3, 4), torch.eye(4)[:3]])
    tree = ClassTree.build(rows, torch.arange(9) // 3)
    assert_allclose(tree.spreads, [0, 0, 2], atol=1e-6)

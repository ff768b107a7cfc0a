"""The class tree against double loops over samples, and against scipy where scipy means the
same."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.cluster.hierarchy import cophenet, linkage
from tests.apart import alone

from vicinal.errors import ConfigError, DataError
from vicinal.samplers import class_tree
from vicinal.samplers.class_tree import ClassTree

STATUS = Path("/proc/self/status")
SIZES = [4, 1, 6, 2, 3, 5, 2, 7]
LABELS = torch.repeat_interleave(torch.tensor([3, 5, 8, 9, 20, 21, 40, 41]), torch.tensor(SIZES))


@pytest.fixture
def embeddings(rng):
    """Classes of unequal size about centers that are themselves in groups."""
    centers = 2 * torch.randn(3, 6, generator=rng, dtype=torch.float64)[[0, 0, 0, 1, 1, 2, 2, 2]]
    centers = centers + torch.randn(8, 6, generator=rng, dtype=torch.float64)
    places = torch.unique(LABELS, return_inverse=True)[1]
    return centers[places] + 0.7 * torch.randn(len(LABELS), 6, generator=rng, dtype=torch.float64)


@pytest.fixture(params=["single", "average", "pairwise"])
def tree(request, embeddings):
    return ClassTree.build(embeddings, LABELS, levels=16, linkage=request.param)


def unit(rows):
    return rows / rows.norm(dim=1, keepdim=True)


def test_closed_forms_equal_sums_over_samples(tree, embeddings):
    rows = unit(embeddings)
    members = [rows[label == LABELS] for label in tree.classes]
    for p, q in itertools.product(range(8), repeat=2):
        if p != q:
            expected = torch.cdist(members[p], members[q]).square().mean()
            torch.testing.assert_close(tree.distances(torch.tensor([p]))[0, q], expected.float())
    spreads = [
        float(torch.cdist(m, m).square().sum() / max(1, len(m) ** 2 - len(m))) for m in members
    ]
    np.testing.assert_allclose(tree.spreads, spreads, atol=1e-5)
    assert tree.spreads[1] == 0, "one sample"
    several = [s for s, size in zip(spreads, SIZES, strict=True) if size > 1]
    assert tree.thresholds[0].item() == pytest.approx(np.mean(several), abs=1e-5)


def test_thresholds_rise_evenly_from_d_0_to_4(tree):
    steps = tree.thresholds.diff()
    assert len(tree.thresholds) == 17 and tree.thresholds[-1] == 4
    torch.testing.assert_close(steps, steps.mean().expand_as(steps), rtol=1e-3, atol=0)


def test_levels_are_symmetric_and_end_at_the_last_one(tree):
    levels = tree.levels()
    assert (
        levels.dtype == torch.uint8
        and torch.equal(levels, levels.T)
        and levels.diagonal().eq(0).all()
    )
    assert levels.max() <= 16 and len(levels.unique()) > 2
    for how in ("single", "average", "pairwise"):
        opposite = ClassTree.build(
            torch.tensor([[1.0, 0.0], [-1.0, 0.0]]), torch.tensor([0, 1]), linkage=how
        )
        assert opposite.levels()[0, 1] == 16, "at distance 4, no threshold is above it"


def test_levels_of_a_tree_are_an_ultrametric(tree):
    if tree.merges is None:
        pytest.skip("no tree")
    levels = tree.levels().int()
    assert (levels[:, None] <= torch.maximum(levels[:, :, None], levels[None])).all(), (
        "H(a,c) <= max(H(a,b), H(b,c))"
    )


def test_nodes_only_ever_merge(tree):
    if tree.merges is None:
        with pytest.raises(ConfigError, match="makes no tree"):
            tree.nodes()
        return
    nodes = tree.nodes()
    counts = [len(level.unique()) for level in nodes]
    assert counts == sorted(counts, reverse=True) and counts[-1] == 1 and counts[0] > 1


def brute_single(distances, threshold):
    """Classes connected by chains of steps shorter than the threshold."""
    reach = (distances < threshold) | np.eye(len(distances), dtype=bool)
    for k in range(len(reach)):
        reach |= reach[:, [k]] & reach[[k]]
    return reach


def test_single_linkage_connects_what_a_chain_connects(embeddings):
    tree = ClassTree.build(embeddings, LABELS, linkage="single")
    distances = tree.distances(torch.arange(8)).numpy()
    merged = np.stack(
        [brute_single(distances, float(threshold)) for threshold in tree.thresholds[:-1]]
    )
    expected = (~merged).sum(axis=0)
    np.testing.assert_array_equal(tree.levels().numpy(), expected)


def test_pairwise_levels_are_the_first_threshold_above_the_distance(embeddings):
    tree = ClassTree.build(embeddings, LABELS, levels=500 // 2, linkage="pairwise")
    distances, levels = tree.distances(torch.arange(8)), tree.levels().long()
    apart = ~torch.eye(8, dtype=torch.bool)
    above = tree.thresholds[levels][apart]
    assert (above > distances[apart]).all()
    wanted = distances[apart].clamp(min=float(tree.thresholds[0]))
    torch.testing.assert_close(above, wanted, rtol=0, atol=4 / 250)


def test_average_linkage_is_scipys_where_classes_are_of_one_size(rng):
    rows = torch.randn(60, 5, generator=rng, dtype=torch.float64)
    tree = ClassTree.build(rows, torch.arange(60) // 3, linkage="average")
    distances = tree.distances(torch.arange(20)).double().numpy()
    condensed = distances[np.triu_indices(20, 1)]
    np.testing.assert_allclose(
        tree.heights.sort().values, np.sort(linkage(condensed, "average")[:, 2]), rtol=1e-5
    )
    heights = cophenet(linkage(condensed, "average"))
    expected = np.searchsorted(tree.thresholds[:-1].numpy(), heights, side="right")
    np.testing.assert_array_equal(tree.levels().numpy()[np.triu_indices(20, 1)], expected)


def test_average_linkage_weighs_samples_not_classes(embeddings):
    """The height of a merge is the mean squared distance of all samples of its two nodes."""
    tree, rows = ClassTree.build(embeddings, LABELS, linkage="average"), unit(embeddings)
    node = {place: [place] for place in range(8)}
    for (here, there), height in sorted(
        zip(tree.merges.tolist(), tree.heights.tolist(), strict=True), key=lambda merge: merge[1]
    ):
        ours, theirs = (torch.isin(LABELS, tree.classes[node[end]]) for end in (here, there))
        assert height == pytest.approx(
            float(torch.cdist(rows[ours], rows[theirs]).square().mean()), abs=1e-5
        )
        joined = node[here] + node[there]
        for place in joined:
            node[place] = joined


@pytest.mark.parametrize("how", ["single", "average", "pairwise"])
def test_blocks_change_nothing(how, embeddings, monkeypatch):
    def parts():
        tree = ClassTree.build(embeddings, LABELS, linkage=how)
        return tree.means, tree.levels(), tree.nearest_distances()

    whole = parts()
    monkeypatch.setattr(class_tree, "BLOCK", 17)
    for found, expected in zip(parts(), whole, strict=True):
        torch.testing.assert_close(found, expected)


def test_the_nearest_other_class(tree):
    distances = tree.distances(torch.arange(8)).fill_diagonal_(torch.inf)
    torch.testing.assert_close(tree.nearest_distances(), distances.amin(dim=1))
    alone = ClassTree.build(torch.ones(2, 3), torch.tensor([1, 1]))
    assert alone.nearest_distances().tolist() == [0] and alone.levels().tolist() == [[0]]


def test_is_rebuilt_from_its_state(tree):
    again = ClassTree(**vars(tree))
    assert torch.equal(again.levels(), tree.levels()) and torch.equal(again.spreads, tree.spreads)


def test_length_of_embeddings_does_not_matter(embeddings):
    tree, longer = (ClassTree.build(rows, LABELS) for rows in (embeddings, 7 * embeddings))
    assert torch.equal(tree.levels(), longer.levels())


def test_errors():
    rows, labels = torch.ones(2, 3), torch.tensor([0, 1])
    with pytest.raises(ConfigError, match="at least 1 and at most 255, got 0"):
        ClassTree.build(rows, labels, levels=0)
    with pytest.raises(ConfigError, match="at most 255, got 256"):
        ClassTree.build(rows, labels, levels=256)
    with pytest.raises(ConfigError, match="did you mean 'average'"):
        ClassTree.build(rows, labels, linkage="averge")
    with pytest.raises(DataError, match="at least one embedding"):
        ClassTree.build(rows[:0], labels[:0])


@pytest.mark.parametrize("how", ["single", "average", "pairwise"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_embeddings_that_are_not_finite_are_rejected(how, value, embeddings):
    """Average linkage would follow its chain of nearest nodes without end."""
    embeddings[LABELS == 20, 2] = value
    with pytest.raises(
        DataError, match="1 of 8 classes have embeddings that are not finite, class 20 first"
    ):
        ClassTree.build(embeddings, LABELS, linkage=how)


def held(field):
    """Bytes of this process now (VmRSS) or at its most (VmHWM)."""
    return next(
        1024 * int(line.split()[1])
        for line in STATUS.read_text().splitlines()
        if line.startswith(field)
    )


def peak(how):
    """Bytes that a tree of 11,318 classes takes at its most, beyond what the process held before
    it."""
    rows = torch.randn(2 * 11_318, 64, generator=torch.Generator().manual_seed(0))
    before = held("VmRSS")
    ClassTree.build(rows, torch.arange(11_318).repeat(2), linkage=how).levels()
    return held("VmHWM") - before


@pytest.mark.slow
@pytest.mark.skipif(not STATUS.exists(), reason="the kernel keeps no account of memory here")
@pytest.mark.parametrize("how", ["single", "average", "pairwise"])
def test_the_classes_of_stanford_online_products_fit_in_2_gib(how):
    """In a process of its own: in this one, the peak of an earlier test would hide that of the
    tree."""
    assert 2**26 < alone(peak, how) < 2**31


def test_a_class_of_equal_rows_has_no_spread():
    """Rows of zeros have no direction, but they are equal as well."""
    rows = torch.cat([torch.zeros(3, 4), torch.ones(3, 4), torch.eye(4)[:3]])
    tree = ClassTree.build(rows, torch.arange(9) // 3)
    np.testing.assert_allclose(tree.spreads, [0, 0, 2], atol=1e-6)

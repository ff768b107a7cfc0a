"""Near duplicates are the connected groups of near pairs."""

import re

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image

from vicinal.errors import DataError
from vicinal.retrieval import duplicates as module
from vicinal.retrieval.duplicates import (
    calibrate_likeness,
    close_pairs,
    collection_views,
    copies,
    duplicate_page,
    duplicate_pairs,
    group_pairs,
    picture_views,
)


def near_duplicates(rows, distance):
    return group_pairs(len(rows), close_pairs(rows, distance))


def test_groups_are_linked_through_others_and_the_surest_comes_first():
    line = np.array([0.0, 0.9, 1.8, 10.0, 10.1, 20.0, 30.0, 30.5])[:, None].astype(np.float32)
    found = near_duplicates(line, 1.0)
    assert [rows for rows, _ in found] == [[3, 4], [6, 7], [0, 1, 2]]
    assert_allclose(found[0][1], [0.1, 0.1], atol=1e-6)
    assert_allclose(found[2][1], [0.9, 0.9, 0.9], atol=1e-6)


@pytest.fixture
def rows():
    """Seventy rows of length 1 in bunches, some of them equal."""
    rng = np.random.default_rng(0)
    found = rng.normal(size=(10, 6))[rng.integers(0, 10, 70)] + 0.2 * rng.normal(size=(70, 6))
    found[[5, 69]] = found[3]
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def by_hand(rows, limit):
    """Each pair by itself, in float64."""
    exact = rows.astype(np.float64)
    far = np.linalg.norm(exact[:, None] - exact, axis=2)
    ends = np.nonzero(np.triu(far <= limit, 1))
    return np.array(ends), far[ends]


@pytest.mark.parametrize("limit", [0.0, 0.3, 0.9])
@pytest.mark.parametrize(("block", "directions"), [(1024, 32), (7, 1), (23, 2)])
def test_pairs_are_those_of_the_double_loop(limit, block, directions, rows, tmp_path, monkeypatch):
    """Whole, and in blocks where one or two directions propose pairs; also of a memory map."""
    monkeypatch.setattr(module, "_BLOCK", block)
    monkeypatch.setattr(module, "_TILE", 2 * block + 1)
    monkeypatch.setattr(module, "_DIRECTIONS", directions)
    monkeypatch.setattr(module, "_SAMPLE", 30)
    np.save(tmp_path / "rows.npy", rows)
    ends, distances = close_pairs(np.load(tmp_path / "rows.npy", "r"), limit)
    expected, far = by_hand(rows, limit)
    assert_array_equal(ends, expected)
    assert len(far) and np.allclose(distances, far, atol=1e-6)


def test_what_float32_products_cannot_tell_is_decided_by_differences():
    """Far from the origin a product is wrong by more than these rows differ."""
    rng = np.random.default_rng(0)
    rows = (1000 * rng.normal(size=64) + 0.02 * rng.normal(size=(40, 64))).astype(np.float32)
    expected, far = by_hand(rows, 0.22)
    assert 50 < len(far) < 730
    assert_array_equal(close_pairs(rows, 0.22)[0], expected)


def test_too_many_pairs_are_rejected_with_their_number(rows, monkeypatch):
    monkeypatch.setattr(module, "MOST_PAIRS", 600)
    with pytest.raises(DataError, match="distance of 3 lie more than 600 pairs of 70 rows"):
        close_pairs(rows, 3.0)


# -- pictures --------------------------------------------------------------------------------------


def painted(seed, *, like=None):
    """A picture with shapes of its own; ``like`` gives it the colors and the rough layout of
    another."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (6, 8, 3))
    if like is not None:
        coarse = (coarse + np.random.default_rng(like).integers(0, 256, (6, 8, 3))) // 2
    image = Image.fromarray(coarse.astype(np.uint8)).resize((160, 120), Image.Resampling.BICUBIC)
    return Image.fromarray(
        (np.asarray(image, int) + rng.integers(-9, 10, (120, 160, 3))).clip(0, 255).astype(np.uint8)
    )


@pytest.fixture
def pictures(collect, tmp_path):
    """``pictures(images)``: a collection of these, whose embeddings are all the same."""

    def make(images, **settings):
        for place, image in enumerate(images):
            image.save(tmp_path / f"{place}.png")
        labels = ["abc"[place % 3] for place in range(len(images))]
        return collect(np.ones((len(images), 2)), labels, root=tmp_path, **settings)

    return make


def test_copies_are_found_and_pictures_of_one_class_are_not(pictures, monkeypatch):
    """Issue 24: of 720 photographs 525 were called near duplicates, because their classes were
    near."""
    monkeypatch.setattr(module, "_PLANTED", 30)
    originals = [painted(seed, like=seed % 3) for seed in range(40)]
    planted = [
        copy for seed in range(4) for copy in copies(originals[seed], np.random.default_rng(seed))
    ]
    snapshot = pictures(originals + planted)
    rows, views = collection_views(snapshot)
    distance, words = calibrate_likeness(snapshot, rows, views)
    recall, precision = re.findall(r"([\d.]+)% of", words)  # also where copies are there already
    assert float(recall) > 95 and float(precision) > 95
    found = group_pairs(len(snapshot), duplicate_pairs(snapshot, rows, views, distance))
    groups = sorted(rows for rows, _ in found)
    assert groups == [[seed, *range(40 + 5 * seed, 45 + 5 * seed)] for seed in range(4)]


def test_equal_files_are_found_even_where_they_show_nothing(pictures):
    flat = [Image.new("RGB", (9, 9), color) for color in ("red", "red", "blue")]
    snapshot = pictures([*flat, painted(0), painted(1)], digest="rrbxy")
    rows, views = collection_views(snapshot)
    assert picture_views(flat[0]) is None and rows.tolist() == [3, 4]
    groups = group_pairs(len(snapshot), duplicate_pairs(snapshot, rows, views, 0.3))
    assert groups == [([0, 1], [0.0, 0.0])]


def test_groups_of_different_labels_are_marked_and_pictures_are_needed(pictures, collect):
    images = [painted(0), painted(1), painted(2)]
    page = duplicate_page(pictures([*images, *images], digest="abcabc"), 0.1)
    assert [group.warning for group in page.groups] == [""] * 3
    page = duplicate_page(pictures([images[0], images[0]], digest="aa"), 0.1)
    assert [group.warning for group in page.groups] == ["labels differ: a, b"]
    assert dict(page.facts)["groups with different labels"] == "1"
    with pytest.raises(DataError, match="0 of 1 items have a readable one"):
        duplicate_page(collect(np.ones((1, 2)), ["a"]))

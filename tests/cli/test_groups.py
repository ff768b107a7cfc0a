"""``vicinal cluster`` and what it rejects."""

import csv

import numpy as np
import pytest
from PIL import Image

from vicinal.retrieval.generations import publish
from vicinal.retrieval.store import Item, Place
from vicinal.run_directory import RunDirectory


@pytest.fixture
def run(tmp_path):
    """A run with a collection of three bunches of ten vectors and two that lie apart."""
    run = RunDirectory.create(tmp_path / "run")
    run.write_info({"vicinal": "0", "name": "run", "config": {}, "data": {}})
    rng = np.random.default_rng(0)
    vectors = np.concatenate([np.eye(6)[np.repeat([0, 1, 2], 10)], -3 * np.eye(6)[:2]])
    vectors = (vectors + 0.01 * rng.normal(size=vectors.shape)).astype(np.float32)
    items = [Item(id=place, path=f"{place}.png", label="abcx"[place // 10]) for place in range(32)]
    publish(
        run.path / "collection",
        items,
        vectors,
        dim=6,
        places=[Place(path="x.npz", kind="features", root=None)],
    )
    return run


@pytest.mark.parametrize(
    ("options", "groups", "loose"),
    [
        (["--groups", "5"], 5, 0),
        (["--method", "hdbscan"], 3, 2),
    ],
)
def test_groups_are_written_as_a_table_and_a_page(options, groups, loose, run, vicinal):
    done = vicinal("cluster", "run", *options)
    assert done.returncode == 0, done.stderr
    assert f"groups: {groups}; items in a group: {32 - loose}" in done.stdout
    with (run.path / "clusters" / "groups.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 32 and len({row["group"] for row in rows} - {"0"}) == groups
    assert sum(row["group"] == "0" for row in rows) == loose
    page = (run.path / "clusters" / "groups.html").read_text()
    assert "Group 1: 10 items, " in page and ("In no group" in page) == bool(loose)


def test_the_number_of_groups_is_chosen_and_the_folder_named(run, vicinal, tmp_path):
    done = vicinal("cluster", "run", "--to", "here", "--collection", "run/collection")
    assert done.returncode == 0 and "chosen by silhouette" in done.stdout
    assert (tmp_path / "here" / "groups.csv").is_file()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "not a run"),
        (["run", "--method", "kmeans"], "did you mean 'k-means'"),
        (["run", "--groups", "99"], "1 to 32 groups; got --groups 99"),
        (["run", "--collection", "elsewhere"], "elsewhere"),
    ],
)
def test_an_error_of_cluster_is_one_message_not_a_traceback(words, message, run, vicinal):
    done = vicinal("cluster", *words)
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr
    assert not (run.path / "clusters").exists()


@pytest.fixture
def pictured(tmp_path):
    """A run with a collection of twelve pictures, the last two nearly the first two, one of them
    labelled otherwise."""
    run = RunDirectory.create(tmp_path / "run")
    run.write_info({"vicinal": "0", "name": "run", "config": {}, "data": {}})
    folder = tmp_path / "pictures"
    folder.mkdir()
    vectors = np.eye(12, dtype=np.float32)
    vectors[10:] = vectors[:2] + np.float32(0.01)
    items = []
    for place in range(12):
        Image.new("RGB", (8, 8), (20 * place, 0, 0)).save(folder / f"{place}.png")
        items.append(Item(id=place, path=f"{place}.png", label="other" if place == 10 else "a"))
    places = [Place(path=str(folder), kind="folder", root=str(folder))]
    publish(run.path / "collection", items, vectors, dim=12, places=places)
    return run


def test_near_duplicates_are_listed_and_stay(pictured, vicinal, tmp_path):
    done = vicinal("dedupe", "run", "--embeddings", "--distance", "0.1", "--images", "pictures")
    assert done.returncode == 0, done.stderr
    assert (
        "groups: 2; items in them: 4; distance: 0.1; groups with different labels: 1" in done.stdout
    )
    with (pictured.path / "duplicates" / "duplicates.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["group"], row["id"]) for row in rows] == [
        ("1", "0"),
        ("1", "10"),
        ("2", "1"),
        ("2", "11"),
    ]
    page = (pictured.path / "duplicates" / "duplicates.html").read_text()
    assert (
        "labels differ: a, other" in page
        and page.count("data:image/jpeg") == 4
        and "Nothing was removed." in page
    )
    assert len(list((tmp_path / "pictures").iterdir())) == 12


def test_none_is_said(pictured, vicinal):
    done = vicinal("dedupe", "run", "--embeddings", "--distance", "0.001", "--to", "here")
    assert done.returncode == 0 and "groups: 0" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "not a run"),
        (["run", "--embeddings"], "Name it with --distance"),
        (["run"], "0 of 12 items have a readable one"),
        (["run", "--distance", "nan"], "a distance is 0 or more"),
    ],
)
def test_an_error_of_dedupe_is_one_message_not_a_traceback(words, message, pictured, vicinal):
    done = vicinal("dedupe", *words)
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr
    assert not (pictured.path / "duplicates").exists()


def test_copies_are_found_by_their_pictures(pictured, vicinal, tmp_path):
    """The embeddings of 0 and 10 are near, the pictures of 3 and 7 are copies."""
    rng = np.random.default_rng(0)
    for place in range(12):
        coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8))
        coarse.resize((160, 120), Image.Resampling.BICUBIC).save(
            tmp_path / "pictures" / f"{place}.png"
        )
    with Image.open(tmp_path / "pictures" / "3.png") as image:
        image.resize((90, 70)).save(tmp_path / "pictures" / "7.png")
    done = vicinal("dedupe", "run", "--images", "pictures")
    assert done.returncode == 0, done.stderr
    assert (
        "copies planted among these pictures" in done.stdout
        and "groups: 1; items in them: 2" in done.stdout
    )
    with (pictured.path / "duplicates" / "duplicates.csv").open() as file:
        assert [row["id"] for row in csv.DictReader(file)] == ["3", "7"]

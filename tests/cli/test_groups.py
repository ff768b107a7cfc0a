"""``vicinal cluster`` and ``vicinal dedupe``: what they write, and what they reject."""

import numpy as np
import pytest
from PIL import Image
from tests.cli.conftest import table

from vicinal.retrieval.collection import publish
from vicinal.retrieval.items import Item, Place
from vicinal.run_directory import RunDirectory


@pytest.fixture
def run(tmp_path):
    """A run with a collection of twelve pictures in three bunches; 7 is a copy of 3."""
    run = RunDirectory.create(tmp_path / "run")
    run.write_info({"vicinal": "0", "name": "run", "config": {}, "data": {}})
    folder = tmp_path / "pictures"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for place in range(12):
        coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8))
        coarse.resize((160, 120), Image.Resampling.BICUBIC).save(folder / f"{place}.png")
    with Image.open(folder / "3.png") as image:
        image.resize((90, 70)).save(folder / "7.png")
    vectors = np.eye(6)[np.arange(12) % 3] + 0.01 * rng.normal(size=(12, 6))
    items = [Item(place, f"{place}.png", "abc"[place % 3]) for place in range(12)]
    places = [Place(path=str(folder), root=str(folder))]
    publish(run.path / "collection", items, vectors.astype(np.float32), dim=6, places=places)
    return run


def test_groups_are_written_as_a_table_and_a_page(run, works):
    done = works("cluster run --groups 3 --images pictures")
    assert "groups: 3; items: 12" in done.stdout
    rows = table(run.path / "clusters" / "groups.csv")
    assert len(rows) == 12 and {row["group"] for row in rows} == {"1", "2", "3"}
    page = (run.path / "clusters" / "groups.html").read_text()
    assert "Group 1: 4 items, " in page and page.count("data:image/jpeg") == 12


def test_there_are_as_many_groups_as_labels_and_the_folder_is_named(run, tmp_path, works):
    done = works("cluster run --to here --collection run/collection")
    assert "k-means with 3 groups" in done.stdout
    assert (tmp_path / "here" / "groups.csv").is_file()


def test_near_duplicates_are_listed_and_stay(run, tmp_path, works):
    done = works("dedupe run --images pictures")
    assert "copies planted among these pictures" in done.stdout
    assert "groups: 1; items in them: 2" in done.stdout
    assert [row["id"] for row in table(run.path / "duplicates" / "duplicates.csv")] == ["3", "7"]
    page = (run.path / "duplicates" / "duplicates.html").read_text()
    assert "labels differ: a, b" in page and page.count("data:image/jpeg") == 2
    assert len(list((tmp_path / "pictures").iterdir())) == 12
    done = works("dedupe run --distance 0 --to here --images pictures")
    assert "groups: 0" in done.stdout
    done = works("dedupe run --embeddings --distance 0.5 --to here")
    assert "groups: 3; items in them: 12" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("cluster run --groups 99", "1 to 12 clusters, got 99"),
        ("cluster run --collection elsewhere", "elsewhere"),
        ("dedupe run", "0 of 12 items have a readable one"),
        ("dedupe run --distance nan", "a distance is 0 or more"),
    ],
)
def test_an_error_is_one_message_not_a_traceback(words, message, run, rejected):
    assert message in rejected(words)
    assert not (run.path / "clusters").exists() and not (run.path / "duplicates").exists()

"""``vicinal dedupe`` lists what may be the same and removes nothing."""

import csv

import numpy as np
import pytest
from PIL import Image

from vicinal.run_directory import RunDirectory
from vicinal.search.collection import Item
from vicinal.search.generations import publish
from vicinal.search.places import Place


@pytest.fixture
def run(tmp_path):
    """A run with a collection of twelve pictures, the last two nearly the first two, one of them labelled otherwise."""
    run = RunDirectory.create(tmp_path / "run")
    run.write_info({"vicinal": "0", "name": "run", "recipe": {}, "data": {}})
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


def test_near_duplicates_are_listed_and_stay(run, vicinal, tmp_path):
    done = vicinal("dedupe", "run", "--distance", "0.1")
    assert done.returncode == 0, done.stderr
    assert "groups: 2; things in them: 4; distance: 0.1; groups with different labels: 1" in done.stdout
    with (run.path / "duplicates" / "duplicates.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["group"], row["id"]) for row in rows] == [("1", "0"), ("1", "10"), ("2", "1"), ("2", "11")]
    page = (run.path / "duplicates" / "duplicates.html").read_text()
    assert "labels differ: a, other" in page and page.count("data:image/jpeg") == 4 and "Nothing was removed." in page
    assert len(list((tmp_path / "pictures").iterdir())) == 12


def test_none_is_said(run, vicinal):
    done = vicinal("dedupe", "run", "--distance", "0.001", "--to", "here")
    assert done.returncode == 0 and "groups: 0" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "not a run"),
        (["run", "--distance", "0.1", "--max-false-match", "0.1"], "Give one of them"),
        (["run", "--distance", "nan"], "a distance is 0 or more"),
    ],
)
def test_a_refusal_is_one_message_not_a_traceback(words, message, run, vicinal):
    done = vicinal("dedupe", *words)
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr
    assert not (run.path / "duplicates").exists()

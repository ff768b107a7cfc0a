"""Several labels for each row, and a given hierarchy of classes, from a table to a search."""

import csv
import json

import numpy as np
import pytest

from vicinal.data import Embeddings

QUICK = ["training.epochs=2", "evaluation.artifacts=false", "--no-report"]


def write(path, header, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def scores(folder):
    results = json.loads((folder / "results.json").read_text())
    return {row["name"]: row["metrics"] for row in results["rows"]}["trained"]


@pytest.fixture
def tags(tmp_path):
    """Vectors of one tag or two, between their centers."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(8, 4))
    rows = []
    for row in range(96):
        has = rng.permutation(8)[: 1 + row % 2]
        vector = centers[has].mean(axis=0) + 0.3 * rng.normal(size=4)
        split = "train" if row < 48 else "test"
        rows.append([*vector.round(3), "; ".join(f"t{tag}" for tag in has), split])
    write(tmp_path / "tags.csv", [*"abcd", "label", "split"], rows)
    return [set(row[4].split("; ")) for row in rows]


def test_several_labels_from_a_table_to_a_search(tags, tmp_path, works, rejected):
    train = ["train", "--data", "tags.csv", "data.separator=;", "--run", "run"]
    works(*train, *QUICK)
    found = scores(tmp_path / "run")
    assert "nmi" not in found and found["recall@1"] > 0.5
    works("embed run tags.csv --out all")
    vectors = Embeddings(str(tmp_path / "all")).load().source.features[48:]
    far = np.linalg.norm(vectors[:, None] - vectors, axis=2) + 9 * np.eye(48)
    hits = [bool(tags[48 + row] & tags[48 + near]) for row, near in enumerate(far.argmin(axis=1))]
    assert found["recall@1"] == pytest.approx(np.mean(hits))
    said = [
        json.loads(works("evaluate run --data", data, "--split", "test", "--json").stdout)
        for data in ("tags.csv", "all")
    ]
    assert [one["rows"][0]["metrics"] for one in said] == [pytest.approx(found)] * 2
    assert said[0]["classes"] == 8
    works("index run")
    done = works("search run --label t3 --where label=t1 --format json")
    labels = [match["label"].split(";") for match in json.loads(done.stdout)["matches"]]
    assert all("t1" in each for each in labels) and {len(each) for each in labels} == {1, 2}
    assert "one label for each item" in rejected("clean run")
    for fault in ("loss=proxy_anchor", "method=hdml"):
        assert "several labels" in rejected(*train[:-1], "other", *QUICK, fault)


def test_a_given_hierarchy_from_a_table_to_a_search(tmp_path, works, rejected):
    rng = np.random.default_rng(0)
    rows = [
        [*rng.normal(size=4).round(3), f"s{row % 24}", f"g{row % 12}", f"f{row % 4}"]
        for row in range(96)
    ]
    header = [*"abcd", "species", "genus", "family"]
    write(tmp_path / "birds.csv", header, rows)
    named = ["--data", "birds.csv", "data.label=species", "data.hierarchy=family,genus"]
    for run, how in (("htl", ["method=htl"]), ("few", ["sampler=category_balanced"])):
        works("train", *named, *how, *QUICK, "--run", run)
        found = scores(tmp_path / run)
        assert found["recall@1"] <= found["genus_recall@1"] <= found["family_recall@1"]
        assert {"genus_map@r", "family_map@r"} < found.keys()
    works("index htl")
    done = works("search htl --id 0 --where genus=g3 --format json")
    assert {match["label"] for match in json.loads(done.stdout)["matches"]} == {"s3", "s15"}
    write(tmp_path / "birds.csv", header, [*rows, [0, 0, 0, 0, "s0", "g0", "f1"]])
    assert "the genus g0 lies in one family, got f0 and f1" in rejected("train", *named)

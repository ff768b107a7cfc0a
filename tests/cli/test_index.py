"""``vicinal index`` and ``vicinal search`` from outside: a walk, and errors without tracebacks."""

import json

import numpy as np
import pytest
import torch
from tests.runs import drawn_run

from vicinal.data import Folder, ImageTransform
from vicinal.errors import ConfigError
from vicinal.evaluation.encoder import Encoder
from vicinal.models import Embedder, SmallConvNet
from vicinal.retrieval.calibration import Threshold
from vicinal.retrieval.collection import CollectionDirectory
from vicinal.retrieval.model import load
from vicinal.run_directory import RunDirectory


@pytest.fixture
def made(paint, tmp_path):
    """A run whose network is drawn, not trained, and its twelve pictures of four classes, two of
    them held out."""
    torch.manual_seed(0)
    data = Folder(str(paint("abcd", 3)), test=0.0)
    transform = ImageTransform(size=16, resize=16)
    drawn_run(tmp_path / "run", Embedder(SmallConvNet(3, (4, 8)), 6), transform, data, 0.5)
    return tmp_path


def test_a_walk_from_pictures_to_neighbors(made, vicinal, works):
    done = works("index run pictures")
    assert (
        done.stdout == "12 items in generation 1: 12 added, 0 replaced, 0 removed, 12 embedded.\n"
    )

    done = works("search run pictures/b/1.png --k 2")
    assert "b/1.png" in done.stdout and "0.0000" in done.stdout

    done = vicinal("search run --id 3 --where label=a --format json")
    found = json.loads(done.stdout)
    assert found["generation"] == 1 and {match["label"] for match in found["matches"]} == {"a"}
    assert len(found["matches"]) == 3


def test_a_search_tells_how_uncertain_the_model_is_of_a_picture(made, works):
    embedder = Embedder(SmallConvNet(3, (4, 8)), 6, uncertainty=True)
    data = Folder(str(made / "pictures"), test=0.0)
    drawn_run(made / "doubts", embedder, ImageTransform(size=16, resize=16), data)
    works("index doubts pictures")
    file = made / "pictures" / "b" / "1.png"
    doubt = load(made / "doubts").uncertainty([file, file])
    assert doubt.shape == (2,) and doubt[0] > 0
    said = works("search doubts", str(file), "--format", "json").stdout
    assert json.loads(said)["query"] == f"{file} (uncertainty {doubt[0]:.2f})"
    with pytest.raises(ConfigError, match="has no uncertainty"):
        load(made / "run").uncertainty(file)


def test_a_false_match_rate_ends_the_matches(made, vicinal):
    vicinal("index run pictures")
    done = vicinal("search run --id 0 --max-false-match 0.2 --format json")
    threshold = json.loads(done.stdout)["threshold"]
    assert f"no match beyond {threshold:.4f}" in done.stderr and "9 pairs" in done.stderr
    assert all(match["distance"] <= threshold for match in json.loads(done.stdout)["matches"])
    done = vicinal("search run --id 0 --max-false-match 0.2 --where label=d")
    assert done.stdout.startswith("no match: the nearest, d/")
    assert (made / "run" / "artifacts" / "calibration.npz").is_file()


def test_each_class_has_a_threshold_of_its_own(made, works, paint, rejected):
    works("index run pictures")
    vectors = CollectionDirectory(made / "run" / "collection").snapshot().vectors.astype(float)
    far = np.linalg.norm(vectors[:, None] - vectors, axis=2)
    said = works("calibrate run --max-false-match 0.2").stdout
    assert said.startswith("4 classes: no match beyond")
    found = Threshold.read(made / "run" / "thresholds.csv")
    limits = {}
    for number, name in enumerate("abcd"):
        mine = np.arange(12) // 3 == number
        limits[name] = float(np.sort(far[~mine][:, mine], axis=None)[5])  # 5 of 27 pairs match
    assert found.of_class == pytest.approx(limits) and found.distance > 0
    asked = ["search", "run", "--id", "0", "--k", "20", "--format", "json"]
    done = works(*asked, "--thresholds", "run/thresholds.csv")
    within = [row for row in range(1, 12) if far[0, row] <= found.of_class["abcd"[row // 3]]]
    assert sorted(match["id"] for match in json.loads(done.stdout)["matches"]) == within
    (made / "pictures").rename(made / "held")
    works("calibrate run held --max-false-match 0.2 --to asked.csv")
    table = (made / "asked.csv").read_text().splitlines()
    assert table[0] == "label,distance,false_match,true_match,pairs"
    assert [line.rpartition(",")[2] for line in table[1:]] == ["108", *["27"] * 4]
    (made / "asked.csv").write_text(f"{table[0]}\n,1e9,0,1,9\nb,0,0,0,9\n")
    matches = json.loads(works(*asked, "--thresholds", "asked.csv").stdout)["matches"]
    assert sorted(match["id"] for match in matches) == [1, 2, *range(6, 12)], "b has its own"
    (made / "asked.csv").write_text("label,distance\na,1\n")
    assert "Write it by `vicinal calibrate`" in rejected(*asked, "--thresholds", "asked.csv")


def test_another_model_is_not_mixed_with_old_vectors(made, vicinal, works):
    vicinal("index run pictures")
    run = RunDirectory.open(made / "run")
    encoder = Encoder.load(run)
    with torch.no_grad():
        encoder.embedder.head.weight.add_(0.5)
    encoder.save_weights(run)
    done = vicinal("search run --id 0")
    assert done.returncode == 2 and "indexed with another model" in done.stderr
    assert "12 embedded" in vicinal("index run").stdout
    works("search run --id 0")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("index run nowhere", "does not exist"),
        ("index run --remove pictures", "place of the collection"),
        ("search run --id 0", "vicinal index RUN"),
    ],
)
def test_errors_before_there_is_a_collection(words, message, made, rejected):
    assert message in rejected(words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "something to look for"),
        (["--id", "77"], "item 77"),
        (["--label", "e"], "unknown label 'e'"),
        (["nowhere.png"], "is missing"),
        (["--id", "0", "--k", "0"], "k = 0"),
        (["--id", "0", "--where", "label"], "KEY=VALUE"),
        (["--id", "0", "--where", "labels=a"], "did you mean 'label'"),
        (["--id", "0", "--max-false-match", "0"], "between 0 and 1; got 0"),
    ],
)
def test_errors_of_a_search(words, message, made, vicinal, rejected):
    vicinal("index run pictures")
    assert message in rejected("search run", *words)

"""Runs on texts: a joint embedding that learns, resumes bit for bit and is searched by words;
sentences alone."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import vicinal
from vicinal.cli.main import app
from vicinal.config import compose
from vicinal.errors import ConfigError, DataError
from vicinal.losses import InfoNCELoss
from vicinal.methods import METHODS
from vicinal.methods.plain import BothWays
from vicinal.retrieval.calibration import calibration
from vicinal.retrieval.library import open_library
from vicinal.retrieval.serve.routes import threshold_of
from vicinal.training.experiment import prepare

COLORS = ("red", "green", "blue")
SHADES = ("dark", "pale", "deep", "light", "plain", "dull", "warm", "cold")


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    """Vectors of 24 classes whose texts say what they are: a color and a shade, in different halves
    of a vector."""
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("text") / "colors.npz"
    labels = np.repeat(np.arange(24), 6)
    features = np.concatenate([4 * np.eye(3)[labels % 3], 4 * np.eye(8)[labels // 3]], axis=1)
    features = (features + rng.normal(size=features.shape) / 4).astype(np.float32)
    texts = np.array([f"{SHADES[label // 3]} {COLORS[label % 3]}" for label in labels])
    np.savez(path, features=features, labels=labels, texts=texts)
    return path


def settings(**training):
    return {
        "model": {"text": "ngrams", "dim": 16},
        "training": {"steps": 30, "batch_size": 24, "validation": 0, **training},
        "evaluation": {"restarts": 1, "artifacts": False},
    }


@pytest.fixture(scope="module")
def run(vectors, tmp_path_factory):
    data = {"name": str(vectors), "test": 0.3, "order": "random"}
    return vicinal.train(
        data, run=tmp_path_factory.mktemp("runs") / "joint", quiet=True, **settings(steps=40)
    )


def test_a_joint_embedding_finds_unseen_combinations_of_known_words_both_ways(run):
    trained = run.results["trained"]
    assert trained["recall@1"] > 0.7 and trained["image_to_text_recall@1"] > 0.7
    assert any("texts that ask for pictures" in note for note in run.directory.results["notes"])
    assert "Image to text recall@1" in run.report().read_text()
    assert (
        run.config["loss"]["name"] == "info_nce" and run.config["sampler"]["name"] == "cross_view"
    )


@pytest.mark.parametrize("loss", ["sigmoid", "proxy_anchor"])
def test_other_losses_train_it(loss, vectors, tmp_path):
    slots = {**settings(steps=2), "loss": loss}
    run = vicinal.train(vectors, run=tmp_path / "run", quiet=True, **slots)
    assert "recall@1" in run.results["trained"]


def test_nested_sizes_compare_texts_with_pictures_alone(vectors):
    slots = {**settings(), "loss": {"name": "info_nce", "nested": (4,), "temperature": 1.0}}
    nested = prepare(compose({"data": str(vectors), **slots})).method.loss
    rows = torch.randn(6, 16, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    both = BothWays(InfoNCELoss(temperature=1.0))
    torch.testing.assert_close(nested(rows, labels), both(rows[:, :4], labels) + both(rows, labels))


@pytest.mark.parametrize(
    ("slots", "said"),
    [
        *(
            ({"method": name}, f"method={name} .* take two.*Set method=plain")
            for name in sorted(METHODS.keys() - {"plain"})
        ),
        (
            {"model": {"text": "ngrams", "start": "discriminant"}},
            r"computed of pictures alone.*model\.start=random",
        ),
        (
            {"training": {"head_only": True}},
            r"pictures alone.*got model\.start=random.*leave out --head-only",
        ),
        ({"model": {"text": "ngrams", "head": "none"}}, r"Set model\.head=linear"),
        ({"model": {"text": "bert"}}, r"encoder bert cannot be read"),
        ({"data": {"text": "none"}}, r"model\.text=ngrams reads texts beside pictures"),
    ],
)
def test_what_makes_no_sense_is_rejected_before_training(slots, said, vectors, tmp_path):
    given = {**settings(), **slots}
    data = {"name": str(vectors), **given.pop("data", {})}
    with pytest.raises(ConfigError, match=said):
        vicinal.train(data, run=tmp_path / "run", quiet=True, **given)
    assert not (tmp_path / "run" / "run.json").exists()


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """What a command says that must not fail."""

    def call(line):
        done = CliRunner().invoke(app, line, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.stdout

    monkeypatch.chdir(tmp_path)
    return call


def test_words_find_vectors_of_a_collection(run, shell, monkeypatch):
    monkeypatch.chdir(run.path.parent)
    shell("index joint --split test")
    found = json.loads(shell("search joint --text 'warm red' --k 6 --format json"))
    assert found["query"] == "warm red" and len(found["matches"]) == 6
    model = vicinal.load(run.path, role="query")
    assert model.kind == "text" and model.embed(["warm red", "cold blue"]).shape == (2, 16)
    with pytest.raises(DataError, match="text 1, str '', is empty"):
        model.embed(["warm red", ""])
    # Pictures need no role.
    [[(name, label, _)]] = run.search(np.eye(11, dtype=np.float32)[:1], k=1)
    assert name.startswith("row ") and label.isdigit()
    for asked in ("--text 'warm red'", "--id 0"):
        shell(f"search joint {asked} --max-false-match 0.1")
    among, across = calibration(run.directory), calibration(run.directory, texts=True)
    assert across.same.sum() + across.different.sum() != among.same.sum() + among.different.sum()
    library = open_library(run.path, rate=0.1)
    limits = [counts.threshold(0.1).distance for counts in (among, across)]
    assert [threshold_of(library, None, by).distance for by in ("item", "text")] == limits


def test_a_run_without_a_text_encoder_says_so(vectors, shell):
    slots = {
        "model": {"dim": 4, "start": "random"},
        "training": {"steps": 1},
        "evaluation": {"artifacts": False},
    }
    vicinal.train({"name": str(vectors), "text": None}, run="run", quiet=True, **slots)
    shell("index run")
    with pytest.raises(ConfigError, match=r"has no text encoder.*columns `path` and `text`"):
        shell("search run --text red")
    # Texts are left out where nothing reads them.
    own, given = (shell(f"evaluate run {more} --json") for more in ("", f"--data {vectors}"))
    assert json.loads(own)["rows"] == json.loads(given)["rows"]


def test_pictures_of_a_table_are_trained_beside_texts(shell):
    lines = ["path,text"]
    for number in range(24):
        Image.new("L", (12, 12), 10 * number).save(f"{number}.png")
        lines.append(f"{number}.png,level {number // 3}")
    Path("pairs.csv").write_text("\n".join(lines))
    shell(
        "train pairs.csv model=small model.widths=4,8 model.text=ngrams model.dim=8 "
        "transform.size=8 transform.resize=8 training.steps=2 training.workers=0 "
        "training.validation=0 evaluation.restarts=1 --run run --quiet --no-report"
    )
    assert list(Path("run").rglob("*.png"))  # of texts, too
    assert list(vicinal.api.Run("run").results) == ["untrained", "trained"]
    shell("index run")
    assert ".png" in shell("search run --text 'level 3' --k 2")
    assert "mean of" in shell("search run 3.png --text 'level 3' --k 2")
    shell("export run --role query --no-onnx --to query")
    assert vicinal.load("query").embed("level 3").shape == (1, 8)
    with pytest.raises(ConfigError, match="cannot be written as ONNX"):
        shell("export run --role query --to onnx")


def test_sentences_are_trained_measured_indexed_and_found(shell):
    nouns = ("bird", "boat", "tree", "house", "river", "road", "stone", "cloud")
    lines = [f"the {adjective} {noun},{noun}" for noun in nouns for adjective in SHADES]
    Path("s.csv").write_text("\n".join(["text,label", *lines]))
    train = "train s.csv model=ngrams model.buckets=512 training.steps=8 training.validation=0 "
    assert f"{len(lines)} texts in s: " in shell(train + "--dry-run")
    shell(train + "evaluation.artifacts=false --run run --quiet --no-report")
    trained = vicinal.api.Run("run")
    assert trained.config["model"]["name"] == "ngrams"
    (row,) = json.loads(shell("evaluate run --json"))["rows"]
    assert min(row["metrics"]["recall@1"], trained.results["trained"]["recall@1"]) > 0.8
    shell("index run")
    found = json.loads(shell("search run --text 'a bird' --k 3 --format json"))
    assert {match["label"] for match in found["matches"]} == {"bird"}
    with pytest.raises(ConfigError, match="embeds texts, got the file"):
        shell("search run s.csv")
    Path("decisions.csv").write_text("path,label\nthe dark bird,boat\nthe pale bird,\n")
    shell("clean run --apply decisions.csv")
    made = Path("run/clean/labels.csv").read_text().splitlines()
    assert made == ["text,label", "the dark bird,boat", *lines[2:]]

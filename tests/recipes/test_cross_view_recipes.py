"""Two views from a table to a finished run: measured, resumed, embedded by role."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vicinal.cli.embed import embed
from vicinal.data import CrossView
from vicinal.errors import ConfigError, DataError
from vicinal.evaluation.encoder import Encoder
from vicinal.methods.her import HER
from vicinal.models import TwoStreamEmbedder
from vicinal.training.console import Console
from vicinal.training.experiment import prepare
from vicinal.training.finish import measure_run
from vicinal.training.overrides import apply
from vicinal.training.recipe import find_recipe
from vicinal.training.run import resume, start

PLACES = 16
SMALL = ["pairs=2", "dim=6", "widths=4,8", "epochs=2", "restarts=1", "checkpoint_seconds=0", "workers=0"]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """Sixteen places of 32 pixels: blurred noise from the ground, its mirror image from the air."""
    tmp_path = tmp_path_factory.mktemp("pairs")
    rng = np.random.default_rng(0)
    rows = ["query_path,gallery_path"]
    for view in ("ground", "air"):
        (tmp_path / view).mkdir()
    for place in range(PLACES):
        pixels = rng.integers(0, 255, (4, 4), dtype=np.uint8).repeat(8, axis=0).repeat(8, axis=1)
        Image.fromarray(pixels).save(tmp_path / f"ground/{place:02d}.png")
        Image.fromarray(pixels[:, ::-1].copy()).save(tmp_path / f"air/{place:02d}.png")
        rows.append(f"ground/{place:02d}.png,air/{place:02d}.png")
    path = tmp_path / "pairs.csv"
    path.write_text("\n".join(rows) + "\n")
    return str(path)


def begin(pairs, path, *more):
    recipe = apply(find_recipe("omniglot_cross_view"), [f"data={pairs}", *SMALL, *more])
    return start("omniglot_cross_view", recipe, path, command="test", console=Console(quiet=True))


@pytest.fixture(scope="module")
def finished(pairs, tmp_path_factory):
    """A run to look at: trained once."""
    return begin(pairs, tmp_path_factory.mktemp("finished") / "run")


def test_a_run_with_two_streams_is_measured_query_against_gallery(finished, pairs):
    rows = {row["name"]: row["metrics"] for row in finished.results["rows"]}
    assert {"raw pixels", "untrained", "trained"} == rows.keys()
    assert {"recall@1", "recall@5", "recall@1%", "map@r"} <= rows["trained"].keys()
    model = json.loads(finished.model_path.read_text())["embedder"]
    assert model["class"] == "TwoStreamEmbedder" and model["query"]["backbone"]["attention"] == "fcam"
    test = CrossView(pairs).load().part("test")
    found = Encoder.load(finished)
    assert isinstance(found.embedder, TwoStreamEmbedder)
    vectors, roles = found.embed(test).vectors, test.columns["role"]
    first = torch.cdist(vectors[roles == 1], vectors[roles == 2]).argmin(dim=1)
    right = (test.labels[roles == 2][first] == test.labels[roles == 1]).mean()
    assert rows["trained"]["recall@1"] == pytest.approx(right)


def test_measuring_it_again_gives_the_same(finished):
    options = {"split": "test", "recalls": (1, 5, 10), "clustering": False, "device": torch.device("cpu")}
    again = measure_run(finished, data=None, skip_corrupt=False, console=Console(quiet=True), **options)
    trained = finished.results["rows"][-1]["metrics"]
    assert again["rows"][0]["metrics"] == {name: trained[name] for name in again["rows"][0]["metrics"]}


def test_the_report_shows_what_was_found_in_the_gallery(finished, pairs):
    test = CrossView(pairs).load().part("test")
    roles, shown = test.columns["role"], finished.arrays("retrieval")
    assert (roles[shown["query"]] == 1).all()
    for name in ("neighbours", "untrained_neighbours"):
        assert (roles[shown[name]] == 2).all() and shown[name].shape == (8, 8)
    confused = json.loads((finished.artefacts_path / "classes.json").read_text())["confused"]
    for pair in confused:
        query, neighbour = pair["example"]
        assert (roles[query], roles[neighbour]) == (1, 2)
        assert test.classes[test.labels[query]] == pair["class"]
        assert test.classes[test.labels[neighbour]] == pair["taken_for"]
    exhibits = json.loads((finished.artefacts_path / "exhibits.json").read_text())["exhibits"]
    assert [exhibit["title"] for exhibit in exhibits] == ["Hardest exemplars"]


def test_an_interrupted_run_goes_on_bit_for_bit(finished, pairs, tmp_path, monkeypatch):
    step, done = HER.step, []

    def interrupted(self, batch):
        done.append(1)
        if len(done) == 5:  # in the middle of the second epoch
            raise KeyboardInterrupt
        return step(self, batch)

    monkeypatch.setattr(HER, "step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        begin(pairs, tmp_path / "again")
    monkeypatch.setattr(HER, "step", step)
    again = resume(tmp_path / "again", recipe=None, console=Console(quiet=True))
    assert again.metrics_path.read_bytes() == finished.metrics_path.read_bytes()
    assert again.weights_path.read_bytes() == finished.weights_path.read_bytes()


@pytest.mark.parametrize("name", ["cross_view", "omniglot_cross_view"])
def test_images_without_roles_are_refused_before_two_networks_train(name, pairs, tmp_path):
    rows = [f"{view}/{place:02d}.png,{place}" for view in ("ground", "air") for place in range(PLACES)]
    (tmp_path / "labelled.csv").write_text("\n".join(["path,label", *rows]))
    words = [f"data={tmp_path / 'labelled.csv'}", f"data.images={Path(pairs).parent}", "pairs=2", "dim=6"]
    with pytest.raises(
        DataError, match=r"labelled does not say which images are queries .* query_path and gallery_path"
    ):
        prepare(apply(find_recipe(name), words), Console(quiet=True))


def test_each_view_is_embedded_by_its_own_network(finished, pairs, tmp_path):
    embed(finished.path, pairs, out=tmp_path / "both.npz", device="cpu")
    air = Path(pairs).parent / "air.csv"
    air.write_text("path,label\n" + "".join(f"air/{p:02d}.png,{p}\n" for p in range(PLACES)))
    found = {}
    for role in ("gallery", "query"):
        embed(finished.path, str(air), out=tmp_path / f"{role}.npz", device="cpu", role=role)
        found[role] = np.load(tmp_path / f"{role}.npz")["embeddings"]
    both = np.load(tmp_path / "both.npz")["embeddings"]
    np.testing.assert_allclose(found["gallery"], both[PLACES:], rtol=1e-5, atol=1e-6)
    assert not np.allclose(found["query"], both[PLACES:], atol=1e-3)
    with pytest.raises(ConfigError, match="--role query"):
        embed(finished.path, str(air), out=tmp_path / "x.npz", device="cpu")
    with pytest.raises(ConfigError, match="unknown role 'galery'; did you mean 'gallery'"):
        embed(finished.path, str(air), out=tmp_path / "x.npz", device="cpu", role="galery")

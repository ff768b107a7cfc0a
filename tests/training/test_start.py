"""How a head begins: as principal components where a config asks for them, once, also across a
resume."""

import numpy as np
import pytest
import torch

from vicinal.api import Run
from vicinal.config import compose
from vicinal.errors import ConfigError
from vicinal.evaluation.encoder import Encoder
from vicinal.reports import write_report
from vicinal.training.console import Console
from vicinal.training.estimate import describe
from vicinal.training.experiment import prepare
from vicinal.training.run import start


def test_a_random_head_is_left_alone(tiny):
    experiment = prepare(tiny.config())
    before = experiment.method.embedder.head.weight.detach().clone()
    experiment.start_head()
    assert torch.equal(before, experiment.method.embedder.head.weight)


def test_a_principal_head_keeps_what_the_features_tell(tiny):
    experiment = prepare(tiny.config("model.start=principal", "model.start_length=2"))
    experiment.start_head()
    embedder = experiment.method.embedder
    embedder.normalize = False
    assert "features" not in vars(experiment), "they would change"
    found = experiment.embed(experiment.encoder, experiment.train).vectors
    assert found.norm(dim=1).mean().item() == pytest.approx(2, rel=1e-4)
    variances = found.var(dim=0)
    assert torch.equal(variances, variances.sort(descending=True).values)


def test_glorots_start_is_drawn_by_the_seed(tiny):
    heads = []
    for seed in (0, 0, 1):
        experiment = prepare(
            tiny.config("model.start=glorot", "model.head_norm=true", f"training.seed={seed}")
        )
        experiment.start_head()
        heads.append(experiment.method.embedder.head[1].weight.detach().clone())
    assert torch.equal(heads[0], heads[1]) and not torch.equal(heads[1], heads[2])


def test_a_closed_form_head_has_a_row_of_its_own(begin, monkeypatch):
    """Without a step the trained row is the head start: --head-only is that baseline, for which the
    network sees each record once."""
    runs = {}
    seen = []
    embed = Encoder.embed

    def counted(self, records, **how):
        seen.append(len(records))
        return embed(self, records, **how)

    monkeypatch.setattr(Encoder, "embed", counted)
    for name, words in {"trained": (), "head": ("training.head_only=true",)}.items():
        settings = ["model.start=discriminant", "training.steps=2", "training.validation=0"]
        seen.clear()
        runs[name] = begin(name, *settings, *words).results
    assert len(seen) == 2
    trained, head = (
        {row["name"]: row["metrics"] for row in runs[name]["rows"]} for name in ("trained", "head")
    )
    assert list(trained) == ["untrained", "head start", "trained"] and list(head) == [
        "untrained",
        "trained",
    ]
    assert trained["head start"] == pytest.approx(head["trained"])
    assert "the head was set in closed form; no step was trained." in runs["head"]["notes"]
    gains = runs["trained"]["gains"]
    assert gains.keys() == {"untrained", "head start"}
    for row, found in gains.items():
        gain = found["map@r"]
        assert gain["mean"] == pytest.approx(trained["trained"]["map@r"] - trained[row]["map@r"])
        assert gain["low"] <= gain["mean"] <= gain["high"]


def test_a_head_only_needs_a_closed_form(tiny):
    with pytest.raises(
        ConfigError, match=r"got model\.start=random\. Set model\.start=discriminant"
    ):
        prepare(tiny.config("training.head_only=true"))


def test_a_run_begins_where_another_ended_and_says_what_it_took(tiny, tmp_path, begin):
    first = begin("first", "training.epochs=1", "training.validation=0")
    words = [f"model.weights={first.path}", "model.start=discriminant", "training.steps=1"]
    second = begin("second", *words)
    ended = Run(first.path).results["trained"]
    assert Run(second.path).results["head start"] == pytest.approx(ended)
    said = f"begins with network and head of {first.path}; the loss begins anew"
    assert said in second.results["notes"]
    config = tiny.config(*words)
    assert said in describe(config)
    new = compose(config.slots(), {"data": noise(tmp_path / "new.npz", width=8)}, trust=tiny.trust)
    assert prepare(new).method.embedder.took_head  # other classes
    with pytest.raises(ConfigError, match=r"does not fit these vectors or this model\.dim"):
        prepare(tiny.config(*words, "model.dim=5"))


def test_proxies_of_old_and_added_classes_begin_at_their_means(tiny, tmp_path, begin):
    words = ["loss=proxy_anchor", "training.validation=0", "training.epochs=1"]
    first = begin("first", *words)
    assert any("the most crowded proxies" in note for note in first.results["notes"])
    brought = tiny.config(*words, f"model.weights={first.path}").slots()
    more = {"data": noise(tmp_path / "more.npz", width=8, classes=25)}
    means = []
    for where in (None, "random"):
        loss = {"name": "proxy_anchor", "start": where}
        experiment = prepare(compose(brought, more, {"loss": loss}, trust=tiny.trust))
        experiment.begin()
        found = experiment.embed(experiment.encoder, experiment.train)
        loss = experiment.method.loss
        rows = [found.vectors[found.labels == label].mean(dim=0) for label in loss.proxy_labels]
        means.append(torch.cosine_similarity(torch.stack(rows), loss.proxies.detach()))
    assert means[0].min() > 0.999 > means[1].mean() + 0.5


def noise(path, width=6, classes=24):
    """Vectors whose directions tell the class, in the first dimensions, beside scale that does
    not."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(classes), 6)
    centers = rng.normal(size=(classes, width))
    np.savez(
        path,
        features=(centers[labels] + 0.3 * rng.normal(size=(len(labels), width))).astype(np.float32),
        labels=labels,
    )
    return str(path)


def ruined(tmp_path, **training):
    """A run with a rate that ruins any head."""
    config = compose(
        {
            "data": noise(tmp_path / "x.npz"),
            "optimizer": {"learning_rate": 100.0},
            "training": {"epochs": 2, **training},
        }
    )
    assert config.preset == "features" and config.model.start == "best"
    return start(config, tmp_path / "run", command="", console=Console())


def test_a_features_run_never_ends_below_the_features_on_the_held_out_classes(tmp_path, capsys):
    """The start is kept, and the run says so."""
    run = ruined(tmp_path)
    said = capsys.readouterr().err
    assert "the head starts as" in said and "training did not improve on the start" in said
    assert run.results["selected"]["step"] == 0
    assert run.results["notes"][0].startswith("training did not improve on the start")
    evaluations = [*run.metrics("evaluation")]
    assert (
        evaluations[0]["step"] == 0
        and run.results["selected"]["value"] == evaluations[0]["metrics"]["recall@1"]
    )


def test_a_run_below_its_start_says_so_also_where_nothing_was_held_out(tmp_path, capsys):
    run = ruined(tmp_path, validation=0)
    said = run.results["notes"][0]
    assert said.startswith("This run ended below the head it started from: Recall@1")
    assert said.endswith("or keep that head: --head-only.") and said in capsys.readouterr().err
    assert said[:40] in write_report(run.path).read_text()


def test_the_features_as_they_are_are_a_start(tmp_path):
    for dim in (3, 6, 9):
        config = compose(
            {
                "data": noise(tmp_path / "x.npz"),
                "model": {"dim": dim},
                "training": {"validation": 0},
            }
        )
        experiment = prepare(config)
        experiment.start_head()
        vectors = experiment.embed(experiment.encoder, experiment.train).vectors
        inputs = torch.nn.functional.normalize(
            torch.from_numpy(experiment.train.source.source.features), dim=1
        )
        assert vectors.shape[1] == dim
        if dim >= 6:
            rows = experiment.train.source.positions
            torch.testing.assert_close(
                vectors @ vectors.T, inputs[rows] @ inputs[rows].T, rtol=0, atol=1e-5
            )

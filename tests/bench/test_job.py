"""PCA of flat directions; scores by class add up to the metrics; data split anew; whole jobs of
every kind."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from vicinal.bench.job import Fold, Job, class_scores, pca, perform
from vicinal.bench.table import UNTRAINED_ROWS
from vicinal.data.records import FeatureArray, Records
from vicinal.data.table import Arrays
from vicinal.errors import ConfigError, DataError
from vicinal.evaluation.encoder import Embedded
from vicinal.evaluation.measure import measure


@pytest.fixture
def vectors(rng):
    return torch.randn(60, 8, generator=rng) @ torch.diag(torch.arange(1.0, 9.0)) + 3


def test_flat_directions_stay_small_and_none_is_beyond_what_vectors_span(vectors, rng):
    flat = torch.cat([vectors, 1e-5 * torch.randn(60, 1, generator=rng)], dim=1)
    spreads = pca(flat, flat, 9, whiten=True).std(dim=0)
    torch.testing.assert_close(spreads[:8], torch.ones(8), atol=1e-4, rtol=1e-4)
    assert spreads[8] < 1e-2
    assert pca(vectors, vectors[:4], 8, whiten=False).shape == (60, 3)


@pytest.mark.parametrize("roles", [False, True])
@pytest.mark.parametrize("metric", ["recall@1", "recall@4", "map@r", "r_precision"])
def test_scores_by_class_add_up_to_the_metric(metric, roles, vectors):
    # The last one has no other.
    labels = np.concatenate([np.repeat(np.arange(11), 5), [11, 11, 12, 12, 13]])
    columns = {"role": np.arange(60) % 2 + 1} if roles else {}
    records = Records(
        name="r",
        source=FeatureArray(vectors.numpy(), list(map(str, range(60)))),
        labels=labels,
        classes=tuple(map(str, range(14))),
        splits=np.full(60, "test"),
        columns=columns,
    )
    embedded = Embedded(torch.nn.functional.normalize(vectors, dim=1), records, ())
    measured = measure(embedded, recalls=(4,), clustering=False)
    found = class_scores(measured.queries.by_class(), metric)
    expected = measure(embedded, recalls=(1, 4), clustering=False)[metric]
    assert "recall@1" not in measured, "measured by class, but not asked for"
    queries = np.broadcast_to(found["queries"], len(found["hits"]))
    assert sum(found["hits"]) / queries.sum() == pytest.approx(expected)


def test_a_job_is_composed_and_its_identity_ignores_the_seed(table, tmp_path):
    job = Job(table, table.row("method"), "trained", 1)
    config = job.config()
    assert (
        config.loss.arguments["beta"] == 40
        and config.training.seed == 1
        and config.training.validation == 0.2
    )
    assert (
        job.identity()["slots"] == Job(table, table.row("method"), "trained", 2).identity()["slots"]
    )
    assert (
        Job(table.under("final"), table.row("plain"), "trained", 0).config().training.validation
        == 0
    )
    assert (
        Job(table.under("reality_check"), table.row("plain"), "trained", 0).config().model.dim
        == 128
    )
    fixed = Job(table, table.row("plain"), "trained", 0, ("training.validation=0",))
    with pytest.raises(ConfigError, match="use the protocol `final`"):
        fixed.config()
    (tmp_path / "tiny.npz").unlink()
    with pytest.raises(DataError, match="does not exist"):
        job.located()


@pytest.mark.parametrize(
    ("protocol", "kind", "fold"),
    [
        ("validation", "untrained", ()),
        ("validation", "trained", ()),
        ("reality_check", "trained", ()),
        ("validation", "trained", (1, 2)),
    ],
)
def test_every_kind_of_job_ends_in_results(protocol, kind, fold, table, tmp_path):
    job = Job(table.under(protocol), table.row("method"), kind, 0, fold=fold)
    task = job.task()
    assert json.loads(json.dumps(task.arguments)) == task.arguments
    lines = perform(tmp_path, **task.arguments)
    if kind == "untrained":
        assert [line["row"] for line in lines] == list(UNTRAINED_ROWS)
    if fold:
        assert 0 <= lines[0]["metrics"]["recall@1"] <= 1
        return
    for line in lines:
        assert line["slots"] == job.identity()["slots"] and line["hardware"]
        assert sum(line["hits"]) / (6 * len(line["hits"])) == pytest.approx(
            line["metrics"]["recall@1"]
        )
    if kind == "trained":
        assert perform(tmp_path, **task.arguments)[0]["metrics"] == lines[0]["metrics"], (
            "the finished run is read"
        )
    if protocol == "reality_check":
        assert "map@r 128-d" in lines[0]["metrics"]


def test_a_fold_that_diverges_scores_nothing(table, tmp_path):
    words = ("optimizer.learning_rate=1e29",)
    job = Job(table, table.row("plain"), "trained", 0, words, (0, 2))
    (line,) = perform(tmp_path, **job.task().arguments)
    assert line["metrics"] == {"recall@1": 0} and "diverged" in line


@pytest.fixture
def data(tiny):
    return Arrays(tiny.removesuffix(".py") + ".npz")


def classes(records, split):
    return set(records.labels[records.splits == split].tolist())


def test_folds_cover_the_training_classes_and_share_none(data):
    whole = data.load()
    cuts = [Fold(data, 4, fold, seed=3, test=False).load() for fold in range(4)]
    for cut in cuts:
        assert not classes(cut, "train") & classes(cut, "validation")
        assert classes(cut, "train") | classes(cut, "validation") == classes(whole, "train")
        assert not (cut.splits == "test").any() and len(cut) == (whole.splits == "train").sum()
    held = [label for cut in cuts for label in classes(cut, "validation")]
    assert sorted(held) == sorted(classes(whole, "train"))


def test_kin_stay_in_one_fold(data):
    class Kin:
        """Two classes each are one kin."""

        def load(self):
            records = data.load()
            return replace(records, columns={"kin": records.labels // 2})

    cut = Fold(Kin(), 2, 0, seed=3, test=False).load()
    sides = [
        set(cut.columns["kin"][cut.splits == split].tolist()) for split in ("train", "validation")
    ]
    assert all(sides) and not sides[0] & sides[1]


def test_test_records_may_stay(data):
    cut = Fold(data, 4, 0, seed=0, test=True).load()
    np.testing.assert_array_equal(cut.splits == "test", data.load().splits == "test")

"""Any runs, compared: paired by seed where seeds are shared, by test class in any case."""

import json

import numpy as np
import pytest
from scipy import stats

from vicinal.bench.compare import compare
from vicinal.errors import ConfigError, RunError
from vicinal.run_directory import RunDirectory

CLASSES = 12


@pytest.fixture
def make(tmp_path):
    """``make("a", seed, recall, beta=2)``: a finished run, as far as a comparison looks."""

    def run(
        name,
        seed,
        recall,
        loss="triplet",
        queries=10,
        data="birds",
        held_out="",
        protocol="final",
        records="",
        **settings,
    ):
        made = RunDirectory(tmp_path / f"{name}-{seed}")
        made.path.mkdir()
        training = {"seed": seed, "device": f"cuda:{seed}"}
        slots = {"loss": {"name": loss, **settings}, "training": training}
        facts = {"name": data, "fingerprint": f"{data}{held_out}", "records": records}
        made.write_info({"config": {"preset": "cub", "slots": slots}, "data": facts})
        made.write_status("finished", seconds=1.0)
        tested = {
            "split": "test",
            "records": CLASSES * 10,
            "classes": CLASSES,
            "protocol": protocol,
            "selected": {"value": None, "step": 1},
        }
        metrics = {"recall@1": recall, "map@r": recall / 2, "nmi": 0.6}
        made.write_results({**tested, "rows": [{"name": "trained", "metrics": metrics}]})
        hits = np.full(CLASSES, round(10 * recall)) + np.arange(CLASSES) % 2
        made.write_arrays(
            "by_class",
            label=np.arange(CLASSES),
            queries=np.full(CLASSES, queries),
            **{"recall@1": hits, "map@r": hits / 2},
        )
        return made.path

    return run


def test_seeds_are_paired_and_rows_named_by_what_differs(make):
    plain = [0.5, 0.6, 0.55]
    method = [0.58, 0.63, 0.60]
    paths = [make("a", seed, value, beta=1, rate=0.1) for seed, value in enumerate(plain)]
    paths += [make("b", seed, value, beta=2, rate=0.1) for seed, value in enumerate(method)]
    first, second = compare(paths).rows
    expected = stats.ttest_rel(method, plain)
    assert first.name == "cub loss.beta=1" and second.name == "cub loss.beta=2"
    assert first.difference is None and second.difference.over_seeds.count == 3
    assert second.difference.p == second.difference.over_seeds.p == pytest.approx(expected.pvalue)
    assert (
        second.difference.over_classes.mean == pytest.approx((18 - 16) / 30, abs=0.05)
        and second.difference.smallest > 0
    )


def test_runs_are_named_by_the_slots_that_differ(make):
    paths = [make("a", seed, 0.5, margin=0.2) for seed in (0, 1)]
    paths += [make("b", 0, 0.6, margin=0.4), make("c", 0, 0.7, loss="n_pair", l2=0.1)]
    rows = compare(paths).rows
    assert [row.done for row in rows] == [2, 1, 1] and rows[2].name == "cub loss=n_pair"
    assert rows[1].name == "cub loss=triplet loss.margin=0.4"
    assert rows[1].marks == ("incomplete: 1 of 2 seeds",)
    margins = [row.name for row in compare(paths[:3]).rows]
    assert margins == ["cub loss.margin=0.2", "cub loss.margin=0.4"]


def test_runs_on_data_that_changed_are_not_one_row(make):
    """Their scores were averaged as if only the seed differed."""
    paths = [make("a", seed, 0.5, records="old") for seed in (0, 1)]
    paths += [make("b", seed, 0.6, records="new") for seed in (0, 1)]
    first, second = compare(paths).rows
    assert first.name == "cub data.records=old" and second.done == 2


def test_another_metric_has_its_own_interval_over_classes(make):
    paths = [make("a", 0, 0.5), make("b", 0, 0.7, loss="n_pair")]
    assert compare(paths, "map@r").rows[1].difference.over_classes.mean == pytest.approx(0.1)
    assert compare(paths, "nmi").rows[1].difference.over_classes is None, "no mean over queries"


def test_other_test_classes_give_no_interval_over_classes(make):
    _, row = compare([make("a", 0, 0.5), make("b", 0, 0.7, loss="n_pair", queries=20)]).rows
    assert row.difference.over_classes is None
    assert row.difference.over_seeds.mean == pytest.approx(0.2)


def test_other_training_records_and_protocols_are_marked(make):
    _, same, cut, held = compare(
        [
            make("a", 0, 0.5),
            make("b", 0, 0.7, loss="n_pair"),
            make("c", 0, 0.7, loss="margin", held_out="!"),
            make("d", 0, 0.7, loss="circle", protocol="validation"),
        ]
    ).rows
    assert same.marks == ()
    assert cut.marks == held.marks == ("other data or protocol than its baseline",)


def test_what_cannot_be_compared_is_rejected(make, tmp_path):
    first = make("a", 0, 0.5)
    with pytest.raises(ConfigError, match="two settings"):
        compare([first, make("a", 1, 0.5)])
    with pytest.raises(ConfigError, match="same settings and seed"):
        compare([first, make("again", 0, 0.5)])
    with pytest.raises(ConfigError, match="unknown metric 'recal@1'"):
        compare([first, make("b", 0, 0.5, loss="n_pair")], "recal@1")
    with pytest.raises(
        ConfigError, match=r"120 test records of 12 classes of birds and .* of cars"
    ):
        compare([first, make("c", 0, 0.7, loss="n_pair", data="cars")])
    with pytest.raises(RunError, match="not a run"):
        compare([tmp_path])
    unfinished = RunDirectory(tmp_path / "open")
    unfinished.path.mkdir()
    (unfinished.path / "run.json").write_text(json.dumps({"format": 1}))
    with pytest.raises(RunError, match="no results"):
        compare([unfinished.path])

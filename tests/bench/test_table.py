"""Tables as data: rows start from their baselines, mistakes are errors, and hashes ignore
spelling."""

import pytest
from torch import nn

from vicinal.bench.table import (
    REALITY_METRICS,
    Table,
    baseline,
    layer,
    load_tables,
    merged,
    row,
    slots_hash,
)
from vicinal.errors import ConfigError


def test_a_row_has_the_slots_of_table_and_baseline_then_its_own():
    table = Table(
        "T",
        baseline("N-pair", loss=("n_pair", {"l2": 0.1})),
        row("HDML", method="hdml", against="N-pair"),
        row("harder", "method.alpha=1", against="HDML"),
        row("triplet", loss="triplet", against="N-pair"),
        preset="cub",
        steps=5_000,
    )
    common = {"preset": "cub", "training": {"steps": 5_000}}
    assert merged(*table.layers(table.row("harder"))) == {
        **common,
        "loss": {"name": "n_pair", "l2": 0.1},
        "method": {"name": "hdml", "alpha": "1"},
    }
    assert merged(*table.layers(table.row("triplet"))) == {**common, "loss": {"name": "triplet"}}
    assert table.name == "t" and table.network == "N-pair"


def test_layers_merge_groups_of_arguments_and_keep_what_every_network_has():
    inner = layer("method.hdml.alpha=1", method=("hdml_ala", {"hdml": {"window": 16}}))
    assert inner == {"method": {"name": "hdml_ala", "hdml": {"window": 16, "alpha": "1"}}}
    small = {"model": {"name": "small", "dim": 64, "widths": [4]}}
    assert merged(small, {"model": {"name": "resnet18"}}) == {
        "model": {"dim": 64, "name": "resnet18"}
    }


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Table("T"), "no rows"),
        (lambda: Table("T", row("a"), row("a")), "used twice"),
        (lambda: Table("T", row("PCA")), "without training"),
        (
            lambda: Table("T", row("a", against="b"), row("b", against="a")),
            "a against b against a is a circle",
        ),
        (lambda: Table("T", row("plain"), row("m", against="plan")), "did you mean 'plain'"),
        (lambda: Table("T", row("a"), protocol="finall"), "did you mean 'final'"),
        (lambda: Table("T", row("a"), network="b"), "unknown row"),
        (lambda: row("a", los="triplet"), "did you mean 'loss'"),
        (lambda: row("a", "los.alpha=2"), "unknown setting"),
    ],
)
def test_what_cannot_be_run_is_rejected(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_files_define_tables_and_import_their_neighbors(tmp_path):
    (tmp_path / "shared.py").write_text("ROWS = 2\n")
    text = "from shared import ROWS\nfrom vicinal.bench import Table, row\n"
    (tmp_path / "many.py").write_text(
        text + "TABLES = [Table(f'T{n}', row('a')) for n in range(ROWS)]\n"
    )
    assert [table.name for table in load_tables(f"{tmp_path}/many.py")] == ["t0", "t1"]
    (one,) = load_tables(f"{tmp_path}/many.py::t1")
    assert one.name == one.origin == "t1" and one.file == f"{tmp_path}/many.py"
    # Of another length: Python takes bytecode for new by a file's size and second.
    (tmp_path / "shared.py").write_text("ROWS = 1 + 0\n")
    assert len(load_tables(f"{tmp_path}/many.py")) == 1, "neighbors are read again"
    for source, message in (
        ("many.py::t9", "unknown table"),
        ("none.py", "which is none"),
        ("a.toml", r"\.py"),
    ):
        with pytest.raises(ConfigError, match=message):
            load_tables(f"{tmp_path}/{source}")
    (tmp_path / "empty.py").write_text("")
    with pytest.raises(ConfigError, match="defines no Table"):
        load_tables(f"{tmp_path}/empty.py")


def test_an_experiment_file_may_be_the_preset(tmp_path):
    (tmp_path / "mine.toml").write_text('preset = "glyphs"\nloss = { name = "triplet" }\n')
    assert layer(preset=f"{tmp_path}/mine.toml") == {
        "preset": "glyphs",
        "loss": {"name": "triplet"},
    }


def test_hashes_ignore_spelling_order_and_speed():
    one = layer(
        "optimizer.learning_rate=1e-4", "evaluation.recalls=1,2", loss=("danml", {"epsilon": None})
    )
    other = {
        "training": {"device": "cuda", "seed": 3},
        "loss": {"epsilon": "none", "name": "danml"},
        "evaluation": {"recalls": [1, 2], "artifacts": False},
        "optimizer": {"learning_rate": 0.0001},
    }
    assert slots_hash(one) == slots_hash(other) != slots_hash(layer("optimizer.learning_rate=2e-4"))
    assert slots_hash(layer(loss=nn.L1Loss())) != slots_hash(layer(loss=nn.MSELoss()))


def test_another_protocol_is_a_table_of_its_own(table):
    checked = table.replace(findings={"reality_check": "found"}).under("reality_check")
    assert (checked.name, checked.metrics, checked.finding) == (
        "tiny-reality_check",
        REALITY_METRICS,
        "found",
    )
    with pytest.raises(ConfigError, match="did you mean 'final'"):
        table.under("finale")

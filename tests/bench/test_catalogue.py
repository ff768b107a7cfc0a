"""The tables: every row can be resolved, twins differ in what they should, and no printed number is lost."""

from collections import Counter
from dataclasses import replace

import pytest

from vicinal.bench import grounds, papers, published
from vicinal.bench.catalogue import TABLES, find_table
from vicinal.bench.hardness import CONDITIONS, METHODS
from vicinal.bench.run import jobs
from vicinal.data import Folder
from vicinal.errors import DataError
from vicinal.training.overrides import apply
from vicinal.training.recipe import find_recipe, settings

ELSEWHERE = ("cars", "sop", "inshop")
# What a row and its twin may differ in; the last four are HER's.
TWO_WAYS = {"method", "epochs", "hdml", "assessing", "anml", "pooling"}
TWO_WAYS |= {"variant", "weighting", "attention", "regression"}


def settings_of(table, row):
    return settings(apply(find_recipe(row.recipe), row.overrides))


def test_names_are_different():
    assert [name for name, count in Counter(table.name for table in TABLES).items() if count > 1] == []


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_row_can_be_resolved_and_differs_from_its_twin_in_the_method_alone(table):
    found = {row.name: settings_of(table, row) for row in table.rows}
    seen = list(found.values())
    assert all(seen.count(one) == 1 for one in seen), "two rows are the same"
    for row in table.rows:
        if row.twin:
            ours, theirs = found[row.name], found[row.twin]
            differing = {key for key in ours if ours[key] != theirs.get(key)}
            assert differing and differing <= TWO_WAYS, (row.name, differing)
    assert len(jobs(table)) == table.seeds * (len(table.rows) + 1)


def test_every_table_has_a_normalised_softmax_at_the_same_budget():
    lacking = [table.name for table in TABLES if papers.SOFTMAX not in {row.name for row in table.rows}]
    assert lacking == []


def test_the_best_combination_is_chosen_among_all_combinations():
    for ground in grounds.HERE:
        table = papers.combinations(ground).check()
        combined, others = table.best_of["combinations"], table.best_of["others"]
        assert sorted((*combined, *others, papers.SOFTMAX)) == sorted(row.name for row in table.rows)
        assert len(combined) == 5 and all(table.row(name).twin for name in combined)


def test_a_row_of_two_tables_is_one_run():
    one, other = find_table("hdml-glyphs"), find_table("hdml_ablations-glyphs")
    assert settings_of(one, one.row("N-pair")) == settings_of(other, other.row("N-pair"))
    assert settings_of(one, one.row("HDML (N-pair)")) == settings_of(other, other.row("HDML"))


@pytest.mark.parametrize("name", ELSEWHERE)
def test_tables_for_data_that_is_not_here_say_so(name, tmp_path, monkeypatch):
    monkeypatch.setenv("VICINAL_DATA", str(tmp_path))
    job = jobs(find_table(f"anml-{name}"))[0]
    with pytest.raises(DataError, match=rf"read from \$VICINAL_DATA/.*, but {tmp_path}/.* does not exist"):
        job.located()
    (tmp_path / "elsewhere").mkdir()
    assert replace(job, data=str(tmp_path / "elsewhere")).located().data == Folder(str(tmp_path / "elsewhere"))


@pytest.mark.parametrize(
    ("printed", "table"),
    [
        (published.HDML, papers.hdml),
        (published.ALA, papers.ala),
        (published.ANML, papers.anml),
        (published.HTL, papers.survey),
    ],
    ids=["HDML", "ALA", "ANML", "HTL"],
)
def test_every_printed_number_stands_beside_a_row(printed, table):
    places = {"cub": grounds.CUB, "cars": grounds.CARS, "sop": grounds.SOP, "inshop": grounds.INSHOP}
    for data, rows in printed.items():
        shown = {row.name: row.published for row in table(places[data]).rows}
        for name, scores in rows.items():
            assert scores.items() <= shown[name].items()
            assert set(scores) <= set(table(places[data]).metrics)


@pytest.mark.parametrize("ground", [grounds.CUB, grounds.CARS, grounds.SOP, grounds.INSHOP], ids=lambda g: g.name)
def test_every_column_is_measured_at_the_papers_k(ground):
    set_to = [word.partition("=")[2].split(",") for word in ground.overrides if word.startswith("recalls=")]
    measured = {f"recall@{k}" for k in (set_to[0] if set_to else find_recipe(ground.recipe).recalls)}
    recalls = [metric for metric in papers.anml(ground).metrics if metric.startswith("recall@")]
    assert set(recalls) == measured and recalls == sorted(recalls, key=lambda metric: int(metric[7:]))


def test_numbers_are_those_of_the_papers():
    assert published.HDML["cub"]["HDML (N-pair)"]["recall@1"] == 0.537
    assert published.ALA["cub"]["margin + ALA"] == {
        **{"nmi": 0.663, "f1": 0.351, "recall@1": 0.616, "recall@2": 0.739, "recall@4": 0.831, "recall@8": 0.897}
    }
    assert published.ALA["cub"]["random triplet"].get("recall@8") is None  # not printed
    assert published.ANML["inshop"]["DANML"]["recall@50"] == 0.994
    assert published.HTL["inshop"]["HTL"]["recall@50"] == 0.978 and published.HTL["cub"]["HTL"]["recall@32"] == 0.955
    assert {f"train {name}" for name in ("nmi", "f1", "recall@1", "recall@2", "recall@4")} <= set(
        papers.ala(grounds.GLYPHS).metrics
    )
    training = papers.ala(grounds.CUB).row("triplet + ALA").published
    assert {name: training[f"train {name}"] for name in ("nmi", "f1", "recall@1", "recall@2", "recall@4")} == {
        **{"nmi": 0.793, "f1": 0.561, "recall@1": 0.665, "recall@2": 0.743, "recall@4": 0.81}
    }
    assert papers.ala(grounds.GLYPHS).row("triplet + ALA").published == {}


def test_the_papers_regime_shows_both_papers_numbers_beside_their_own_tuples():
    table = papers.paper_regime(grounds.CUB)
    assert table.row("HDML (triplet)").published == published.HDML["cub"]["HDML (triplet)"]
    assert table.row("margin, episodes + ALA").published == published.ALA["cub"]["margin + ALA"]
    assert table.row("triplet, episodes").published == published.ALA["cub"]["triplet"]


def test_the_papers_regime_is_that_of_the_papers():
    table = papers.paper_regime(grounds.CUB)
    for row in table.rows[1:]:
        found = settings_of(table, row)
        rates = {key: found["optimisation"][key] for key in ("learning_rate", "head_factor", "schedule")}
        assert rates == {"learning_rate": 1e-4, "head_factor": 10.0, "schedule": "constant"}
        assert found["start"]["head"] == "random"
        if row.name.endswith("ALA"):  # weights as they are, 3 updates at 4e-4
            assert not found["assessing"]["relative"]
            assert found["assessing"]["updates"] == 3 and found["assessing"]["rate"] == 4e-4
        if row.name.startswith("HDML"):
            assert found["hdml"]["scale"] == "authors"


def test_a_combination_stands_beside_each_of_its_methods_alone():
    table = papers.combinations(grounds.GLYPHS)
    alone = {"multi-similarity + LoOp", "multi-similarity + HDML", "DANML", "triplet + HDML", "triplet + ALA", "HTL"}
    assert alone <= {row.name for row in table.rows} and "multi-similarity + LoOp" in table.best_of["others"]


def test_the_hardness_table_holds_every_method_under_every_condition():
    table = find_table("when_does_hardness_help")
    assert len(table.rows) == len(CONDITIONS) * (len(METHODS) + 2) + 1
    for condition, fault in CONDITIONS.items():
        plain = settings_of(table, table.row(f"plain: {condition}"))
        for method in METHODS:
            row = table.row(f"{method}: {condition}")
            assert settings_of(table, row)["data"] == plain["data"]
            assert row.twin.endswith(f": {condition}")
        assert (plain["data"] == settings_of(table, table.row("plain: clean"))["data"]) == (fault == "")


@pytest.mark.parametrize("ground", grounds.HERE, ids=lambda ground: ground.name)
def test_a_loss_has_the_settings_that_its_ground_has_for_it(ground):
    rows = {row.name: row.overrides for row in (*papers.anml(ground).rows, *papers.survey(ground).rows)}
    for name, own in (("improved N-pair", ground.products), ("HTL", ground.hinges), ("circle", "")):
        others = {*ground.products.split(), *ground.hinges.split()} - set(own.split())
        assert set(own.split()) <= set(rows[name])
        assert not others & set(rows[name])


@pytest.mark.parametrize("ground", [*grounds.HERE, grounds.CUB_LITE2], ids=lambda ground: ground.name)
def test_a_twin_at_the_cost_of_a_method_trains_longer(ground):
    for table, name in ((papers.hdml(ground), "triplet at HDML's cost"), (papers.ala(ground), "triplet at ALA's cost")):
        row, twin = table.row(name), table.row("triplet")
        longer, usual = (apply(find_recipe(one.recipe), one.overrides).epochs for one in (row, twin))
        assert longer > usual == ground.epochs

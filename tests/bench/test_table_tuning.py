"""Tables tuned alike: the same trials for each row, nothing tested before all are there, and every trial once."""

import json
from dataclasses import replace

import pytest

from vicinal.bench.code import fingerprint
from vicinal.bench.page import markdown
from vicinal.bench.pool import Failure, Pool
from vicinal.bench.run import collect
from vicinal.bench.summary import summarise
from vicinal.bench.table_tuning import tune_table
from vicinal.bench.tables import Budget
from vicinal.bench.wording import command
from vicinal.errors import ConfigError

BUDGET = Budget(3, folds=2)


@pytest.fixture
def performed(monkeypatch):
    """Jobs that score by their rate, best at the largest for the plain row alone; the list of those that ran."""

    class Ran(list):
        most, fails = None, ()

    ran = Ran()

    def run(pool, jobs, done, *, title, minutes):
        jobs = list(jobs)
        for place, job in enumerate(jobs):
            if place == ran.most:
                return len(jobs) - place
            ran.append(job)
            if job.row in ran.fails:
                pool.failures.append(Failure(job, 1, pool.runs, "out of memory"))
                continue
            recipe = job.resolved()
            rate = recipe.optimisation.learning_rate
            score = 0.5 + (rate if recipe.variant == "plain" else -rate) + 0.01 * job.fold[0]
            done(
                job, [{"commit": "abc", "created": "2026", "hardware": {}, "seconds": 1.0, "wall": 2.0, "last": score}]
            )
        return 0

    monkeypatch.setattr(Pool, "run", run)
    return ran


@pytest.fixture
def tune(table, tmp_path, console):
    def call(budget=BUDGET, given=table, **options):
        return tune_table(given, budget, tmp_path / "results", tmp_path / "runs", slots=1, console=console, **options)

    return call


def test_each_row_has_its_trials_and_the_table_is_at_what_they_chose(tune, performed, tmp_path):
    found = tune()
    assert len(performed) == 2 * 3 * 2 and all(job.kind == "fold" for job in performed)
    assert [job.row for job in performed[:4]] == ["plain, trial 0"] * 2 + ["method, trial 0"] * 2  # round by round
    tried = {job.row: job.resolved().optimisation.learning_rate for job in performed}
    for trial in range(3):
        assert tried[f"plain, trial {trial}"] == tried[f"method, trial {trial}"]
    for name, best in (("plain", max), ("method", min)):
        rate = best(tried[f"{name}, trial {trial}"] for trial in range(3))
        chosen = replace(performed[0], overrides=found.row(name).overrides, kind="trained", protocol="final")
        assert chosen.resolved().optimisation.learning_rate == rate
        assert found.row(name).held_out[1] - found.row(name).held_out[0] == pytest.approx(0.01)
    assert found.name == "tiny-tuned" and found.protocol == "final"
    assert [row.trials for row in found.rows] == [3, 22]  # the method's own settings have 20 behind them
    lines = [json.loads(line) for line in (tmp_path / "results/tuning/tiny.jsonl").read_text().splitlines()]
    assert [line["row"] for line in lines] == ["plain", "method"]
    assert all(
        f"{key}={value}" in found.row(line["row"]).overrides for line in lines for key, value in line["chosen"].items()
    )


def test_a_stop_costs_nothing_and_nothing_is_chosen_before_all_trials_are_there(tune, performed, tmp_path):
    performed.most = 5
    assert tune() is None and not (tmp_path / "results/tuning/tiny.jsonl").exists()
    journal = tmp_path / "results/tuning/tiny.trials.jsonl"
    journal.write_text(journal.read_text() + '{"cut')
    performed.most = None
    whole = tune()
    assert len(performed) == 12 and whole is not None
    again = tune()
    assert len(performed) == 12 and again == whole
    more = tune(Budget(4, folds=2))
    assert len(performed) == 16 and more.row("plain").trials == 4
    assert tune(minutes=0) == whole  # the page of a tuned table runs nothing


def test_another_number_of_folds_and_other_settings_are_other_trials(tune, table, performed):
    tune()
    tune(Budget(3, folds=3))
    assert len(performed) == 12 + 18
    changed = replace(table, rows=tuple(replace(row, overrides=(*row.overrides, "dim=3")) for row in table.rows))
    tune(given=changed)
    assert len(performed) == 12 + 18 + 12
    renamed = replace(
        table, name="other", rows=tuple(replace(row, name=f"{row.name}!", twin=None) for row in table.rows)
    )
    tune(given=replace(renamed, network="plain!"))
    assert len(performed) == 12 + 18 + 12  # rows of another table with the same settings are the same trials


def test_fresh_takes_trials_of_this_code_alone(tune, performed, tmp_path):
    tune()
    tune(fresh=True)
    assert len(performed) == 24  # these have no code of their own
    journal = tmp_path / "results/tuning/tiny.trials.jsonl"
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    journal.write_text("".join(json.dumps({**line, "code": fingerprint(line["recipe"])}) + "\n" for line in lines))
    tune(fresh=True)
    assert len(performed) == 24


def test_a_failure_leaves_the_table_untested(tune, performed):
    performed.fails = ("method, trial 2",)
    assert tune() is None
    performed.fails = ()
    assert tune() is not None and len(performed) == 12 + 2


def test_some_rows_alone_are_tuned_with_their_twins_and_the_rest_is_marked(tune, table, performed, tmp_path):
    lone = replace(table.rows[0], name="lone", overrides=(*table.rows[0].overrides, "beta=3"))
    wider = replace(table, rows=(*table.rows, lone))
    found = tune(given=wider, rows=["method"])
    assert not any(job.row.startswith("lone") for job in performed)
    assert found.row("lone") == lone and found.row("method").held_out
    text = markdown(summarise(collect(found, tmp_path)))
    assert "not tuned" in next(line for line in text.splitlines() if line.startswith("| lone |"))
    assert "not tuned" not in next(line for line in text.splitlines() if line.startswith("| method |"))
    assert "not as many trials as its twin" in text  # 22 against 3


def test_the_page_says_how_it_was_tuned(tune, performed, tmp_path):
    found = tune()
    text = markdown(summarise(collect(found, tmp_path)))
    assert "Tuned: of each tuned row 3 settings were tried, its own first, on 2 class-disjoint folds" in text
    assert "| held out |" in text and "Protocol `final`" in text
    assert command(found) == "vicinal bench tiny --trials 3 --folds 2 --seeds 3"
    assert command(replace(found, tuned=Budget(8))) == "vicinal bench tiny --trials 8 --seeds 3"


@pytest.mark.parametrize("budget", [Budget(0), Budget(2, folds=1)])
def test_a_budget_that_cannot_be_is_refused(budget, tune, performed):
    with pytest.raises(ConfigError, match="1 trial and 2 folds"):
        tune(budget)
    assert performed == []


def test_a_trial_looks_at_the_held_out_classes_once_at_its_end(tune, performed):
    tune()
    recipes = [job.resolved() for job in performed]
    assert recipes and all(recipe.evaluate_every > recipe.epochs and recipe.restarts == 1 for recipe in recipes)

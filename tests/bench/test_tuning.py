"""Tuning chooses by held-out training classes, goes on after a stop, and never mixes two searches."""

import json
import sys
from functools import partial

import pytest

from vicinal.bench import tuning
from vicinal.bench.pool import Pool
from vicinal.bench.search_space import parse
from vicinal.bench.tuning import Search, Trial, choose, command, tune
from vicinal.errors import ConfigError, RunError


@pytest.fixture
def search(tiny):
    def make(*words, **options):
        recipe, data = tiny
        space, fixed = parse([data, *(words or ("beta=10..50.0",))])
        return Search(recipe, tuple(fixed), space, **{"trials": 4, "folds": 2, **options})

    return make


@pytest.fixture
def performed(monkeypatch):
    """Jobs that score by their beta, best at 30, instead of training; the list of those that ran."""
    ran = []

    def run(pool, jobs, done, *, title):
        for job in jobs:
            ran.append((job.row, job.fold[0]))
            settings = job.resolved()
            score = 1 - abs(settings.beta - 30) / 100 - 0.01 * job.fold[0]
            facts = {"commit": "abc", "hardware": {}, "created": "2026", "seconds": 1.0, "wall": 2.0}
            done(job, [{**facts, "last": score, "selected": {"value": score + 0.1, "epoch": 1, "step": 10}}])

    monkeypatch.setattr(Pool, "run", run)
    return ran


def test_the_best_mean_is_chosen_and_written(search, performed, tmp_path, console):
    wanted = search(trials=8)
    chosen = tune(wanted, tmp_path / "out", slots=1, console=console)
    lines = [json.loads(line) for line in (tmp_path / "out" / "trials.jsonl").read_text().splitlines()]
    assert len(lines) == 16 and lines[0]["values"] == {} and lines[0]["epoch"] == 2
    nearest = min((line for line in lines[2:]), key=lambda line: abs(float(line["values"]["beta"]) - 30))
    assert chosen.trial.values == nearest["values"] and chosen.score.count == 2
    document = json.loads((tmp_path / "out" / "tuning.json").read_text())
    assert document["chosen"] == nearest["values"] and document["trials_done"] == document["trials"] == 8
    assert document["command"] == command(wanted, chosen)
    assert "validation=0" in document["command"] and f"beta={nearest['values']['beta']}" in document["command"]


@pytest.mark.parametrize("searcher", ["random", "optuna"])
def test_a_stopped_search_goes_on_and_more_trials_may_follow(searcher, search, performed, tmp_path, console):
    if searcher == "optuna":
        pytest.importorskip("optuna")
    search = partial(search, "beta=10..50.0", "dim=2,4")  # a range, and a list of values
    whole = tune(search(searcher=searcher), tmp_path / "whole", slots=1, console=console)
    tune(search(searcher=searcher), tmp_path / "out", slots=1, console=console)
    journal = tmp_path / "out" / "trials.jsonl"
    kept = journal.read_text().splitlines(keepends=True)[:5]
    journal.write_text("".join(kept) + '{"cut')
    performed.clear()
    again = tune(search(searcher=searcher), tmp_path / "out", slots=1, console=console)
    assert performed == [("trial 2", 1), ("trial 3", 0), ("trial 3", 1)]
    assert again.trial.values == whole.trial.values
    performed.clear()
    tune(search(searcher=searcher, trials=5), tmp_path / "out", slots=1, console=console)
    assert performed == [("trial 4", 0), ("trial 4", 1)]


def test_optuna_proposes_within_the_space_and_learns(search, performed, tmp_path, console):
    pytest.importorskip("optuna")
    wanted = search("beta=10..50.0", "dim=2,4", "epochs=1..3", trials=14, searcher="optuna")
    chosen = tune(wanted, tmp_path / "out", slots=1, console=console)
    lines = [json.loads(line) for line in (tmp_path / "out" / "trials.jsonl").read_text().splitlines()]
    for line in lines[2:]:
        values = line["values"]
        assert 10 <= float(values["beta"]) <= 50 and values["dim"] in ("2", "4") and values["epochs"] in ("1", "2", "3")
    assert abs(float(chosen.trial.values["beta"]) - 30) < 8


def test_a_fold_that_diverged_scores_nothing_and_is_not_tried_again(search, tmp_path, monkeypatch, console):
    facts = {"commit": "abc", "hardware": {}, "created": "2026", "seconds": 1.0, "wall": 2.0, "selected": None}
    ran = []

    def run(pool, jobs, done, *, title):
        for job in jobs:
            ran.append(job)
            bad = job.row == "trial 1"
            done(
                job,
                [
                    {**facts, "last": 0.0, "diverged": "NaN"}
                    if bad
                    else {**facts, "last": 0.5, "selected": {"epoch": 0}}
                ],
            )

    monkeypatch.setattr(Pool, "run", run)
    assert tune(search(trials=2), tmp_path / "out", slots=1, console=console).trial.number == 0
    ran.clear()
    tune(search(trials=2), tmp_path / "out", slots=1, console=console)
    assert ran == []


def test_a_searcher_that_is_not_installed_is_refused_before_anything_runs(search, tmp_path, monkeypatch, console):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ConfigError, match="vicinal\\[tune\\]"):
        tune(search(searcher="optuna"), tmp_path / "out", slots=1, console=console)
    assert not (tmp_path / "out").exists()


def test_another_search_in_the_same_folder_is_refused(search, performed, tmp_path, console):
    tune(search(), tmp_path / "out", slots=1, console=console)
    for other in (search("beta=10..60.0"), search(folds=3), search(seed=1)):
        with pytest.raises(ConfigError, match="another search"):
            tune(other, tmp_path / "out", slots=1, console=console)


@pytest.mark.parametrize(
    ("words", "options", "message"),
    [
        (("beta=3",), {}, "nothing to search"),
        (("betta=1..2.0",), {}, "did you mean 'beta'"),
        (("dim=2.5,3.5",), {}, "is a number"),
        ((), {"folds": 1}, "2 folds"),
        ((), {"trials": 0}, "1 trial"),
        ((), {"searcher": "grid"}, "random or optuna"),
    ],
)
def test_a_search_that_cannot_run_is_refused_before_it_starts(words, options, message, search, tmp_path, console):
    with pytest.raises(ConfigError, match=message):
        tune(search(*words, **options), tmp_path / "out", slots=1, console=console)


def test_the_spread_of_what_is_as_good_is_told():
    def trial(number, beta, *scores):
        return Trial(number, {"beta": beta} if beta else {}, dict(enumerate(scores)), {0: 2, 1: 3})

    chosen = choose(
        [trial(0, "", 0.69, 0.73), trial(1, "9", 0.68, 0.74), trial(2, "10", 0.7, 0.74), trial(3, "99", 0, 1)]
    )
    assert chosen.trial.number == 2 and chosen.spread == pytest.approx(0.0283, abs=1e-4)
    assert chosen.alike == {"beta": ("9", "10", "(recipe)")} and chosen.epochs == (2, 3)
    with pytest.raises(RunError, match="no trial"):
        choose([])


def test_folds_run_as_jobs_on_training_classes_alone(search, tmp_path):
    job = search().job(3, 1, {"beta": "20"})
    assert job.kind == "fold" and job.fold == (1, 2, 0) and job.resolved().beta == 20
    assert tuning.Range(10.0, 50.0) == search().space["beta"]

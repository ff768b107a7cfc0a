"""Which jobs are missing, in which order they run, and who gets their results; the tuning of a
table."""

import ast
import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from vicinal.bench import results
from vicinal.bench.job import Job, state_of
from vicinal.bench.pool import Pool
from vicinal.bench.results import Store
from vicinal.bench.run import Bench, collect, run_tables
from vicinal.bench.table import UNTRAINED_ROWS, Budget, load_tables, row
from vicinal.bench.tuning import tune_table
from vicinal.errors import ConfigError, DataError


def fingerprint_of(source, words=()):
    (table,) = load_tables(source)
    job = Job(table, table.rows[0], "trained", 0, words)
    return state_of(job.config().data.load())


@pytest.fixture
def fake(monkeypatch):
    """Tasks that end at once; those whose name has a word of ``fail`` fail, and time is up after
    ``limit``."""
    found = SimpleNamespace(ran=[], fail=(), limit=10**9)
    count = itertools.count()

    def run(pool, tasks, done, **_):
        tasks = list(tasks)
        for task in tasks[: found.limit]:
            found.ran.append(task.name)
            if any(word in task.name for word in found.fail):
                pool.failures.append(task)
                continue
            arguments = task.arguments
            words = dict(word.split("=") for word in arguments["words"])
            rate = float(words.get("optimizer.learning_rate", 0))
            facts = ast.literal_eval(task.key) | {
                "created": f"2026 {next(count):05}",
                "seconds": 1.0,
                "hardware": "h",
                "commit": "abc",
                "records": fingerprint_of(arguments["source"], arguments["words"]),
                "metrics": {"recall@1": rate - 0.01 * sum(arguments["fold"][:1]), "map@r": 0.1},
            }
            rows = UNTRAINED_ROWS if arguments["kind"] == "untrained" else [arguments["row"]]
            done(task, [facts | {"row": name} for name in rows])
        return max(0, len(tasks) - found.limit)

    monkeypatch.setattr(Pool, "run", run)
    return found


@pytest.fixture
def go(tmp_path, console, fake):
    def run(*tables, console=console, **options):
        bench = Bench(tmp_path / "results", tmp_path / "runs", console, **options)
        return run_tables(tables, bench)

    return run


def test_seeds_go_round_by_round_and_a_job_of_two_tables_runs_once(table, go, fake, tmp_path):
    other = table.replace(
        name="other", rows=(*table.rows, row("third", "loss.beta=9", against="plain"))
    )
    first, second = go(table.replace(seeds=2), other.replace(seeds=2))
    each = ["untrained rows", "plain", "method", "third"]
    assert fake.ran == [f"{name} seed {seed}" for seed in (0, 1) for name in each]
    assert not first.missing() and not second.missing()
    other = (tmp_path / "results" / "other.jsonl").read_text()
    assert other.count('"third"') == other.count("\n") == 2, "the first table keeps the others"
    fake.ran.clear()
    go(table)
    assert fake.ran == [f"{name} seed 2" for name in each[:3]], "what is recorded is not run again"


@pytest.mark.parametrize("kept", [-6, None])
def test_results_of_other_data_are_left_out_and_said(kept, table, go, fake, tmp_path):
    """Classes were appended to the file, or its vectors replaced, and a row pooled what was
    measured before and after."""
    go(table.replace(seeds=2))
    path = tmp_path / "tiny.npz"
    with np.load(path) as found:
        features = found["features"] + 1
        labels = found["labels"]
    np.savez(path, features=features[:kept], labels=labels[:kept])
    fake.ran.clear()
    (outcome,) = go(table.replace(seeds=3))
    assert len(fake.ran) == 3 * 3 and len(outcome.lines["plain"]) == 3
    found = collect(table.replace(seeds=3), Store(tmp_path / "results"))
    records = {line["records"] for line in found.lines["plain"].values()}
    assert len(records) == 1 and len(found.lines["plain"]) == 3
    assert "10 results of other data" in found.note and outcome.note == found.note


def test_each_row_says_beforehand_what_it_costs(table, go, record):
    said = []
    record(table, {"method": [0.5]}, seconds=750.0, records=fingerprint_of(table.source))
    go(table.replace(seeds=2), console=SimpleNamespace(line=lambda text, **_: said.append(text)))
    assert "  method: 1 seeds, each about 12 min, 12 min in all" in said
    assert any(text.startswith("  plain: 2 seeds, each about ") for text in said), said


def test_the_lines_of_a_job_are_recorded_at_once(table, go, monkeypatch):
    """Killed between two lines, a bench did the job again and recorded the first line twice."""
    recorded = []
    append = results.append
    monkeypatch.setattr(
        results, "append", lambda path, *lines: recorded.append(len(lines)) or append(path, *lines)
    )
    go(table.replace(seeds=1))
    assert recorded == [len(UNTRAINED_ROWS), 1, 1]


def test_limited_to_rows_their_baselines_run_too(table, go, fake):
    third = table.replace(rows=(*table.rows, row("third", "loss.beta=9")), seeds=1)
    go(third, rows=["method"])
    assert fake.ran == ["untrained rows seed 0", "plain seed 0", "method seed 0"]
    with pytest.raises(ConfigError, match="did you mean 'method'"):
        go(third, rows=["methd"])


def test_failures_are_counted_and_what_time_did_not_allow_is_missing(table, go, fake):
    fake.fail = ("method", "untrained")
    fake.limit = 4
    (outcome,) = go(table)
    assert outcome.failures == {"method": 1, **dict.fromkeys(UNTRAINED_ROWS, 2)}
    assert len(outcome.missing()) == 8


def test_a_job_that_cannot_be_composed_is_rejected_before_anything_runs(table, go, fake, tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'beta'"):
        go(table.replace(rows=(*table.rows, row("wrong", "loss.betta=1", against="plain"))))
    assert fake.ran == [] and not (tmp_path / "results").exists()


@pytest.fixture
def tuned(table, tmp_path, console, fake):
    def run(trials=3, *, recorded_only=False, folds=2, table=table, **options):
        bench = Bench(tmp_path, tmp_path / "runs", console, **options)
        return tune_table(table, Budget(trials, folds), bench, recorded_only=recorded_only)

    return run


def test_rows_are_tuned_alike_and_the_best_trial_is_tested(tuned, fake, tmp_path):
    found = tuned()
    assert len(fake.ran) == 2 * 3 * 2 and fake.ran[0] == "plain fold 1/2"
    rates = list(dict.fromkeys(name.split()[1] for name in fake.ran[4:]))
    rows = ("plain", "method")
    order = [f"{row} {rate} fold {fold}/2" for rate in rates for row in rows for fold in (1, 2)]
    assert fake.ran[4:] == order
    best = max(rates, key=lambda word: float(word.split("=")[1]))
    assert len(rates) == 2 and found.name == "tiny-tuned"
    assert found.protocol == "final" and found.tuned == Budget(3, 2)
    chosen = found.row("method")
    assert chosen.extra == (best,) and chosen.trials == 22
    rate = best.split("=")[1]
    assert chosen.held_out == pytest.approx((float(rate), float(rate) - 0.01))
    assert found.layers(chosen)[-1] == {"optimizer": {"learning_rate": rate}}
    fake.ran.clear()
    again = [tuned(), tuned(recorded_only=True)]
    assert [table.row("method") for table in again] == [chosen] * 2 and fake.ran == []
    tuned(trials=4)
    assert [name.split()[0] for name in fake.ran] == ["plain", "plain", "method", "method"]


def test_too_few_classes_for_the_folds_are_one_error_before_any_run(tuned, fake):
    with pytest.raises(DataError, match="6 folds by class need at least 12 classes"):
        tuned(folds=6)
    assert fake.ran == []


def test_nothing_is_tested_before_every_row_has_had_its_trials(tuned, fake):
    fake.limit = 5
    assert tuned() is None
    found = tuned(recorded_only=True)
    assert found.row("plain").held_out == () and found.tuned
    fake.limit = 10**9
    fake.fail = ("method",)
    assert tuned() is None
    assert tuned(rows=["plain"]).row("plain").held_out


def test_trials_of_other_data_are_not_taken_for_those_of_now(tuned, fake, tmp_path):
    tuned()
    with np.load(tmp_path / "tiny.npz") as found:
        features = found["features"]
        labels = found["labels"]
    np.savez(tmp_path / "tiny.npz", features=features[:-6], labels=labels[:-6])
    fake.ran.clear()
    tuned()
    assert len(fake.ran) == 2 * 3 * 2


def test_a_stopped_tuning_continues(tuned, fake, tmp_path):
    whole = tuned()
    journal = tmp_path / "tuning" / "tiny.folds.jsonl"
    journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:9]) + '{"cut')
    fake.ran.clear()
    assert tuned().row("method") == whole.row("method")
    assert len(fake.ran) == 3

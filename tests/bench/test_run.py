"""Tables through one pool: each job once, whole seeds first, and every table told what became of its rows."""

import json
from dataclasses import replace

import pytest

from vicinal.bench import run
from vicinal.bench.catalogue import find_table
from vicinal.bench.page import markdown
from vicinal.bench.pool import Failure, Pool
from vicinal.bench.summary import summarise
from vicinal.bench.tables import BASELINES, Row
from vicinal.errors import ConfigError, DataError


class Played:
    """In place of a pool's processes: keeps the jobs that came, ends after some of them, fails what it is told to."""

    def __init__(self):
        self.jobs, self.most, self.fails, self.stops, self.pools = [], None, (), False, []

    def __call__(self, pool, todo, done, *, title, minutes):
        todo = list(todo)
        self.pools.append((pool.runs, title, minutes))
        for place, job in enumerate(todo):
            if place == self.most:
                if self.stops:
                    raise KeyboardInterrupt
                return len(todo) - place
            self.jobs.append(job)
            if job.row in self.fails:
                pool.failures.append(Failure(job, 1, job.folder(pool.runs) / "log.txt", "diverged"))
                continue
            found = [{"row": row, "metrics": {"recall@1": 0.5, "map@r": 0.2}} for row in run.rows_of(job)]
            done(job, [{**job.identity(), "created": "2026", "seconds": 1.0, **line} for line in found])
        return 0

    @property
    def order(self):
        return [(job.seed, job.row) for job in self.jobs]


@pytest.fixture
def played(monkeypatch):
    found = Played()
    monkeypatch.setattr(Pool, "run", lambda *given, **named: found(*given, **named))
    return found


@pytest.fixture
def two(table):
    """The tiny table with 2 seeds, and one that calls its method ``same`` and has a row of its own."""
    plain, method = table.rows
    rows = (plain, replace(method, name="same"), Row("own", plain.recipe, (*plain.overrides, "beta=3"), twin="plain"))
    return replace(table, seeds=2), replace(table, name="second", rows=rows, seeds=2)


@pytest.fixture
def go(tmp_path, console):
    def call(*tables, **options):
        options = {"slots": 1, "fresh": False, "console": console} | options
        return run.run_tables(tables, tmp_path / "results", tmp_path / "runs", **options)

    return call


@pytest.fixture
def written(tmp_path):
    def read(name):
        path = tmp_path / "results" / f"{name}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []

    return read


def seeds_of(outcome):
    return {name: sorted(seeds) for name, seeds in outcome.lines.items()}


def test_results_are_recorded_as_they_come(table, go, played, written, tmp_path):
    small = replace(table, seeds=1)
    outcome = go(small, data="glyphs", minutes=3)["tiny"]
    assert seeds_of(outcome) == {name: [0] for name in (*BASELINES, "plain", "method")}
    assert all(job.data == "glyphs" for job in played.jobs)
    assert played.pools == [(tmp_path / "runs" / "jobs", "tiny", 3)]
    assert len(written("tiny")) == 5 and all(line["table"] == "tiny" for line in written("tiny"))
    go(small)
    assert len(written("tiny")) == 5  # nothing was left to run


def test_jobs_go_seed_by_seed_and_within_a_seed_table_by_table(two, go, played):
    go(*two)
    assert played.order == [(seed, row) for seed in (0, 1) for row in ("baselines", "plain", "method", "own")]
    assert len(played.pools) == 1 and played.pools[0][1] == "2 tables"


def test_tables_with_more_seeds_go_on_alone(two, go, played):
    go(two[0], replace(two[1], seeds=3))
    assert played.order[-4:] == [(2, "baselines"), (2, "plain"), (2, "same"), (2, "own")]


def test_a_shared_result_is_written_once_and_shown_in_every_table(two, go, played, written, tmp_path):
    outcomes = go(*two)
    assert {line["row"] for line in written("tiny")} == {*BASELINES, "plain", "method"}
    assert [(line["table"], line["row"]) for line in written("second")] == [("second", "own")] * 2
    assert seeds_of(outcomes["second"]) == {name: [0, 1] for name in (*BASELINES, "plain", "same", "own")}
    assert outcomes["second"].lines["same"] == outcomes["tiny"].lines["method"]
    for outcome in outcomes.values():  # and what is read from the files is the same
        found = run.collect(outcome.table, tmp_path / "results")
        assert seeds_of(outcome) == seeds_of(found)


def test_rows_that_differ_in_a_setting_are_not_shared(two, go, played):
    first, second = two
    other = replace(
        second, rows=(second.rows[0], replace(second.rows[1], overrides=(*second.rows[1].overrides, "dim=3")))
    )
    go(replace(first, seeds=1), replace(other, seeds=1))
    assert [row for _, row in played.order] == ["baselines", "plain", "method", "same"]


@pytest.mark.parametrize("stops", [False, True], ids=["time is up", "Ctrl-C"])
def test_a_stop_leaves_all_tables_with_whole_seeds_and_the_rest_goes_on(two, go, played, stops, tmp_path):
    played.most, played.stops = 4, stops
    if stops:
        with pytest.raises(KeyboardInterrupt):
            go(*two)
    else:
        go(*two)
    for table in two:
        found = run.collect(table, tmp_path / "results")
        assert all(seeds == [0] for seeds in seeds_of(found).values())
    played.most = None
    outcomes = go(*two)
    assert [seed for seed, _ in played.order] == [0] * 4 + [1] * 4
    assert all(seeds == [0, 1] for outcome in outcomes.values() for seeds in seeds_of(outcome).values())


def test_a_failure_is_told_by_every_table_under_its_own_name(two, go, played, monkeypatch):
    said = []
    monkeypatch.setattr("vicinal.training.console.Console.line", lambda self, text, **rest: said.append(text))
    played.fails = ("method", "baselines")
    outcomes = go(*(replace(table, seeds=1) for table in two))
    assert [one.job.row for one in outcomes["tiny"].failures] == ["baselines", "method"]
    assert [one.job.row for one in outcomes["second"].failures] == ["baselines", "same"]
    assert "tiny: failed: baselines seed 0, method seed 0; the same command tries again" in said
    assert "second: failed: baselines seed 0, same seed 0; the same command tries again" in said
    text = markdown(summarise(outcomes["second"]))
    assert text.count("incomplete: 0 of 1 seeds; 1 failed") == len(BASELINES) + 1
    played.fails = ()
    go(*(replace(table, seeds=1) for table in two))
    assert played.order[-2:] == [(0, "baselines"), (0, "method")]


def test_the_announcement_counts_each_job_once_and_a_note_is_said_once(two, go, played, tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr("vicinal.training.console.Console.line", lambda self, text, **rest: said.append(text))
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "tiny.jsonl").write_text('{"cut o\n')
    go(*two)
    assert sum("not a result" in text for text in said) == 1
    assert "tiny: 6 jobs to run, 0 done before" in said
    assert "second: 2 jobs to run, 0 done before, 6 shared with tables before it" in said
    go(*two)
    assert "second: 0 jobs to run, 8 done before" in said


def test_fresh_does_shared_jobs_once_too(two, go, played):
    go(*two)
    go(*two, fresh=True)
    assert played.order == 2 * played.order[:8]  # what was played carries no code


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (["own"], ["baselines", "plain", "own"]),  # with its twin; the first table has none of it, and runs nothing
        (["method"], ["baselines", "plain", "method"]),
        (["plain"], ["baselines", "plain"]),
        (["PCA"], ["baselines"]),
        (["own", "method"], ["baselines", "plain", "method", "own"]),
    ],
)
def test_a_run_may_be_limited_to_rows_with_their_twins(two, go, played, rows, expected):
    go(*(replace(table, seeds=1) for table in two), rows=rows)
    assert [row for _, row in played.order] == expected


def test_a_result_goes_to_the_first_table_that_asked_for_it(two, go, played, written):
    go(*two, rows=["own"])
    assert written("tiny") == [] and len(written("second")) == 2 * (3 + 2)


def test_a_row_that_no_table_has_is_refused_before_anything_runs(two, go, played):
    with pytest.raises(ConfigError, match="in tiny, second: unknown row 'methd'; did you mean 'method'"):
        go(*two, rows=["own", "methd"])
    assert played.pools == []


@pytest.mark.parametrize(("data", "missing"), [("", "cars196"), ("nowhere", "nowhere")], ids=["row's", "machine's"])
def test_data_that_are_not_there_are_refused_before_anything_runs(data, missing, go, played, tmp_path, monkeypatch):
    monkeypatch.setenv("VICINAL_DATA", str(tmp_path))
    cars = replace(find_table("anml-cars"), seeds=1)
    with pytest.raises(DataError, match=f"{missing} does not exist"):
        go(cars, data=data)
    assert played.pools == []
    go(cars, data=str(tmp_path))  # a copy elsewhere is enough
    assert {job.data for job in played.jobs} == {str(tmp_path)} and len(played.jobs) == len(cars.rows) + 1

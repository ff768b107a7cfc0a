"""Running ANML's Table 2: what is missing, who gets which cores, and what a stop, a deadline or a death leaves."""

import gzip
import json
import os
from collections import deque
from dataclasses import replace

import pytest

from vicinal.bench import linear_run
from vicinal.bench.linear_plan import FULL, QUICK
from vicinal.bench.linear_run import check_data, missing, results_file, run, versions
from vicinal.errors import ConfigError, DataError
from vicinal.training.console import Console

PLAN = replace(FULL, sets=("iris", "wine"), splits=2)


class Fake:
    """A worker without a process, ready with its answer at once; ``Fake.deaths`` names units over which it dies."""

    all: list["Fake"] = []  # noqa: RUF012
    cores: dict[str, int] = {}  # noqa: RUF012
    deaths: tuple[str, ...] = ()
    sleepy = False

    def __init__(self):
        self.pipe, self.stopped = os.pipe(), False
        Fake.all.append(self)

    def fileno(self):
        return self.pipe[0]

    def give(self, unit, folder, *, cores, versions):
        assert not self.stopped
        self.unit, Fake.cores[str(unit)] = unit, cores
        if not self.sleepy:
            os.write(self.pipe[1], b".")

    def answer(self):
        os.read(self.pipe[0], 1)
        dead = str(self.unit) in self.deaths
        return None if dead else {"set": self.unit.set, "split": self.unit.split, "method": self.unit.method}

    def last_words(self):
        return "MemoryError"

    def stop(self):
        assert not self.stopped
        self.stopped = True
        for end in self.pipe:
            os.close(end)


@pytest.fixture
def fake(monkeypatch):
    kind = type("Fake", (Fake,), {})
    Fake.all, Fake.cores = [], {}
    monkeypatch.setattr(linear_run, "Worker", kind)
    monkeypatch.setattr(linear_run, "commit", lambda: None)
    return kind


@pytest.fixture
def start(tmp_path, fake):
    """``start(methods)``: measure in ``tmp_path``, where the sets have six samples each."""
    for name in PLAN.sets:
        (tmp_path / f"{name}.csv.gz").write_bytes(gzip.compress(b"a,class\n" + b"1,x\n2,y\n" * 3))

    def call(methods=("lda", "gmml"), plan=PLAN, slots=2, minutes=None):
        ways = {"data": tmp_path, "folder": tmp_path / "results", "runs": tmp_path / "runs", "slots": slots}
        return run(plan, methods, **ways, console=Console(), minutes=minutes)

    return call


def kept(tmp_path):
    path = results_file(PLAN, tmp_path / "results")
    return [json.loads(text) for text in path.read_text().splitlines()] if path.exists() else []


def test_what_is_done_is_skipped_and_what_failed_by_itself_is_not_asked_again():
    lines = [{"set": "iris", "split": 1, "method": "lda"}, {"set": "wine", "split": 0, "method": "lda", "error": "no"}]
    assert [str(unit) for unit in missing(PLAN, ["lda"], lines)] == ["iris 0 lda", "wine 1 lda"]


def test_every_unit_is_kept_once_and_another_run_finds_nothing_to_do(start, tmp_path, capsys):
    assert start().left == 0 and len(kept(tmp_path)) == 8
    assert len({(line["set"], line["split"], line["method"]) for line in kept(tmp_path)}) == 8
    assert 1 <= len(Fake.all) <= 2 and all(worker.stopped for worker in Fake.all)
    assert start(["lda", "gmml", "nca"]).left == 0 and len(kept(tmp_path)) == 12
    assert "4 units to measure, 8 done before" in capsys.readouterr().err


def test_a_line_that_was_cut_off_is_measured_again_and_swallows_no_other(start, tmp_path):
    assert start(["lda"]).left == 0
    path = results_file(PLAN, tmp_path / "results")
    path.write_text(path.read_text()[:-20])
    assert start(["lda"]).left == 0
    texts = path.read_text().splitlines()
    assert len(texts) == 5 and sum(text.endswith("}") for text in texts) == 4


def test_a_process_that_dies_fails_its_unit_alone(start, fake, tmp_path, capsys):
    fake.deaths = ("wine 0 lda",)
    outcome = start()
    assert [str(unit) for unit in outcome.failed] == ["wine 0 lda"] and outcome.left == 1 and len(kept(tmp_path)) == 7
    assert "wine 0 lda: its process died; its last lines:\nMemoryError" in capsys.readouterr().err
    assert all(worker.stopped for worker in Fake.all)
    fake.deaths = ()
    assert start().left == 0 and len(kept(tmp_path)) == 8


def test_a_deadline_stops_what_runs(start, fake, tmp_path):
    fake.sleepy = True
    outcome = start(minutes=0.001)
    assert outcome.left == 8 and not outcome.failed and kept(tmp_path) == []
    assert len(Fake.all) == 2 and all(worker.stopped for worker in Fake.all)
    assert start(minutes=0).left == 8


def test_ctrl_c_stops_all_and_leaves_what_has_ended(start, fake, tmp_path, monkeypatch):
    def interrupted(path, line, append=linear_run.results.append):
        append(path, line)
        if len(kept(tmp_path)) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(linear_run.results, "append", interrupted)
    with pytest.raises(KeyboardInterrupt):
        start()
    assert len(kept(tmp_path)) == 3 and all(worker.stopped for worker in Fake.all)
    monkeypatch.undo()


@pytest.mark.parametrize(
    ("slots", "units", "cores"),
    [(2, 8, [1, 1]), (8, 8, [1] * 8), (16, 5, [3, 3, 3, 3, 4]), (4, 1, [4]), (7, 2, [3, 4])],
)
def test_cores_that_units_leave_over_serve_their_searches(fake, tmp_path, slots, units, cores):
    fake.sleepy = True
    crew = linear_run._Crew(tmp_path, slots)
    waiting = deque(list(FULL.units(["lda"]))[:units])
    crew.begin(waiting)
    assert list(Fake.cores.values()) == cores and len(waiting) == units - len(cores)
    crew.dismiss()


def test_what_cannot_work_is_refused_before_a_process_starts(start, tmp_path):
    with pytest.raises(ConfigError, match="--jobs 0"):
        start(slots=0)
    with pytest.raises(DataError, match=r"of their files are not there \(glass.csv.gz, solar_flare.csv.gz, ecoli"):
        check_data(QUICK.sets, tmp_path)
    with pytest.raises(DataError, match="VICINAL_DATA"):
        start(plan=QUICK)
    (tmp_path / "wine.csv.gz").write_bytes(b"")
    with pytest.raises(DataError, match=r"wine\.csv\.gz is to hold a set"):
        start()
    assert Fake.all == []


def test_a_set_that_is_measured_is_not_read_again(start, tmp_path):
    assert start().left == 0
    for name in PLAN.sets:
        (tmp_path / f"{name}.csv.gz").unlink()
    assert start().left == 0


def test_lines_name_code_and_packages(monkeypatch):
    monkeypatch.setattr(linear_run, "commit", lambda: None)
    words = versions().split(", ")
    assert words[0] == "commit unknown"
    assert [word.split()[0] for word in words[1:]] == ["numpy", "scipy", "scikit-learn"]

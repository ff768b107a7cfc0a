"""The run directory rejects early and survives a cut journal."""

import os

import pytest

from vicinal.errors import DataError, RunError
from vicinal.run_directory import Journal, RunDirectory


def test_a_path_below_a_file_is_rejected(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written"):
        RunDirectory.create(tmp_path / "file" / "run")


def test_a_run_that_is_there_may_be_gone_on_with_but_another_folder_not(tmp_path):
    run = RunDirectory.create(tmp_path / "my run")
    run.write_info({"config": {"preset": "glyphs"}})
    with pytest.raises(
        RunError, match=r"--run, or resume it with `vicinal train --resume '.*/my run'`\."
    ):
        RunDirectory.create(run.path)
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"Name another with --run\.$"):
        RunDirectory.create(tmp_path / "file")


def test_what_is_no_run_is_rejected_with_the_runs_near_it(tmp_path):
    with pytest.raises(RunError, match=r"there is no such folder\. `vicinal train` makes one"):
        RunDirectory.open(tmp_path / "birdd")
    for number, name in enumerate(["old", "bird"]):
        run = RunDirectory.create(tmp_path / name)
        run.write_info({})
        os.utime(run.info_path, (number, number))
    for wrong in (tmp_path, tmp_path / "birdd"):
        with pytest.raises(RunError, match=rf"is not a run.* Runs in {tmp_path}: bird, old\."):
            RunDirectory.open(wrong)


def test_another_format_is_rejected_with_both_numbers(tmp_path):
    run = RunDirectory.create(tmp_path / "run")
    with pytest.raises(RunError, match=r"no run\.json"):
        RunDirectory.open(run.path)
    run.write_info({"format": 99, "vicinal": "9.9"})
    with pytest.raises(RunError, match=r"format 99.*reads format 1"):
        RunDirectory.open(run.path)


def test_a_journal_is_cut_back_to_a_checkpoint(tmp_path):
    run = RunDirectory(tmp_path)
    journal = Journal(run.metrics_path)
    journal.append({"step": 0})
    length = journal.sync()
    journal.append({"step": 1})
    journal.close()
    again = Journal(run.metrics_path, length=length)
    again.append({"step": 1, "again": True})
    again.close()
    assert list(run.metrics()) == [{"step": 0}, {"step": 1, "again": True}]
    with pytest.raises(RunError, match="it was cut"):
        Journal(run.metrics_path, length=10**6)


def test_a_half_written_last_line_is_left_out(tmp_path):
    run = RunDirectory(tmp_path)
    run.metrics_path.write_text('{"step": 0}\n{"ste')
    assert list(run.metrics()) == [{"step": 0}]
    run.metrics_path.write_text('{"step": 0\n{"step": 1}\n')
    with pytest.raises(DataError, match="line 1"):
        list(run.metrics())


@pytest.mark.parametrize("name", ["metrics.jsonl", "checkpoints", ".lock", "collection/archives"])
def test_a_run_with_a_link_out_of_it_is_not_opened(tmp_path, name):
    run = RunDirectory.create(tmp_path / "run")
    run.write_info({})
    (run.path / "inner").symlink_to("run.json")  # as wandb makes them
    RunDirectory.open(run.path)
    (tmp_path / "outside").mkdir()
    (run.path / name).parent.mkdir(exist_ok=True)
    (run.path / name).symlink_to(tmp_path / "outside")
    with pytest.raises(DataError, match=f"{name} is a link to .*outside"):
        RunDirectory.open(run.path)

"""Results files survive crashes, and a result is found again by what was computed."""

import json

import pytest

from vicinal.bench import results
from vicinal.bench.run import jobs
from vicinal.errors import DataError


def test_lines_come_back_as_they_were(tmp_path):
    path = tmp_path / "deep" / "t.jsonl"
    results.append(path, {"row": "ä", "seed": 0})
    results.append(path, {"row": "b", "seed": 1})
    lines, notes = results.read(path)
    assert [line["row"] for line in lines] == ["ä", "b"] and notes == []


def test_a_line_cut_off_by_a_crash_is_said_and_harms_nothing_after_it(tmp_path):
    path = tmp_path / "t.jsonl"
    results.append(path, {"seed": 0})
    whole = path.read_text()
    path.write_text(whole + whole[: len(whole) // 2])
    results.append(path, {"seed": 1})
    lines, notes = results.read(path)
    assert [line["seed"] for line in lines] == [0, 1]
    assert len(notes) == 1 and "line 2" in notes[0]


def test_a_later_format_is_refused_and_an_absent_file_is_empty(tmp_path):
    assert results.read(tmp_path / "none.jsonl") == ([], [])
    (tmp_path / "t.jsonl").write_text(json.dumps({"format": 2}) + "\n")
    with pytest.raises(DataError, match="format 2"):
        results.read_folder(tmp_path)


def test_lines_of_other_programs_in_the_folder_are_left_alone(table, record, tmp_path):
    record(table, {"method": [0.5]})
    (tmp_path / "results" / "other.jsonl").write_text('{"data": "wine", "method": "LANML"}\n')
    lines, notes = results.read_folder(tmp_path / "results")
    assert [line["row"] for line in lines] == ["method"] and notes == []


def test_a_result_is_found_by_settings_not_by_their_spelling(table, record, tmp_path):
    record(table, {"method": [0.5], "untrained": [0.2]})
    lines, _ = results.read_folder(tmp_path / "results")
    job = next(job for job in jobs(table) if job.row == "method")
    wanted = job.identity()
    assert results.find(lines, wanted)["metrics"]["recall@1"] == 0.5
    assert results.find(lines, wanted | {"settings": wanted["settings"] | {"workers": 3, "added_later": 1}})
    assert results.find(lines, wanted | {"settings": wanted["settings"] | {"epochs": 3}}) is None
    assert results.find(lines, wanted | {"seed": 1}) is None
    assert results.find(lines, wanted | {"protocol": "final"}) is None


def test_the_newest_result_counts_and_one_code_can_be_asked_for(table, record, tmp_path):
    record(table, {"method": [0.5]}, code="old")
    record(table, {"method": [0.6]}, code="new", created="2026-02-01T00:00:00+00:00")
    record(table, {"method": [0.7]}, created="2026-03-01T00:00:00+00:00")
    lines, _ = results.read_folder(tmp_path / "results")
    wanted = next(job for job in jobs(table) if job.row == "method").identity()
    assert results.find(lines, wanted)["metrics"]["recall@1"] == 0.7
    assert results.find(lines, wanted, code="old")["metrics"]["recall@1"] == 0.5
    assert results.find(lines, wanted, code="new")["metrics"]["recall@1"] == 0.6
    assert results.find(lines, wanted, code="newer") is None

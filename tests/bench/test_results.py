"""Results files survive crashes, and a result is found again by what was computed."""

from vicinal.bench import results
from vicinal.bench.results import Store
from vicinal.bench.run import jobs
from vicinal.files import read_lines


def test_lines_come_back_and_one_cut_off_by_a_crash_harms_nothing_after_it(tmp_path):
    path = tmp_path / "deep" / "t.jsonl"
    results.append(path, {"row": "ä"})
    whole = path.read_text()
    path.write_text(f"{whole}{whole[: len(whole) // 2]}")
    results.append(path, {"row": "b"})
    assert [line["row"] for line in read_lines(path)] == ["ä", "b"]


def test_a_result_is_found_by_its_slots_whatever_the_table(table, record, tmp_path):
    record(table, {"method": [0.5], "untrained": [0.2]})
    # Of another program.
    (tmp_path / "results" / "other.jsonl").write_text('{"set": "wine", "method": "LANML"}\n')
    store = Store(tmp_path / "results")
    untrained, plain, method = jobs(table)[:3]
    assert (
        store.find({**method.identity(), "row": "called otherwise"})[""]["metrics"]["recall@1"]
        == 0.5
    )
    assert (
        store.find({**untrained.identity(), "row": "untrained"})[""]["metrics"]["recall@1"] == 0.2
    )
    assert store.find({**untrained.identity(), "row": "PCA"}) == {}
    assert store.find({**plain.identity(), "row": "plain"}) == {}
    assert store.find({**method.identity(), "row": "method", "protocol": "final"}) == {}


def test_the_newest_result_counts(table, record, tmp_path):
    record(table, {"method": [0.7]}, created="2026-03-01T00:00:00+00:00")
    record(table, {"method": [0.5]})
    (line,) = (
        Store(tmp_path / "results").find(jobs(table)[2].identity() | {"row": "method"}).values()
    )
    assert line["metrics"]["recall@1"] == 0.7

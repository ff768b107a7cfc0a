"""The table's numbers against scipy and by hand; marks where a reader must not overlook something."""

import json
from dataclasses import replace

import pytest
from scipy import stats

from vicinal.bench.run import collect, jobs, missing
from vicinal.bench.statistics import Estimate
from vicinal.bench.summary import Difference, summarise
from vicinal.bench.wording import legend, row_score

PLAIN, METHOD = [0.50, 0.52, 0.51], [0.55, 0.58, 0.54]


@pytest.fixture
def summary(table, record, tmp_path):
    def make(values):
        record(table, values)
        found = summarise(collect(table, tmp_path / "results"))
        return found, {row.name: row for row in found.rows}

    return make


def test_means_differences_and_corrected_p(summary):
    _, rows = summary({"untrained": [0.4] * 3, "plain": PLAIN, "method": METHOD})
    method, expected = rows["method"], stats.ttest_rel(METHOD, PLAIN)
    assert method.scores["recall@1"].mean == pytest.approx(sum(METHOD) / 3)
    assert method.difference.over_seeds.mean == pytest.approx((0.05 + 0.06 + 0.03) / 3)
    assert method.difference.p == pytest.approx(expected.pvalue)  # the only difference: Holm leaves it as it is
    assert method.difference.over_classes.mean == pytest.approx((5.5 + 0.58 * 10 + 0.54 * 10 - 15.3) / 30, abs=0.05)
    assert method.difference.smallest > 0 and not method.difference.claimed  # 3 seeds claim nothing
    assert method.trials == 20 and rows["plain"].difference is None


def test_incomplete_rows_and_rows_below_untrained_are_marked(summary):
    _, rows = summary({"untrained": [0.505] * 3, "PCA": [0.505] * 3, "plain": PLAIN[:2], "method": [0.4]})
    assert rows["plain"].marks == ("incomplete: 2 of 3 seeds",)
    assert rows["method"].marks == ("incomplete: 1 of 3 seeds", "below untrained")
    assert rows["PCA"].marks == () and rows["whitened PCA"].marks == ("incomplete: 0 of 3 seeds",)
    assert rows["method"].difference.over_seeds.low is None  # one shared seed


def test_a_score_that_not_all_seeds_have_says_how_many_do(table, record, tmp_path):
    record(table, {"plain": PLAIN, "method": METHOD})
    file = tmp_path / "results" / "tiny.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        if line["row"] == "method" and line["seed"] == 0:
            del line["metrics"]["map@r"]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = summarise(collect(table, tmp_path / "results"))
    rows = {row.name: row for row in found.rows}
    assert row_score(rows["method"], "map@r").endswith("(2)") and not row_score(rows["plain"], "map@r").endswith(")")
    assert "that of the seeds that have a score" in " ".join(legend(found))


def test_a_claim_needs_five_seeds_an_interval_above_zero_and_a_small_p_after_holm():
    def difference(count, low, p):
        return Difference("plain", Estimate(0.02, low, 0.03, count), None, p, None)

    assert difference(5, 0.01, 0.04).claimed
    assert not difference(4, 0.01, 0.04).claimed and not difference(5, -0.01, 0.04).claimed
    assert not difference(5, 0.01, 0.06).claimed and not difference(5, 0.01, None).claimed


def test_a_row_that_had_not_as_many_trials_as_its_twin_is_marked(table, record, tmp_path):
    record(table, {"plain": PLAIN, "method": METHOD})
    for trials, marked in ((None, False), (20, False), (3, True)):
        plain = replace(table.rows[0], trials=trials)
        found = summarise(collect(replace(table, rows=(plain, table.rows[1])), tmp_path / "results"))
        assert ("not as many trials as its twin" in found.rows[-1].marks) == marked


@pytest.mark.parametrize(
    ("protocol", "expected"),
    [
        ("validation", "vicinal train {recipe} {data} variant=plain"),
        ("final", "vicinal train {recipe} {data} variant=plain validation=0"),
        ("authors", 'vicinal bench tiny --protocol authors --rows "plain"'),
    ],
)
def test_a_rows_command_trains_it_as_its_protocol_does(protocol, expected, table, tiny, tmp_path):
    found = summarise(collect(table.under(protocol), tmp_path / "results"))
    recipe, data = tiny
    assert next(row.command for row in found.rows if row.name == "plain") == expected.format(recipe=recipe, data=data)


def test_only_what_is_missing_is_run(table, record, tmp_path):
    record(table, {"untrained": [0.4] * 3, "PCA": [0.4] * 3, "whitened PCA": [0.4] * 2, "plain": PLAIN})
    todo = missing(table, collect(table, tmp_path / "results"))
    assert [(job.row, job.seed) for job in todo] == [("method", 0), ("method", 1), ("baselines", 2), ("method", 2)]
    assert missing(table, collect(table, tmp_path / "results", fresh=True)) == jobs(table)  # of whatever code they are


def test_a_row_recorded_for_another_table_serves(table, record, tmp_path):
    record(table, {"plain": PLAIN})
    file = tmp_path / "results" / "tiny.jsonl"
    file.rename(file.with_name("survey.jsonl"))
    assert len(collect(table, tmp_path / "results").lines["plain"]) == 3


def test_a_row_on_other_records_than_its_twin_is_marked(table, record, tmp_path):
    record(table, {"plain": [0.5]}, data={"name": "r", "fingerprint": "one"})
    record(table, {"method": [0.6]}, data={"name": "r", "fingerprint": "other"})
    rows = {row.name: row for row in summarise(collect(table, tmp_path / "results")).rows}
    assert "not the twin's data" in rows["method"].marks
    record(table, {"method": [0.6]}, data={"name": "r", "fingerprint": "one"}, created="2027-01-01")
    rows = {row.name: row for row in summarise(collect(table, tmp_path / "results")).rows}
    assert "not the twin's data" not in rows["method"].marks

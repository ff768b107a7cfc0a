"""The table's numbers against scipy and by hand; marks where a reader must not overlook something."""

import pytest
from scipy import stats

from vicinal.bench.run import collect, jobs, missing
from vicinal.bench.summary import summarise

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


def test_curves_have_bands_over_seeds(summary):
    found, _ = summary({"plain": PLAIN, "method": METHOD})
    chart = found.charts[0]
    assert chart.title == "Validation recall@1" and found.charts[-1].title == "Loss"
    assert chart.lines["plain"].low[-1] == 0.50 and chart.lines["plain"].high[-1] == 0.52


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

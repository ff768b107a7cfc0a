"""The plan of ANML's Table 2: in which order units come, and that those recorded are found again."""

import json
from pathlib import Path

import pytest

from vicinal.bench.linear_plan import FULL, QUICK
from vicinal.bench.linear_units import RACED

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def test_units_come_split_by_split_and_the_long_ones_first():
    units = list(QUICK.units(["euclidean", "lanml-"]))
    assert len(units) == len(set(units)) == 5 * 9 * 2
    assert [str(unit) for unit in units[:3]] == ["vehicle 0 lanml-", "vehicle 0 euclidean", "australian 0 lanml-"]
    assert [unit.split for unit in units] == sorted(unit.split for unit in units)


@pytest.mark.parametrize("plan", [FULL, QUICK], ids=lambda plan: plan.name)
def test_recorded_units_are_those_of_the_plan(plan):
    lines = [json.loads(text) for text in (RESULTS / f"{plan.kept}.jsonl").read_text().splitlines()]
    assert lines
    for line in lines:
        assert line["set"] in plan.sets and line["split"] < plan.splits
        assert "error" in line or line["budget"] == (plan.raced if line["trained_on"] > RACED else plan.budget)

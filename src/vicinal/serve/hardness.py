"""The hardness view: what was hard in training and what is hard in the result, read from the run directory."""

from typing import Any

from vicinal.reports.artefacts import read_artefacts
from vicinal.reports.exhibits import read_exhibition
from vicinal.reports.series import Chart, Curve, charts, read_progress
from vicinal.run_directory import RunDirectory
from vicinal.search.collection import Snapshot
from vicinal.serve.answers import ChartAnswer, ConfusedPair, HardClass, Hardness, Line, text

_ACTIVE = "The share of a batch's tuples that still have something to learn: it falls as the easy ones are solved."


def hardness(run: RunDirectory, snapshot: Snapshot) -> Hardness:
    """Charts of the method's own quantities (its groups, and the share of active tuples), hard and confused classes."""
    artefacts, exhibition = read_artefacts(run), read_exhibition(run)
    drawn = charts(read_progress(run.metrics()))
    # The hardness charts first, then the share of active tuples, then loss and validation, which give them meaning.
    order = sorted(drawn, key=lambda chart: (_rank(chart), drawn.index(chart)))
    readings = {"scalar-active": _ACTIVE} | {f"scalar-{group}": said for group, said in exhibition.readings.items()}
    selected = ((run.results or {}).get("selected") or {}).get("step")
    held = snapshot.labels()
    return Hardness(
        generation=snapshot.generation,
        charts=[_chart(chart, readings.get(chart.key, ""), selected) for chart in order],
        worst=[
            HardClass(label=text(e.label), records=e.count, recall=e.recall, items=held.get(e.label, 0))
            for e in artefacts.worst
        ],
        confused=[
            ConfusedPair(label=text(e.label), taken_for=text(e.taken_for), share=e.share, queries=e.queries)
            for e in artefacts.confused
        ],
        exhibits=len(exhibition.exhibits),
    )


def _rank(chart: Chart) -> int:
    if chart.key == "scalar-active":
        return 1
    return 2 if chart.key == "scalar-loss" or chart.key.startswith("evaluation-") else 0


def _chart(chart: Chart, reading: str, selected: Any) -> ChartAnswer:
    return ChartAnswer(
        key=chart.key,
        title=chart.title,
        unit=chart.unit,
        axis=chart.axis,
        mark=selected if chart.axis == "step" and isinstance(selected, (int, float)) else None,
        reading=reading,
        lines=[_line(name, curve) for name, curve in chart.lines.items()],
    )


def _line(name: str, curve: Curve) -> Line:
    spread = curve.low != curve.high
    return Line(
        name=text(name),
        x=curve.steps,
        y=curve.mean,
        low=curve.low if spread else None,
        high=curve.high if spread else None,
    )

"""Diagnostics of generalization, each with a caption that says how to read it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vicinal.reports.series import Chart, Curve
from vicinal.reports.tables import gain, per_cent


@dataclass(frozen=True)
class Bar:
    """One value of a measure: whose it is, as text, and as a part (0..1) of the full width."""

    name: str
    text: str
    part: float


@dataclass(frozen=True)
class Measure:
    title: str
    bars: list[Bar]
    caption: str


SPECTRUM_CAPTION = (
    "Singular values, largest first: a line that falls late uses many directions, a cliff means that few carry all."
)
ACTIVE_CAPTION = (
    "Tuples of a batch that still have something to learn: near 0 the examples have become too easy, "
    "stuck near 100 % nothing is being learned."
)
_RECALL = "High on both is what one wants; a wide gap means that the training classes were memorized."
_RATIO = (
    "Mean distance within classes over that between class means. Lower is tighter; a train value far below the other "
    "means that only the training classes were squeezed."
)
_DECAY = "0 would use all directions of the space alike; the higher it is, the fewer directions carry the embedding."


def measures(rows: Sequence[Mapping[str, Any]]) -> list[Measure]:
    """The measures that at least one row of ``diagnostics.json`` has."""
    known = {row["name"]: row["recall@1"] for row in rows if row.get("recall@1") is not None}
    unseen = next((name for name in known if name in ("test", "validation")), "test")  # a run without test classes
    difference = ""
    if {"train", unseen} <= known.keys():
        difference = f" Here: {gain(known['train'], known[unseen])} points from train to {unseen}."
    found = [
        Measure(f"Recall@1, train against {unseen}", _bars(rows, "recall@1", as_share=True), _RECALL + difference),
        Measure("Distances within / between classes", _bars(rows, "intra_inter_ratio"), _RATIO),
        Measure("Spectral decay", _bars(rows, "spectral_decay"), _DECAY),
    ]
    return [measure for measure in found if measure.bars]


def spectrum_chart(rows: Sequence[Mapping[str, Any]]) -> Chart | None:
    """The singular values of the embeddings, one line per row that has them."""
    lines = {}
    for row in rows:
        # Zero, a direction that is not used at all, has no place on a logarithmic axis: the line ends before it.
        values = [float(value) for value in row.get("spectrum") or [] if value > 0]
        if values:
            lines[row["name"]] = Curve([float(i) for i in range(1, len(values) + 1)], values, values, values)
    return Chart("spectrum", "Spectrum of the embeddings", "falling", lines, axis="direction") if lines else None


def _bars(rows: Sequence[Mapping[str, Any]], key: str, *, as_share: bool = False) -> list[Bar]:
    values = {row["name"]: float(row[key]) for row in rows if row.get(key) is not None}
    full = 1.0 if as_share else max((value for value in values.values()), default=0.0)
    return [
        Bar(name, f"{per_cent(value)} %" if as_share else f"{value:.3f}", max(value / full, 0.0) if full > 0 else 0.0)
        for name, value in values.items()
    ]

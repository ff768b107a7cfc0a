"""The result table: one row per metric, one column per model, and what training gained."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MISSING = "–"
_TITLES = {
    "nmi": "NMI",
    "ami": "AMI",
    "f1": "F1",
    "map": "mAP",
    "map@r": "MAP@R",
    "r_precision": "R-precision",
    "eer": "EER",
}


@dataclass(frozen=True)
class Table:
    """Text, ready to be printed or set in HTML.

    Attributes:
        columns: ``"metric"``, the models' names in the run's order and, where both are there to compare, ``"gain"``.
        rows: one tuple per metric, as long as ``columns``.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def table(results: Mapping[str, Any]) -> Table:
    """The content of ``results.json`` in per cent with one decimal, in the metric order of the row ``trained``.

    The gain is trained minus untrained, in points, of the printed numbers: the table adds up for its reader.

    >>> rows = [{"name": "untrained", "metrics": {"recall@1": 0.47}},
    ...         {"name": "trained", "metrics": {"recall@1": 0.912, "nmi": 0.88}}]
    >>> table({"rows": rows}).columns
    ('metric', 'untrained', 'trained', 'gain')
    >>> table({"rows": rows}).rows
    (('Recall@1', '47.0', '91.2', '+44.2'), ('NMI', '–', '88.0', '–'))
    """
    scores = _scores(results)
    compared = {"untrained", "trained"} <= scores.keys()
    rows = []
    for metric in _metrics(scores):
        row = [metric_title(metric), *(per_cent(model.get(metric)) for model in scores.values())]
        if compared:
            row.append(gain(scores["untrained"].get(metric), scores["trained"].get(metric)))
        rows.append(tuple(row))
    return Table(("metric", *scores, *(["gain"] if compared else [])), tuple(rows))


def changes(results: Mapping[str, Any]) -> list[tuple[float, float] | None]:
    """For each row of the table, the score before and after training where both are there: to be drawn beside it."""
    scores = _scores(results)
    pairs = []
    for metric in _metrics(scores):
        before, after = (scores.get(name, {}).get(metric) for name in ("untrained", "trained"))
        pairs.append(None if before is None or after is None else (float(before), float(after)))
    return pairs


def metric_title(name: str) -> str:
    """A metric's name as a person writes it.

    >>> metric_title("recall@10"), metric_title("map@r"), metric_title("map@r 128-d"), metric_title("tar@far=0.001")
    ('Recall@10', 'MAP@R', 'MAP@R 128-d', 'Tar@far=0.001')
    >>> metric_title("train nmi")
    'NMI in training'
    """
    if name.startswith("train "):
        return f"{metric_title(name.removeprefix('train '))} in training"
    metric, *of_what = name.split(" ")
    title = _TITLES.get(metric, metric[:1].upper() + metric[1:].replace("_", " "))
    return " ".join([title, *of_what])


def per_cent(fraction: float | None) -> str:
    """
    >>> per_cent(0.9128), per_cent(None)
    ('91.3', '–')
    """
    return MISSING if fraction is None else f"{100 * fraction:.1f}"


def gain(before: float | None, after: float | None) -> str:
    """The difference of two printed percentages, with its sign.

    >>> gain(0.4704, 0.9126), gain(0.5, 0.45), gain(0.5, 0.5), gain(None, 0.5)
    ('+44.3', '−5.0', '0.0', '–')
    """
    if before is None or after is None:
        return MISSING
    return signed((round(100 * after, 1) - round(100 * before, 1)) / 100)


def signed(fraction: float) -> str:
    """
    >>> signed(0.0123), signed(-0.004), signed(0.00001)
    ('+1.2', '−0.4', '0.0')
    """
    text = f"{abs(100 * fraction):.1f}"
    return text if text == "0.0" else ("+" if fraction > 0 else "−") + text


def _scores(results: Mapping[str, Any]) -> dict[str, Mapping[str, float]]:
    return {row["name"]: row["metrics"] for row in results["rows"]}


def _metrics(scores: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Those of the trained model in its order; then those that only another model has, which still count."""
    return list(dict.fromkeys([*scores.get("trained", {}), *(metric for row in scores.values() for metric in row)]))

"""The result table: one row per metric, one column per model, and what training gained."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Estimate = Mapping[str, float | None] | None  # ``mean``, ``low`` and ``high``
MISSING = "–"
MUCH = 0.05  # what no interval need show to be worth a word
_TITLES = {name: name.upper() for name in ("nmi", "ami", "f1", "map@r", "eer")}
_TITLES |= {"map": "mAP", "r_precision": "R-precision"}


@dataclass(frozen=True)
class Table:
    """Text, ready to be printed or set in HTML.

    Attributes:
        columns: ``"metric"``, the models' names in the run's order and, where both are there to
            compare, ``"gain"``.
        rows: one tuple per metric, as long as ``columns``.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def table(results: Mapping[str, Any]) -> Table:
    """The content of ``results.json`` in per cent with one decimal, in the metric order of the row
    ``trained``.

    The gain is trained minus untrained, in points, of the printed numbers: the table adds up for
    its reader. Where the run wrote it, the 95 % interval over queries and classes follows. A score
    of k-means has its spread over seeds.

    >>> rows = [{"name": "untrained", "metrics": {"recall@1": 0.47}},
    ...  {"name": "trained", "metrics": {"recall@1": 0.912, "nmi": 0.88}, "spread": {"nmi": 0.004}}]
    >>> table({"rows": rows}).columns
    ('metric', 'untrained', 'trained', 'gain')
    >>> table({"rows": rows}).rows
    (('Recall@1', '47.0', '91.2', '+44.2'), ('NMI', '–', '88.0 ± 0.4', '–'))
    """
    scores = _scores(results)
    spread = {row["name"]: row.get("spread") or {} for row in results["rows"]}
    compared = {"untrained", "trained"} <= scores.keys()
    rows = []
    for metric in _metrics(scores):
        row = [metric_title(metric)]
        for name, model in scores.items():
            around = f" ± {per_cent(spread[name][metric])}" if metric in spread[name] else ""
            row.append(per_cent(model.get(metric)) + around)
        if compared:
            words = gain(scores["untrained"].get(metric), scores["trained"].get(metric))
            row.append(f"{words} {interval(_gain(results, metric))}".rstrip())
        rows.append(tuple(row))
    return Table(("metric", *scores, *(["gain"] if compared else [])), tuple(rows))


def headline(results: Mapping[str, Any]) -> dict[str, Any] | None:
    """What training changed, by the first metric of the table, also where it fell.

    Returns:
        ``metric``, ``before``, ``after`` and ``gain`` as text, ``interval`` as text (empty where
        the run has none), ``significant`` (None where it is not known), and ``head``, what the
        closed-form head alone gained; None where nothing was compared.

    >>> scores = {"untrained": 0.5, "trained": 0.508}
    >>> rows = [{"name": name, "metrics": {"map@r": score}} for name, score in scores.items()]
    >>> known = {"untrained": {"map@r": {"mean": 0.008, "low": -0.01, "high": 0.02}}}
    >>> found = headline({"rows": rows, "gains": known})
    >>> found["gain"], found["interval"], found["significant"]
    ('+0.8', '(−1.0 to +2.0)', False)
    """
    scores = _scores(results)
    if not {"untrained", "trained"} <= scores.keys():
        return None
    compared = scores["trained"].keys() & scores["untrained"].keys()
    metric = next((name for name in _metrics(scores) if name in compared), None)
    if metric is None:
        return None
    known = _gain(results, metric)
    bounds = _bounds(known)
    before, after, head = (
        scores.get(name, {}).get(metric) for name in ("untrained", "trained", "head start")
    )
    return {
        "metric": metric_title(metric),
        "before": per_cent(before),
        "after": per_cent(after),
        "gain": gain(before, after),
        "interval": interval(known),
        "significant": None if bounds is None else bounds[0] > 0 or bounds[1] < 0,
        "head": None if head is None else gain(before, head),
    }


def warning(results: Mapping[str, Any]) -> str:
    """Say in a sentence that the trained model is below where training started; empty where not.

    The start is the head in closed form where there is one, and the untrained network. Recall@1 and
    MAP@R are named if they fell at all, other scores if their interval excludes 0, or if they fell
    by 5 points and, of k-means, by more than its spreads.

    >>> names = {"untrained": 0.833, "trained": 0.8}
    >>> rows = [{"name": name, "metrics": {"recall@1": score}} for name, score in names.items()]
    >>> warning({"rows": rows})
    'below the untrained model: Recall@1 83.3 → 80.0, −3.3 points'
    """
    scores = _scores(results)
    spreads = {row["name"]: row.get("spread") or {} for row in results["rows"]}
    starts = {"head start": "the head it started from", "untrained": "the untrained model"}
    for start, called in starts.items():
        fell = []
        for metric, before in scores.get(start, {}).items():
            known = _gain(results, metric, start)
            bounds = _bounds(known)
            after = scores.get("trained", {}).get(metric, before)
            changed = gain(before, after)
            told = metric in ("recall@1", "map@r") or (bounds is not None and bounds[1] < 0)
            around = sum(spreads.get(name, {}).get(metric, 0.0) for name in (start, "trained"))
            if changed.startswith("−") and (told or before - after >= max(MUCH, around)):
                move = f"{per_cent(before)} → {per_cent(after)}"
                points = f"{changed} points {interval(known)}".rstrip()
                fell.append(f"{metric_title(metric)} {move}, {points}")
        if fell:
            return f"below {called}: {'; '.join(fell)}"
    return ""


def interval(estimate: Estimate) -> str:
    """
    >>> interval({"mean": 0.1, "low": -0.01, "high": 0.21}), interval(None)
    ('(−1.0 to +21.0)', '')
    """
    bounds = _bounds(estimate)
    return f"({signed(bounds[0])} to {signed(bounds[1])})" if bounds else ""


def _gain(results: Mapping[str, Any], metric: str, start: str = "untrained") -> Estimate:
    gains: Mapping[str, Any] = results.get("gains") or {}
    return (gains.get(start) or {}).get(metric)


def _bounds(estimate: Estimate) -> tuple[float, float] | None:
    low, high = (None, None) if estimate is None else (estimate["low"], estimate["high"])
    return None if low is None or high is None else (low, high)


def metric_title(name: str) -> str:
    """A metric's name as a person writes it.

    >>> [metric_title(name) for name in ("recall@10", "map@r", "map@r 128-d", "tar@far=0.001")]
    ['Recall@10', 'MAP@R', 'MAP@R 128-d', 'Tar@far=0.001']
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
    """Those of the trained model in its order; then those that only another model has, which still
    count."""
    rows = scores.get("trained", {}), *scores.values()
    return list(dict.fromkeys(metric for row in rows for metric in row))

"""What ``vicinal cluster`` and ``vicinal dedupe`` found, in the words and the order of their table and page."""

import numpy as np
import torch

from vicinal.errors import ConfigError
from vicinal.evaluation.clustering import clustering_scores
from vicinal.run_directory import RunDirectory
from vicinal.search.clusters import Grouping, Method, cluster
from vicinal.search.collection import Snapshot
from vicinal.search.duplicates import Duplicates
from vicinal.search.group_page import Contents, Group, mostly
from vicinal.search.nearness import DENSE_RATE, Nearness, nearness

_TYPICAL = 18  # pictures of a group, the nearest its mean
_SAME = 24  # of a group of near duplicates


def cluster_snapshot(
    run: RunDirectory,
    snapshot: Snapshot,
    *,
    method: Method = "k-means",
    groups: int | None = None,
    least: int = 5,
    distance: float | None = None,
    rate: float | None = None,
    seed: int = 0,
    device: torch.device | None = None,
) -> tuple[Grouping, list[str]]:
    """The groups of a collection, and how they were found in words; DBSCAN's distance, if not named, is calibrated."""
    near = None
    if method != "dbscan" and rate is not None:
        raise ConfigError(f"--max-false-match calibrates DBSCAN's distance, but the method is {method}. Leave it out.")
    if method == "dbscan":
        near = nearness(run, metric=snapshot.metric, distance=distance, rate=rate, usual=DENSE_RATE, device=device)
        distance = near.distance
    found = cluster(
        snapshot.vectors(),
        method=method,
        groups=groups,
        distance=distance,
        least=least,
        metric=snapshot.metric,
        seed=seed,
    )
    return found, [found.words, *([near.words] if near else [])]


def cluster_contents(snapshot: Snapshot, found: Grouping, lead: list[str]) -> Contents:
    """The page of a grouping: largest group first, each with what is nearest its mean first; loose things last."""
    labels = [item.label for item in snapshot.items()]
    facts = [("groups", f"{len(found.sizes):,}"), ("things in a group", f"{sum(found.sizes):,}")]
    facts += [("in none", f"{found.loose:,}")] if found.loose else []
    facts += (
        [("NMI with the labels", f"{agreement:.3f}")] if (agreement := _agreement(found, labels)) is not None else []
    )
    groups = []
    for number, size in enumerate(found.sizes):
        rows = found.members(number)
        named = mostly([labels[row] for row in rows])
        title = f"Group {number + 1}: {size:,} things" + (f", {named}" if named else "")
        groups.append(Group(number + 1, rows, found.spread[rows].tolist(), title))
    if found.loose:
        rows = np.flatnonzero(found.assigned < 0).tolist()
        groups.append(Group(0, rows, found.spread[rows].tolist(), f"In no group: {found.loose:,} things"))
    reading = "The number below a picture is its distance from the mean of its group; what is nearest comes first."
    return Contents(
        "Groups in the collection",
        facts,
        [*lead, reading],
        groups,
        _TYPICAL,
        "No group was found: all things are loose.",
    )


def duplicate_contents(snapshot: Snapshot, found: Duplicates, near: Nearness) -> Contents:
    """The page of near duplicates: surest group first; groups whose labels differ are marked."""
    labels = [item.label for item in snapshot.items()]
    disagreeing = set(found.disagreeing(labels))
    facts = [
        ("groups", f"{len(found.groups):,}"),
        ("things in them", f"{found.rows:,}"),
        ("distance", f"{found.distance:.4g}"),
    ]
    facts += [("groups with different labels", f"{len(disagreeing):,}")] if disagreeing else []
    lead = [near.words]
    if near.false_match is not None:
        lead.append(
            f"{found.compared:,} pairs were compared and {found.pairs:,} lie within the distance; at that rate up to "
            f"about {near.false_match * found.compared:,.0f} of these only look alike."
        )
    lead.append("Nothing was removed. The number below a picture is its distance to the nearest other of its group.")
    groups = []
    for place, group in enumerate(found.groups):
        title = f"Group {place + 1}: {len(group.rows):,} things"
        named = sorted({label for row in group.rows if (label := labels[row]) is not None})
        warning = (
            f"labels differ: {', '.join(named[:4])}{', ...' if len(named) > 4 else ''}" if place in disagreeing else ""
        )
        groups.append(Group(place + 1, group.rows, group.nearest, title, warning))
    return Contents("Near duplicates", facts, lead, groups, _SAME, "No two things lie within the distance.")


def _agreement(found: Grouping, labels: list[str | None]) -> float | None:
    """NMI of groups and labels, of what has both; None where there is nothing to compare."""
    rows = [row for row, label in enumerate(labels) if label is not None and found.assigned[row] >= 0]
    names = {label: place for place, label in enumerate(dict.fromkeys(labels[row] for row in rows))}
    if len(names) < 2:
        return None
    classes = torch.tensor([names[labels[row]] for row in rows])
    return clustering_scores(classes, torch.from_numpy(found.assigned[rows]))["nmi"]

"""What a report shows besides numbers: retrievals, map, confusions, diagnostics (docs/howto/run_directory.md)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from PIL import Image, ImageOps
from torch import Tensor

from vicinal.data.records import Records
from vicinal.evaluation.encoder import Embedded
from vicinal.evaluation.generalization import intra_inter_ratio, spectral_decay, spectrum
from vicinal.evaluation.neighbors import Neighbors, neighbors
from vicinal.evaluation.projection import tsne
from vicinal.evaluation.retrieval import relevant_counts, right
from vicinal.files import write_atomically
from vicinal.run_directory import RunDirectory

QUERIES, NEIGHBOURS = 24, 8  # of the gallery of retrievals
MAP_POINTS = 1500  # t-SNE takes about 10 s for these on one core
WORST, CONFUSED = 12, 12
MEMBERS = 6  # thumbnails of each of the worst classes
TILE, COLUMNS = 48, 40  # thumbnails: pixels per side, tiles per row


@dataclass(frozen=True)
class ClassRecall:
    """How often the first neighbor of a class's queries is of that class."""

    label: int
    queries: int
    hits: int

    @property
    def recall(self) -> float:
        return self.hits / self.queries


@dataclass(frozen=True)
class Confusion:
    """How often the first neighbor of a class's queries is of one other class.

    Attributes:
        label: the queries' class.
        taken_for: their neighbors' class.
        share: of the class's queries.
        queries: how many queries the class has.
        example: position of one such query, the first, and of its neighbor.
    """

    label: int
    taken_for: int
    share: float
    queries: int
    example: tuple[int, int]


def write_artefacts(run: RunDirectory, trained: Embedded, untrained: Embedded | None, *, seed: int) -> None:
    """Write right answers by class and, given ``untrained`` to compare with, the pictures of a report.

    They are retrievals, map, confusions and their thumbnails.
    """
    rng = np.random.default_rng(seed)
    queries, gallery = trained.roles()
    found = _nearest(trained.vectors, queries, gallery, NEIGHBOURS if untrained is not None else 1)
    worst = recall_by_class(found.ids[:, 0], trained.labels, queries, gallery)
    if gallery is None:
        rows = sorted(worst, key=lambda row: row.label)
        columns = {name: np.array([getattr(row, name) for row in rows]) for name in ("label", "queries", "hits")}
        run.write_arrays("by_class", **columns)
    if untrained is None:
        return
    shown = _retrievals(run, trained, untrained, found, rng) | _map(run, trained, rng, seed)
    confused = confused_pairs(found.ids[:, 0], trained.labels, queries, gallery)
    shown |= _classes(run, worst[:WORST], confused[:CONFUSED], trained)
    _records(run, trained.records, sorted(shown))


def _nearest(
    vectors: Float[Tensor, "n d"], queries: Int[Tensor, "q"], gallery: Int[Tensor, "g"] | None, count: int
) -> Neighbors:
    """The nearest rows of some rows, by position, in a gallery or among the other rows; -1 where there are too few."""
    if gallery is not None:
        found = neighbors(vectors[queries], count, gallery=vectors[gallery])
        return replace(found, ids=torch.where(found.ids >= 0, gallery[found.ids], -1))
    if len(queries) == len(vectors):
        return neighbors(vectors, count)
    found = neighbors(vectors[queries], count + 1, gallery=vectors)
    own = found.ids == queries[:, None]
    own[:, -1] |= ~own.any(dim=1)  # hidden behind duplicates of itself: then the last one goes
    ids, distances = (part[~own].view(len(queries), count) for part in (found.ids, found.distances))
    return replace(found, ids=ids, distances=distances)


def diagnosis(name: str, embedded: Embedded, scores: Mapping[str, float]) -> dict[str, object]:
    """One row of ``diagnostics.json``: its scores, density and spectrum."""
    vectors, labels = embedded.vectors, embedded.labels
    return {
        "name": name,
        **scores,
        "intra_inter_ratio": intra_inter_ratio(vectors, labels),
        "spectral_decay": spectral_decay(vectors),
        "spectrum": [round(float(value), 6) for value in spectrum(vectors)],
    }


def _retrievals(
    run: RunDirectory, trained: Embedded, untrained: Embedded, found: Neighbors, rng: np.random.Generator
) -> set[int]:
    """Neighbors of some queries, one per class while classes last, before and after training."""
    queries, gallery = trained.roles()
    labels = trained.records.labels[queries.numpy()]
    order = rng.permutation(len(labels))
    _, first = np.unique(labels[order], return_index=True)
    chosen = torch.from_numpy(np.unique(np.concatenate([rng.permutation(order[first]), order])[:QUERIES]))
    query, after = queries[chosen], found.ids[chosen]
    before = _nearest(untrained.vectors, query, gallery, NEIGHBOURS).ids
    run.write_arrays(
        "retrieval",
        query=query.numpy(),
        neighbours=after.numpy(),
        distances=found.distances[chosen].numpy(),
        untrained_neighbours=before.numpy(),
    )
    return {*query.tolist(), *after.flatten().tolist(), *before.flatten().tolist()} - {-1}


def _map(run: RunDirectory, trained: Embedded, rng: np.random.Generator, seed: int) -> set[int]:
    """t-SNE of whole classes, as many as the points allow: a class shown in part would look tighter than it is."""
    labels = trained.records.labels
    classes, sizes = np.unique(labels, return_counts=True)
    order = rng.permutation(len(classes))
    fitting = order[np.cumsum(sizes[order]) <= MAP_POINTS]
    chosen = fitting if len(fitting) else order[:1]
    record = np.flatnonzero(np.isin(labels, classes[chosen]))[:MAP_POINTS]
    if len(record) < 4:
        return set()
    position = tsne(trained.vectors[torch.from_numpy(record)], seed=seed)
    run.write_arrays("map", record=record, position=position.numpy())
    return set(record.tolist())


def _classes(run: RunDirectory, worst: list[ClassRecall], confused: list[Confusion], trained: Embedded) -> set[int]:
    """The worst classes, and the pairs of classes whose first neighbor is most often the other's."""
    classes = trained.records.classes
    run.write_document(
        "classes",
        {
            "worst": [{"class": classes[c.label], "records": c.queries, "recall@1": c.recall} for c in worst],
            "confused": [
                {
                    "class": classes[pair.label],
                    "taken_for": classes[pair.taken_for],
                    "share": pair.share,
                    "queries": pair.queries,
                    "example": list(pair.example),
                }
                for pair in confused
            ],
        },
    )
    members = [(trained.labels == each.label).nonzero().flatten()[:MEMBERS].tolist() for each in worst]
    return {index for rows in (*members, *(pair.example for pair in confused)) for index in rows}


def _records(run: RunDirectory, records: Records, shown: Iterable[int]) -> None:
    """Names and classes of the records that the artefacts mention, with a thumbnail each where they are pictures."""
    shown = list(shown)
    pictures = records.source.kind == "images"
    if pictures:
        run.artefacts_path.mkdir(parents=True, exist_ok=True)
        sheet = _contact_sheet(records, shown)
        write_atomically(run.thumbnails_path, lambda file: sheet.save(file, format="PNG", optimize=True))
    rows = [
        {
            "id": index,
            "name": records.source.name(index),
            "class": records.classes[records.labels[index]],
            "tile": place if pictures else None,
        }
        for place, index in enumerate(shown)
    ]
    run.write_document("records", {"tile": TILE, "columns": COLUMNS, "records": rows})


def _contact_sheet(records: Records, shown: list[int]) -> Image.Image:
    """Square tiles in one picture, so that a page embeds it once."""
    first = records.source.read(shown[0])
    size = (COLUMNS * TILE, -(-len(shown) // COLUMNS) * TILE)
    sheet = Image.new("L" if first.mode == "L" else "RGB", size)
    for place, index in enumerate(shown):
        tile = ImageOps.fit(records.source.read(index), (TILE, TILE))
        sheet.paste(tile, (place % COLUMNS * TILE, place // COLUMNS * TILE))
    return sheet


def recall_by_class(
    first: Int[Tensor, "q"], labels: Int[Tensor, "n"], queries: Int[Tensor, "q"], gallery: Int[Tensor, "g"] | None
) -> list[ClassRecall]:
    """Recall@1 of each class, worst first, larger classes before smaller ones of equal recall.

    Classes that no neighbor can be of (no other row) are left out.

    Args:
        first: position of the first neighbor of each query; -1 for none.
        labels: of all rows.
        queries: positions of the queries.
        gallery: positions of the gallery; None for leave-one-out.

    >>> recall_by_class(torch.tensor([1, 2, 3, 2]), torch.tensor([0, 0, 1, 1]), torch.arange(4), None)[0]
    ClassRecall(label=0, queries=2, hits=1)
    """
    own = labels[queries]
    asked = relevant_counts(own, None if gallery is None else labels[gallery]) > 0
    hits = right(first.unsqueeze(1), own, labels).squeeze(1)[asked]
    classes, place, sizes = torch.unique(own[asked], return_inverse=True, return_counts=True)
    found = torch.bincount(place, weights=hits.double(), minlength=len(classes)).long()
    rows = zip(classes.tolist(), sizes.tolist(), found.tolist(), strict=True)
    return sorted((ClassRecall(*row) for row in rows), key=lambda row: (row.recall, -row.queries, row.label))


def confused_pairs(
    first: Int[Tensor, "q"], labels: Int[Tensor, "n"], queries: Int[Tensor, "q"], gallery: Int[Tensor, "g"] | None
) -> list[Confusion]:
    """Pairs of classes by the share of the one's queries whose first neighbor is of the other, largest first.

    Of equal shares the one of more queries comes first. Arguments and left-out classes are as in ``recall_by_class``.

    >>> confused_pairs(torch.tensor([1, 2, 3, 2]), torch.tensor([0, 0, 1, 1]), torch.arange(4), None)
    [Confusion(label=0, taken_for=1, share=0.5, queries=2, example=(1, 2))]
    """
    own = labels[queries]
    asked = relevant_counts(own, None if gallery is None else labels[gallery]) > 0
    sizes = torch.bincount(own)
    cases: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for place in (asked & (first >= 0) & (labels[first] != own)).nonzero().flatten().tolist():
        query, neighbor = int(queries[place]), int(first[place])
        cases.setdefault((int(labels[query]), int(labels[neighbor])), []).append((query, neighbor))
    pairs = [
        Confusion(label, other, len(found) / int(sizes[label]), int(sizes[label]), found[0])
        for (label, other), found in cases.items()
    ]
    return sorted(pairs, key=lambda pair: (-pair.share, -pair.queries, pair.label, pair.taken_for))

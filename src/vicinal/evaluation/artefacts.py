"""What a report shows besides numbers: retrievals, map, confusions, diagnostics, thumbnails (docs/run_directory.md)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from PIL import Image, ImageOps
from torch import Tensor

from vicinal.data.records import BOTH, GALLERY, QUERY, Records
from vicinal.evaluation.confusion import confused_pairs, recall_by_class
from vicinal.evaluation.encoder import Embedded
from vicinal.evaluation.generalisation import intra_inter_ratio, spectral_decay, spectrum
from vicinal.evaluation.neighbors import Neighbors, neighbors
from vicinal.evaluation.projection import tsne
from vicinal.files import write_atomically
from vicinal.run_directory import RunDirectory

QUERIES, NEIGHBOURS = 24, 8  # of the gallery of retrievals
MAP_POINTS = 1500  # t-SNE takes about 10 s for these on one core
WORST, CONFUSED = 12, 12
MEMBERS = 6  # thumbnails of each of the worst classes
TILE, COLUMNS = 48, 40  # thumbnails: pixels per side, tiles per row


def write_artefacts(run: RunDirectory, trained: Embedded, untrained: Embedded | None, *, seed: int) -> None:
    """Write right answers by class and, given ``untrained`` to compare with, the pictures of a report.

    They are retrievals, map, confusions and their thumbnails.
    """
    rng = np.random.default_rng(seed)
    search = _Search.of(trained.records)
    found = search.neighbors(trained.vectors, NEIGHBOURS if untrained is not None else 1)
    if search.gallery is None:
        _by_class(run, found.ids[:, 0], trained)
    if untrained is None:
        return
    shown = _retrievals(run, search, found, trained, untrained, rng) | _map(run, trained, rng, seed)
    shown |= _confusions(run, search, found.ids[:, 0], trained)
    _records(run, trained.records, sorted(shown))


@dataclass(frozen=True)
class _Search:
    """Which records are sought, and among which: each among the others, or queries in a gallery.

    Attributes:
        queries: positions of the records that are sought.
        gallery: positions of those among which; None: the other records.
    """

    queries: Int[Tensor, "q"]
    gallery: Int[Tensor, "g"] | None

    @classmethod
    def of(cls, records: Records) -> "_Search":
        role = records.columns.get("role")
        if role is None or (role == BOTH).all():
            return cls(torch.arange(len(records)), None)
        return cls(*(torch.from_numpy(np.flatnonzero(role == wanted)) for wanted in (QUERY, GALLERY)))

    def neighbors(self, vectors: Float[Tensor, "n d"], count: int) -> Neighbors:
        """The nearest of each query, as places in the gallery where there is one, else as positions."""
        if self.gallery is None:
            return neighbors(vectors, count)
        return neighbors(vectors[self.queries], count, gallery=vectors[self.gallery])

    def positions(self, ids: Int[Tensor, "*any"]) -> Int[Tensor, "*any"]:
        """Positions of what ``neighbours`` found; -1 stays."""
        return ids if self.gallery is None else torch.where(ids >= 0, self.gallery[ids], -1)


def diagnosis(name: str, embedded: Embedded, scores: Mapping[str, float]) -> dict[str, object]:
    """One row of ``diagnostics.json``: its scores, and what shape its cloud has."""
    vectors, labels = embedded.vectors, embedded.labels
    return {
        "name": name,
        **scores,
        "intra_inter_ratio": intra_inter_ratio(vectors, labels),
        "spectral_decay": spectral_decay(vectors),
        "spectrum": [round(float(value), 6) for value in spectrum(vectors)],
    }


def _retrievals(
    run: RunDirectory,
    search: _Search,
    found: Neighbors,
    trained: Embedded,
    untrained: Embedded,
    rng: np.random.Generator,
) -> set[int]:
    """Neighbors of some queries, one per class while classes last, before and after training."""
    labels = trained.records.labels[search.queries.numpy()]
    order = rng.permutation(len(labels))
    _, first = np.unique(labels[order], return_index=True)
    chosen = torch.from_numpy(np.unique(np.concatenate([rng.permutation(order[first]), order])[:QUERIES]))
    query, after = search.queries[chosen], search.positions(found.ids[chosen])
    if search.gallery is None:
        before = _others(untrained.vectors, query)
    else:
        gallery = untrained.vectors[search.gallery]
        before = search.positions(neighbors(untrained.vectors[query], NEIGHBOURS, gallery=gallery).ids)
    run.write_arrays(
        "retrieval",
        query=query.numpy(),
        neighbours=after.numpy(),
        distances=found.distances[chosen].numpy(),
        untrained_neighbours=before.numpy(),
    )
    return {*query.tolist(), *after.flatten().tolist(), *before.flatten().tolist()} - {-1}


def _others(vectors: Float[Tensor, "n d"], query: Int[Tensor, "q"]) -> Int[Tensor, "q k"]:
    """Nearest rows of some rows, themselves left out; -1 where there are not enough."""
    ids = neighbors(vectors[query], NEIGHBOURS + 1, gallery=vectors).ids
    own = ids == query[:, None]
    own[:, -1] |= ~own.any(dim=1)  # hidden behind duplicates of itself: then the last one goes
    return ids[~own].view(len(query), NEIGHBOURS)


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


def _by_class(run: RunDirectory, first: Int[Tensor, "n"], trained: Embedded) -> None:
    """Queries and right first neighbours of each class: what a comparison of two runs needs of each."""
    rows = sorted(recall_by_class(first, trained.labels), key=lambda row: row.label)
    run.write_arrays(
        "by_class",
        label=np.array([row.label for row in rows]),
        queries=np.array([row.queries for row in rows]),
        hits=np.array([round(row.recall * row.queries) for row in rows]),
    )


def _confusions(run: RunDirectory, search: _Search, first: Int[Tensor, "q"], trained: Embedded) -> set[int]:
    """The worst classes, and the pairs of classes whose first neighbour is most often the other's."""
    classes, labels = trained.records.classes, trained.labels
    named = labels[search.queries], None if search.gallery is None else labels[search.gallery]
    worst = recall_by_class(first, *named)[:WORST]
    confused = [
        replace(
            pair, example=(int(search.queries[pair.example[0]]), int(search.positions(torch.tensor(pair.example[1]))))
        )
        for pair in confused_pairs(first, *named, limit=CONFUSED)
    ]
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
    members = [(labels == each.label).nonzero().flatten()[:MEMBERS].tolist() for each in worst]
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

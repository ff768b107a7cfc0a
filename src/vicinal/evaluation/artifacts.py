"""What a report shows besides numbers: retrievals, map, confusions, diagnostics
(docs/howto/run_directory.md)."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.random import Generator
from PIL import Image, ImageOps
from torch import Tensor

from vicinal.data.records import Records
from vicinal.evaluation.encoder import Embedded
from vicinal.evaluation.neighbors import Neighbors, neighbors, require_finite
from vicinal.evaluation.retrieval import QueryScores, relevant_counts, right
from vicinal.evaluation.verification import pairs_by_distance
from vicinal.files import write_atomically
from vicinal.run_directory import RunDirectory

QUERIES = 24
NEIGHBORS = 8  # of the gallery of retrievals
MAP_POINTS = 1500  # t-SNE takes about 10 s for these on one core
WORST = 12
CONFUSED = 12
MEMBERS = 6  # thumbnails of each of the worst classes
TILE = 48
COLUMNS = 40  # thumbnails: pixels per side, tiles per row
LARGE = 128
LARGE_COLUMNS = 20  # the same of the retrievals, where pictures are larger than a thumbnail
PAIRED = 2048  # records whose pairs are counted by distance
POINTS = 256  # distances at which they are
PERPLEXITY = 30.0  # about how many neighbors each row tries to keep
STEPS = 1000


def write_artifacts(
    run: RunDirectory,
    trained: Embedded,
    untrained: Embedded | None,
    queries: QueryScores,
    *,
    seed: int,
) -> None:
    """Write the scores by class and, given ``untrained`` to compare with, the pictures of a report.

    They are retrievals, map, confusions and their thumbnails.

    Args:
        queries: the trained model's scores.
    """
    by_class = queries.by_class()
    run.write_arrays("by_class", hits=by_class["recall@1"].astype(np.int64), **by_class)
    if untrained is None:
        return
    rng = np.random.default_rng(seed)
    queried, gallery = trained.roles()
    found = _nearest(trained, queried, gallery, NEIGHBORS)
    records = trained.records
    # Neighbors of some queries, one per class while classes last, before and after training.
    labels = records.labels[queried.numpy()]
    order = rng.permutation(len(labels))
    _, first = np.unique(labels[order], return_index=True)
    several = np.concatenate([rng.permutation(order[first]), order])
    chosen = torch.from_numpy(np.unique(several[:QUERIES]))
    query = queried[chosen]
    after = found.ids[chosen]
    before = _nearest(untrained, query, gallery, NEIGHBORS).ids
    run.write_arrays(
        "retrieval",
        query=query.numpy(),
        neighbors=after.numpy(),
        distances=found.distances[chosen].numpy(),
        untrained_neighbors=before.numpy(),
    )
    if gallery is None and trained.metric == "euclidean":
        drawn = np.random.default_rng(seed).permutation(len(records))[:PAIRED]
        some = torch.from_numpy(np.sort(drawn))
        width, *counts = pairs_by_distance(trained.vectors[some], trained.targets[some])
        every = len(counts[0]) // POINTS
        shares = [np.cumsum(count)[every - 1 :: every] / max(1, count.sum()) for count in counts]
        run.write_arrays(
            "thresholds",
            distance=width * every * np.arange(1, POINTS + 1),
            different=shares[0],
            same=shares[1],
        )
    shown = set(torch.cat([query, after.flatten(), before.flatten()]).tolist()) - {-1}
    if records.source.kind == "images" and max(records.source.read(min(shown)).size) > TILE:
        document = write_thumbnails(
            run.retrieval_thumbnails_path, records, sorted(shown), LARGE, LARGE_COLUMNS
        )
        run.write_document("retrieval_records", document)
    # A class shown in part would look tighter than it is: whole ones, as many as the points allow.
    record = whole_classes(records.labels, MAP_POINTS, rng)[:MAP_POINTS]
    if len(record) >= 4:
        position = tsne(trained.vectors[torch.from_numpy(record)], seed=seed)
        run.write_arrays("map", record=record, position=position.numpy())
        shown |= set(record.tolist())
    confused = confused_pairs(found.ids[:, 0], records, queried, gallery)[:CONFUSED]
    label = by_class["label"]
    recall = by_class["recall@1"] / by_class["queries"]
    worst = np.lexsort((label, -by_class["queries"], recall))[:WORST]  # of equal ones the larger
    names = records.classes
    document = {
        "worst": [
            {
                "class": names[label[i]],
                "records": int(by_class["queries"][i]),
                "recall@1": float(recall[i]),
            }
            for i in worst
        ],
        "confused": confused,
    }
    run.write_document("classes", document)
    members = [records.members(label[i])[:MEMBERS].tolist() for i in worst]
    shown.update(*members, *(pair["example"] for pair in confused))
    run.write_document(
        "records", write_thumbnails(run.thumbnails_path, records, sorted(shown), TILE, COLUMNS)
    )


def _nearest(
    embedded: Embedded, queries: Int[Tensor, "q"], gallery: Int[Tensor, "g"] | None, count: int
) -> Neighbors:
    """The nearest rows of some rows, by position, in a gallery or among the other rows; -1 where
    there are too few."""
    vectors = embedded.vectors
    search = partial(neighbors, vectors[queries], count, metric=embedded.metric)
    if gallery is None:
        return search(gallery=vectors, own=queries)
    found = search(gallery=vectors[gallery])
    return replace(found, ids=torch.where(found.ids >= 0, gallery[found.ids], -1))


def whole_classes(
    labels: Int[np.ndarray, "n"], most: int, rng: Generator, *, least: int = 1
) -> Int[np.ndarray, "m"]:
    """Return the positions of whole classes, drawn one by one up to ``most`` rows, but at least
    ``least`` classes."""
    classes, sizes = np.unique(labels, return_counts=True)
    order = rng.permutation(len(classes))
    chosen = classes[order[: max(least, int((np.cumsum(sizes[order]) <= most).sum()))]]
    return np.flatnonzero(np.isin(labels, chosen))


def write_thumbnails(
    path: Path, records: Records, shown: Sequence[int], tile: int, columns: int
) -> dict[str, Any]:
    """Write thumbnails of some records, where they are pictures, as square tiles of one sheet, and
    list the records.

    Returns:
        the document that ``reports.artifacts`` reads beside the sheet.
    """
    pictures = bool(shown) and records.source.kind == "images"
    if pictures:
        mode = "L" if records.source.read(shown[0]).mode == "L" else "RGB"
        sheet = Image.new(mode, (columns * tile, -(-len(shown) // columns) * tile))
        for place, index in enumerate(shown):
            picture = ImageOps.fit(records.source.read(index).convert(mode), (tile, tile))
            sheet.paste(picture, (place % columns * tile, place // columns * tile))
        kind = "JPEG" if path.suffix == ".jpg" else "PNG"
        write_atomically(path, lambda file: sheet.save(file, kind, optimize=True, quality=85))
    rows = [
        {
            "id": index,
            "name": records.source.name(index),
            "class": records.title(index),
            "tile": place if pictures else None,
        }
        for place, index in enumerate(shown)
    ]
    return {"tile": tile, "columns": columns, "records": rows}


def confused_pairs(
    first: Int[Tensor, "q"],
    records: Records,
    queries: Int[Tensor, "q"],
    gallery: Int[Tensor, "g"] | None,
) -> list[dict[str, Any]]:
    """Pairs of classes by the share of the one's queries whose first neighbor is of the other,
    largest first.

    Of equal shares the one of more queries comes first. Classes that no neighbor can be of (no
    other row) are left out.

    Args:
        first: position of the first neighbor of each query; -1 for none.
        records: all rows.
        queries: positions of the queries.
        gallery: positions of the gallery; None for leave-one-out.

    Returns:
        the two classes' names, the share, the number of the class's queries, and the positions of
        one such query, the first, and of its neighbor.
    """
    labels = torch.from_numpy(records.labels).long()
    targets = torch.from_numpy(records.targets)
    own = labels[queries]
    theirs = None if gallery is None else targets[gallery]
    hit = right(first[:, None], targets[queries], targets)[:, 0]
    wrong = (relevant_counts(targets[queries], theirs) > 0) & (first >= 0) & ~hit
    cases = defaultdict[tuple[int, int], list[tuple[int, int]]](list)
    for query, neighbor in zip(queries[wrong].tolist(), first[wrong].tolist(), strict=True):
        cases[int(labels[query]), int(labels[neighbor])].append((query, neighbor))
    sizes = torch.bincount(own).tolist()
    order = sorted(cases, key=lambda c: (-len(cases[c]) / sizes[c[0]], -sizes[c[0]], c))
    return [
        {
            "class": records.classes[label],
            "taken_for": records.classes[other],
            "share": len(cases[label, other]) / sizes[label],
            "queries": sizes[label],
            "example": list(cases[label, other][0]),
        }
        for label, other in order
    ]


def tsne(embeddings: Float[Tensor, "n d"], *, seed: int) -> Float[Tensor, "n 2"]:
    """Positions in the plane that keep neighbors near (t-SNE, van der Maaten and Hinton 2008); the
    same for the same rows and seed.

    The perplexity is lowered to a third of the rows where there are few. Rows that are all equal,
    and a single row, lie at the origin.
    """
    require_finite(embeddings, "embeddings")
    rows = embeddings.detach().float().cpu()
    if len(rows) == 0 or bool((rows == rows[0]).all()):
        return torch.zeros(len(rows), 2)
    from sklearn.manifold import TSNE

    model = TSNE(
        perplexity=min(PERPLEXITY, (len(rows) - 1) / 3),
        init="pca" if min(rows.shape) > 2 else "random",
        max_iter=STEPS,
        random_state=seed,
    )
    return torch.from_numpy(model.fit_transform(rows.numpy())).float()

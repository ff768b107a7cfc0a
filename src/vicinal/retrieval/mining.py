"""Hard triplets of labeled records as Parquet, for sentence-transformers and other trainers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vicinal.data.records import ImageFiles, Progress, Records
from vicinal.data.table import pyarrow_module
from vicinal.errors import DataError
from vicinal.evaluation.encoder import Embedded
from vicinal.evaluation.neighbors import Gallery
from vicinal.files import write_atomically

POSITIVES = 8  # the farthest of so many: beyond them wrong labels and outliers begin
CANDIDATES = 64  # rows of other classes among which negatives are sought
_ANCHORS = 1024  # at a time
_ROWS = 65_536  # of the file, kept before they are written


def mine(
    embedded: Embedded,
    path: Path,
    *,
    negatives: int = 1,
    margin: float = 0.05,
    progress: Progress = lambda done: None,
) -> int:
    """Write ``anchor``, ``positive``, ``negative`` and both distances; return the number of rows.

    The positive is the farthest of an anchor's 8 nearest of its class. Negatives are the nearest of
    other classes, but for those whose cosine s with the anchor is near that of its nearest
    positive, s > s⁺ - margin |s⁺|: they are likely positives that nobody labeled (Moreira et al.
    2024). Distances are 1 - cosine. Beside the embeddings, memory does not grow with the records.

    Args:
        embedded: of records with labels.
        path: the ``.parquet`` file.
        negatives: rows for each anchor, at most.
        margin: between 0 and 1.
        progress: is told how many anchors are done.
    """
    arrow = pyarrow_module()
    fields = [(name, arrow.string()) for name in ("anchor", "positive", "negative")]
    fields += [(f"{name}_distance", arrow.float32()) for name in ("positive", "negative")]
    schema = arrow.schema(fields)
    count = 0

    def write(file: Any) -> None:
        nonlocal count
        with arrow.parquet.ParquetWriter(file, schema) as writer:
            kept = []
            for rows, far in _triplets(embedded, negatives, margin, progress):
                texts = [_contents(embedded.records, column) for column in rows.T.tolist()]
                columns = [*texts, *far.T.contiguous().numpy()]
                kept.append(arrow.table(dict(zip(schema.names, columns, strict=True)), schema))
                count += len(rows)
                if sum(map(len, kept)) >= _ROWS:
                    writer.write_table(arrow.concat_tables(kept))
                    kept.clear()
            if kept:
                writer.write_table(arrow.concat_tables(kept))
        if not count:
            raise DataError(
                f"{embedded.records.name} has no triplets: they need 2 classes, 2 records in one, "
                f"and a negative beyond margin={margin}. Lower the margin, or give other data."
            )

    write_atomically(path, write)
    return count


def _triplets(
    embedded: Embedded, negatives: int, margin: float, progress: Progress
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield positions ``[n 3]`` and distances ``[n 2]``, a class at a time."""
    vectors = embedded.vectors
    if embedded.records.every is not None:
        raise DataError(
            f"triplets are mined by class, but rows of {embedded.records.name} have several labels."
            " Give data of single labels."
        )
    labels = embedded.labels
    everything = Gallery(vectors, "cosine")
    done = 0
    for label in torch.unique(labels):
        same = labels == label
        members = same.nonzero().flatten()
        done += len(members)
        if not 1 < len(members) < len(labels):
            continue
        among = Gallery(vectors[members], "cosine")
        most = min(POSITIVES, len(members) - 1)
        for places in torch.split(torch.arange(len(members)), _ANCHORS):
            anchors = members[places]
            asking = vectors[anchors]
            near = among.nearest(asking, most, without=places)
            other = everything.nearest(asking, CANDIDATES, without=same)
            cosine = 1 - near.distances[:, :1]
            apart = 1 - other.distances <= cosine - margin * cosine.abs()
            apart &= other.ids >= 0
            anchor, place = (apart & (apart.cumsum(dim=1) <= negatives)).nonzero().unbind(dim=1)
            rows = [anchors[anchor], members[near.ids[anchor, -1]], other.ids[anchor, place]]
            far = [near.distances[anchor, -1], other.distances[anchor, place]]
            yield torch.stack(rows, dim=1), torch.stack(far, dim=1)
        progress(done)


def _contents(records: Records, rows: list[int]) -> list[str]:
    """Return texts themselves, paths of image files, and names of other records."""
    if records.source.kind == "text":
        return [records.source.read(row) for row in rows]
    source, positions = records.source.origin(np.asarray(rows, dtype=np.int64))
    if isinstance(source, ImageFiles):
        return [str(source.root / source.paths[place]) for place in positions]
    return [records.source.name(row) for row in rows]

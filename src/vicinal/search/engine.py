"""Which engine answers the searches of a collection, and how it is kept in step with the collection's folder.

The folder is the record: items and vectors of every generation, whatever the engine. The default engine searches the
vectors where they lie there. Milvus holds a copy with labels and metadata, and answers from it.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import numpy as np
from jaxtyping import Float

from vicinal.errors import ConfigError, RunError, unknown
from vicinal.files import read_array
from vicinal.index.exact import Metric
from vicinal.index.flat import FlatStore
from vicinal.index.milvus import INDEX_KINDS, IndexKind, Milvus, Row, is_url
from vicinal.search.collection import VECTORS, Item, Snapshot

FLAT = "flat"  # the word for the default engine
RECALL_QUERIES, RECALL_K = 200, 10  # of the sample on which an approximate index is compared with exact search
_SEED = 0


@dataclass(frozen=True)
class Engine:
    """A table in Milvus, as ``about.json`` keeps it under ``store``.

    Attributes:
        address: folder of the embedded engine, absolute, or URL of a server.
        table: name of the table there.
        index: how it searches.
        recall: share of the true ten nearest that it found on a sample, when it was last written; None for exact.
    """

    address: str
    table: str
    index: IndexKind = "FLAT"
    recall: float | None = None


def wanted_engine(
    store: str | None, index: str | None, before: Mapping[str, Any] | None, collection: Path, model: str
) -> Engine | None:
    """The engine that a user asks for; what is not said stays as it was. None is the default one.

    Args:
        store: ``"flat"``, a folder or a URL.
        index: one of ``INDEX_KINDS``, in any case.
        before: ``store`` of the generation before.
        collection: whose table it is.
        model: fingerprint; vectors of two models never share a table.
    """
    if store == FLAT or (store is None and before is None):
        if index is not None:
            raise ConfigError(
                f"--store-index {index} is for a store in Milvus. Name one with --store, or leave it out."
            )
        return None
    old = None if before is None else Engine(**before)
    kind = (index or (old.index if old else "FLAT")).upper().replace("IVF", "IVF_FLAT").replace("_FLAT_FLAT", "_FLAT")
    if kind not in INDEX_KINDS:
        raise ConfigError(unknown("index of Milvus", kind, INDEX_KINDS))
    address = store if store is not None else cast(Engine, old).address
    address = address if is_url(address) else str(Path(address).absolute())
    whose = sha256(f"{collection.resolve()} {model}".encode()).hexdigest()[:16]
    return Engine(address, f"vicinal_{whose}_{kind.lower()}", kind)


def write_engine(
    engine: Engine, generation: int, items: Sequence[Item], folder: Path, metric: Metric, before: Snapshot | None
) -> dict[str, Any]:
    """Bring the engine to a generation that is about to be published; return what ``about.json`` keeps of it.

    Args:
        engine: what to write to.
        generation: number of the coming one.
        items: its items.
        folder: where its vectors are already written.
        metric: what distances are.
        before: the generation before, from which the engine goes on where it has it.
    """
    vectors = read_array(folder / VECTORS, mapped=True) if items else np.empty((0, 1), np.float32)
    table = Milvus(engine.address, engine.table, dim=vectors.shape[1], metric=metric, index=engine.index)
    try:
        kept = None if before is None or before.about.get("store") is None else Engine(**before.about["store"])
        if before is None or kept is None or (kept.address, kept.table) != (engine.address, engine.table):
            table.drop()  # what a collection that is no more may have left under this name
            added, removed = list(range(len(items))), list[int]()
        else:
            added, removed = _difference(before.items(), items)
        table.write(generation, _rows(items, vectors, added), removed)
        recall = None
        if engine.index != "FLAT" and len(items):
            recall = _recall(table, generation, items, vectors, metric)
    finally:
        table.close()
    return asdict(replace(engine, recall=recall))


def drop_engine(engine: Engine, dim: int) -> None:
    """Remove a table that no kept generation is searched in; one that cannot be reached is left to its owner."""
    with suppress(RunError):
        table = Milvus(engine.address, engine.table, dim=dim, index=engine.index)
        try:
            table.drop()
        finally:
            table.close()


def _difference(before: Sequence[Item], after: Sequence[Item]) -> tuple[list[int], list[int]]:
    """Positions of items that are new or other than before, and ids of those that are gone or were other."""
    old = {item.id: item for item in before}
    changed = [row for row, item in enumerate(after) if item.id not in old or _differs(old[item.id], item)]
    left = {item.id for item in after}
    replaced = {after[row].id for row in changed}
    return changed, [id for id in old if id not in left or id in replaced]


def _differs(one: Item, other: Item) -> bool:
    return one.digest != other.digest or one.attributes != other.attributes


def _rows(items: Sequence[Item], vectors: Float[np.ndarray, "n d"], positions: Sequence[int]) -> Iterator[Row]:
    for row in positions:
        yield items[row].id, vectors[row], items[row].attributes


def _recall(
    table: Milvus, generation: int, items: Sequence[Item], vectors: Float[np.ndarray, "n d"], metric: Metric
) -> float:
    """Share of the exact nearest that the engine finds, over vectors of the collection drawn as queries."""
    count = min(RECALL_QUERIES, len(items))
    drawn = np.sort(np.random.default_rng(_SEED).choice(len(items), count, replace=False))
    queries, k = np.array(vectors[drawn]), min(RECALL_K, len(items))
    ids = np.array([item.id for item in items], dtype=np.int64)
    exact = FlatStore(vectors, ids, metric=metric).search(queries, k).ids
    found = table.at(generation).search(queries, k).ids
    return float(np.mean([np.isin(true, some).mean() for true, some in zip(exact, found, strict=True)]))

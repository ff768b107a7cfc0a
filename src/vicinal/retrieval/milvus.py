"""Vectors in Milvus: embedded in a local folder, or a cluster behind a URL, by one address.

The collection's folder is the record: items and vectors of every generation, whatever the engine.
Milvus holds a copy with labels and metadata, and answers searches from it. A row says from which
generation on it holds and in which it is gone, so a reader of one generation sees it unchanged
while the next is written beside it, row by row. What an ended writer left of a generation that
nobody saw is taken back by the next one.
"""

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Float

from vicinal.errors import ConfigError, RunError, unknown
from vicinal.files import read_array
from vicinal.retrieval.store import FlatStore, Found, Ids, Item, Queries, Where

IndexKind = Literal["FLAT", "HNSW", "IVF_FLAT"]
INDEX_KINDS: tuple[IndexKind, ...] = get_args(IndexKind)
FLAT = "flat"  # the name of the default engine
TOKEN = "VICINAL_MILVUS_TOKEN"  # the variable; the token itself is never written to a file
Row = tuple[int, Float[np.ndarray, "d"], Mapping[str, str]]  # id, vector, attributes

_RECALL_QUERIES, _RECALL_K = (
    200,
    10,
)  # of the sample on which an approximate index is compared with exact search
_FOREVER = 2**62  # the generation in which a row is gone that is not
_ID_BITS = 40
_BATCH = (
    500  # rows per request: 512 numbers each are 1 MiB, of the 4 MiB and more that servers take
)
_LONGEST = 65_535  # bytes of a text, as many as Milvus allows
_MOST = 16_384  # neighbors that Milvus gives at most
_BUILD = {"FLAT": {}, "HNSW": {"M": 16, "efConstruction": 200}, "IVF_FLAT": {"nlist": 128}}
_SEARCH: dict[IndexKind, dict[str, int]] = {
    "FLAT": {},
    "HNSW": {"ef": 128},
    "IVF_FLAT": {"nprobe": 32},
}


def is_url(address: str) -> bool:
    """Return whether an address is a server's; otherwise it is a folder of the embedded engine."""
    return "://" in address or address.startswith("unix:")


class Milvus:
    """A table of vectors in Milvus.

    Args:
        address: a folder of the embedded engine, or a URL. A server's token comes from
            ``VICINAL_MILVUS_TOKEN``.
        table: its name there.
        dim: length of the vectors.
        index: ``"FLAT"`` looks at everything; the others are quicker on many rows and find nearly
            everything.
    """

    def __init__(self, address: str, table: str, *, dim: int, index: IndexKind = "FLAT") -> None:
        self.address, self.table, self.dim, self.index = address, table, dim, index
        self.client = _connected(address)
        try:
            if self.client.has_collection(table):
                self.client.load_collection(table)  # a reopened store does not load by itself
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.client.close()

    def at(self, generation: int) -> "MilvusStore":
        """Return what readers of a generation see."""
        if not self.client.has_collection(self.table):
            raise RunError(
                f"{self.address} has no table {self.table}. Index again with --store "
                f"{self.address}."
            )
        return MilvusStore(self, generation)

    def write(self, generation: int, added: Iterable[Row], removed: Sequence[int]) -> None:
        """Make a generation of the one before it. It is there, whole and on disk, when this
        returns.

        Args:
            generation: its number; what a writer before left of it is taken back first.
            added: new rows, and those that replace rows in ``removed``.
            removed: ids whose rows of the generation before are no longer there.
        """
        if not self.client.has_collection(self.table):
            self._create()
        self.client.delete(self.table, filter=f"born >= {generation}")
        while rows := self.client.query(
            self.table, filter=f"gone >= {generation} and gone < {_FOREVER}", limit=_BATCH
        ):
            self.client.upsert(self.table, [{**row, "gone": _FOREVER} for row in rows])
        for ids in _batches(removed):
            rows = self.client.query(self.table, filter=f"id in {list(ids)} and gone == {_FOREVER}")
            self.client.upsert(self.table, [{**row, "gone": generation} for row in rows])
        for some in _batches(added):
            self.client.insert(self.table, [_row(generation, *row) for row in some])
        self.client.delete(
            self.table, filter=f"gone < {generation}"
        )  # nobody reads generations before the last
        self.client.flush(self.table)  # unflushed rows are searched one by one
        self.client.load_collection(self.table)

    def drop(self) -> None:
        """Remove the table, where there is one."""
        if self.client.has_collection(self.table):
            self.client.drop_collection(self.table)

    def drop_others(self, prefix: str, kept: Collection[str | None]) -> None:
        """Remove the tables whose name begins so, but for these."""
        for table in self.client.list_collections():
            if table.startswith(prefix) and table not in kept:
                self.client.drop_collection(table)

    def _create(self) -> None:
        from pymilvus import DataType

        schema = self.client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("key", DataType.INT64, is_primary=True)
        for name in ("id", "born", "gone"):
            schema.add_field(name, DataType.INT64)
        schema.add_field(
            "label", DataType.VARCHAR, max_length=_LONGEST
        )  # beside the others: quicker to filter by
        schema.add_field("attributes", DataType.JSON)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=self.dim)
        indexes = self.client.prepare_index_params()
        indexes.add_index(
            field_name="vector", index_type=self.index, metric_type="L2", params=_BUILD[self.index]
        )
        # Strong: on a cluster, a search sees every row written before it.
        self.client.create_collection(
            self.table, schema=schema, index_params=indexes, consistency_level="Strong"
        )


@dataclass(frozen=True)
class MilvusStore:
    """One generation of a table, for readers; ``Milvus.at`` makes it."""

    table: Milvus
    generation: int

    def search(self, queries: Queries, k: int, *, where: Where = None, exclude: Ids = ()) -> Found:
        """Search as ``Store.search`` says, to the float32 precision of the engine and the recall of
        its index."""
        if not 1 <= k <= _MOST:
            raise ConfigError(f"Milvus finds 1 to {_MOST} neighbors per query; got k = {k}.")
        table, shape = self.table, (len(queries), k)
        found = Found(np.full(shape, -1, np.int64), np.full(shape, np.inf, np.float32))
        if not len(queries):
            return found
        effort = (
            {"ef": max(k, _SEARCH["HNSW"]["ef"])} if table.index == "HNSW" else {}
        )  # HNSW needs ef >= k
        asked, narrowed = (
            np.asarray(queries, np.float32).tolist(),
            _filter(self.generation, where or {}, exclude),
        )
        settings = {"metric_type": "L2", "params": _SEARCH[table.index] | effort}
        hits = table.client.search(
            table.table, asked, narrowed, k, output_fields=["id"], search_params=settings
        )
        for row, near in enumerate(hits):
            pairs = sorted(
                (max(0.0, hit["distance"]) ** 0.5, int(hit["entity"]["id"])) for hit in near
            )  # squared
            found.distances[row, : len(pairs)] = [distance for distance, _ in pairs]
            found.ids[row, : len(pairs)] = [
                id for _, id in pairs
            ]  # equal distances by the lower id
        return found


def _row(
    generation: int, id: int, vector: Float[np.ndarray, "d"], attributes: Mapping[str, str]
) -> dict[str, Any]:
    key = (generation << _ID_BITS) | id  # a replaced item has two rows for a while
    row = {
        "key": key,
        "id": id,
        "born": generation,
        "gone": _FOREVER,
        "label": _kept(attributes.get("label")),
    }
    return row | {"attributes": dict(attributes), "vector": np.asarray(vector, np.float32).tolist()}


def _filter(generation: int, where: Mapping[str, str], exclude: Ids) -> str:
    """Write a filter expression; texts are quoted as JSON, so that no value can be read as a part
    of it."""
    parts = [f"born <= {generation}", f"gone > {generation}"]
    for name, value in where.items():
        column = (
            "label" if name == "label" else f"attributes[{json.dumps(name, ensure_ascii=False)}]"
        )
        wanted = _kept(value) if name == "label" else value
        parts.append(f"{column} == {json.dumps(wanted, ensure_ascii=False)}")
    if exclude:
        parts.append(f"id not in {sorted(int(id) for id in exclude)}")
    return " and ".join(parts)


def _kept(label: str | None) -> str:
    """Return a label as the column holds it: no label and an empty one are distinct."""
    return "" if label is None else f"={label}"


def _batches(rows: Iterable[Any]) -> Iterator[list[Any]]:
    rows = iter(rows)
    while some := list(islice(rows, _BATCH)):
        yield some


def _connected(address: str) -> Any:
    try:
        from pymilvus import MilvusClient
        from pymilvus.exceptions import MilvusException
    except ImportError as error:
        raise ConfigError(
            "a store in Milvus needs pymilvus: `pip install 'vicinal[milvus]'`."
        ) from error
    try:
        if is_url(address):
            return MilvusClient(address, token=os.environ.get(TOKEN, ""))
        Path(address).parent.mkdir(parents=True, exist_ok=True)
        return MilvusClient(address)
    except (MilvusException, OSError) as error:
        if is_url(address):
            raise RunError(
                f"no Milvus answers at {address}: {error}. Start it, or check the address."
            ) from error
        fault = f"the embedded Milvus store {address} cannot be opened: {error}"
        advice = (
            "Only one process at a time can have it open; stop the other, or serve it "
            "(`milvus-lite server`)"
        )
        raise RunError(f"{fault}. {advice} and name its URL instead.") from error


@dataclass(frozen=True)
class Engine:
    """A table in Milvus, as ``about.json`` keeps it under ``store``.

    Attributes:
        address: folder of the embedded engine, absolute, or URL of a server.
        table: name of the table there.
        index: how it searches.
        recall: share of the true ten nearest that it found on a sample, when it was last written;
            None for exact.
    """

    address: str
    table: str
    index: IndexKind = "FLAT"
    recall: float | None = None


def absolute_address(address: str) -> str:
    """Return a URL as it is, the folder of the embedded engine as an absolute path."""
    return address if is_url(address) else str(Path(address).absolute())


def wanted_engine(
    store: str | None,
    index: str | None,
    before: Mapping[str, Any] | None,
    collection: Path,
    model: str,
) -> Engine | None:
    """Return the engine that a user asks for; None is the flat store.

    Args:
        store: ``"flat"``, a folder or a URL. A collection could come from somebody else, so no
            address in it is asked that is not named here.
        index: one of ``INDEX_KINDS``, in any case; None for what it was.
        before: ``store`` of the generation before.
        collection: whose table it is.
        model: fingerprint; vectors of two models never share a table.
    """
    if store is None and before is not None:
        raise ConfigError(
            f"this collection is kept in {before['address']}. Name it with --store "
            f"{before['address']}, or keep it here alone from now on with --store {FLAT}."
        )
    if store in (None, FLAT):
        if index is not None:
            raise ConfigError(
                f"--store-index {index} is for a store in Milvus. Name one with --store, or drop "
                "it."
            )
        return None
    kind = (index or dict(before or {}).get("index", "FLAT")).upper()
    kind = "IVF_FLAT" if kind == "IVF" else kind
    if kind not in INDEX_KINDS:
        raise ConfigError(unknown("index of Milvus", kind, INDEX_KINDS))
    whose = sha256(str(collection.resolve()).encode()).hexdigest()[:16]
    table = f"vicinal_{whose}_{model[:16]}_{kind.lower()}"
    return Engine(absolute_address(str(store)), table, kind)


def write_engine(
    engine: Engine,
    items: Sequence[Item],
    old: Sequence[Item],
    store: Mapping[str, Any] | None,
    number: int,
    file: Path,
) -> dict[str, Any]:
    """Bring the engine to a generation that is about to be published; return what ``about.json``
    keeps of it.

    Args:
        engine: what to write to.
        items: of the coming generation.
        old: items of the generation before, from which the engine goes on where it has it.
        store: of the generation before.
        number: of the coming generation.
        file: already holds its vectors.
    """
    rows = read_array(file, mapped=True) if items else np.empty((0, 1), np.float32)
    with closing(
        Milvus(engine.address, engine.table, dim=rows.shape[1], index=engine.index)
    ) as table:
        here = store if store is not None and store["address"] == engine.address else {}
        kept = engine.table, here.get("table")  # of which the latter has readers still
        table.drop_others("_".join(engine.table.split("_")[:2]), kept)
        if here.get("table") != engine.table:
            table.drop()  # what a collection that is no more may have left under this name
            added, removed = list(range(len(items))), list[int]()
        else:
            added, removed = _difference(old, items)
        table.write(
            number, ((items[row].id, rows[row], items[row].attributes) for row in added), removed
        )
        recall = _recall(table, number, items, rows) if engine.index != "FLAT" and items else None
    return asdict(replace(engine, recall=recall))


def _difference(before: Sequence[Item], after: Sequence[Item]) -> tuple[list[int], list[int]]:
    """Return positions of items that are new or other than before, and ids of those that are gone
    or were other."""
    old, new = (
        {item.id: (item.digest, item.attributes) for item in items} for items in (before, after)
    )
    changed = [row for row, item in enumerate(after) if old.get(item.id) != new[item.id]]
    return changed, [id for id in old if new.get(id) != old[id]]


def _recall(
    table: Milvus, generation: int, items: Sequence[Item], vectors: Float[np.ndarray, "n d"]
) -> float:
    """Measure the share of the exact nearest that the engine finds, over vectors of the collection
    drawn as queries."""
    drawn = np.sort(
        np.random.default_rng(0).choice(len(items), min(_RECALL_QUERIES, len(items)), replace=False)
    )
    queries, k = np.array(vectors[drawn]), min(_RECALL_K, len(items))
    ids = np.array([item.id for item in items], dtype=np.int64)
    exact = ids[FlatStore(vectors).search(queries, k).ids]
    found = table.at(generation).search(queries, k).ids
    return float(
        np.mean([np.isin(true, some).mean() for true, some in zip(exact, found, strict=True)])
    )

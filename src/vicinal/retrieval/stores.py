"""Engines beside a collection: Milvus, embedded in a local folder or a cluster behind a URL, and
LanceDB, in a folder or an object store.

The collection's folder is the record: items and vectors of every generation, for any engine.
An engine holds a copy with labels and metadata, and answers searches from it: a table for each
generation, so that a reader of one sees it unchanged while the next is written beside it.
"""

import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from vicinal.errors import ConfigError, RunError, package
from vicinal.retrieval.items import Item, Vector, Vectors, Where

TOKEN = "VICINAL_MILVUS_TOKEN"  # the variable; the token itself is never written to a file
# rows per request: 512 numbers each are 1 MiB, of the 4 MiB and more that servers take
_BATCH = 500
_MANY = 100_000  # rows, from which on some of them are searched
_GRAPH = {"M": 16, "efConstruction": 200}
_EFFORT = 128  # candidates that a search of the graph keeps
_LANCE_BATCH = 10_000  # rows
_CELLS = 64  # nearest ones that are searched, of as many as the root of the rows
_REFINED = 8  # rows compared by their float32 numbers, for each neighbor asked for
Found = list[list[tuple[int, float]]]  # ids and distances, nearest first


class MilvusStore:
    """A table of vectors in Milvus: one generation of a collection.

    Args:
        address: a folder of the embedded engine, or a URL. A server's token comes from
            ``VICINAL_MILVUS_TOKEN``.
        table: its name there.
        index: ``"FLAT"`` looks at everything; ``"HNSW"`` is quicker on many rows and finds nearly
            everything.
    """

    def __init__(self, address: str, table: str, index: str = "FLAT") -> None:
        self.table = table
        self.index = index
        pymilvus = package("pymilvus", "milvus")
        advice = "Start it, or check the address"
        try:
            if not is_url(address):
                advice = (
                    "Only one process at a time can have it open; stop the other, or serve it "
                    "(`milvus-lite server`) and name its URL instead"
                )
                Path(address).parent.mkdir(parents=True, exist_ok=True)
            self.client = pymilvus.MilvusClient(address, token=os.environ.get(TOKEN, ""))
        except (pymilvus.MilvusException, OSError) as error:
            raise RunError(f"no Milvus can be opened at {address}: {error}. {advice}.") from error

    def close(self) -> None:
        self.client.close()

    def tables(self) -> list[str]:
        return self.client.list_collections()

    def drop(self, table: str) -> None:
        self.client.drop_collection(table)

    @cached_property
    def _loaded(self) -> Any:
        """The client; a reopened store does not load a table by itself."""
        self.client.load_collection(self.table)
        return self.client

    def write(self, items: Iterable[Item], vectors: Iterable[Vector], dim: int) -> None:
        """Make the table anew; it is there, whole and on disk, when this returns."""
        from pymilvus import DataType

        self.client.drop_collection(self.table)  # of a writer that ended before it was read
        schema = self.client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("id", DataType.INT64, is_primary=True)
        schema.add_field("attributes", DataType.JSON)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=dim)
        indexes = self.client.prepare_index_params()
        indexes.add_index(
            field_name="vector",
            index_type=self.index,
            metric_type="L2",
            params=_GRAPH if self.index == "HNSW" else {},
        )
        # Strong: on a cluster, a search sees every row written before it.
        self.client.create_collection(
            self.table, schema=schema, index_params=indexes, consistency_level="Strong"
        )
        for some in _rows(items, vectors, _BATCH, dict):
            self.client.insert(self.table, some)
        self.client.flush(self.table)  # unflushed rows are searched one by one

    def search(
        self, queries: Vectors, k: int, *, where: Where, exclude: Collection[int] = ()
    ) -> Found:
        """Find ids and distances of the nearest, to the float32 precision of the engine and the
        recall of its index; equal distances by the lower id."""
        effort = {"ef": max(k, _EFFORT)} if self.index == "HNSW" else {}
        found = self._loaded.search(
            self.table,
            np.asarray(queries, np.float32).tolist(),
            _filter(where, exclude),
            k,
            output_fields=["id"],
            search_params={"metric_type": "L2", "params": effort},
        )
        return [_ordered((hit["entity"]["id"], hit["distance"]) for hit in near) for near in found]


class LanceStore:
    """A table of vectors in LanceDB, as `MilvusStore` is one; any number of processes may search.

    Args:
        address: a folder, or the URL of one in an object store, whose credentials are the
            environment's.
        index: ``"FLAT"`` looks at everything; ``"IVF_SQ"`` at bytes in the nearest cells, then at
            the float32 numbers of the best.
    """

    def __init__(self, address: str, table: str, index: str = "FLAT") -> None:
        self.table = table
        self.index = index
        try:
            self._database = package("lancedb", "lance").connect(address)
        except (OSError, RuntimeError, ValueError) as error:
            raise RunError(
                f"the LanceDB store {address} cannot be opened: {error}. Check address and rights."
            ) from error

    def close(self) -> None:
        """Nothing stays open."""

    def tables(self) -> list[str]:
        return self._database.list_tables(limit=_LANCE_BATCH).tables

    def drop(self, table: str) -> None:
        self._database.drop_table(table)

    @cached_property
    def _opened(self) -> Any:
        return self._database.open_table(self.table)

    def write(self, items: Iterable[Item], vectors: Iterable[Vector], dim: int) -> None:
        """Make the table anew, with its indexes."""
        import pyarrow as pa
        from lancedb.index import IvfSq, LabelList

        texts = pa.list_(pa.string())
        columns = {"id": pa.int64(), "attributes": texts, "vector": pa.list_(pa.float32(), dim)}
        schema = pa.schema(columns)
        rows = _rows(items, vectors, _LANCE_BATCH, _pairs)
        batches = (pa.RecordBatch.from_pylist(some, schema) for some in rows)
        table = self._database.create_table(self.table, batches, schema=schema, mode="overwrite")
        if self.index != "FLAT":
            table.create_index("vector", config=IvfSq(distance_type="l2"))
            table.create_index("attributes", config=LabelList())

    def search(
        self, queries: Vectors, k: int, *, where: Where, exclude: Collection[int] = ()
    ) -> Found:
        """Find as `MilvusStore.search` does."""
        parts = [f"id NOT IN ({', '.join(map(str, sorted(exclude)))})"] if exclude else []
        quoted = (each.replace("'", "''") for each in _pairs(where))
        parts += (f"array_has(attributes, '{each}')" for each in quoted)
        found = []
        for query in queries:
            asked = self._opened.search(np.asarray(query, np.float32)).distance_type("l2")
            if parts:
                asked = asked.where(" AND ".join(parts), prefilter=True)
            if self.index != "FLAT":  # more cells where a filter leaves too few rows in these
                asked = asked.minimum_nprobes(_CELLS).maximum_nprobes(0).refine_factor(_REFINED)
            columns = asked.select(["id", "_distance"]).limit(k).to_arrow().to_pydict()
            found.append(_ordered(zip(columns["id"], columns["_distance"], strict=True)))
        return found


Store = MilvusStore | LanceStore


def _ordered(found: Iterable[tuple[int, float]]) -> list[tuple[int, float]]:
    """Order ids by squared distances, and by id where these are equal; return the distances."""
    by_distance = sorted((max(0.0, squared) ** 0.5, int(id)) for id, squared in found)
    return [(id, distance) for distance, id in by_distance]


def _rows(
    items: Iterable[Item],
    vectors: Iterable[Vector],
    most: int,
    attributes: Callable[[Where], object],
) -> Iterator[list[dict[str, Any]]]:
    """Yield rows of a table, so many at a time."""
    rows = (
        {"id": item.id, "attributes": attributes(item.attributes), "vector": np.float32(vector)}
        for item, vector in zip(items, vectors, strict=True)
    )
    while some := list(islice(rows, most)):
        yield some


def _pairs(attributes: Where) -> list[str]:
    return [json.dumps(pair, ensure_ascii=False) for pair in attributes.items()]


def _filter(where: Where, exclude: Collection[int]) -> str:
    """Write a filter expression; texts are quoted as JSON, so that no value can be read as a part
    of it."""
    parts = [f"id not in {sorted(exclude)}"] if exclude else []
    for name, value in where.items():
        key, text = (json.dumps(each, ensure_ascii=False) for each in (name, value))
        parts.append(f"attributes[{key}] == {text}")
    return " and ".join(parts)


def is_url(address: str) -> bool:
    """Return whether an address is a server's; otherwise it is a folder of the embedded engine."""
    return "://" in address or address.startswith("unix:")


# -- a collection's own table ---------------------------------------------------------------------


def absolute_address(address: str) -> str:
    """Return a URL as it is, the folder of the embedded engine as an absolute path."""
    return address if is_url(address) else str(Path(address).absolute())


def _is_lance(address: str) -> bool:
    return address.endswith("lance") or address.startswith(("s3://", "gs://", "az://"))


def _store(address: str, table: str, index: str) -> Store:
    return (LanceStore if _is_lance(address) else MilvusStore)(address, table, index)


def open_store(address: str, store: Mapping[str, Any] | None) -> Store:
    """Open the table of a generation in the engine that the user names, where it is kept in it.

    A collection could come from somebody else, so no address in it is asked that is not named.
    """
    kept = "its own folder" if store is None else str(store["address"])
    if store is None or kept != absolute_address(address):
        raise ConfigError(
            f"this collection is kept in {kept}, not in {address}. Index it there with --store "
            f"{address}."
        )
    found = _store(kept, str(store["table"]), store["index"])
    if found.table not in found.tables():
        found.close()
        raise RunError(f"{kept} has no table {found.table}. Index again with --store {kept}.")
    return found


def write_store(
    address: str,
    collection: Path,
    number: int,
    items: Sequence[Item],
    vectors: Iterable[Vector],
    dim: int,
) -> dict[str, Any]:
    """Write the generation of a number, which is published next; return what ``about.json`` keeps
    of it. The table of the generation before stays, which has readers still."""
    prefix = f"vicinal_{sha256(str(collection.resolve()).encode()).hexdigest()[:16]}_"
    table = f"{prefix}{number}"
    address = absolute_address(address)
    many = "IVF_SQ" if _is_lance(address) else "HNSW"
    index = "FLAT" if len(items) < _MANY else many
    store = _store(address, table, index)
    with closing(store):
        for other in store.tables():
            if other.startswith(prefix) and other != f"{prefix}{number - 1}":
                store.drop(other)
        store.write(items, vectors, dim)
    return {"address": address, "table": table, "index": index}

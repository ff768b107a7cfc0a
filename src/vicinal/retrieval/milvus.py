"""Milvus: embedded in a local folder, or a cluster behind a URL, by one address.

The collection's folder is the record: items and vectors of every generation, for any engine.
Milvus holds a copy with labels and metadata, and answers searches from it: a table for each
generation, so that a reader of one sees it unchanged while the next is written beside it.
"""

import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from vicinal.errors import ConfigError, RunError, package
from vicinal.retrieval.items import Item, Queries, Where

TOKEN = "VICINAL_MILVUS_TOKEN"  # the variable; the token itself is never written to a file
# rows per request: 512 numbers each are 1 MiB, of the 4 MiB and more that servers take
_BATCH = 500
_MANY = 100_000  # rows, from which on a graph is searched instead of all of them
_GRAPH = {"M": 16, "efConstruction": 200}
_EFFORT = 128  # candidates that a search of the graph keeps


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
        self.address = address
        self.table = table
        self.index = index
        self.client = _connected(address)

    def write(
        self, items: Iterable[Item], vectors: Iterable[Float[np.ndarray, "d"]], dim: int
    ) -> None:
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
        rows = (
            {"id": item.id, "attributes": item.attributes, "vector": vector.tolist()}
            for item, vector in zip(items, vectors, strict=True)
        )
        while some := list(islice(rows, _BATCH)):
            self.client.insert(self.table, some)
        self.client.flush(self.table)  # unflushed rows are searched one by one
        self.client.load_collection(self.table)

    def search(
        self, queries: Queries, k: int, *, where: Where, exclude: Collection[int] = ()
    ) -> list[list[tuple[int, float]]]:
        """Find ids and distances of the nearest, to the float32 precision of the engine and the
        recall of its index; equal distances by the lower id."""
        effort = {"ef": max(k, _EFFORT)} if self.index == "HNSW" else {}
        found = self.client.search(
            self.table,
            np.asarray(queries, np.float32).tolist(),
            _filter(where, exclude),
            k,
            output_fields=["id"],
            search_params={"metric_type": "L2", "params": effort},
        )
        by_distance = (
            sorted((max(0.0, hit["distance"]) ** 0.5, int(hit["entity"]["id"])) for hit in near)
            for near in found  # distances are squared
        )
        return [[(id, distance) for distance, id in near] for near in by_distance]


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


def _connected(address: str) -> Any:
    pymilvus = package("pymilvus", "milvus")
    try:
        if is_url(address):
            return pymilvus.MilvusClient(address, token=os.environ.get(TOKEN, ""))
        Path(address).parent.mkdir(parents=True, exist_ok=True)
        return pymilvus.MilvusClient(address)
    except (pymilvus.MilvusException, OSError) as error:
        if is_url(address):
            raise RunError(
                f"no Milvus answers at {address}: {error}. Start it, or check the address."
            ) from error
        raise RunError(
            f"the embedded Milvus store {address} cannot be opened: {error}. Only one process at a "
            "time can have it open; stop the other, or serve it (`milvus-lite server`) and name "
            "its URL instead."
        ) from error


# -- a collection's own table ---------------------------------------------------------------------


def absolute_address(address: str) -> str:
    """Return a URL as it is, the folder of the embedded engine as an absolute path."""
    return address if is_url(address) else str(Path(address).absolute())


def open_store(address: str, store: Mapping[str, Any] | None) -> MilvusStore:
    """Open the table of a generation in the engine that the user names, where it is kept in it.

    A collection could come from somebody else, so no address in it is asked that is not named.
    """
    kept = "its own folder" if store is None else str(store["address"])
    if store is None or kept != absolute_address(address):
        raise ConfigError(
            f"this collection is kept in {kept}, not in {address}. Index it there with --store "
            f"{address}."
        )
    found = MilvusStore(kept, str(store["table"]), store["index"])
    if not found.client.has_collection(found.table):
        found.client.close()
        raise RunError(f"{kept} has no table {found.table}. Index again with --store {kept}.")
    found.client.load_collection(found.table)  # a reopened store does not load by itself
    return found


def write_store(
    address: str,
    collection: Path,
    number: int,
    items: Sequence[Item],
    vectors: Iterable[Float[np.ndarray, "d"]],
    dim: int,
) -> dict[str, Any]:
    """Write the generation of a number, which is published next; return what ``about.json`` keeps
    of it. The table of the generation before stays, which has readers still."""
    prefix = f"vicinal_{sha256(str(collection.resolve()).encode()).hexdigest()[:16]}_"
    table = f"{prefix}{number}"
    index = "FLAT" if len(items) < _MANY else "HNSW"
    store = MilvusStore(absolute_address(address), table, index)
    with closing(store.client):
        for other in store.client.list_collections():
            if other.startswith(prefix) and other != f"{prefix}{number - 1}":
                store.client.drop_collection(other)
        store.write(items, vectors, dim)
    return {"address": absolute_address(address), "table": table, "index": index}

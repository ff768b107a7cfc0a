"""Milvus: embedded in a local folder, or a cluster behind a URL, by one address.

The collection's folder is the record: items and vectors of every generation, whatever the engine.
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

from vicinal.errors import ConfigError, RunError, unknown
from vicinal.retrieval.store import FlatStore, Item, Queries, Where

FLAT = "flat"  # the name of the default engine
TOKEN = "VICINAL_MILVUS_TOKEN"  # the variable; the token itself is never written to a file
_RECALL_QUERIES = 200  # of the sample on which an approximate index is compared with exact search
_RECALL_K = 10
# rows per request: 512 numbers each are 1 MiB, of the 4 MiB and more that servers take
_BATCH = 500
_LONGEST = 65_535  # bytes of a text, as many as Milvus allows
_MOST = 16_384  # neighbors that Milvus gives at most
_BUILD = {"FLAT": {}, "HNSW": {"M": 16, "efConstruction": 200}, "IVF_FLAT": {"nlist": 128}}
_SEARCH: dict[str, dict[str, int]] = {"FLAT": {}, "HNSW": {"ef": 128}, "IVF_FLAT": {"nprobe": 32}}
Row = tuple[int, Float[np.ndarray, "d"], Mapping[str, str]]  # id, vector, attributes


class MilvusStore:
    """A table of vectors in Milvus: one generation of a collection.

    Args:
        address: a folder of the embedded engine, or a URL. A server's token comes from
            ``VICINAL_MILVUS_TOKEN``.
        table: its name there.
        index: ``"FLAT"`` looks at everything; the others are quicker on many rows and find nearly
            everything.
    """

    def __init__(self, address: str, table: str, index: str = "FLAT") -> None:
        self.address = address
        self.table = table
        self.index = index
        self.client = _connected(address)

    def close(self) -> None:
        self.client.close()

    def opened(self) -> "MilvusStore":
        """Return this table, loaded; a RunError where there is none."""
        if not self.client.has_collection(self.table):
            self.close()
            raise RunError(
                f"{self.address} has no table {self.table}. Index again with --store "
                f"{self.address}."
            )
        self.client.load_collection(self.table)  # a reopened store does not load by itself
        return self

    def write(self, rows: Iterable[Row], dim: int) -> None:
        """Make the table anew; it is there, whole and on disk, when this returns."""
        from pymilvus import DataType

        if self.client.has_collection(self.table):  # of a writer that ended before it was read
            self.client.drop_collection(self.table)
        schema = self.client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("id", DataType.INT64, is_primary=True)
        # beside the others: quicker to filter by
        schema.add_field("label", DataType.VARCHAR, max_length=_LONGEST)
        schema.add_field("attributes", DataType.JSON)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=dim)
        indexes = self.client.prepare_index_params()
        indexes.add_index(
            field_name="vector", index_type=self.index, metric_type="L2", params=_BUILD[self.index]
        )
        # Strong: on a cluster, a search sees every row written before it.
        self.client.create_collection(
            self.table, schema=schema, index_params=indexes, consistency_level="Strong"
        )
        made = (_row(*row) for row in rows)
        while some := list(islice(made, _BATCH)):
            self.client.insert(self.table, some)
        self.client.flush(self.table)  # unflushed rows are searched one by one
        self.client.load_collection(self.table)

    def drop_others(self, prefix: str, kept: Collection[str]) -> None:
        """Remove the tables whose name begins so, but for these."""
        for table in self.client.list_collections():
            if table.startswith(prefix) and table not in kept:
                self.client.drop_collection(table)

    def search(
        self, queries: Queries, k: int, *, where: Where, exclude: Collection[int] = ()
    ) -> list[list[tuple[int, float]]]:
        """Find ids and distances of the nearest, to the float32 precision of the engine and the
        recall of its index; equal distances by the lower id."""
        if k > _MOST:
            raise ConfigError(f"Milvus finds 1 to {_MOST} neighbors per query; got k = {k}.")
        effort = dict(_SEARCH[self.index])
        if self.index == "HNSW":
            effort["ef"] = max(k, effort["ef"])
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


def _row(id: int, vector: Float[np.ndarray, "d"], attributes: Mapping[str, str]) -> dict[str, Any]:
    return {
        "id": id,
        "label": _kept(attributes.get("label")),
        "attributes": dict(attributes),
        "vector": np.asarray(vector, np.float32).tolist(),
    }


def _filter(where: Where, exclude: Collection[int]) -> str:
    """Write a filter expression; texts are quoted as JSON, so that no value can be read as a part
    of it."""
    parts = [f"id not in {sorted(exclude)}"] if exclude else []
    for name, value in where.items():
        quoted = json.dumps(_kept(value) if name == "label" else value, ensure_ascii=False)
        column = f"attributes[{json.dumps(name, ensure_ascii=False)}]"
        parts.append(f"{'label' if name == 'label' else column} == {quoted}")
    return " and ".join(parts)


def _kept(label: str | None) -> str:
    """Return a label as the column holds it: no label and an empty one are distinct."""
    return "" if label is None else f"={label}"


def is_url(address: str) -> bool:
    """Return whether an address is a server's; otherwise it is a folder of the embedded engine."""
    return "://" in address or address.startswith("unix:")


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
    return MilvusStore(kept, str(store["table"]), store["index"]).opened()


def wanted_store(
    store: str | None, index: str | None, before: Mapping[str, Any] | None
) -> tuple[str, str] | None:
    """Return address and index of the engine that a user asks for; None is the flat store.

    Args:
        store: ``"flat"``, a folder or a URL.
        index: FLAT, HNSW or IVF, in any case; None for what it was.
        before: ``store`` of the generation before.
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
    kind = (index or (before or {}).get("index", "FLAT")).upper()
    kind = "IVF_FLAT" if kind == "IVF" else kind
    if kind not in _BUILD:
        raise ConfigError(unknown("index of Milvus", kind, _BUILD))
    return absolute_address(str(store)), kind


def write_store(
    wanted: tuple[str, str],
    collection: Path,
    items: Sequence[Item],
    before: Mapping[str, Any] | None,
    number: int,
    vectors: Float[np.ndarray, "n d"],
) -> dict[str, Any]:
    """Write a generation that is about to be published; return what ``about.json`` keeps of it.

    Args:
        wanted: address and index.
        collection: whose generation it is.
        items: of it.
        before: ``store`` of the generation before, which has readers still.
        number: of the generation.
        vectors: one for each item.
    """
    address, index = wanted
    prefix = f"vicinal_{sha256(str(collection.resolve()).encode()).hexdigest()[:16]}_"
    table = f"{prefix}{number}"
    with closing(MilvusStore(address, table, index)) as store:
        store.drop_others(prefix, {table, (before or {}).get("table", "")})
        attributes = (item.attributes for item in items)
        ids = [item.id for item in items]
        store.write(zip(ids, vectors, attributes, strict=True), vectors.shape[1])
        recall = None if index == "FLAT" or not items else _recall(store, ids, vectors)
    return {"address": address, "table": table, "index": index, "recall": recall}


def _recall(store: MilvusStore, ids: Sequence[int], vectors: Float[np.ndarray, "n d"]) -> float:
    """Measure the share of the exact nearest that the engine finds, over vectors of the collection
    drawn as queries."""
    drawn = np.random.default_rng(0).permutation(len(ids))[:_RECALL_QUERIES]
    queries = np.array(vectors[drawn])
    k = min(_RECALL_K, len(ids))
    exact = np.array(ids)[FlatStore(vectors).search(queries, k).ids.numpy()].tolist()
    found = store.search(queries, k, where={})
    hits = [{id for id, _ in near} & {*true} for near, true in zip(found, exact, strict=True)]
    return sum(map(len, hits)) / (k * len(exact))

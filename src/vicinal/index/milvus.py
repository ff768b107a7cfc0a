"""Vectors in Milvus, the engine that grows: embedded in a local folder, or a cluster behind a URL, by one address.

A row says from which generation on it holds and in which it is gone, so a reader of one generation sees it unchanged
while the next is written beside it, row by row. What an ended writer left of a generation that nobody saw is taken
back by the next one.
"""

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from vicinal.errors import ConfigError, RunError
from vicinal.index.exact import Metric
from vicinal.index.store import Found

IndexKind = Literal["FLAT", "HNSW", "IVF_FLAT"]
INDEX_KINDS: tuple[IndexKind, ...] = ("FLAT", "HNSW", "IVF_FLAT")
TOKEN = "VICINAL_MILVUS_TOKEN"  # the variable; the token itself is never written to a file
Row = tuple[int, Float[np.ndarray, "d"], Mapping[str, str]]  # id, vector, attributes

_FOREVER = 2**62  # the generation in which a row is gone that is not
_ID_BITS = 40
_BATCH = 500  # rows per request: 512 numbers each are 1 MiB, of the 4 MiB and more that servers take
_LONGEST = 65_535  # bytes of a text, as many as Milvus allows
_MOST = 16_384  # neighbours that Milvus gives at most
_BUILD: dict[IndexKind, dict[str, int]] = {
    "FLAT": {},
    "HNSW": {"M": 16, "efConstruction": 200},
    "IVF_FLAT": {"nlist": 128},
}
_SEARCH: dict[IndexKind, dict[str, int]] = {"FLAT": {}, "HNSW": {"ef": 128}, "IVF_FLAT": {"nprobe": 32}}
_METRIC: dict[Metric, str] = {"euclidean": "L2", "cosine": "COSINE"}


def is_url(address: str) -> bool:
    """Whether an address is a server's; otherwise it is a folder of the embedded engine."""
    return "://" in address or address.startswith("unix:")


class MilvusStore:
    """One generation of a table, for readers; ``Milvus.at`` makes it."""

    def __init__(self, table: "Milvus", generation: int) -> None:
        self._table, self._generation = table, generation

    def close(self) -> None:
        self._table.close()

    def search(
        self,
        queries: Float[np.ndarray, "q d"],
        k: int,
        *,
        where: Mapping[str, str] | None = None,
        exclude: Collection[int] = (),
    ) -> Found:
        """As ``Store.search``, to the float32 precision of the engine and the recall of its index."""
        if not 1 <= k <= _MOST:
            raise ConfigError(f"Milvus gives 1 to {_MOST} neighbours per query, but k = {k} was asked for.")
        ids = np.full((len(queries), k), -1, np.int64)
        distances = np.full((len(queries), k), np.inf, np.float32)
        if len(queries):
            filter = _filter(self._generation, where or {}, exclude)
            for row, hits in enumerate(self._table.nearest(queries, k, filter)):
                for rank, (distance, id) in enumerate(sorted(hits)):  # equal distances by the lower id
                    ids[row, rank], distances[row, rank] = id, distance
        return Found(ids, distances)


class Milvus:
    """A table of vectors in Milvus.

    Args:
        address: a folder of the embedded engine, or a URL. A server's token comes from ``VICINAL_MILVUS_TOKEN``.
        table: its name there.
        dim: length of the vectors.
        metric: what distances are.
        index: ``"FLAT"`` looks at everything; the others are quicker on many rows and find nearly everything.
    """

    def __init__(
        self, address: str, table: str, *, dim: int, metric: Metric = "euclidean", index: IndexKind = "FLAT"
    ) -> None:
        self.address, self.table, self.dim, self.metric, self.index = address, table, dim, metric, index
        self._client = _connected(address)
        try:
            if self._client.has_collection(table):
                self._client.load_collection(table)  # a reopened store does not load by itself
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._client.close()

    def at(self, generation: int) -> MilvusStore:
        """What readers of a generation see."""
        if not self._client.has_collection(self.table):
            raise RunError(f"{self.address} has no table {self.table}. Index again with --store {self.address}.")
        return MilvusStore(self, generation)

    def nearest(self, queries: Float[np.ndarray, "q d"], k: int, filter: str) -> Iterator[list[tuple[float, int]]]:
        """For each query the distances and ids of the nearest rows that pass a filter of Milvus."""
        found = self._client.search(
            self.table,
            data=np.asarray(queries, np.float32).tolist(),
            limit=k,
            filter=filter,
            output_fields=["id"],
            search_params={"metric_type": _METRIC[self.metric], "params": _SEARCH[self.index] | self._effort(k)},
        )
        for hits in found:
            yield [(self._distance(hit["distance"]), int(hit["entity"]["id"])) for hit in hits]

    def write(self, generation: int, added: Iterable[Row], removed: Sequence[int]) -> None:
        """Make a generation of the one before it. It is there, whole and on disk, when this returns.

        Args:
            generation: its number; what a writer before left of it is taken back first.
            added: new rows, and those that replace rows in ``removed``.
            removed: ids whose rows of the generation before are no longer there.
        """
        if not self._client.has_collection(self.table):
            self._create()
        self._take_back(generation)
        for ids in _batches(removed):
            rows = self._client.query(self.table, filter=f"id in {list(ids)} and gone == {_FOREVER}")
            self._client.upsert(self.table, [{**row, "gone": generation} for row in rows])
        for some in _batches(added):
            self._client.insert(
                self.table,
                [
                    {
                        "key": (generation << _ID_BITS) | id,  # a replaced thing has two rows for a while
                        "id": id,
                        "born": generation,
                        "gone": _FOREVER,
                        "label": _kept(attributes.get("label")),
                        "attributes": dict(attributes),
                        "vector": np.asarray(vector, np.float32).tolist(),
                    }
                    for id, vector, attributes in some
                ],
            )
        self._client.delete(self.table, filter=f"gone < {generation}")  # nobody reads generations before the last
        self._client.flush(self.table)  # unflushed rows are searched one by one
        self._client.load_collection(self.table)

    def drop(self) -> None:
        """Remove the table, where there is one."""
        if self._client.has_collection(self.table):
            self._client.drop_collection(self.table)

    def _take_back(self, generation: int) -> None:
        self._client.delete(self.table, filter=f"born >= {generation}")
        while rows := self._client.query(
            self.table, filter=f"gone >= {generation} and gone < {_FOREVER}", limit=_BATCH
        ):
            self._client.upsert(self.table, [{**row, "gone": _FOREVER} for row in rows])

    def _create(self) -> None:
        from pymilvus import DataType

        schema = self._client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("key", DataType.INT64, is_primary=True)
        for name in ("id", "born", "gone"):
            schema.add_field(name, DataType.INT64)
        schema.add_field("label", DataType.VARCHAR, max_length=_LONGEST)  # beside the others: quicker to filter by
        schema.add_field("attributes", DataType.JSON)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=self.dim)
        indexes = self._client.prepare_index_params()
        indexes.add_index(
            field_name="vector", index_type=self.index, metric_type=_METRIC[self.metric], params=_BUILD[self.index]
        )
        # Strong: on a cluster, a search sees every row written before it.
        self._client.create_collection(self.table, schema=schema, index_params=indexes, consistency_level="Strong")

    def _effort(self, k: int) -> dict[str, int]:
        return {"ef": max(k, _SEARCH["HNSW"]["ef"])} if self.index == "HNSW" else {}  # HNSW needs ef >= k

    def _distance(self, value: float) -> float:
        # Milvus gives squared distances for L2 and similarities for COSINE.
        return max(0.0, value) ** 0.5 if self.metric == "euclidean" else 1 - value


def _filter(generation: int, where: Mapping[str, str], exclude: Collection[int]) -> str:
    """A filter expression; texts are quoted as JSON, so that no value can be read as a part of the expression."""
    parts = [f"born <= {generation}", f"gone > {generation}"]
    for name, value in where.items():
        if name == "label":
            parts.append(f"label == {_quoted(_kept(value))}")
        else:
            parts.append(f"attributes[{_quoted(name)}] == {_quoted(value)}")
    if exclude:
        parts.append(f"id not in {sorted(int(id) for id in exclude)}")
    return " and ".join(parts)


def _kept(label: str | None) -> str:
    """A label as the column holds it: no label is told from an empty one."""
    return "" if label is None else f"={label}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _batches(rows: Iterable[Any]) -> Iterator[list[Any]]:
    rows = iter(rows)
    while some := list(islice(rows, _BATCH)):
        yield some


def _connected(address: str) -> Any:
    try:
        from pymilvus import MilvusClient
        from pymilvus.exceptions import MilvusException
    except ImportError as error:
        raise ConfigError("a store in Milvus needs pymilvus: `pip install 'vicinal[milvus]'`.") from error
    if is_url(address):
        try:
            return MilvusClient(address, token=os.environ.get(TOKEN, ""))
        except MilvusException as error:
            raise RunError(f"no Milvus answers at {address}: {error}. Start it, or check the address.") from error
    Path(address).parent.mkdir(parents=True, exist_ok=True)
    try:
        return MilvusClient(address)
    except (MilvusException, OSError) as error:
        raise RunError(
            f"the embedded Milvus store {address} cannot be opened: {error}. Only one process at a time can "
            f"have it open; stop the other, or start a server on it (`milvus-lite server`) and name its URL instead."
        ) from error

"""Stores of vectors beside each other: time to build, recall@10, time of a query and of one with a
filter, memory.

    python benchmarks/stores.py --rows 100000
    python benchmarks/stores.py --rows 1000000 --only flat,faiss-flat,faiss-ivf --write

Indexes of cells and graphs look at twice as much until they find 95 % of the exact neighbors, 32
times as much at most. Each store is a process of its own with a time limit, two threads and the
same rows, which it reads from a memory map. The time of a query is the least of fifty, which other
work on the machine disturbs least.
LanceDB and Qdrant are no dependencies: ``--python`` names the interpreter of an environment that
has them. Memory is the most that the process and its children had resident, files that they map
included.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from measuring import ROOT, hardware, write_between

DIM = 512
K = 10
QUERIES = 50
PASS = 20_000
THREADS = {
    name: "2"
    for name in (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "RAYON_NUM_THREADS",
        "LANCE_CPU_THREADS",
    )
}
ENOUGH = 0.95
MOST = 32
Search = Callable[
    ..., list[int]
]  # of a query, the label that what is found must have or None, and how far to look


def write_data(folder: Path, rows: int) -> None:
    """Unit rows around class centers, fifty of a class, the queries' exact neighbors, and those
    with the label 1."""
    import numpy as np

    rng = np.random.default_rng(0)
    classes = rows // 50
    centers = rng.standard_normal((classes, DIM), dtype=np.float32)

    def drawn(labels):
        made = centers[labels] + 1.3 * rng.standard_normal((len(labels), DIM), dtype=np.float32)
        return made / np.linalg.norm(made, axis=1, keepdims=True)

    vectors = np.lib.format.open_memmap(folder / "vectors.npy", "w+", np.float32, (rows, DIM))
    queries = drawn(rng.integers(0, classes, QUERIES))
    best = np.empty((QUERIES, 0)), np.empty((QUERIES, 0), int)
    for start in range(0, rows, PASS):
        part = drawn(np.arange(start, min(start + PASS, rows)) % classes)
        vectors[start : start + PASS] = part
        likeness = np.concatenate([best[0], queries @ part.T], axis=1)
        ids = np.concatenate(
            [best[1], np.tile(np.arange(start, start + len(part)), (QUERIES, 1))], axis=1
        )
        order = np.argsort(-likeness, axis=1)[:, :K]
        best = np.take_along_axis(likeness, order, 1), np.take_along_axis(ids, order, 1)
    vectors.flush()
    np.savez(folder / "queries.npz", queries=queries, exact=best[1], classes=classes)


def parts(vectors, classes):
    import numpy as np

    for start in range(0, len(vectors), PASS):
        part = np.asarray(vectors[start : start + PASS])
        yield start, part, np.arange(start, start + len(part)) % classes


def flat(folder: Path, vectors, classes: int, bits: bool = False) -> Search:
    import numpy as np

    from vicinal.retrieval.collection import CollectionDirectory, publish
    from vicinal.retrieval.items import Item

    items = [Item(row, f"{row}", str(row % classes)) for row in range(len(vectors))]
    publish(folder, items, vectors, dim=DIM)
    snapshot = CollectionDirectory.open(folder).snapshot()
    if bits:
        snapshot.compact()
        snapshot = CollectionDirectory.open(folder).snapshot()

    def search(query, label=None, effort=1):
        where = None if label is None else {"label": str(label)}
        return [
            match.item.id for match in snapshot.search(np.asarray(query)[None], K, where=where)[0]
        ]

    return search


def faiss(kind: str, folder: Path, vectors, classes: int) -> Search:
    import faiss
    import numpy as np

    cells = 4 * round(len(vectors) ** 0.5)
    index = faiss.index_factory(
        DIM, {"flat": "Flat", "ivf": f"IVF{cells},Flat", "hnsw": "HNSW16"}[kind]
    )
    if kind == "ivf":
        rng = np.random.default_rng(0)
        index.train(
            np.asarray(
                vectors[
                    np.sort(rng.choice(len(vectors), min(len(vectors), 40 * cells), replace=False))
                ]
            )
        )
    if kind == "hnsw":
        index.hnsw.efConstruction = 100
    for _, part, _ in parts(vectors, classes):
        index.add(part)
    labels = np.arange(len(vectors)) % classes

    def search(query, label=None, effort=1):
        made = {
            "flat": faiss.SearchParameters,
            "ivf": faiss.SearchParametersIVF,
            "hnsw": faiss.SearchParametersHNSW,
        }
        more = {"ivf": {"nprobe": 32 * effort}, "hnsw": {"efSearch": 128 * effort}}.get(kind, {})
        if label is not None:
            more["sel"] = faiss.IDSelectorBatch(np.flatnonzero(labels == label))
        return index.search(query[None], K, params=made[kind](**more))[1][0].tolist()

    return search


def engine(kind: str, folder: Path, vectors, classes: int) -> Search:
    """As ``index --store`` keeps a collection; ``kind`` is the index, of either engine."""
    from vicinal.retrieval.items import Item
    from vicinal.retrieval.stores import LanceStore, MilvusStore

    lance = kind.startswith("IVF")
    made = LanceStore if lance else MilvusStore
    store = made(f"{folder}/store.{'lance' if lance else 'db'}", "bench", kind)
    items = (Item(row, str(row), str(row % classes)) for row in range(len(vectors)))
    store.write(items, vectors, DIM)
    return lambda query, label=None, effort=1: [
        id
        for id, _ in store.search(
            query[None], K, where={} if label is None else {"label": str(label)}
        )[0]
    ]


def lancedb(kind: str, folder: Path, vectors, classes: int) -> Search:
    import lancedb
    import pyarrow as pa

    fields = [("id", pa.int64()), ("label", pa.int64()), ("vector", pa.list_(pa.float32(), DIM))]

    def batches():
        for start, part, labels in parts(vectors, classes):
            lists = pa.FixedSizeListArray.from_arrays(pa.array(part.reshape(-1)), DIM)
            ids = pa.array(range(start, start + len(part)))
            yield pa.RecordBatch.from_arrays(
                [ids, pa.array(labels), lists], schema=pa.schema(fields)
            )

    table = lancedb.connect(folder).create_table("bench", data=batches(), schema=pa.schema(fields))
    if kind != "flat":
        table.create_index(metric="l2", vector_column_name="vector", index_type=kind)
        table.create_scalar_index("label")

    def search(query, label=None, effort=1):
        asked = table.search(query).limit(K).select(["id"])
        asked = asked if kind == "flat" else asked.nprobes(32 * effort).refine_factor(4 * effort)
        asked = asked if label is None else asked.where(f"label = {label}", prefilter=True)
        return asked.to_arrow()["id"].to_pylist()

    return search


def qdrant(folder: Path, vectors, classes: int) -> Search:
    from qdrant_client import QdrantClient, models

    client = QdrantClient(path=str(folder))
    client.create_collection(
        "bench", models.VectorParams(size=DIM, distance=models.Distance.EUCLID)
    )
    for start, part, labels in parts(vectors, classes):
        payload = [{"label": int(label)} for label in labels]
        client.upload_collection("bench", part, payload, ids=range(start, start + len(part)))

    def search(query, label=None, effort=1):
        only = models.FieldCondition(key="label", match=models.MatchValue(value=label or 0))
        found = client.query_points(
            "bench",
            query=query.tolist(),
            limit=K,
            query_filter=None if label is None else models.Filter(must=[only]),
        )
        return [point.id for point in found.points]

    return search


STORES: dict[str, Callable[..., Search]] = {
    "flat": flat,
    "bits": lambda *given: flat(*given, bits=True),
    **{
        f"faiss-{kind}": lambda *given, kind=kind: faiss(kind, *given)
        for kind in ("flat", "ivf", "hnsw")
    },
    **{
        f"{name}-{kind}": lambda *given, kind=kind: engine(kind, *given)
        for name, kind in (("milvus", "FLAT"), ("milvus", "HNSW"), ("lance", "IVF_SQ"))
    },
    **{
        f"lancedb-{kind}": lambda *given, kind=kind: lancedb(kind, *given)
        for kind in ("flat", "IVF_PQ", "IVF_HNSW_SQ")
    },
    "qdrant-local": qdrant,
}
FOREIGN = ("lancedb", "qdrant")
FIXED = ("milvus-FLAT", "milvus-HNSW", "lance-IVF_SQ", "bits")  # look as far as they do for users


def one(name: str, data: Path) -> None:
    """Measure one store and print what was found as JSON; the parent reads it."""
    import numpy as np

    vectors = np.load(data / "vectors.npy", mmap_mode="r")
    asked = np.load(data / "queries.npz")
    classes = int(asked["classes"])
    with tempfile.TemporaryDirectory(dir=data) as folder:
        start = time.perf_counter()
        search = STORES[name](Path(folder), vectors, classes)
        built = time.perf_counter() - start
        search(asked["queries"][0])
        effort = 1
        narrowed = []
        while True:
            recall = []
            seconds = []
            for query, exact in zip(asked["queries"], asked["exact"], strict=True):
                start = time.perf_counter()
                found = search(query, effort=effort)
                seconds.append(time.perf_counter() - start)
                recall.append(len({*found} & {*exact.tolist()}) / K)
            if statistics.mean(recall) >= ENOUGH or effort >= MOST or name in FIXED:
                break
            effort *= 2
        for label, query in enumerate(asked["queries"][:10]):
            start = time.perf_counter()
            # May be none: an index of cells looks into the nearest ones only.
            found = search(query, label, effort)
            assert {row % classes for row in found if row >= 0} <= {label}
            narrowed.append(time.perf_counter() - start)
        size = sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
        print(
            json.dumps([built, statistics.mean(recall), min(seconds), min(narrowed), size, effort])
        )


def resident(group: int) -> int:
    """Bytes resident now of all processes of a group."""
    total = 0
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group:
            total += int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
    return total


def measured(name: str, data: Path, python: str, limit: float) -> str:
    """Run one store; the row of the table."""
    words = [
        python if name.startswith(FOREIGN) else sys.executable,
        __file__,
        "--one",
        name,
        "--folder",
        str(data),
    ]
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        start = time.monotonic()
        most = 0
        child = subprocess.Popen(
            words, stdout=output, stderr=errors, start_new_session=True, env=os.environ | THREADS
        )
        while child.poll() is None and time.monotonic() - start < limit:
            most = max(most, resident(child.pid))
            time.sleep(0.2)
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            return f"| {name} | more than {limit:.0f} s | | | | {most / 2**20:,.0f} MiB | |"
        output.seek(0)
        errors.seek(0)
        said = output.read().strip().splitlines()
        if child.returncode:
            return (
                f"| {name} | failed: {errors.read().strip().splitlines()[-1][:120]} | | | | "
                f"{most / 2**20:,.0f} MiB | |"
            )
        built, recall, single, narrowed, size, effort = json.loads(said[-1])
    looked = f", {effort} times as much" if effort > 1 else ""
    return (
        f"| {name}{looked} | {built:.0f} s | {recall:.1%} | {single * 1e3:.1f} ms | "
        f"{narrowed * 1e3:.1f} ms "
        f"| {most / 2**20:,.0f} MiB | {size / 2**20:,.0f} MiB |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=100_000, help="vectors")
    parser.add_argument("--only", default=",".join(STORES), help="stores, with commas")
    parser.add_argument(
        "--python", default=sys.executable, help="interpreter that has lancedb and qdrant-client"
    )
    parser.add_argument("--limit", type=float, default=600, help="seconds for a store")
    parser.add_argument("--folder", type=Path, help="where to work; by default a temporary folder")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument(
        "--write", action="store_true", help="write the table into docs/benchmarks.md"
    )
    options = parser.parse_args()
    if options.one:
        return one(options.one, options.folder)
    load = os.getloadavg()[0]
    lines = []
    with tempfile.TemporaryDirectory() as temporary:
        data = options.folder or Path(temporary)
        if not (data / "queries.npz").is_file():
            write_data(data, options.rows)
        lines = [
            f"| {options.rows:,} x {DIM} | build | recall@{K} | a query | of one label | most "
            "resident | on disk |",
            "|---|---|---|---|---|---|---|",
        ]
        for name in options.only.split(","):
            lines.append(measured(name, data, options.python, options.limit))
            print(lines[-1], flush=True)
    text = "\n".join(
        [
            *lines,
            "",
            f"`python benchmarks/stores.py` on {hardware()}; load average before {load:.1f}.",
        ]
    )
    print(text)
    if options.write:
        write_between(ROOT / "docs" / "benchmarks.md", "stores", text)


if __name__ == "__main__":
    main()

"""Search beside faiss-cpu's flat index: time of a batch of queries and of a single one.

    python benchmarks/search.py                  # prints the tables; about 3 minutes on 2 cores
    python benchmarks/search.py --write          # and writes them into docs/benchmarks.md

Times against faiss are taken alternately in one process with the same threads: one round times
both, the ratio is taken within the round, and the table gives the median and the range over rounds.
faiss holds its vectors in memory; ours are memory-mapped from a collection's file and already
touched. ``stores.py`` has other stores.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from measuring import ROOT, Ratio, alternate, provenance, resident, timed, verdict, write_between

DOCUMENT = ROOT / "docs" / "benchmarks.md"
ROWS = 60_502  # Stanford Online Products' test part
DIM = 512
CLASSES = 11_316
QUERIES = 256
K = 10
SINGLES = 20  # single queries per round, each another


def data(rows: int, seed: int = 0):
    """Unit rows around class centers, and queries around the same centers; no two rows equal."""
    import numpy as np

    rng = np.random.default_rng(seed)
    classes = max(2, rows * CLASSES // ROWS)
    centers = rng.standard_normal((classes, DIM), dtype=np.float32)

    def drawn(labels):
        made = centers[labels] + 1.7 * rng.standard_normal((len(labels), DIM), dtype=np.float32)
        return made / np.linalg.norm(made, axis=1, keepdims=True)

    labels = np.arange(rows) % classes
    return drawn(labels), labels, drawn(rng.integers(0, classes, QUERIES))


def publish_collection(folder: Path, vectors, labels) -> None:
    from vicinal.retrieval.collection import publish
    from vicinal.retrieval.items import Item

    items = [
        Item(row, f"{label}/{row}.jpg", str(label)) for row, label in enumerate(labels.tolist())
    ]
    publish(folder, items, vectors, dim=DIM)


def one_by_one(search: Callable, queries) -> Callable[[], None]:
    def run() -> None:
        for row in range(SINGLES):
            search(queries[row : row + 1], K)

    return run


def ratio_line(case: str, found: Ratio, rounds: int, scale: float = 1.0) -> str:
    """Ours over theirs, so that less than 1 is quicker; ``Ratio`` has it the other way round."""
    ours = found.ours / scale
    theirs = found.theirs / scale
    middle = 1 / found.ratio
    return (
        f"| {case} | {ours * 1e3:.1f} ms | {theirs * 1e3:.1f} ms | no slower | "
        f"{verdict(middle <= 1)}: ratio "
        f"{middle:.2f} ({1 / found.most:.2f} to {1 / found.least:.2f} in {rounds} rounds) |"
    )


def flat_table(rounds: int) -> list[str]:
    import faiss
    import numpy as np
    import torch

    from vicinal.evaluation.neighbors import Gallery, Neighbors, joined
    from vicinal.retrieval.collection import VECTORS, CollectionDirectory

    vectors, labels, queries = data(ROWS)
    with tempfile.TemporaryDirectory() as folder:
        publish_collection(Path(folder), vectors, labels)
        peer = faiss.IndexFlatL2(DIM)
        peer.add(vectors)
        del vectors
        before = resident("VmRSS")
        start = time.perf_counter()
        snapshot = CollectionDirectory.open(folder).snapshot()
        opened = time.perf_counter() - start
        start = time.perf_counter()
        snapshot.search(queries[:1], K)
        first = time.perf_counter() - start
        held = np.load(snapshot.folder / VECTORS, mmap_mode="c")
        gallery = Gallery(torch.from_numpy(held), in_place=True)

        def exact(asked: np.ndarray, k: int) -> Neighbors:
            rows = torch.from_numpy(asked)
            return joined(gallery.search(rows, k, chunk_bytes=2**26), rows, k)

        found = exact(queries, K)
        expected = peer.search(queries, K)
        same = (found.ids.numpy() == expected[1]).mean()
        batch = alternate(lambda: exact(queries, K), lambda: peer.search(queries, K), rounds)
        single = alternate(one_by_one(exact, queries), one_by_one(peer.search, queries), rounds)
        whole = (
            statistics.median(timed(one_by_one(snapshot.search, queries)) for _ in range(rounds))
            / SINGLES
        )
        where = {"label": str(int(labels[0]))}
        narrowed = statistics.median(
            timed(lambda: snapshot.search(queries[:1], K, where=where)) for _ in range(rounds)
        )
        grown = resident("VmRSS") - before
    return [
        f"| {ROWS:,} x {DIM}, k = {K} | vicinal | faiss-cpu IndexFlatL2 | bar | |",
        "|---|---|---|---|---|",
        ratio_line(f"{QUERIES} queries together", batch, rounds),
        ratio_line("a single query", single, rounds, SINGLES),
        f"| the same neighbors in the same order | {same:.2%} | | | |",
        f"| a single query, with its items | {whole * 1e3:.1f} ms | | | |",
        f"| a single query, filtered by label | {narrowed * 1e3:.2f} ms | | | |",
        f"| opening the collection | {opened:.2f} s, first search {first:.2f} s | | | |",
        f"| additional memory | {grown / 2**20:,.0f} MiB, of which {ROWS * DIM * 4 / 2**20:,.0f} "
        "MiB are the "
        f"mapped file | | | |",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9, help="how often both are timed")
    parser.add_argument(
        "--threads", type=int, default=os.cpu_count(), help="threads of torch and of faiss"
    )
    parser.add_argument(
        "--write", action="store_true", help="write the tables into docs/benchmarks.md"
    )
    options = parser.parse_args()

    import faiss
    import torch

    torch.set_num_threads(options.threads)
    faiss.omp_set_num_threads(options.threads)
    load = os.getloadavg()[0]
    lines = flat_table(options.rounds)
    packages = ("torch", "faiss-cpu", "numpy")
    command = (
        f"python benchmarks/search.py --write --rounds {options.rounds} --threads {options.threads}"
    )
    note = (
        f"`{command}` on {provenance(packages)}; {options.threads} threads; seed 0; load "
        f"average before {load:.1f}."
    )
    text = "\n".join([*lines, "", note])
    print(text)
    if options.write:
        write_between(DOCUMENT, "search", text)


if __name__ == "__main__":
    main()

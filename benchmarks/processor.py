"""Parts of an evaluation and a loss on a CPU, beside faiss where it has them, in processor time.

    python benchmarks/processor.py             # prints the table; about 5 minutes on 2 cores
    python benchmarks/processor.py --write     # and writes it into docs/benchmarks.md

Everything runs on one thread, and contestants take turns; times are medians of processor seconds
over the rounds, and ratios are taken within a round, because other programs may run beside it.
Searches take some of the 60,502 queries.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable

os.environ["OMP_NUM_THREADS"] = "1"

import faiss
import torch

import evaluation
from measuring import ROOT, provenance, verdict, write_between
from vicinal.evaluation import evaluate
from vicinal.evaluation.clustering import kmeans_runs
from vicinal.evaluation.neighbors import Neighbors
from vicinal.evaluation.retrieval import SOP_RECALLS, query_scores
from vicinal.losses import ClusteringLoss

QUERIES = 4_000  # a query is its own first neighbor here
NEIGHBORS = 1001
LOSS_ROWS = 512
LOSS_SECONDS = 0.4


def processor_seconds(function: Callable[[], object]) -> tuple[float, object]:
    start = time.process_time()
    found = function()
    return time.process_time() - start, found


def duel(
    rounds: int, ours: Callable[[], object], theirs: Callable[[], object]
) -> tuple[list, list]:
    ours(), theirs()
    return tuple(
        zip(
            *[(processor_seconds(ours), processor_seconds(theirs)) for _ in range(rounds)],
            strict=True,
        )
    )


def row(case: str, mine: list, peer: list, note: str) -> str:
    first, second = ([seconds for seconds, _ in part] for part in (mine, peer))
    ratios = [a / b for a, b in zip(first, second, strict=True)]
    ratio = statistics.median(ratios)
    spread = f"ratio {ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f} in {len(ratios)} rounds)"
    times = f"{statistics.median(first):.2f} s | {statistics.median(second):.2f} s"
    return f"| {case} | {times} | no slower | {verdict(ratio <= 1)}: {spread}; {note} |"


def search(rounds: int, noise: float) -> str:
    rows, labels = evaluation.data(**evaluation.LARGE)
    rng = torch.Generator().manual_seed(1)
    rows = torch.nn.functional.normalize(
        rows + noise * torch.randn(rows.shape, generator=rng), dim=1
    )
    queries = rows[:QUERIES]
    asked = labels[:QUERIES]
    index = faiss.IndexFlatL2(rows.shape[1])
    index.add(rows.numpy())

    metrics = [*(f"recall@{k}" for k in SOP_RECALLS), "map@r"]
    held = {"gallery": rows, "gallery_labels": labels, "device": "cpu"}

    def ours() -> dict[str, float]:
        return evaluate(queries, asked, metrics=metrics, **held)

    def theirs() -> dict[str, float]:
        distances, ids = (
            torch.from_numpy(part) for part in index.search(queries.numpy(), NEIGHBORS)
        )
        found = [Neighbors(0, ids, distances)]
        return query_scores(found, asked, labels, metrics=metrics).means()

    mine, peer = duel(rounds, ours, theirs)
    score = mine[0][1]["map@r"]
    case = f"{QUERIES} queries in 60,502 x 512, R@1 to R@1000 and MAP@R"
    return row(
        case,
        mine,
        peer,
        f"MAP@R {score:.2f}, faiss's differs by {abs(score - peer[0][1]['map@r']):.0e}",
    )


def cluster(rounds: int) -> str:
    rows, _ = evaluation.data(**evaluation.SMALL)
    seeds = iter(range(1, 10**6))

    def inertia(assigned: torch.Tensor) -> float:
        sums = torch.zeros(assigned.max() + 1, rows.shape[1]).index_add_(0, assigned, rows)
        means = sums / torch.bincount(assigned).clamp(min=1)[:, None]
        return float((rows - means[assigned]).square().sum())

    def ours() -> torch.Tensor:
        return kmeans_runs(rows, 2_500, seed=next(seeds), restarts=1)[0]

    def theirs() -> torch.Tensor:
        peer = faiss.Kmeans(
            rows.shape[1], 2_500, niter=25, seed=next(seeds), min_points_per_centroid=1
        )
        peer.train(rows.numpy())
        return torch.from_numpy(peer.index.search(rows.numpy(), 1)[1][:, 0])

    mine, peer = duel(rounds, ours, theirs)
    costs = [statistics.mean(inertia(assigned) for _, assigned in part) for part in (mine, peer)]
    note = f"sum of squared distances {costs[0]:.0f}, faiss's {costs[1]:.0f}"
    return row("k-means, 10,000 x 128, 2,500 clusters, one start", mine, peer, note)


def loss(rounds: int) -> str:
    rng = torch.Generator().manual_seed(0)
    labels = torch.arange(LOSS_ROWS) // 4
    embeddings = (torch.randn(LOSS_ROWS // 4, 128, generator=rng)[labels]).add_(
        torch.randn(LOSS_ROWS, 128, generator=rng)
    )
    embeddings.requires_grad_()
    times = [
        processor_seconds(lambda: ClusteringLoss()(embeddings, labels).backward())[0]
        for _ in range(rounds)
    ]
    seconds = statistics.median(times)
    spread = (
        f"{verdict(seconds <= LOSS_SECONDS)}: {min(times):.2f} to {max(times):.2f} s in "
        f"{rounds} rounds"
    )
    return (
        f"| clustering loss, {LOSS_ROWS} rows in classes of 4 | {seconds:.2f} s | | "
        f"{LOSS_SECONDS} s | {spread} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--write", action="store_true", help="write the table into docs/benchmarks.md"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    load = os.getloadavg()[0]
    lines = ["| case | vicinal | faiss | bar | |", "|---|---|---|---|---|"]
    for line in (lambda: search(options.rounds, 0.0), lambda: search(options.rounds, 0.08)):
        lines.append(line())
        print(lines[-1], flush=True)
    lines += [cluster(options.rounds), loss(options.rounds)]
    where = provenance(("torch", "faiss-cpu", "numpy"))
    command = f"python benchmarks/processor.py --write --rounds {options.rounds}"
    text = "\n".join(
        [
            *lines,
            "",
            f"`{command}` on {where}; 1 thread, processor time; load average before {load:.1f}.",
        ]
    )
    print(text)
    if options.write:
        write_between(ROOT / "docs" / "benchmarks.md", "processor", text)


if __name__ == "__main__":
    main()

"""Our k-means, clustering scores and exact search beside those of scikit-learn and faiss-cpu.

    python benchmarks/libraries.py --threads 1           # prints the rows of a table
    python benchmarks/libraries.py --threads 2 --large   # at 60,000 x 512

Contestants take turns in one process with the same number of threads. What is not at least twice
as fast as a library that vicinal depends on is to be replaced by it.
"""

import argparse
import os
import statistics
import time
import warnings
from collections.abc import Callable
from operator import truediv


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--large", action="store_true", help="60,000 x 512 instead of 10,000 x 128")
    options = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(options.threads)
    warnings.filterwarnings("ignore")

    import faiss
    import torch
    from sklearn.cluster import KMeans
    from sklearn.metrics import adjusted_mutual_info_score, normalized_mutual_info_score
    from sklearn.neighbors import NearestNeighbors

    from vicinal.evaluation import clustering_scores, kmeans
    from vicinal.evaluation.neighbors import neighbors

    torch.set_num_threads(options.threads)
    faiss.omp_set_num_threads(options.threads)
    clock = time.process_time if options.threads == 1 else time.perf_counter
    n, d, classes, clusters = (
        (60_000, 512, 11_000, 500) if options.large else (10_000, 128, 2_500, 100)
    )
    rng = torch.Generator().manual_seed(0)
    labels = torch.arange(n) % classes
    rows = torch.randn(classes, d, generator=rng)[labels]
    rows = torch.nn.functional.normalize(rows + torch.randn(n, d, generator=rng), dim=1)
    array = rows.numpy()
    guessed = torch.where(torch.rand(n, generator=rng) < 0.5, labels, labels[torch.randperm(n)])

    def sklearn_kmeans() -> object:
        return KMeans(clusters, n_init=1, max_iter=20, tol=0, random_state=0).fit(array).labels_

    def faiss_kmeans() -> object:
        peer = faiss.Kmeans(d, clusters, niter=20, seed=1, max_points_per_centroid=n)
        peer.train(array)
        return peer.index.search(array, 1)

    def sklearn_scores() -> object:
        one = labels.numpy()
        other = guessed.numpy()
        return normalized_mutual_info_score(one, other), adjusted_mutual_info_score(one, other)

    asked = rows[:1000] if options.large else rows

    def faiss_search() -> object:
        index = faiss.IndexFlatL2(d)
        index.add(array)
        return index.search(asked.numpy(), 10)

    def sklearn_search() -> object:
        peer = NearestNeighbors(n_neighbors=10, algorithm="brute", n_jobs=options.threads)
        return peer.fit(array).kneighbors(asked.numpy())

    cases: dict[str, tuple[Callable[[], object], dict[str, Callable[[], object]]]] = {
        f"k-means, {n:,} x {d}, {clusters} clusters, 20 rounds": (
            lambda: kmeans(rows, clusters, seed=0, restarts=1, iterations=20),
            {"scikit-learn": sklearn_kmeans, "faiss": faiss_kmeans},
        ),
        f"NMI and AMI, {n:,} rows in {classes:,} classes": (
            lambda: clustering_scores(labels, guessed),
            {"scikit-learn": sklearn_scores},
        ),
        f"10 neighbors of {len(asked):,} in {n:,} x {d}": (
            lambda: neighbors(asked, 10, gallery=rows),
            {"scikit-learn": sklearn_search, "faiss": faiss_search},
        ),
    }
    for case, (ours, peers) in cases.items():
        seconds: dict[str, list[float]] = {name: [] for name in ("vicinal", *peers)}
        for _ in range(options.rounds):
            for name, contestant in {"vicinal": ours, **peers}.items():
                start = clock()
                contestant()
                seconds[name].append(clock() - start)
        mine = statistics.median(seconds["vicinal"])
        told = [
            f"{name} {statistics.median(times):.3g} s "
            f"({statistics.median(map(truediv, times, seconds['vicinal'])):.2f})"
            for name, times in seconds.items()
            if name != "vicinal"
        ]
        print(f"| {case} | {options.threads} | {mine:.3g} s | {'; '.join(told)} |", flush=True)


if __name__ == "__main__":
    main()

"""Table 2 of ANML remade: kNN accuracy after linear metric learning on 15 small data sets.

    python benchmarks/tabular.py                      # all 15 sets, 30 splits; resumes where it stopped; days on 1 core
    python benchmarks/tabular.py --reduced --jobs 2   # 5 splits, 8 configurations, the 9 smallest sets; 20 minutes
    python benchmarks/tabular.py --peers PYTHON       # also LMNN and ITML, by metric-learn in an own environment:
        python -m venv peers && peers/bin/pip install metric-learn==0.7.0 'scikit-learn<1.6'; PYTHON = peers/bin/python
    python benchmarks/tabular.py --table              # only print the table of what has been measured; --write keeps it

Each line of the results is one set, split and method. Random 70/30 splits; scaling and PCA (150 directions, where there
are more features) are fitted on the training part. Every method has the same budget of at most 30 configurations,
chosen with k by 5-fold cross-validation on the training part, on a stratified 1,500 of it where it has more than 3,000
rows. Classes with fewer than 3 samples are left out. ``accuracy`` is with the k that cross-validation chose, ``oracle``
the paper's reading, the best k in 1 .. 40 on the test part. Sets come by size, so an unfinished table is complete for
the small ones.
"""

import argparse
import csv
import gzip
import json
import os
import subprocess
import time
import warnings
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
RESULTS, DOCUMENT = ROOT / "benchmarks" / "results", ROOT / "docs" / "anml_linear.md"
# By training cost: samples, then features.
SETS = ("iris", "wine", "glass", "solar_flare", "ecoli", "cars", "monk1", "australian", "vehicle", "german", "isolet1",
        "coil20", "usps", "pendigits", "letter")  # fmt: skip
OWN = ("euclidean", "lda", "rvml", "gmml", "nca", "pnca", "lanml+", "lanml-")
PEERS = ("lmnn", "itml")
NEW = ("pnca", "lanml+", "lanml-")
SPLITS, BUDGET, FOLDS, TEST_SHARE = 30, 30, 5, 0.3
LARGE, SUBSAMPLE, DIRECTIONS = 3000, 1500, 150
REDUCED = {"splits": 5, "budget": 8, "sets": SETS[:9]}


def load(name: str, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    with gzip.open(folder / f"{name}.csv.gz", "rt") as file:
        rows = list(csv.reader(file))[1:]
    X = np.array([[float(value) for value in row[:-1]] for row in rows])
    y = np.unique([row[-1] for row in rows], return_inverse=True)[1]
    common = np.bincount(y)[y] >= 3
    return X[common], y[common]


def split(X: np.ndarray, y: np.ndarray, number: int):
    """Training and test part, scaled and reduced by what the training part alone says."""
    from sklearn.decomposition import PCA
    from sklearn.model_selection import train_test_split
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    train, test, train_y, test_y = train_test_split(X, y, test_size=TEST_SHARE, random_state=number)
    steps = [StandardScaler()] + [PCA(DIRECTIONS, random_state=0)] * (X.shape[1] > DIRECTIONS)
    before = make_pipeline(*steps).fit(train)
    return before.transform(train), train_y, before.transform(test), test_y


def contestant(method: str, smallest_class: int):
    """Estimator and the values it is tuned over: the paper's grids where it names one."""
    from vicinal.linear import GMML, LANML, PAPER_GRIDS, PNCA, RVML

    if method == "lmnn":
        from metric_learn import LMNN

        most = max(1, smallest_class - 1)
        neighbours = sorted({min(k, most) for k in range(4, 11)})
        grid = {"regularization": [round(0.1 * step, 1) for step in range(1, 10)], "n_neighbors": neighbours}
        return LMNN(random_state=0), grid
    if method == "itml":
        from metric_learn import ITML_Supervised

        return ITML_Supervised(random_state=0), {"gamma": [0.25, 0.5, 0.7, 0.9]}
    if method == "lda":
        from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

        shrinkages = [None, 0.0, 0.001, 0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
        return LinearDiscriminantAnalysis(solver="eigen"), {"shrinkage": shrinkages[2:]}
    if method == "nca":
        from sklearn.neighbors import NeighborhoodComponentsAnalysis

        starts = {"init": ["identity", "pca"], "max_iter": [20, 50, 100]}  # it has no dial of its own
        return NeighborhoodComponentsAnalysis(random_state=0), starts
    if method == "rvml":
        return RVML(), {"regularization": [10.0**power for power in np.arange(-5, 2.25, 0.25)]}
    if method == "euclidean":
        from sklearn.preprocessing import FunctionTransformer

        return FunctionTransformer(), {"validate": [False]}
    kind = {"pnca": PNCA, "gmml": GMML, "lanml+": LANML, "lanml-": LANML}[method]
    return kind(), PAPER_GRIDS[method]


def measure(name: str, number: int, method: str, folder: Path, budget: int, jobs: int = 1) -> dict:
    from vicinal.linear import neighbour_accuracies, search

    start = time.perf_counter()
    train, train_y, test, test_y = split(*load(name, folder), number)
    estimator, grid = contestant(method, int(np.bincount(train_y)[np.unique(train_y)].min()))
    subsample = SUBSAMPLE if len(train) > LARGE else None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        options = {"budget": budget, "folds": FOLDS, "seed": number, "samples": subsample}
        found = search(estimator, train, train_y, grid, n_jobs=jobs, progress=False, **options)
    fitted = found.estimator
    curve = neighbour_accuracies(fitted.transform(train), train_y, fitted.transform(test), test_y)
    return {
        "set": name,
        "split": number,
        "method": method,
        "budget": budget,
        "accuracy": float(curve[found.neighbours - 1]),
        "oracle": float(curve.max()),
        "neighbours": found.neighbours,
        "validation": found.accuracy,
        "parameters": {key: value if value is None else float(value) if not isinstance(value, (str, bool)) else value
                       for key, value in found.parameters.items()},
        "configurations": len(found.trials),
        "converged": not any("converge" in str(item.message) for item in caught),
        "trained_on": len(train),
        "tested_on": len(test),
        "seconds": round(time.perf_counter() - start, 2),
        "versions": versions(method),
    }  # fmt: skip


def versions(method: str) -> str:
    """What a line was measured with; a peer's environment holds its own packages."""
    from importlib.metadata import version

    from measuring import commit

    packages = ("numpy", "scikit-learn", *(("metric-learn",) if method in PEERS else ()))
    return ", ".join([f"commit {commit()}", *(f"{package} {version(package)}" for package in packages)])


def lines_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def work(options: argparse.Namespace, methods: tuple[str, ...], path: Path) -> None:
    """Measure what is missing, one line at a time; a line that was begun and not ended is begun again."""
    done = {(line["set"], line["split"], line["method"]) for line in lines_of(path)}
    for name in options.sets:
        for number in range(options.splits):
            for method in methods:
                if (name, number, method) in done:
                    continue
                try:
                    found = measure(name, number, method, options.data / "tabular", options.budget, options.jobs)
                except (ValueError, np.linalg.LinAlgError) as error:  # a peer that cannot serve this split says so
                    found = {"set": name, "split": number, "method": method, "error": str(error)[:200]}
                with path.open("a") as file:
                    file.write(json.dumps(found) + "\n")
                print(name, number, method, found.get("accuracy", found.get("error")), found.get("seconds"), flush=True)


def table(lines: list[dict]) -> str:
    """Mean ± standard deviation over splits, the best in bold, with all that are not significantly below it."""
    from vicinal.bench.statistics import corrected_resampled_t

    accuracies: dict[tuple[str, str], dict[int, dict]] = {}
    for line in lines:
        if "error" not in line:
            accuracies.setdefault((line["set"], line["method"]), {})[line["split"]] = line
    methods = [m for m in (*OWN[:5], *PEERS, *NEW) if any(key[1] == m for key in accuracies)]
    text = [f"| set | splits | {' | '.join(methods)} |", "|---|---|" + "---|" * len(methods)]
    among_best, comparisons = 0, {("pnca", "nca"): [], ("lanml-", "lmnn"): []}
    counted = 0
    for name in SETS:
        cells = {m: accuracies[name, m] for m in methods if (name, m) in accuracies}
        if not set(OWN) <= set(cells):
            continue
        shared = sorted(set.intersection(*(set(own) for own in cells.values())))
        if len(shared) < 2:
            continue
        sizes = {key: cells["euclidean"][shared[0]][key] for key in ("trained_on", "tested_on")}
        values = {m: [own[s]["accuracy"] for s in shared] for m, own in cells.items()}
        best = max(values, key=lambda m: np.mean(values[m]))
        ties = {
            m for m in values
            if m == best
            or not corrected_resampled_t(values[best], values[m], **sizes).above_zero
        }  # fmt: skip
        counted += 1
        among_best += bool(ties & set(NEW))
        for pair, gains in comparisons.items():
            if set(pair) <= set(values):
                gains.append(float(np.mean(values[pair[0]]) - np.mean(values[pair[1]])))
        row = [
            ("**{}**" if m in ties else "{}").format(
                f"{100 * np.mean(values[m]):.1f} ± {100 * np.std(values[m], ddof=1):.1f}"
            ) if m in values else ""
            for m in methods
        ]  # fmt: skip
        text.append(f"| {name} | {len(shared)} | {' | '.join(row)} |")
    text += [
        "",
        f"One of PNCA, LANML⁺, LANML⁻ best or not significantly below the best: {among_best} of {counted} sets.",
    ]
    for (ours, theirs), gains in comparisons.items():
        if gains:
            text.append(f"{ours} above {theirs} in the mean: {sum(gain > 0 for gain in gains)} of {len(gains)} sets.")
    return "\n".join(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = os.environ.get("VICINAL_DATA", ROOT.parent / "shared" / "data")
    parser.add_argument("--data", type=Path, default=Path(root), help="folder that holds tabular/; VICINAL_DATA")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS, metavar="SET")
    parser.add_argument("--splits", type=int, default=SPLITS)
    parser.add_argument("--budget", type=int, default=BUDGET, help="configurations per method")
    parser.add_argument("--jobs", type=int, default=1, help="processes of each search")
    parser.add_argument("--reduced", action="store_true", help="5 splits, 8 configurations, the smallest sets")
    parser.add_argument("--peers", metavar="PYTHON", help="python with metric-learn, for LMNN and ITML")
    parser.add_argument("--table", action="store_true", help="measure nothing")
    parser.add_argument("--write", action="store_true", help="write the table into docs/anml_linear.md")
    parser.add_argument("--as-peer", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    name = "tabular_reduced" if options.reduced else "tabular"
    if options.reduced:
        options.splits, options.budget = REDUCED["splits"], REDUCED["budget"]
        options.sets = [one for one in options.sets if one in REDUCED["sets"]]
    own, peers = RESULTS / f"{name}.jsonl", RESULTS / f"{name}_peers.jsonl"
    RESULTS.mkdir(exist_ok=True)
    if options.as_peer:
        work(options, PEERS, peers)
        return
    every = [] if options.table else options.sets
    for one in every:
        options.sets = [one]
        work(options, OWN, own)
        if options.peers:
            words = ["--data", options.data, "--sets", one, "--splits", options.splits, "--budget", options.budget]
            words += ["--jobs", options.jobs]
            words += ["--reduced"] * options.reduced
            environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
            command = [options.peers, __file__, *map(str, words), "--as-peer"]
            subprocess.run(command, check=True, env=environment)
    text = table(lines_of(own) + lines_of(peers))
    print(text)
    if options.write:
        from measuring import write_between

        write_between(DOCUMENT, name, text)


if __name__ == "__main__":
    main()

"""Table 2 of ANML remade: kNN accuracy after linear metric learning on 15 small data sets.

    python benchmarks/tabular.py --processes 10                  # 15 sets, 30 splits; resumes where it stopped
    python benchmarks/tabular.py --metric-learn FOLDER --methods lmnn itml      # peers; FOLDER holds metric_learn/
    python benchmarks/tabular.py --reduced --processes 2         # 5 splits, 8 configurations, the 9 smallest sets
    python benchmarks/tabular.py --table                         # only the table of what was measured; --write keeps it

Each line of the results is one unit: a set, a split and a method. Units come split by split, so an interrupted run has
whole splits of all sets; ``--deadline SECONDS`` interrupts it. Random 70/30 splits; scaling and PCA (150 directions,
where there are more features) are fitted on the training part. Classes with fewer than 3 samples are left out.

Every method has the same budget of at most 30 configurations, chosen with k by 5-fold cross-validation on the training
part, on a stratified 1,500 rows of it where it has more than 3,000. Above 400 rows it is a race: all configurations on
one fold, the best third on three, the best third of those on five. Iterative methods may take 100 steps of their own
kind in the search (``--search-steps``), and in the fit that follows 300 or their own default, whichever is more. The
limit in the search is the same for all but not neutral: LMNN needs some 1,000 steps where LANML needs 20, so it hurts
LMNN's choice of parameters. The last fit uses a stratified 3,000 rows at most (``--fit-rows``); the
neighbours are looked for among all training rows. ``accuracy`` is with the k that cross-validation chose, ``oracle``
the paper's reading, the best k in 1 .. 40 on the test part.
"""

import argparse
import csv
import gzip
import json
import multiprocessing
import os
import sys
import time
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
RESULTS, DOCUMENT = ROOT / "benchmarks" / "results", ROOT / "docs" / "anml_linear.md"
# By training cost: samples, then features.
SETS = ("iris", "wine", "glass", "solar_flare", "ecoli", "cars", "monk1", "australian", "vehicle", "german", "isolet1",
        "coil20", "usps", "pendigits", "letter")  # fmt: skip
OWN = ("euclidean", "lda", "rvml", "gmml", "nca", "pnca", "lanml+", "lanml-")
PEERS, PEER_VERSION = ("lmnn", "itml"), "0.7.0"
NEW = ("pnca", "lanml+", "lanml-")
SPLITS, BUDGET, FOLDS, TEST_SHARE = 30, 30, 5, 0.3
LARGE, SUBSAMPLE, RACED, DIRECTIONS = 3000, 1500, 400, 150
SEARCH_STEPS, FIT_STEPS, FIT_ROWS = 100, 300, 3000
REDUCED = {"splits": 5, "budget": 8, "sets": SETS[:9]}


@cache
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

    if method in PEERS:
        accept_old_names()
    if method == "lmnn":
        from metric_learn import LMNN

        most = max(1, smallest_class * (FOLDS - 1) // FOLDS - 1)  # also within a fold
        neighbours = sorted({min(k, most) for k in range(4, 11)})
        grid = {"regularization": [round(0.1 * step, 1) for step in range(1, 10)], "n_neighbors": neighbours}
        return LMNN(random_state=0), grid
    if method == "itml":
        from metric_learn import ITML_Supervised

        return ITML_Supervised(random_state=0), {"gamma": [0.25, 0.5, 0.7, 0.9]}
    if method == "lda":
        from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

        shrinkages = [0.001, 0.01, 0.03, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
        return LinearDiscriminantAnalysis(solver="eigen"), {"shrinkage": shrinkages}
    if method == "nca":
        from sklearn.neighbors import NeighborhoodComponentsAnalysis

        starts = {"init": ["identity", "pca"], "tol": [1e-5, 1e-3, 1e-2]}  # it has no dial of its own
        return NeighborhoodComponentsAnalysis(random_state=0), starts
    if method == "rvml":
        return RVML(), {"regularization": [10.0**power for power in np.arange(-5, 2.25, 0.25)]}
    if method == "euclidean":
        from sklearn.preprocessing import FunctionTransformer

        return FunctionTransformer(), {"validate": [False]}
    kind = {"pnca": PNCA, "gmml": GMML, "lanml+": LANML, "lanml-": LANML}[method]
    return kind(), PAPER_GRIDS[method]


def accept_old_names() -> None:
    """metric-learn 0.7.0 calls two of scikit-learn's checks by an argument's name of before scikit-learn 1.6."""
    import inspect

    from metric_learn import _util

    def renamed(check):
        def old(*values, force_all_finite=True, **named):
            return check(*values, ensure_all_finite=force_all_finite, **named)

        return old

    for name in ("check_array", "check_X_y"):
        check = getattr(_util, name)
        if "ensure_all_finite" in inspect.signature(check).parameters:
            setattr(_util, name, renamed(check))


def measure(name: str, number: int, method: str, options: argparse.Namespace) -> dict:
    from vicinal.linear import neighbour_accuracies, search

    start, worked = time.perf_counter(), time.process_time()
    train, train_y, test, test_y = split(*load(name, options.data / "tabular"), number)
    estimator, grid = contestant(method, int(np.bincount(train_y)[np.unique(train_y)].min()))
    own_steps = estimator.get_params().get("max_iter")
    limit = max(own_steps or 0, FIT_STEPS)
    if own_steps is not None:
        estimator.set_params(max_iter=options.search_steps)
    strategy, budget = ("racing", options.race_budget) if len(train) > RACED else ("random", options.budget)
    how = {"strategy": strategy, "budget": budget, "folds": FOLDS, "seed": number, "n_jobs": 1, "progress": False}
    how |= {"samples": SUBSAMPLE if len(train) > LARGE else None, "refit": False}
    found = search(estimator, train, train_y, grid, **how)
    rows = stratified(train_y, options.fit_rows, number)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted = found.estimator
        if own_steps is not None:
            fitted.set_params(max_iter=limit)
        fitted.fit(train[rows], train_y[rows])
    steps = int(getattr(fitted, "n_iter_", 0))
    curve = neighbour_accuracies(fitted.transform(train), train_y, fitted.transform(test), test_y)
    return {
        "set": name,
        "split": number,
        "method": method,
        "budget": budget,
        "search_steps": options.search_steps,
        "accuracy": float(curve[found.neighbours - 1]),
        "oracle": float(curve.max()),
        "neighbours": found.neighbours,
        "validation": found.accuracy,
        "parameters": {key: value if value is None else float(value) if not isinstance(value, (str, bool)) else value
                       for key, value in found.parameters.items()},
        "steps": steps,
        # Peers run out of steps in silence; metric-learn's n_iter_ is then one less than the limit.
        "converged": steps < limit - 1 and not any("converge" in str(item.message) for item in caught),
        "trained_on": len(train),
        "fitted_on": len(rows),
        "tested_on": len(test),
        "seconds": round(time.perf_counter() - start, 2),
        "cpu": round(time.process_time() - worked, 2),
        "versions": options.versions + f", metric-learn {PEER_VERSION}" * (method in PEERS),
    }  # fmt: skip


def stratified(labels: np.ndarray, size: int | None, seed: int) -> np.ndarray:
    """Positions of at most about ``size`` rows, classes in proportion and none without."""
    if size is None or size >= len(labels):
        return np.arange(len(labels))
    rng = np.random.default_rng(seed)
    members = [rng.permutation(np.flatnonzero(labels == name)) for name in np.unique(labels)]
    return np.sort(np.concatenate([own[: max(2, round(size * len(own) / len(labels)))] for own in members]))


def versions() -> str:
    """What lines are measured with."""
    from importlib.metadata import version

    from measuring import commit

    try:
        made_by = commit()
    except FileNotFoundError:  # no git on this machine
        made_by = "unknown"
    packages = ("numpy", "scipy", "scikit-learn")
    return ", ".join([f"commit {made_by}", *(f"{package} {version(package)}" for package in packages)])


def lines_of(path: Path) -> list[dict]:
    """Lines of a results file; one that was cut off in the middle does not count."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else []:
        with suppress(json.JSONDecodeError):
            found.append(json.loads(line))
    return found


def end_last_line(path: Path) -> None:
    """Make a results file ready to be added to: a line that was cut off must not swallow the next one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        file.seek(0)
        if not (file.read() or "\n").endswith("\n"):
            file.write("\n")


def prepare(metric_learn: str | None) -> None:
    """Set up a worker: one thread, so that as many processes as cores do not fight; metric-learn, if asked for."""
    from threadpoolctl import threadpool_limits

    prepare.limits = threadpool_limits(1)  # holds as long as it lives
    if metric_learn:
        sys.path.append(metric_learn)  # behind everything: only metric_learn itself is to come from there


def unit(task: tuple[str, int, str, argparse.Namespace]) -> dict:
    name, number, method, options = task
    try:
        return measure(name, number, method, options)
    except (ValueError, np.linalg.LinAlgError) as error:  # a peer that cannot serve this split says so
        return {"set": name, "split": number, "method": method, "error": str(error)[:200]}


def work(options: argparse.Namespace, path: Path) -> None:
    """Measure what is missing, split by split; a unit that was begun and not ended is begun again another time."""
    done = {(line["set"], line["split"], line["method"]) for line in lines_of(path)}
    units = [
        (name, number, method)
        for number in range(options.splits)
        for name in reversed(options.sets)  # long ones first, so that a split ends without one that all wait for
        for method in reversed(options.methods)
        if (name, number, method) not in done
    ]
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
    end, left = time.monotonic() + (options.deadline or float("inf")), len(units)
    end_last_line(path)
    # "spawn": a fork would inherit the threads of BLAS. Leaving the block stops workers that still have a unit.
    with path.open("a") as file, multiprocessing.get_context("spawn").Pool(
        options.processes, prepare, (options.metric_learn,)
    ) as pool:  # fmt: skip
        results = pool.imap_unordered(unit, [(*one, options) for one in units])
        while left:
            try:
                found = results.next(timeout=min(end - time.monotonic(), 1e6))
            except multiprocessing.TimeoutError:
                print(f"stopped at the deadline with {left} of {len(units)} units left", flush=True)
                break
            file.write(json.dumps(found) + "\n")
            file.flush()
            left -= 1
            answer = found.get("error") or f"{100 * found['accuracy']:.1f} %, {found['cpu']:.1f} s"
            print(f"{left:5d} left: {found['set']} {found['split']} {found['method']}: {answer}", flush=True)


def both_readings(lines: list[dict]) -> str:
    paper = "By the paper's reading, the best k in 1 .. 40 on the test part itself, which flatters every method:"
    return f"{table(lines, 'accuracy')}\n\n{paper}\n\n{table(lines, 'oracle')}"


def table(lines: list[dict], reading: str) -> str:
    """Mean ± standard deviation over splits, the best in bold, with all that are not significantly below it.

    Two methods are compared on the splits that both have; a method with fewer splits than the rest says so, and one
    with a single split is shown and compared with none. A mean over fewer splits is one of other splits: it alone makes
    no method the best, but what such a method is told to be above is not in bold.

    Args:
        lines: units as they were kept.
        reading: ``"accuracy"``, k by cross-validation, or ``"oracle"``, the best k on the test part.
    """
    accuracies: dict[tuple[str, str], dict[int, dict]] = {}
    for line in lines:
        if "error" not in line:
            accuracies.setdefault((line["set"], line["method"]), {})[line["split"]] = line
    methods = [m for m in (*OWN[:5], *PEERS, *NEW) if any(key[1] == m for key in accuracies)]
    text = [f"| set | splits | {' | '.join(methods)} |", "|---|---|" + "---|" * len(methods)]
    among_best, verdicts = [], {("pnca", "nca"): [], ("lanml-", "lmnn"): []}
    for name in SETS:
        there = {m: accuracies[name, m] for m in methods if (name, m) in accuracies}
        cells = {m: own for m, own in there.items() if len(own) > 1}
        if not set(OWN) <= set(cells):
            continue
        means = {m: np.mean([line[reading] for line in own.values()]) for m, own in cells.items()}
        most = max(map(len, cells.values()))
        best = max((m for m in cells if len(cells[m]) == most), key=means.get)
        rivals = {best} | {m for m in cells if len(cells[m]) < most}
        ties = {m for m in cells if all(difference(cells[r], cells[m], reading) != "above" for r in rivals - {m})}
        among_best.append(bool(ties & set(NEW)))
        for (ours, theirs), found in verdicts.items():
            if {ours, theirs} <= set(cells):
                found.append(difference(cells[ours], cells[theirs], reading))
        row = [name, str(most)]
        for method in methods:
            own = [line[reading] for line in there.get(method, {}).values()]
            cell = f"{100 * np.mean(own):.1f}" if own else ""
            cell += f" ± {100 * np.std(own, ddof=1):.1f}" if len(own) > 1 else ""
            cell = f"**{cell}**" if method in ties else cell
            row.append(cell + f" ({len(own)})" * (0 < len(own) < most))
        text.append(f"| {' | '.join(row)} |")
    text += ["", "One of PNCA, LANML⁺, LANML⁻ best or not significantly below the best: "
             f"{sum(among_best)} of {len(among_best)} sets."]  # fmt: skip
    for (ours, theirs), found in verdicts.items():
        if found:
            counts = ", ".join(f"{word} {found.count(word)}" for word in ("above", "not told apart", "below"))
            text.append(f"{ours} against {theirs}, {len(found)} sets, significantly: {counts}.")
    return "\n".join(text)


def difference(ours: dict[int, dict], theirs: dict[int, dict], reading: str) -> str:
    """Whether one method is told from another on the splits that both have."""
    from vicinal.bench.statistics import corrected_resampled_t

    shared = sorted(set(ours) & set(theirs))
    if len(shared) < 2:
        return "not told apart"
    sizes = {key: ours[shared[0]][key] for key in ("trained_on", "tested_on")}
    values, twins = ([cell[number][reading] for number in shared] for cell in (ours, theirs))
    if corrected_resampled_t(values, twins, **sizes).above_zero:
        return "above"
    return "below" if corrected_resampled_t(twins, values, **sizes).above_zero else "not told apart"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = os.environ.get("VICINAL_DATA", ROOT.parent / "shared" / "data")
    parser.add_argument("--data", type=Path, default=Path(root), help="folder that holds tabular/; VICINAL_DATA")
    parser.add_argument("--results", type=Path, help="JSON lines to resume; benchmarks/results/tabular.jsonl")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS, metavar="SET")
    parser.add_argument("--methods", nargs="+", choices=OWN + PEERS, metavar="METHOD", help="all that can run")
    parser.add_argument("--splits", type=int, default=SPLITS)
    parser.add_argument("--budget", type=int, default=BUDGET, help="configurations per method")
    parser.add_argument("--race-budget", type=int, help="configurations where they race; as --budget")
    parser.add_argument("--search-steps", type=int, default=SEARCH_STEPS, help="steps of a fit in the search")
    parser.add_argument("--fit-rows", type=int, default=FIT_ROWS, help="rows of the last fit at most")
    parser.add_argument("--processes", type=int, default=1, help="units at a time, one thread each")
    parser.add_argument("--deadline", type=float, metavar="SECONDS", help="stop then; a later call goes on")
    parser.add_argument("--metric-learn", metavar="FOLDER", help="folder with metric_learn 0.7.0, for LMNN and ITML")
    parser.add_argument("--reduced", action="store_true", help="5 splits, 8 configurations, the smallest sets")
    parser.add_argument("--table", action="store_true", help="measure nothing")
    parser.add_argument("--write", action="store_true", help="write the table into docs/anml_linear.md")
    options = parser.parse_args()
    name = "tabular_reduced" if options.reduced else "tabular"
    if options.reduced:
        options.splits, options.budget = REDUCED["splits"], REDUCED["budget"]
        options.sets = [one for one in options.sets if one in REDUCED["sets"]]
    options.race_budget = options.race_budget or options.budget
    options.methods = options.methods or [*OWN, *(PEERS if options.metric_learn else ())]
    if set(options.methods) & set(PEERS) and not options.metric_learn:
        parser.error("LMNN and ITML come from metric-learn: give --metric-learn FOLDER, the one that holds it.")
    path = options.results or RESULTS / f"{name}.jsonl"
    options.versions = versions()
    if not options.table:
        work(options, path)
    try:
        text = both_readings(lines_of(path))
    except ImportError as error:  # a machine that measures need not have all that a table needs
        print(f"no table here: {error}. Make it elsewhere with --table --results {path}.")
        return
    print(text)
    if options.write:
        from measuring import write_between

        write_between(DOCUMENT, name, text)


if __name__ == "__main__":
    main()

"""LANML⁻ beside metric-learn's LMNN: time to own convergence, kNN accuracy, and memory.

    pip install --no-deps --target peers metric-learn==0.7.0
    python benchmarks/linear.py --metric-learn peers              # 3 rounds, k = 4 .. 7; half a day
    python benchmarks/linear.py --metric-learn peers --rounds 1 --together 16 --cap 480  # 16 cores,
    10 minutes
    python benchmarks/linear.py --table --write            # only the table of all that was measured

Pendigits, USPS and Isolet, 70 % to train, scaled, PCA to 150 directions where there are more
features. Each round is another random split, and accuracies are means over rounds: one sample of an
Isolet split is 0.2 %. Each method runs to its own convergence at its own default tolerance, in a
process of its own that is stopped after 10 minutes (``--cap``). LANML⁻ runs with γ1 = -1 and λ = 1
as in the paper's Figure 8 and the default γ2, with 10 similar samples and with all, and once more
with γ1, γ2, λ chosen by 5-fold cross-validation on 1,000 training rows at most (the search is not
timed). LMNN runs with its defaults (regularization 0.5, 1,000 steps at most, which end it in
silence); it is metric-learn's own code, with two of scikit-learn's checks translated to their names
of today. Accuracy is of 3 nearest neighbors. Processor time stands beside the time on the clock,
because it tells more on a machine that others use, too; the ratio is of processor times, for a fit
that was stopped a lower bound. Memory is the peak resident set of a process that fits on rows of
Letter; it takes 5 steps, since every step needs the same.

Within a round the methods take turns, or, ``--together N``, run N at a time with one thread each:
LMNN's long fits begin first, and LANML⁻ runs beside them. Each line of the results is one fit, kept
as it ends; a later call on the same machine goes on where one stopped, and repeats what was stopped
at a smaller cap.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from measuring import ROOT, hardware, resident, verdict, write_between

sys.path.append(str(ROOT / "experiments" / "anml_linear"))  # its sets and peers

from peers import PEER_VERSION, accept_old_names
from sets import load, split
from units import versions

from vicinal.bench import results

DOCUMENT = ROOT / "experiments" / "anml_linear" / "README.md"
RESULTS = ROOT / "experiments" / "results" / "linear.jsonl"
SETS = ("isolet1", "pendigits", "usps")
CAP = 600
FASTER = 10
LAST = 999  # LMNN's n_iter_ where its 1,000 steps ran out before it converged
MEMORY = {9000: 2**30, 20000: 3 * 2**30}
ROWS = {f"letter-{rows}": rows for rows in MEMORY}
CHOICES = {"gamma1": [-8.0, -1.0], "gamma2": [4.0, 8.0, 16.0, 32.0], "regularization": [0.1, 1.0]}


def contest(name: str, number: int, contestant: str, options: argparse.Namespace) -> dict:
    """One fit, timed; runs in a process of its own."""
    if contestant == "memory":
        return measure_memory(ROWS[name], options.data / "tabular")
    train, train_y, test, test_y = split(*load(name, options.data / "tabular"), number)
    threads = options.threads
    chosen = {}
    if contestant.startswith("lmnn"):
        # Behind everything: only metric_learn itself is to come from there.
        sys.path.append(options.metric_learn)
        accept_old_names()
        from metric_learn import LMNN

        estimator = LMNN(n_neighbors=int(contestant.split("-")[1]), random_state=0)
    else:
        from vicinal.linear import LANML, search

        if contestant == "lanml tuned":
            how = {
                "budget": 8,
                "samples": 1000,
                "refit": False,
                "n_jobs": threads,
                "progress": False,
            }
            chosen = search(LANML(), train[:1000], train_y[:1000], CHOICES, **how).parameters
        everything = {"n_similar": None} if contestant == "lanml full sets" else {}
        estimator = LANML(n_jobs=threads, **chosen, **everything)
    print("ready", flush=True)
    start = time.perf_counter()
    worked = time.process_time()
    estimator.fit(train, train_y)
    seconds = time.perf_counter() - start
    worked = time.process_time() - worked
    from sklearn.neighbors import KNeighborsClassifier

    classifier = KNeighborsClassifier(3).fit(estimator.transform(train), train_y)
    accuracy = classifier.score(estimator.transform(test), test_y)
    return {
        "seconds": seconds,
        "cpu": worked,
        "accuracy": accuracy,
        "steps": int(estimator.n_iter_),
        "chosen": chosen,
    }


def in_own_process(
    name: str, number: int, contestant: str, options: argparse.Namespace
) -> dict | None:
    """A contest, or what is known of one that was stopped: it took at least the cap. None for one
    that failed."""
    words = [
        "--contest",
        name,
        str(number),
        contestant,
        "--data",
        str(options.data),
        "--threads",
        str(options.threads),
    ]
    words += ["--metric-learn", options.metric_learn] if options.metric_learn else []
    threads = dict.fromkeys(
        ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(options.threads)
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **threads}
    process = subprocess.Popen(
        [sys.executable, __file__, *words], stdout=subprocess.PIPE, text=True, env=environment
    )
    process.stdout.readline()  # "ready": loading and the search are over
    before = processor_seconds(process.pid)
    try:
        answer, _ = process.communicate(timeout=options.cap)
    except subprocess.TimeoutExpired:
        worked = processor_seconds(process.pid) - before
        process.kill()
        process.communicate()
        return {"seconds": float(options.cap), "cpu": worked, "stopped": True}
    return json.loads(answer.splitlines()[-1]) if process.returncode == 0 else None


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # user and system time


def measure_memory(rows: int, folder: Path) -> dict:
    import warnings

    from vicinal.linear import LANML

    warnings.simplefilter("ignore")
    X, y = load("letter", folder)
    print("ready", flush=True)
    start = time.perf_counter()
    LANML(max_iter=5).fit(X[:rows], y[:rows])
    return {"bytes": resident("VmHWM"), "seconds": time.perf_counter() - start}


def units(options: argparse.Namespace) -> list[tuple[str, int, str]]:
    """Set, split and contestant of every fit, in the order in which they begin."""
    kinds = ["lanml", *(f"lanml {kind}" for kind in options.also)]
    kinds += [f"lmnn-{k}" for k in options.neighbors] * bool(options.metric_learn)
    found = [
        (name, number, kind)
        for number in range(options.rounds)
        for name in options.sets
        for kind in kinds
    ]
    if options.together > 1:  # long ones first, or all would wait for one that began last
        found.sort(key=lambda one: (one[1], not one[2].startswith("lmnn"), -SETS.index(one[0])))
    return found + [(name, 0, "memory") for name in ROWS]


def kept(path: Path) -> dict[tuple[str, int, str], dict]:
    """The last line of each fit."""
    return {
        (line["set"], line["split"], line["contestant"]): line for line in results.read(path)[0]
    }


def work(options: argparse.Namespace) -> None:
    """Measure what is missing, and keep each fit as it ends."""
    there = kept(options.results)
    place = machine()
    packages = versions()
    if elsewhere := {line["where"] for line in there.values() if line["set"] in options.sets} - {
        place
    }:
        sys.exit(
            f"{options.results} was measured on {elsewhere.pop()}, but this is {place}, and times "
            "of two machines "
            "do not compare. Name other sets, or give another file as --results."
        )
    missing = [
        one for one in units(options) if one not in there or stopped_before(there[one], options.cap)
    ]
    pool = ThreadPoolExecutor(options.together)  # each thread waits for one process
    try:
        running = {pool.submit(in_own_process, *one, options): one for one in missing}
        for future in as_completed(running):
            name, number, contestant = running[future]
            found = future.result()
            if found is None:
                print(f"{name} {number} {contestant} failed; a later call tries again", flush=True)
                continue
            line = {
                "set": name,
                "split": number,
                "contestant": contestant,
                **found,
                "cap": options.cap,
            }
            line |= {"threads": options.threads, "together": options.together}
            line |= {"load": round(os.getloadavg()[0], 1), "where": place, "versions": packages}
            results.append(options.results, line)
            print(line, flush=True)
    finally:
        pool.shutdown(cancel_futures=True)


def stopped_before(line: dict, cap: float) -> bool:
    return "stopped" in line and line["cap"] < cap


def table(lines: list[dict]) -> str:
    text = [
        "| set | method | time | processor time | steps | accuracy (k = 3; splits) | LMNN / "
        "LANML⁻ | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in SETS:
        own = [line for line in lines if line["set"] == name]
        kinds = sorted({line["contestant"] for line in own})
        runs = {kind: [line for line in own if line["contestant"] == kind] for kind in kinds}
        cpu = {kind: statistics.median(line["cpu"] for line in runs[kind]) for kind in kinds}
        over = {kind: "over " * any("stopped" in line for line in runs[kind]) for kind in kinds}
        right = {kind: mean_accuracy(runs[kind]) for kind in kinds}
        peers = [kind for kind in kinds if kind.startswith("lmnn")]
        for kind in kinds:
            cells = [
                name,
                kind,
                f"{over[kind]}{statistics.median(line['seconds'] for line in runs[kind]):.1f} s",
            ]
            cells.append(f"{over[kind]}{cpu[kind]:.1f} s")
            steps = [line["steps"] for line in runs[kind] if "steps" in line]
            said = (f"{n}, its limit" if kind in peers and n >= LAST else str(n) for n in steps)
            cells.append("; ".join(dict.fromkeys(said)))
            cells.append(f"{100 * right[kind]:.1f} % ({len(runs[kind])})" if right[kind] else "")
            if kind in peers or not peers or over[kind]:
                cells += ["", ""]
            else:
                quickest = min(peers, key=cpu.get)
                ratio = cpu[quickest] / cpu[kind]
                known = [right[peer] for peer in peers if right[peer]]
                as_good = (
                    f"accuracy {verdict(right[kind] >= max(known))}"
                    if known
                    else "LMNN's accuracy unknown"
                )
                speed = "unknown" if over[quickest] and ratio < FASTER else verdict(ratio >= FASTER)
                cells += [f"{over[quickest]}{ratio:.1f}x", f"speed {speed}, {as_good}"]
            text.append(f"| {' | '.join(cells)} |")
    for line in lines:
        if line["contestant"] == "memory" and "bytes" in line:
            rows = ROWS[line["set"]]
            bar = MEMORY[ROWS[line["set"]]]
            size = f"{line['bytes'] / 2**20:,.0f} MiB of {bar / 2**20:,.0f} MiB"
            met = verdict(line["bytes"] <= bar)
            text.append(f"| letter, {rows:,} x 16 | LANML⁻ peak memory | {size} | | | | | {met} |")
    return "\n".join(text) + "\n" + "".join(f"\n{sentence}" for sentence in origins(lines))


def origins(lines: list[dict]) -> list[str]:
    """Where the fits of a table ran, and how."""
    ways = ("together", "threads", "cap", "where", "versions")
    found = []
    for way in sorted({tuple(line[key] for key in ways) for line in lines}):
        here = [line for line in lines if tuple(line[key] for key in ways) == way]
        together, threads, cap, where, packages = way
        loads = [line["load"] for line in here]
        stopped = sum("stopped" in line for line in here)
        found.append(
            f"{len(here)} fits, {together} at a time, {threads} thread{'s' * (threads > 1)} each, "
            f"stopped after {cap} "
            f"s on the clock ({stopped} were), on {where}; {packages}, metric-learn "
            f"{PEER_VERSION}; load average "
            f"{min(loads)} to {max(loads)}."
        )
    return found


def mean_accuracy(runs: list[dict]) -> float | None:
    """Over the splits on which the fit came to its end."""
    known = [line["accuracy"] for line in runs if "accuracy" in line]
    return statistics.fmean(known) if known else None


def machine() -> str:
    try:
        return hardware()
    except FileNotFoundError:  # no lscpu
        return f"{platform.machine()}, {os.cpu_count()} cores"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    root = os.environ.get("VICINAL_DATA", ROOT.parent / "shared" / "data")
    parser.add_argument(
        "--data", type=Path, default=Path(root), help="folder that holds tabular/; VICINAL_DATA"
    )
    parser.add_argument(
        "--metric-learn", metavar="FOLDER", help="holds metric_learn; without it LANML⁻ runs alone"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="JSON lines to go on with")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--neighbors", type=int, nargs="+", default=[4, 5, 6, 7], help="LMNN's k")
    parser.add_argument(
        "--also", nargs="*", default=["full sets", "tuned"], help="further forms of LANML⁻"
    )
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--together", type=int, default=1, metavar="N", help="fits at a time")
    parser.add_argument(
        "--threads", type=int, help="of each fit; all cores, or 1 where fits run together"
    )
    parser.add_argument(
        "--cap", type=int, default=CAP, metavar="SECONDS", help="after which a fit is stopped"
    )
    parser.add_argument(
        "--table", action="store_true", help="measure nothing; make the table of all that was kept"
    )
    parser.add_argument(
        "--write",
        action="store_true",
        help="write the table into experiments/anml_linear/README.md",
    )
    parser.add_argument(
        "--contest", nargs=3, metavar=("SET", "SPLIT", "CONTESTANT"), help=argparse.SUPPRESS
    )
    options = parser.parse_args()
    options.threads = options.threads or (1 if options.together > 1 else os.cpu_count())
    if options.contest:
        name, number, contestant = options.contest
        print(json.dumps(contest(name, int(number), contestant, options)))
        return
    if not options.table:
        work(options)
    text = table(list(kept(options.results).values()))
    print(text)
    if options.write:
        write_between(DOCUMENT, "linear", text)


if __name__ == "__main__":
    main()

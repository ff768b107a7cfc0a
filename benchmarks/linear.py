"""LANML⁻ beside metric-learn's LMNN: time to own convergence, kNN accuracy, and memory.

    python -m venv peers && peers/bin/pip install metric-learn==0.7.0 'scikit-learn<1.6'
    python benchmarks/linear.py --peers peers/bin/python                # 3 rounds, k = 4 .. 7; half a day
    python benchmarks/linear.py --peers peers/bin/python --rounds 1 --neighbours 4 --write      # the short form

Pendigits, USPS and Isolet, 70 % to train (split 0), scaled, PCA to 150 directions where there are more features. Each
method runs to its own convergence at its own default tolerance, in a process of its own that is stopped after 10
minutes; within a round they take turns. LANML⁻ runs with γ1 = -1 and λ = 1 as in the paper's Figure 8 and the default
γ2, with 10 similar samples and with all, and once more with γ1, γ2, λ chosen by 5-fold cross-validation on 1,000
training rows at most (the search is not timed). LMNN runs with its defaults (regularization 0.5). Accuracy is of 3
nearest neighbours. Processor time stands beside the time on the clock, because it tells more on a machine that others
use, too; the ratio is of processor times, for a fit that was stopped a lower bound. Memory is the peak resident set of
a process that fits on rows of Letter; it takes 5 steps, since every step needs the same.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from measuring import ROOT, provenance, resident, verdict, write_between
from tabular import load, split

DOCUMENT, RESULTS = ROOT / "docs" / "anml_linear.md", ROOT / "benchmarks" / "results" / "linear.jsonl"
SETS, CAP, FASTER = ("isolet1", "pendigits", "usps"), 600, 10
MEMORY = {9000: 2**30, 20000: 3 * 2**30}
CHOICES = {"gamma1": [-8.0, -1.0], "gamma2": [4.0, 8.0, 16.0, 32.0], "regularization": [0.1, 1.0]}


def contest(contestant: str, name: str, folder: Path, threads: int) -> dict:
    """One fit, timed; runs in a process of its own."""
    train, train_y, test, test_y = split(*load(name, folder), 0)
    chosen = {}
    if contestant.startswith("lmnn"):
        from metric_learn import LMNN

        estimator = LMNN(n_neighbors=int(contestant.split("-")[1]), random_state=0)
    else:
        from vicinal.linear import LANML, search

        if contestant == "lanml tuned":
            options = {"budget": 8, "samples": 1000, "n_jobs": threads, "progress": False}
            chosen = search(LANML(), train[:1000], train_y[:1000], CHOICES, **options).parameters
        everything = {"n_similar": None} if contestant == "lanml full sets" else {}
        estimator = LANML(n_jobs=threads, **chosen, **everything)
    print("ready", flush=True)
    start, worked = time.perf_counter(), time.process_time()
    estimator.fit(train, train_y)
    seconds, worked = time.perf_counter() - start, time.process_time() - worked
    from sklearn.neighbors import KNeighborsClassifier

    classifier = KNeighborsClassifier(3).fit(estimator.transform(train), train_y)
    accuracy = classifier.score(estimator.transform(test), test_y)
    return {"seconds": seconds, "cpu": worked, "accuracy": accuracy, "steps": int(estimator.n_iter_), "chosen": chosen}


def in_own_process(python: str, contestant: str, name: str, options: argparse.Namespace) -> dict:
    """A contest, or what is known of one that was stopped: it took at least the cap."""
    words = ["--contest", contestant, name, "--data", str(options.data), "--threads", str(options.threads)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": str(options.threads)}
    process = subprocess.Popen([python, __file__, *words], stdout=subprocess.PIPE, text=True, env=environment)
    process.stdout.readline()  # "ready": loading and the search are over
    before = processor_seconds(process.pid)
    try:
        answer, _ = process.communicate(timeout=options.cap)
    except subprocess.TimeoutExpired:
        worked = processor_seconds(process.pid) - before
        process.kill()
        process.communicate()
        return {"seconds": float(options.cap), "cpu": worked, "stopped": True}
    return json.loads(answer.splitlines()[-1])


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


def table(lines: list[dict], options: argparse.Namespace) -> str:
    text = [
        "| set | method | time | processor time | steps | accuracy (k = 3) | LMNN / LANML⁻ | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in SETS:
        own = [line for line in lines if line["set"] == name]
        kinds = sorted({line["contestant"] for line in own})
        peers = [kind for kind in kinds if kind.startswith("lmnn")]
        cpu = {kind: statistics.median(line["cpu"] for line in own if line["contestant"] == kind) for kind in kinds}
        for kind in kinds:
            runs = [line for line in own if line["contestant"] == kind]
            last, over = runs[-1], "over " * any("stopped" in line for line in runs)
            cells = [name, kind, f"{over}{statistics.median(line['seconds'] for line in runs):.0f} s"]
            cells += [f"{over}{cpu[kind]:.1f} s", str(last.get("steps", ""))]
            cells.append(f"{100 * last['accuracy']:.1f} %" if "accuracy" in last else "")
            if kind in peers or not peers or over:
                cells += ["", ""]
            else:
                ratio = min(cpu[peer] for peer in peers) / cpu[kind]
                known = [line["accuracy"] for line in own if line["contestant"] in peers and "accuracy" in line]
                as_good = f"accuracy {verdict(last['accuracy'] >= max(known))}" if known else "LMNN's accuracy unknown"
                cells += [f"{ratio:.1f}x", f"speed {verdict(ratio >= FASTER)}, {as_good}"]
            text.append(f"| {' | '.join(cells)} |")
    for rows, bar in MEMORY.items():
        words = ["--memory", str(rows), "--data", str(options.data)]
        done = subprocess.run([sys.executable, __file__, *words], capture_output=True, text=True, check=True)
        found = json.loads(done.stdout.splitlines()[-1])
        size = f"{found['bytes'] / 2**20:,.0f} MiB of {bar / 2**20:,.0f} MiB"
        text.append(
            f"| letter, {rows:,} x 16 | LANML⁻ peak memory | {size} | | | | | {verdict(found['bytes'] <= bar)} |"
        )
    return "\n".join(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = os.environ.get("VICINAL_DATA", ROOT.parent / "shared" / "data")
    parser.add_argument("--data", type=Path, default=Path(root), help="folder that holds tabular/; VICINAL_DATA")
    parser.add_argument("--peers", metavar="PYTHON", help="python with metric-learn; without it LANML⁻ runs alone")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--neighbours", type=int, nargs="+", default=[4, 5, 6, 7], help="LMNN's k")
    parser.add_argument("--also", nargs="*", default=["full sets", "tuned"], help="further forms of LANML⁻")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--cap", type=int, default=CAP, help="seconds after which a fit is stopped")
    parser.add_argument("--table", action="store_true", help="measure no times; make the table of all that were kept")
    parser.add_argument("--write", action="store_true", help="write the table into docs/anml_linear.md")
    parser.add_argument("--contest", nargs=2, metavar=("CONTESTANT", "SET"), help=argparse.SUPPRESS)
    parser.add_argument("--memory", type=int, metavar="ROWS", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contest:
        print(json.dumps(contest(*options.contest, options.data / "tabular", options.threads)))
        return
    if options.memory:
        print(json.dumps(measure_memory(options.memory, options.data / "tabular")))
        return
    lines, load_before = [], os.getloadavg()[0]
    for _ in range(0 if options.table else options.rounds):
        for name in options.sets:
            contestants = [(sys.executable, "lanml")]
            contestants += [(options.peers, f"lmnn-{k}") for k in options.neighbours] * bool(options.peers)
            contestants += [(sys.executable, f"lanml {kind}") for kind in options.also]
            for python, contestant in contestants:
                found = in_own_process(python, contestant, name, options)
                lines.append({"set": name, "contestant": contestant, **found})
                RESULTS.parent.mkdir(exist_ok=True)
                with RESULTS.open("a") as file:
                    file.write(json.dumps(lines[-1]) + "\n")
                print(lines[-1], flush=True)
    if options.table:
        lines = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    text = table(lines, options)
    where = provenance(("numpy", "scipy", "scikit-learn"))
    text += f"\n\n`python benchmarks/linear.py {' '.join(sys.argv[1:])}`, {options.threads} threads, on {where}; "
    text += f"metric-learn 0.7.0; load average before the run {load_before:.1f}."
    print(text)
    if options.write:
        write_between(DOCUMENT, "linear", text)


if __name__ == "__main__":
    main()

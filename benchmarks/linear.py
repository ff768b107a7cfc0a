"""LANML⁻ beside metric-learn's LMNN: time to own convergence, kNN accuracy, and memory.

    pip install --no-deps --target peers metric-learn==0.7.0
    python benchmarks/linear.py --metric-learn peers                    # 3 rounds, k = 4 .. 7; half a day
    python benchmarks/linear.py --metric-learn peers --rounds 1 --neighbours 4 --write          # the short form
    python benchmarks/linear.py --table --write                         # only the table of all that was measured

Pendigits, USPS and Isolet, 70 % to train, scaled, PCA to 150 directions where there are more features. Each round is
another random split, and accuracies are means over rounds: one sample of an Isolet split is 0.2 %. Each method runs to
its own convergence at its own default tolerance, in a process of its own that is stopped after 10 minutes; within a
round they take turns. LANML⁻ runs with γ1 = -1 and λ = 1 as in the paper's Figure 8 and the default γ2, with 10 similar
samples and with all, and once more with γ1, γ2, λ chosen by 5-fold cross-validation on 1,000 training rows at most (the
search is not timed). LMNN runs with its defaults (regularization 0.5); it is metric-learn's own code, with two of
scikit-learn's checks translated to their names of today. Accuracy is of 3 nearest neighbours. Processor time stands
beside the time on the clock, because it tells more on a machine that others use, too; the ratio is of processor times,
for a fit that was stopped a lower bound. Memory is the peak resident set of a process that fits on rows of Letter; it
takes 5 steps, since every step needs the same.
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
from tabular import accept_old_names, load, split

DOCUMENT, RESULTS = ROOT / "docs" / "anml_linear.md", ROOT / "benchmarks" / "results" / "linear.jsonl"
SETS, CAP, FASTER = ("isolet1", "pendigits", "usps"), 600, 10
MEMORY = {9000: 2**30, 20000: 3 * 2**30}
CHOICES = {"gamma1": [-8.0, -1.0], "gamma2": [4.0, 8.0, 16.0, 32.0], "regularization": [0.1, 1.0]}


def contest(contestant: str, name: str, number: int, options: argparse.Namespace) -> dict:
    """One fit, timed; runs in a process of its own."""
    train, train_y, test, test_y = split(*load(name, options.data / "tabular"), number)
    threads, chosen = options.threads, {}
    if contestant.startswith("lmnn"):
        sys.path.append(options.metric_learn)  # behind everything: only metric_learn itself is to come from there
        accept_old_names()
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


def in_own_process(contestant: str, name: str, number: int, options: argparse.Namespace) -> dict:
    """A contest, or what is known of one that was stopped: it took at least the cap."""
    words = ["--contest", contestant, name, str(number), "--data", str(options.data), "--threads", str(options.threads)]
    words += ["--metric-learn", options.metric_learn] if options.metric_learn else []
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": str(options.threads)}
    process = subprocess.Popen([sys.executable, __file__, *words], stdout=subprocess.PIPE, text=True, env=environment)
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
        "| set | method | time | processor time | steps | accuracy (k = 3; splits) | LMNN / LANML⁻ | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name in SETS:
        own = [line for line in lines if line["set"] == name]
        kinds = sorted({line["contestant"] for line in own})
        peers = [kind for kind in kinds if kind.startswith("lmnn")]
        cpu = {kind: statistics.median(line["cpu"] for line in own if line["contestant"] == kind) for kind in kinds}
        right = {kind: mean_accuracy(own, kind) for kind in kinds}
        for kind in kinds:
            runs = [line for line in own if line["contestant"] == kind]
            over = "over " * any("stopped" in line for line in runs)
            cells = [name, kind, f"{over}{statistics.median(line['seconds'] for line in runs):.1f} s"]
            cells += [f"{over}{cpu[kind]:.1f} s", ", ".join(str(line["steps"]) for line in runs if "steps" in line)]
            cells.append(f"{100 * right[kind]:.1f} % ({len(runs)})" if right[kind] else "")
            if kind in peers or not peers or over:
                cells += ["", ""]
            else:
                ratio = min(cpu[peer] for peer in peers) / cpu[kind]
                known = [right[peer] for peer in peers if right[peer]]
                as_good = f"accuracy {verdict(right[kind] >= max(known))}" if known else "LMNN's accuracy unknown"
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


def mean_accuracy(lines: list[dict], kind: str) -> float | None:
    """Over the splits on which the fit came to its end."""
    known = [line["accuracy"] for line in lines if line["contestant"] == kind and "accuracy" in line]
    return statistics.fmean(known) if known else None


def machine() -> str:
    try:
        return provenance(("numpy", "scipy", "scikit-learn"))
    except FileNotFoundError:  # no git, or no lscpu
        return f"{os.cpu_count()} cores"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    root = os.environ.get("VICINAL_DATA", ROOT.parent / "shared" / "data")
    parser.add_argument("--data", type=Path, default=Path(root), help="folder that holds tabular/; VICINAL_DATA")
    parser.add_argument("--metric-learn", metavar="FOLDER", help="holds metric_learn; without it LANML⁻ runs alone")
    parser.add_argument("--results", type=Path, default=RESULTS, help="JSON lines to add to")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--neighbours", type=int, nargs="+", default=[4, 5, 6, 7], help="LMNN's k")
    parser.add_argument("--also", nargs="*", default=["full sets", "tuned"], help="further forms of LANML⁻")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--cap", type=int, default=CAP, help="seconds after which a fit is stopped")
    parser.add_argument("--table", action="store_true", help="measure no times; make the table of all that were kept")
    parser.add_argument("--write", action="store_true", help="write the table into docs/anml_linear.md")
    parser.add_argument("--contest", nargs=3, metavar=("CONTESTANT", "SET", "SPLIT"), help=argparse.SUPPRESS)
    parser.add_argument("--memory", type=int, metavar="ROWS", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contest:
        contestant, name, number = options.contest
        print(json.dumps(contest(contestant, name, int(number), options)))
        return
    if options.memory:
        print(json.dumps(measure_memory(options.memory, options.data / "tabular")))
        return
    lines, where = [], machine()
    for number in range(0 if options.table else options.rounds):
        for name in options.sets:
            contestants = ["lanml", *(f"lanml {kind}" for kind in options.also)]
            contestants += [f"lmnn-{k}" for k in options.neighbours] * bool(options.metric_learn)
            for contestant in contestants:
                found = in_own_process(contestant, name, number, options)
                found |= {"threads": options.threads, "load": round(os.getloadavg()[0], 1), "where": where}
                lines.append({"set": name, "split": number, "contestant": contestant, **found})
                options.results.parent.mkdir(exist_ok=True)
                with options.results.open("a") as file:
                    file.write(json.dumps(lines[-1]) + "\n")
                print(lines[-1], flush=True)
    if options.table:
        lines = [json.loads(line) for line in options.results.read_text().splitlines()]
    text = table(lines, options)
    for place in sorted({line["where"] for line in lines}):
        here = [line for line in lines if line["where"] == place]
        threads, loads = {line["threads"] for line in here}, [line["load"] for line in here]
        text += f"\n\n{len(here)} fits, threads each {', '.join(map(str, sorted(threads)))}, on {place}; metric-learn "
        text += f"0.7.0; load average {min(loads)} to {max(loads)}."
    print(text)
    if options.write:
        write_between(DOCUMENT, "linear", text)


if __name__ == "__main__":
    main()

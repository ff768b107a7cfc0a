"""Learning curves: train runs and measure them at given steps, several side by side on one machine.

    python experiments/learning_curves.py all experiments/long_runs.py DATA OUT --together 8
    --deadline 1300 python experiments/learning_curves.py one experiments/long_runs.py DATA OUT
    "cub, N-pair + HDML, authors, seed 0" python experiments/learning_curves.py time
    experiments/long_runs.py DATA --only '^cub_384.*seed 0' --steps 300 python
    experiments/learning_curves.py table experiments/results/learning_curves.jsonl python
    experiments/learning_curves.py plot experiments/results/learning_curves.jsonl

A file of runs holds a list ``RUNS`` of ``Run``. ``DATA`` is a folder with a data set for each name
that the runs use (``DATA/cub``, ``DATA/cars``). Each run writes a file of JSON lines below ``OUT``,
a line for each evaluation. Runs that have ended are not run again; others begin anew, each as soon
as its data set is there. Images are decoded once. On a GPU, start CUDA's Multi-Process Service
first (``nvidia-cuda-mps-control -d``), so that processes compute at the same time.

With ``hold_out``, that share of the training classes is not trained on but evaluated: the best
step, and the better of two methods, can be chosen without the test classes.
"""

import argparse
import copy
import dataclasses
import itertools
import json
import math
import os
import re
import runpy
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from vicinal.evaluation.encoder import Embedded
    from vicinal.methods.method import StepResult
    from vicinal.training.experiment import Experiment

STEPS = (0, 250, 500, 1000, 2000, 4000, 8000)
_METRICS = {"recall@1": "R@1", "map@r": "MAP@R"}
PARTS = {"test": "test", "train": "train", "held_out": "validation"}
_AUTHORS = "N-pair + HDML, authors"
_LAST = 8000
README = {  # its comparisons: data, run and step, and what they are compared with
    "authors' setting, N-pair minus untrained": (
        "cub",
        ("N-pair, authors", _LAST),
        ("N-pair, authors", 0),
    ),
    "authors' setting, HDML minus N-pair": ("cub", (_AUTHORS, _LAST), ("N-pair, authors", _LAST)),
    "authors' setting, HDML minus HDML without hardness": (
        "cub",
        (_AUTHORS, _LAST),
        ("N-pair + HDML without hardness, authors", _LAST),
    ),
    "our setting, CUB-200, HDML minus N-pair": (
        "cub_384",
        ("N-pair + HDML", 2000),
        ("N-pair", 2000),
    ),
    "our setting, Cars196, HDML minus N-pair": (
        "cars_288",
        ("N-pair + HDML", 1000),
        ("N-pair", 1000),
    ),
}
BASELINES = {  # by a run's name, or by what stands before its first comma
    "DANML": "multi-similarity",
    "HER weights": "soft margin",
    "HTL": "triplets, margin 0.2",
    "ALA, descent": "weight 1/2, descent",
    "ALA, rate 4e-3, descent": "weight 1/2, descent",
    "ALA, 80 + 20 classes, descent": "weight 1/2, 80 + 20 classes, descent",
    "ALA, relative": "triplets of episodes",
    "ALA, relative, descent": "weight 1, descent",
    "random weights, descent": "weight 1/2, descent",
    "weight 1/2, cosine, descent": "ALA, descent",
}
Line = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """An experiment as on the command line, and when it is evaluated.

    Attributes:
        name: of the run; with data, seed and share of held-out classes it is unique.
        data: folder of its data set below ``DATA``.
        preset: that the words change.
        words: settings ``slot.argument=value``, separated by blanks.
        seed: of training.
        steps: updates; a cosine schedule ends there.
        hold_out: share of the training classes that are held out.
        evaluated: steps at which it is evaluated, besides the last.
    """

    name: str
    data: str
    preset: str
    words: str = ""
    seed: int = 0
    steps: int = 8000
    hold_out: float = 0.0
    evaluated: tuple[int, ...] = STEPS

    @property
    def title(self) -> str:
        held = f", held out {self.hold_out:g}" if self.hold_out else ""
        return f"{self.data}, {self.name}, seed {self.seed}{held}"

    def file(self, out: Path) -> Path:
        return out / (re.sub(r"[^a-z0-9.]+", "_", self.title.lower()) + ".jsonl")


def started(run: Run, data: Path) -> "tuple[Experiment, Callable[[Any], StepResult]]":
    """Prepare a run; return it, and what takes its steps."""
    from controls import RandomWeights, Summed
    from vicinal.config import compose, from_words
    from vicinal.training.cuda_graph import CUDAGraphStep
    from vicinal.training.experiment import pick_precision, prepare

    own = (f"data={data / run.data}", f"training.seed={run.seed}", f"training.steps={run.steps}")
    layer = from_words([*own, f"training.validation={run.hold_out}", *run.words.split()])
    trust = {"controls:RandomWeights": RandomWeights, "controls:Summed": Summed}
    config = compose({"preset": run.preset}, layer, trust=trust)
    experiment = prepare(config)
    method = experiment.method
    device = experiment.device
    experiment.start_head()
    precision = pick_precision(config.training.precision, device)
    method.embedder.accelerate(precision, compiled=config.training.compile == "on")
    captured = device.type == "cuda" and config.training.cuda_graph == "auto" and method.capturable
    return experiment, CUDAGraphStep(method) if captured else method


def train(run: Run, data: Path, file: Path) -> None:
    """Train one run; each evaluation is on disk as soon as it is done."""
    import torch

    from vicinal.evaluation.measure import measure
    from vicinal.training.trainer import average_weights

    # Stop between steps: a process that dies within a kernel takes others of the Multi-Process
    # Service with it.
    stopped = list[int]()
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    experiment, take = started(run, data)
    method = experiment.method
    device = experiment.device
    ema = experiment.config.training.ema
    measured = method.embedder if ema is None else copy.deepcopy(method.embedder)
    encoder = dataclasses.replace(experiment.encoder, embedder=measured)
    evaluated = {step for step in run.evaluated if step < run.steps} | {run.steps}
    seconds = 0.0

    def evaluate(step: int, scalars: "Mapping[str, Tensor]") -> bool:
        line: Line = {
            "run": run.name,
            "data": run.data,
            "seed": run.seed,
            "hold_out": run.hold_out,
            "step": step,
        }
        embedded: dict[str, Embedded] = {}
        finite = all(bool(parameter.isfinite().all()) for parameter in method.embedder.parameters())
        for part, split in PARTS.items() if finite else ():
            if part != "held_out" or run.hold_out:
                records = experiment.records.part(split)  # type: ignore[arg-type]
                found = experiment.embed(encoder, records)
                whole = step == run.steps  # what the papers' tables print
                scores = measure(found, recalls=(1, 2, 4, 8), clustering=whole)
                line[part] = {name: round(score, 5) for name, score in scores.items()}
                embedded[part] = found
        if run.hold_out and finite:
            line["judged"] = judged(embedded["held_out"], embedded["train"])
        line |= {
            "seconds": round(seconds, 1),
            "ended": step == run.steps or not finite,
            "diverged": not finite,
        }
        line |= (
            {"scalars": {name: float(f"{float(value):.4g}") for name, value in scalars.items()}}
            if scalars
            else {}
        )
        first = step == min(evaluated)
        line |= {"words": [f"preset={run.preset}", *run.words.split()]} if first else {}
        with file.open("w" if first else "a", encoding="utf-8") as out:
            out.write(json.dumps(line) + "\n")
        return finite

    file.parent.mkdir(parents=True, exist_ok=True)
    if 0 in evaluated:
        evaluate(0, {})
    step = 0
    epoch = 0
    while step < run.steps and not stopped:
        method.embedder.train()
        since = time.monotonic()
        for batch in experiment.batches(experiment.plan(epoch), epoch=epoch, start=0):
            result = take(batch)
            if ema is not None:
                average_weights(measured, method.embedder, ema, step)
            step += 1
            if stopped:
                break
            if step in evaluated:
                if device.type == "cuda":
                    torch.cuda.synchronize()
                seconds += time.monotonic() - since
                if not evaluate(step, result.scalars) or step == run.steps:
                    return
                method.embedder.train()
                since = time.monotonic()
        seconds += time.monotonic() - since
        epoch += 1
    if device.type == "cuda":
        torch.cuda.synchronize()


def judged(held: "Embedded", train: "Embedded") -> dict[str, dict[str, float]]:
    """Scores of held-out classes among so many times as many pictures of training classes."""
    import numpy as np
    import torch

    from vicinal.data.splits import shuffled
    from vicinal.evaluation.measure import evaluate

    names = ("recall@1", "map@r")
    found = {}
    for times in (1, 2, 4):
        rows = shuffled(np.arange(len(train.vectors)), 0)[: times * len(held.vectors)]
        gallery = torch.cat([held.vectors, train.vectors[rows]])
        labels = torch.cat([held.labels, train.labels[rows]])
        queries = evaluate(gallery, labels, metrics=names, metric=held.metric).queries
        assert queries is not None and queries.rows is not None
        ours = queries.rows < len(held.vectors)
        found[str(times)] = {
            name: round(float(queries.scores[name][ours].mean()), 5) for name in names
        }
    return found


def milliseconds(run: Run, data: Path) -> float:
    """The time of a step, with planning and reading of its batches, in the second half of the
    steps."""
    import torch

    experiment, take = started(run, data)
    experiment.method.embedder.train()
    # Past a phase that ends after a third of them.
    step, epoch, warm, start = (
        0,
        0,
        run.steps // 2,
        0.0,
    )
    while step < run.steps:
        for batch in experiment.batches(experiment.plan(epoch), epoch=epoch, start=0):
            take(batch)
            step += 1
            if step in (warm, run.steps):
                if experiment.device.type == "cuda":
                    torch.cuda.synchronize()
                start, taken = time.monotonic(), time.monotonic() - start
            if step == run.steps:
                break
        epoch += 1
    return 1000 * taken / (run.steps - warm)


def train_all(runs: Iterable[Run], options: argparse.Namespace, data: Path, out: Path) -> None:
    """Train runs in processes of their own, so many at a time, until all have ended or time is
    up."""
    began = time.monotonic()
    going = dict[subprocess.Popen[bytes], Run]()
    waiting = [run for run in runs if not (lines := read(run.file(out))) or not lines[-1]["ended"]]
    out.mkdir(parents=True, exist_ok=True)
    environment = {"OMP_NUM_THREADS": "1", "VICINAL_CACHE": str(out / "cache"), **os.environ}
    while (waiting or going) and time.monotonic() - began < options.deadline:
        while len(going) < options.together:
            there = (place for place, run in enumerate(waiting) if (data / run.data).exists())
            if (first := next(there, None)) is None:
                break
            run = waiting.pop(first)
            command = [
                sys.executable,
                __file__,
                "one",
                str(options.runs),
                str(data),
                str(out),
                run.title,
            ]
            with run.file(out).with_suffix(".log").open("wb") as log:
                going[
                    subprocess.Popen(
                        [*command, *_changes(options)], stdout=log, stderr=log, env=environment
                    )
                ] = run
        time.sleep(0.5)
        for process in [process for process in going if process.poll() is not None]:
            run = going.pop(process)
            said = (
                "ended"
                if process.returncode == 0
                else f"failed, see {run.file(out).with_suffix('.log')}"
            )
            print(f"{time.monotonic() - began:6.0f} s  {run.title}: {said}", flush=True)
    for process in going:
        process.terminate()
    for process, run in going.items():
        process.wait()
        print(f"{run.title}: cut off", flush=True)
    print(f"{len(waiting)} runs were not begun", flush=True)


def _changes(options: argparse.Namespace) -> list[str]:
    values = {
        "--steps": options.steps,
        "--evaluated": options.evaluated,
        "--set": options.set or None,
    }
    return [f"{name}={value}" for name, value in values.items() if value is not None]


def changed(run: Run, options: argparse.Namespace) -> Run:
    """A run with the options of the command line in place of its own."""
    evaluated = options.evaluated and tuple(int(step) for step in options.evaluated.split(","))
    return dataclasses.replace(
        run,
        words=f"{run.words} {options.set}".strip(),
        steps=options.steps or run.steps,
        evaluated=evaluated or run.evaluated,
    )


def read(file: Path) -> list[Line]:
    """The evaluations in a file; a line that was cut off is left out."""
    lines = []
    for text in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            continue
    return lines


def table(lines: Sequence[Line]) -> Iterator[str]:
    """Each run after its last step as Markdown: means over seeds, and the paired difference of R@1
    to its baseline with Student's interval from three seeds on.

    The README's comparisons have the interval that the README has, corrected for their number.
    """
    gains = {(data, name): gain for data, name, gain in _gains(lines)}
    for data in sorted({line["data"] for line in lines}):
        yield f"\n| {data} | seeds, steps | test R@1 / MAP@R | minus baseline |"
        yield "|---|---|---|---|"
        for name, seeds in _runs(lines, data).items():
            step = max(max(at) for at in seeds.values())
            ended = [at[step] for at in seeds.values() if step in at]  # the others were cut off
            cell = _means([line["test"] for line in ended])
            gain = gains.get((data, name), "")
            yield f"| {name} | {len(ended)}, {step:,} | {cell} | {gain} |"


def _means(scores: Sequence[Mapping[str, float]]) -> str:
    means = (100 * statistics.mean(one[metric] for one in scores) for metric in _METRICS)
    return " / ".join(f"{mean:.1f}" for mean in means)


def _runs(lines: Sequence[Line], data: str) -> dict[str, dict[int, dict[int, Line]]]:
    """The evaluations of a data set's runs without held-out classes, by run, seed and step."""
    found: dict[str, dict[int, dict[int, Line]]] = {}
    for line in lines:
        if line["data"] == data and not line["hold_out"] and "test" in line:
            found.setdefault(line["run"], {}).setdefault(line["seed"], {})[line["step"]] = line
    return found


def _gains(lines: Sequence[Line]) -> Iterator[tuple[str, str, str]]:
    """Data, run and the difference to the run's baseline after the last step of both."""
    from vicinal.evaluation.statistics import LEVEL

    compared = {(data, ours, theirs) for data, (ours, _), (theirs, _) in README.values()}
    for found, name, baseline, seeds in _pairs(lines):
        if " + " in baseline:
            continue
        data = next(iter(found.values()))[min(next(iter(found.values())))]["data"]
        both = [(found[name, seed], found[baseline, seed]) for seed in seeds]
        step = max(max(ours.keys() & theirs.keys()) for ours, theirs in both)
        values = [
            100 * (ours[step]["test"]["recall@1"] - theirs[step]["test"]["recall@1"])
            for ours, theirs in both
            if step in ours.keys() & theirs.keys()
        ]
        level = 1 - (1 - LEVEL) / len(README) if (data, name, baseline) in compared else LEVEL
        yield data, name, _gain(values, level)


def _gain(values: Sequence[float], level: float) -> str:
    from scipy.stats import ttest_1samp

    means = [statistics.mean(values)]
    if len(values) > 2:
        means += ttest_1samp(values, 0.0).confidence_interval(level)
    mean, *ends = (f"{round(value, 1) + 0.0:+.1f}" for value in means)  # no -0.0
    return f"{mean} ({' to '.join(ends)})" if ends else mean


def comparisons(lines: Sequence[Line]) -> Iterator[str]:
    """The README's differences in R@1 as Markdown, with 95 % intervals and p-values that are
    corrected for their number (Bonferroni, Holm)."""
    from scipy.stats import ttest_1samp

    from vicinal.evaluation.statistics import LEVEL, holm

    pairs = [
        (_runs(lines, data)[ours], step, _runs(lines, data)[theirs], other)
        for data, (ours, step), (theirs, other) in README.values()
    ]
    gains = [
        [
            100 * (ours[seed][step]["test"]["recall@1"] - theirs[seed][other]["test"]["recall@1"])
            for seed in sorted(ours)
        ]
        for ours, step, theirs, other in pairs
    ]
    corrected = holm([ttest_1samp(gained, 0.0).pvalue for gained in gains])
    yield "\n| README | seeds | difference | p |"
    yield "|---|---|---|---|"
    for name, gained, p in zip(README, gains, corrected, strict=True):
        gain = _gain(gained, 1 - (1 - LEVEL) / len(README))
        yield f"| {name} | {len(gained)} | {gain} | {p:.1g} |"


def selected(lines: Sequence[Line]) -> Iterator[str]:
    """Test scores of the last step and of the step with the best R@1 on held-out classes, means
    over seeds, as Markdown."""
    yield "\n| held-out classes | seeds | last step | chosen step |"
    yield "|---|---|---|---|"
    groups: dict[tuple[str, str], dict[int, list[Line]]] = {}
    for line in (line for line in lines if "held_out" in line):
        seeds = groups.setdefault((line["data"], line["run"]), {})
        seeds.setdefault(line["seed"], []).append(line)
    for (data, name), seeds in groups.items():
        last = [max(group, key=lambda line: line["step"]) for group in seeds.values()]
        best = [max(group, key=lambda x: x["held_out"]["recall@1"]) for group in seeds.values()]
        cells = (_means([line["test"] for line in chosen]) for chosen in (last, best))
        yield f"| {data}, {name} | {len(seeds)} | {' | '.join(cells)} |"


def _pairs(
    lines: Sequence[Line],
) -> Iterator[tuple[dict[tuple[str, int], dict[int, Line]], str, str, list[int]]]:
    """Each run whose name without `` + METHOD``, ``improved `` or `` without PART``, or whose
    baseline, is another run's on the same data, that run, and the seeds of both."""
    for data in sorted({line["data"] for line in lines}):
        found: dict[tuple[str, int], dict[int, Line]] = {}
        for line in lines:
            if line["data"] == data and not line["hold_out"] and "test" in line:
                found.setdefault((line["run"], line["seed"]), {})[line["step"]] = line
        for name in dict.fromkeys(name for name, _ in found):
            others = (
                re.sub(part, "", name)
                for part in (r" \+ [^,]+", r" with(out)? [^,]+", "^improved ")
            )
            named = BASELINES.get(name, BASELINES.get(name.split(", ")[0], name))
            for other in (*others, named):
                seeds = sorted(
                    seed for run, seed in found if run == name and (other, seed) in found
                )
                if other != name and seeds:
                    yield found, name, other, seeds


def plot(lines: Sequence[Line], file: Path) -> None:
    """Draw test and train R@1 of HDML in its authors' setting and of its baseline: seeds thin,
    means thick."""
    from matplotlib.figure import Figure

    ink = "#222222"
    soft = "#666666"
    rule = "#e4e4e4"
    colors = ("#5b6b7f", "#c8511b")
    pairs = [
        pair
        for pair in _pairs(lines)
        if " + " not in pair[2] and pair[2].endswith("authors") and len(pair[3]) > 3
    ]
    figure = Figure(figsize=(5.2 * len(pairs), 4.6), layout="constrained", facecolor="white")
    panels = figure.subplots(1, len(pairs), sharey=True, squeeze=False)[0]
    for axes, (found, name, baseline, seeds) in zip(panels, pairs, strict=True):
        steps = sorted(
            set.intersection(*(set(found[run, seed]) for run in (name, baseline) for seed in seeds))
        )
        places = range(len(steps))
        ends = []
        for run, color in zip((baseline, name), colors, strict=True):
            for part, style in (("test", "-"), ("train", (0, (3, 1.6)))):
                curves = [
                    [100 * found[run, seed][step][part]["recall@1"] for step in steps]
                    for seed in seeds
                ]
                for curve in curves:
                    axes.plot(places, curve, color=color, linestyle=style, linewidth=0.8, alpha=0.4)
                mean = [statistics.mean(values) for values in zip(*curves, strict=True)]
                axes.plot(places, mean, color=color, linestyle=style, linewidth=2.4)
                ends.append((mean[-1], f"{run.split(',')[0]}, {part}", color))
        untrained = statistics.mean(
            100 * found[name, seed][steps[0]]["test"]["recall@1"] for seed in seeds
        )
        axes.hlines(untrained, 0, places[-1], color=soft, linestyle=":", linewidth=1.1, zorder=1)
        for height, (mean_end, label, color) in zip(
            _apart([end for end, _, _ in ends], 4.2), ends, strict=True
        ):
            text = f"{label}  {mean_end:.1f}"
            axes.text(places[-1] + 0.15, height, text, fontsize=8.5, color=color, va="center")
        loss = baseline.split(",")[0].capitalize()
        method = name.split(" + ")[1].split(",")[0]
        title = f"{loss}, and with {method}, {len(seeds)} seeds"
        axes.set_title(title, fontsize=10.5, color=ink, loc="left")
        axes.set_xticks(list(places), [f"{step:,}" for step in steps])
        axes.set_xlim(-0.2, places[-1] + 3.5)
        axes.set_xlabel("steps, spaced by doubling", fontsize=9, color=soft, x=0.02, ha="left")
        axes.tick_params(labelsize=8.5, colors=soft, length=0)
        axes.hlines(range(0, 101, 10), 0, places[-1], color=rule, linewidth=0.8, zorder=0)
        axes.spines[:].set_visible(False)
    drawn = [value for axes in panels for line in axes.lines for value in line.get_ydata()]
    panels[0].set_ylim(min(drawn) - 3, max(drawn) + 3)
    legend = (
        "solid: test classes",
        "dashed: training classes",
        "dotted: untrained, test classes",
        "thin: seeds, thick: mean",
    )
    figure.supxlabel("    ".join(legend), fontsize=8.5, color=soft, x=0.05, ha="left")
    panels[0].set_ylabel("R@1, per cent", fontsize=9, color=soft)
    figure.savefig(file, format="png", dpi=90)


def _apart(values: Sequence[float], least: float) -> list[float]:
    """Heights near ``values`` for labels that must not overlap, in the same order."""
    heights = list(values)
    order = sorted(range(len(values)), key=lambda i: values[i])
    for _ in range(200):
        for below, above in itertools.pairwise(order):
            missing = least - (heights[above] - heights[below])
            if missing > 0:
                heights[below], heights[above] = (
                    heights[below] - missing / 2,
                    heights[above] + missing / 2,
                )
    return heights


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("all", "one", "time", "table", "plot"))
    parser.add_argument("runs", type=Path, help="file of runs; for `table` and `plot`, of results")
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("title", nargs="?", help="of the run, for `one`")
    parser.add_argument("--together", type=int, default=1, help="runs side by side")
    parser.add_argument(
        "--deadline", type=float, default=math.inf, help="seconds after which runs are cut off"
    )
    parser.add_argument(
        "--only", default="", help="runs whose title matches this regular expression"
    )
    parser.add_argument("--steps", type=int, help="of every run")
    parser.add_argument(
        "--evaluated", help="steps at which every run is evaluated, such as 0,250,500"
    )
    parser.add_argument(
        "--set", default="", help="further settings of every run, separated by blanks"
    )
    options = parser.parse_args()
    if options.command == "table":
        lines = read(options.runs)
        print("\n".join([*table(lines), *comparisons(lines), *selected(lines)]))
        return
    if options.command == "plot":
        plot(read(options.runs), options.runs.with_suffix(".png"))
        return
    if options.command == "time":
        wanted = options.data is not None and options.out is None
    else:
        wanted = options.out is not None and (options.command == "one") == (
            options.title is not None
        )
    if not wanted:
        parser.error("give RUNS DATA OUT, for `one` the title of a run, for `time` no OUT")
    sys.path.insert(0, str(Path(__file__).parent))
    runs = [
        changed(Run(**dataclasses.asdict(run)), options)
        for run in runpy.run_path(str(options.runs))["RUNS"]
    ]
    if len({run.title for run in runs}) < len(runs):
        parser.error(f"two runs of {options.runs} have the same title")
    if options.command == "time":
        for run in (run for run in runs if re.search(options.only, run.title)):
            print(f"{run.title}: {milliseconds(run, options.data):.2f} ms a step", flush=True)
        return
    if options.command == "all":
        train_all(
            [run for run in runs if re.search(options.only, run.title)],
            options,
            options.data,
            options.out,
        )
        return
    chosen = [run for run in runs if run.title == options.title]
    if not chosen:
        parser.error(
            f"{options.runs} has no run {options.title!r}: " + "; ".join(run.title for run in runs)
        )
    train(chosen[0], options.data, chosen[0].file(options.out))


if __name__ == "__main__":
    main()

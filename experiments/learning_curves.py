"""Learning curves: train runs and measure them at given steps, several side by side on one machine.

    python experiments/learning_curves.py all experiments/long_runs.py DATA OUT --together 8 --deadline 1300
    python experiments/learning_curves.py one experiments/long_runs.py DATA OUT "cub, N-pair + HDML, authors, seed 0"
    python experiments/learning_curves.py table experiments/results/learning_curves.jsonl

A file of runs holds a list ``RUNS`` of ``Run``. ``DATA`` is a folder with a data set for each name that the runs use
(``DATA/cub``, ``DATA/cars``). Each run writes a file of JSON lines below ``OUT``, a line for each evaluation. Runs that
have ended are not run again; others begin anew. Images are decoded once for all runs. On a GPU, start CUDA's
Multi-Process Service first (``nvidia-cuda-mps-control -d``), so that processes compute at the same time.

With ``hold_out``, that share of the training classes is not trained on but evaluated: the best step, and the better of
two methods, can be chosen without the test classes.
"""

import argparse
import dataclasses
import json
import math
import os
import re
import runpy
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

STEPS = (0, 250, 500, 1000, 2000, 4000, 8000)
PARTS = {"test": "test", "train": "train", "held_out": "validation"}
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


def train(run: Run, data: Path, file: Path) -> None:
    """Train one run; each evaluation is on disk as soon as it is done."""
    import torch

    from vicinal.config import compose, from_words
    from vicinal.evaluation.measure import measure
    from vicinal.training import loop
    from vicinal.training.console import Console
    from vicinal.training.experiment import pick_precision, prepare

    own = (f"data={data / run.data}", f"training.seed={run.seed}", f"training.steps={run.steps}")
    layer = from_words([*own, f"training.validation={run.hold_out}", *run.words.split()])
    config = compose({"preset": run.preset}, layer)
    experiment = prepare(config)
    method, device = experiment.method, experiment.device
    experiment.start_head(Console(quiet=True))
    method.embedder.accelerate(
        pick_precision(config.training.precision, device),
        compiled=config.training.compile == "on",
        recorded=config.training.cuda_graph == "auto",
    )
    evaluated, seconds = {step for step in run.evaluated if step < run.steps} | {run.steps}, 0.0

    def evaluate(step: int) -> bool:
        line: Line = {"run": run.name, "data": run.data, "seed": run.seed, "hold_out": run.hold_out, "step": step}
        finite = all(bool(parameter.isfinite().all()) for parameter in method.embedder.parameters())
        for part, split in PARTS.items() if finite else ():
            if part != "held_out" or run.hold_out:
                found = experiment.embed(experiment.encoder, experiment.records.part(split))  # type: ignore[arg-type]
                scores = measure(found, recalls=(1,), clustering=False, seed=run.seed)
                line[part] = {name: round(scores[name], 5) for name in ("recall@1", "map@r")}
        line |= {"seconds": round(seconds, 1), "ended": step == run.steps or not finite, "diverged": not finite}
        line |= {"words": [f"preset={run.preset}", *run.words.split()]} if step == 0 else {}
        with file.open("a" if step else "w", encoding="utf-8") as out:
            out.write(json.dumps(line) + "\n")
        return finite

    file.parent.mkdir(parents=True, exist_ok=True)
    if 0 in evaluated:
        evaluate(0)
    step, epoch = 0, 0
    while step < run.steps:
        method.embedder.train()
        since = time.monotonic()
        for done in loop.train(method, experiment.batches(experiment.plan(epoch), epoch=epoch, start=0), start=step):
            step = done.number + 1
            if step in evaluated:
                if device.type == "cuda":
                    torch.cuda.synchronize()
                seconds += time.monotonic() - since
                if not evaluate(step) or step == run.steps:
                    return
                method.embedder.train()
                since = time.monotonic()
        seconds += time.monotonic() - since
        epoch += 1


def train_all(runs: Iterable[Run], options: argparse.Namespace, data: Path, out: Path) -> None:
    """Train runs in processes of their own, so many at a time, until all have ended or time is up."""
    began, going = time.monotonic(), dict[subprocess.Popen[bytes], Run]()
    waiting = [run for run in runs if not (lines := read(run.file(out))) or not lines[-1]["ended"]]
    out.mkdir(parents=True, exist_ok=True)
    environment = {"OMP_NUM_THREADS": "1", "VICINAL_DECODED": str(out / "decoded"), **os.environ}
    while (waiting or going) and time.monotonic() - began < options.deadline:
        while waiting and len(going) < options.together:
            run = waiting.pop(0)
            command = [sys.executable, __file__, "one", str(options.runs), str(data), str(out), run.title]
            with run.file(out).with_suffix(".log").open("wb") as log:
                going[subprocess.Popen([*command, *_changes(options)], stdout=log, stderr=log, env=environment)] = run
        time.sleep(0.5)
        for process in [process for process in going if process.poll() is not None]:
            run = going.pop(process)
            said = "ended" if process.returncode == 0 else f"failed, see {run.file(out).with_suffix('.log')}"
            print(f"{time.monotonic() - began:6.0f} s  {run.title}: {said}", flush=True)
    for process, run in going.items():
        process.terminate()
        process.wait()
        print(f"{run.title}: cut off", flush=True)
    print(f"{len(waiting)} runs were not begun", flush=True)


def _changes(options: argparse.Namespace) -> list[str]:
    values = {"--steps": options.steps, "--evaluated": options.evaluated, "--set": options.set or None}
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
    """R@1 / MAP@R against steps as Markdown, a table for each data set and share of held-out classes."""
    for data, hold_out in sorted({(line["data"], line["hold_out"]) for line in lines}):
        group = [line for line in lines if (line["data"], line["hold_out"]) == (data, hold_out)]
        steps = sorted({line["step"] for line in group})
        yield f"\n{data}" + (f", {hold_out:.0%} of the training classes held out" if hold_out else "") + "\n"
        yield f"| run | seed | classes | {' | '.join(f'{step:,}' for step in steps)} |"
        yield "|---|---|---|" + "---|" * len(steps)
        for name, seed in dict.fromkeys((line["run"], line["seed"]) for line in group):
            found = {line["step"]: line for line in group if (line["run"], line["seed"]) == (name, seed)}
            for part in (part for part in PARTS if part in found[min(found)]):
                cells = (_cell(found.get(step, {}).get(part)) for step in steps)
                yield f"| {name} | {seed} | {part.replace('_', ' ')} | {' | '.join(cells)} |"


def _cell(scores: dict[str, float] | None) -> str:
    return "" if scores is None else f"{100 * scores['recall@1']:.1f} / {100 * scores['map@r']:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("all", "one", "table"))
    parser.add_argument("runs", type=Path, help="file of runs; for `table`, of results")
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("title", nargs="?", help="of the run, for `one`")
    parser.add_argument("--together", type=int, default=1, help="runs side by side")
    parser.add_argument("--deadline", type=float, default=math.inf, help="seconds after which runs are cut off")
    parser.add_argument("--only", default="", help="runs whose title matches this regular expression")
    parser.add_argument("--steps", type=int, help="of every run")
    parser.add_argument("--evaluated", help="steps at which every run is evaluated, such as 0,250,500")
    parser.add_argument("--set", default="", help="further settings of every run, separated by blanks")
    options = parser.parse_args()
    if options.command == "table":
        print("\n".join(table(read(options.runs))))
        return
    if options.out is None or (options.command == "one") != (options.title is not None):
        parser.error("give RUNS DATA OUT, and for `one` the title of a run")
    sys.path.insert(0, str(Path(__file__).parent))
    runs = [changed(Run(**dataclasses.asdict(run)), options) for run in runpy.run_path(str(options.runs))["RUNS"]]
    if len({run.title for run in runs}) < len(runs):
        parser.error(f"two runs of {options.runs} have the same title")
    if options.command == "all":
        train_all([run for run in runs if re.search(options.only, run.title)], options, options.data, options.out)
        return
    chosen = [run for run in runs if run.title == options.title]
    if not chosen:
        parser.error(f"{options.runs} has no run {options.title!r}: " + "; ".join(run.title for run in runs))
    train(chosen[0], options.data, chosen[0].file(options.out))


if __name__ == "__main__":
    main()

"""Which rule should choose the step of a run? Regret of rules on learning curves with held-out
classes.

    python experiments/learning_curves.py all experiments/selection.py DATA OUT --together 8
    cat OUT/*.jsonl > experiments/results/selection.jsonl
    python experiments/selection.py experiments/results/selection.jsonl > experiments/selection.md

Regret is the best test score on a run's curve minus that of the step that a rule chooses, in
points. The start of a run is one of its steps.
"""

import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from learning_curves import Run, read

Curve = list[dict[str, Any]]
INTRODUCTION = """# Which rule should choose the step?

Regret in MAP@R / Recall@1: the best test score on a run's curve minus that of the chosen step, in
points; "worst against the start" is the lowest difference of the chosen step to the start. Both are
over 40 runs, also without a head, over proxies and with a rate of 1e-4 on photographs; the other
columns are the default's. A fifth of the training classes judge, alone or among as many pictures of
the other training classes. EfficientNet-Lite0, ten epochs, measured at each; one H200.

- MAP@R is the default (`training.select`): its regret in MAP@R is a tenth of Recall@1's, and no
  chosen step is below the start.
- Pictures of training classes among the held-out ones double the cost of a look or more, and bring
  0.1 points of Recall@1: left out.
- With a rate of 1e-4 on CUB-200 Recall@1 falls below the start, by 2.3 at worst, while MAP@R rises:
  no rule sees it.
"""
SEEDS = range(5)
NO_HEAD = "model.head=none model.start=random model.dim=none"
PHOTOGRAPHS = {
    "default": "",
    "no head": NO_HEAD,
    "Proxy-Anchor": "loss=proxy_anchor",
    "rate 1e-4": "optimizer.learning_rate=1e-4",
}
# Steps of ten epochs of the 80 training classes that are left, and those between two evaluations.
LENGTHS = {"cub": (740, 74), "cars": (1000, 100)}
SMALL = {
    "glyphs": ("glyphs", "data=glyphs", 1000, 100),
    "omniglot": ("omniglot", "data=omniglot data.size=28", 1000, 100),
    "features": (
        "cub_features",
        "data=$VICINAL_DATA/features/cub_efficientnet_lite0.npz",
        700,
        35,
    ),
}


def _runs() -> Iterator[Run]:
    for seed in SEEDS:
        for data, (preset, words, steps, every) in SMALL.items():
            looks = tuple(range(0, steps, every))
            yield Run("default", data, preset, words, seed, steps, 0.2, looks)
        for name, words in PHOTOGRAPHS.items():
            for data, (steps, every) in LENGTHS.items():
                looks = tuple(range(0, steps, every))
                yield Run(name, data, "images", words, seed, steps, 0.2, looks)


RUNS = sorted(_runs(), key=lambda run: (run.name != "default", run.seed))


def _smoothed(scores: Sequence[float]) -> list[float]:
    """The mean of each score and its neighbors; the start, before any step, stays as it is."""
    return [
        scores[0] if i == 0 else statistics.mean(scores[max(1, i - 1) : i + 2])
        for i in range(len(scores))
    ]


def _by(part: Callable[[dict[str, Any]], float], *, smooth: bool = False) -> Callable[[Curve], int]:
    def choose(curve: Curve) -> int:
        scores = [part(line) for line in curve]
        scores = _smoothed(scores) if smooth else scores
        return max(range(len(scores)), key=lambda i: (scores[i], -i))

    return choose


def _without_start(rule: Callable[[Curve], int]) -> Callable[[Curve], int]:
    return lambda curve: 1 + rule(curve[1:])


RULES: dict[str, Callable[[Curve], int]] = {
    "R@1, without the start": _without_start(_by(lambda line: line["held_out"]["recall@1"])),
    "MAP@R": _by(lambda line: line["held_out"]["map@r"]),
    "MAP@R, smoothed": _by(lambda line: line["held_out"]["map@r"], smooth=True),
    "R@1 among training pictures": _by(lambda line: line["judged"]["1"]["recall@1"]),
    "MAP@R among training pictures": _by(lambda line: line["judged"]["1"]["map@r"]),
    "last step": lambda curve: len(curve) - 1,
}


def main() -> None:
    curves: dict[tuple[str, str, int], Curve] = {}
    for line in read(Path(sys.argv[1])):
        curves.setdefault((line["data"], line["run"], line["seed"]), []).append(line)
    groups = {(data, run) for data, run, _ in curves}
    columns = sorted(groups)
    seeds = {group: sum(key[:2] == group for key in curves) for group in columns}
    shown = [group for group in columns if group[1] == "default"]
    heads = [f"{data} ({seeds[data, run]} seeds)" for data, run in shown]
    print(INTRODUCTION)
    print("| rule | mean | worst against the start | " + " | ".join(heads) + " |")
    print("|---|---|---|" + "---|" * len(shown))
    for title, rule in RULES.items():
        cells = []
        means = {"map@r": [], "recall@1": []}  # type: dict[str, list[float]]
        worst = dict.fromkeys(means, 0.0)
        for group in columns:
            regrets = {metric: [] for metric in means}  # type: dict[str, list[float]]
            for (data, run, _), curve in curves.items():
                if (data, run) == group:
                    step = rule(curve)
                    for metric, found in regrets.items():
                        tests = [line["test"][metric] for line in curve]
                        found.append(100 * (max(tests) - tests[step]))
                        worst[metric] = min(worst[metric], 100 * (tests[step] - tests[0]))
            for metric, found in regrets.items():
                means[metric].append(statistics.mean(found))
            if group in shown:
                cells.append(
                    " / ".join(f"{statistics.mean(found):.2f}" for found in regrets.values())
                )
        mean = " / ".join(f"{statistics.mean(found):.2f}" for found in means.values())
        below = " / ".join(f"{value:.2f}" for value in worst.values())
        print(f"| {title} | {mean} | {below} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()

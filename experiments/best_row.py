"""The best row on CUB-200-2011 and Cars196: which changes are kept is decided by held-out training
classes alone.

    python experiments/learning_curves.py all experiments/best_row.py DATA OUT --together 8 --only
    '^cub_384.*held out' cat OUT/*.jsonl >> experiments/results/best_row.jsonl
    python experiments/learning_curves.py all experiments/best_row.py DATA OUT --together 8 --only
    '^cub_384.*best row'
    python experiments/best_row.py                      # what was chosen, and the scores

Each change of a round is tried alone, with 30 % of the training classes held out, two seeds
(Cars196 and the third
round: one). Of the changes in a group the best is kept if it gains ``LEAST`` or more; all that are
kept together are the best row, which then is trained on all training classes. The second round
begins where the first did, with other held-out classes, larger pictures and MAP@R, of less noise,
as judge. Cars196 chooses its learning rate itself and takes the rest from the first round; Lite2
takes everything from both rounds, and in a third one, with the sizes of the second, it chooses for
itself. The bases, the length on Cars196 and the sizes of Lite2 were set beforehand. Test scores of
all runs are recorded, but decide nothing.
"""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from learning_curves import Line, Run, read
from long_runs import COMPILED, SHARP

RESULTS = Path(__file__).parent / "results" / "best_row.jsonl"
LEAST = 0.002
_SIZES = "transform.resize={0} transform.canvas={0} transform.test_size={0}"
CUB = f"{SHARP} {_SIZES.format(288)} transform.area=0.2,1.0 {COMPILED}"
CHANGES: dict[str, dict[str, str]] = {
    "loss": {
        "Recall@k": "loss=recall_at_k",
        "Smooth-AP": "loss=smooth_ap",
        "InfoNCE": "loss=info_nce",
    },
    "rate": {
        "rate 1e-5": "optimizer.learning_rate=1e-5",
        "rate 4e-5": "optimizer.learning_rate=4e-5",
    },
    "length": {"500 steps": "training.steps=500", "2,000 steps": "training.steps=2000"},
    "sizes": {
        "tested at 224 of 256 pixels": _SIZES.format(256).replace("test_size=256", "test_size=224"),
        "tested at 320 pixels": _SIZES.format(320),
    },
    "area": {
        "area from 0.08": "transform.area=0.08,1.0",
        "area from 0.4": "transform.area=0.4,1.0",
    },
    "averaging": {"EMA": "training.ema=0.998"},
    "pooling": {"average and maximum": "model.pooling=both"},
    "drop_connect": {"drop connect": "model.drop_connect=0.2"},
}
LARGER: dict[str, dict[str, str]] = {  # the second round
    "schedule": {
        "rate 1e-5": "optimizer.learning_rate=1e-5",
        "rate 5e-6": "optimizer.learning_rate=5e-6",
        "500 steps": "training.steps=500",
    },
    "sizes": {
        f"{size}, tested at {test}": f"transform.size={size} {_SIZES.format(test)}"
        for size, test in ((256, 320), (288, 384), (320, 384))
    },
    "drop_connect": {"drop connect": "model.drop_connect=0.2"},
}
LITE2: dict[str, dict[str, str]] = {
    "rate": {
        "Lite2, rate 1e-5": "optimizer.learning_rate=1e-5",
        "Lite2, rate 4e-5": "optimizer.learning_rate=4e-5",
    },
    "drop_connect": {"Lite2, drop connect": "model.drop_connect=0.2"},
}
CARS_RATES = {f"rate {rate}": f"optimizer.learning_rate={rate}" for rate in ("4e-5", "1e-4")}


class Round(NamedTuple):
    """Changes of a base tried on a data set, the seeds of the held-out classes, and the metric that
    chooses."""

    data: str
    groups: dict[str, dict[str, str]]
    seeds: tuple[int, ...]
    metric: str
    base: str = "base"
    words: str = CUB


FIRST = Round("cub_288", CHANGES, (0, 1), "recall@1")
SECOND = Round("cub_384", LARGER, (2, 3), "map@r")
CARS = Round("cars_288", {"rate": CARS_RATES}, (0,), "recall@1")


def changed(words: str, changes: Sequence[str]) -> str:
    """Words with changes in place of what they said; another loss takes nothing from the first."""
    found = words.split()
    for word in (word for change in changes for word in change.split()):
        slot = word.partition("=")[0]
        found = [old for old in found if old.partition("=")[0] != slot]
        if slot == "loss":
            found = [old for old in found if not old.startswith("loss.")]
        found.append(word)
    return " ".join(found)


THIRD = Round(
    "cub_384",
    LITE2,
    (4,),
    "map@r",
    "Lite2",
    changed(CUB, [f"model=efficientnet_lite2 transform.size=320 {_SIZES.format(384)}"]),
)


def run(
    name: str, data: str, words: str, seed: int, hold_out: float = 0.0, steps: int = 1000
) -> Run:
    """Return a run of so many steps, unless the words name another number."""
    found = words.split()
    for word in [word for word in found if word.startswith("training.steps=")]:
        steps = int(word.partition("=")[2])
        found.remove(word)
    evaluated = (250, 500, 1000, 2000) if hold_out else (0, 250, 500, 1000, 2000)
    return Run(name, data, data.split("_")[0], " ".join(found), seed, steps, hold_out, evaluated)


def gains(lines: Sequence[Line], of: Round) -> dict[str, float]:
    """Return what each change adds to the base's score on held-out classes, the mean over seeds
    that both have."""
    ended = (
        line for line in lines if line["data"] == of.data and line["ended"] and "held_out" in line
    )
    last = {(line["run"], line["seed"]): line["held_out"][of.metric] for line in ended}
    names = (name for group in of.groups.values() for name in group)
    both = {
        name: [s for s in of.seeds if {(name, s), (of.base, s)} <= last.keys()] for name in names
    }
    return {
        name: statistics.mean(last[name, s] - last[of.base, s] for s in seeds)
        for name, seeds in both.items()
        if seeds
    }


def chosen(lines: Sequence[Line], of: Round) -> dict[str, str]:
    """Return the changes that are kept, by name."""
    kept = {}
    found = gains(lines, of)
    for group in of.groups.values():
        best = max((name for name in group if name in found), key=found.__getitem__, default=None)
        if best is not None and found[best] >= LEAST:
            kept[best] = group[best]
    return kept


def best_rows(lines: Sequence[Line]) -> list[Run]:
    """Return the runs on all training classes that held-out classes have chosen."""
    first = chosen(lines, FIRST)
    rest = [
        word for name, word in first.items() if name not in (*CHANGES["rate"], *CHANGES["length"])
    ]
    cars = changed(CUB, [*rest, *chosen(lines, CARS).values()])
    rows = {
        data: changed(CUB, list(chosen(lines, of).values()))
        for data, of in (("cub_288", FIRST), ("cub_384", SECOND))
    }
    lite2 = {
        "cub_288": f"model=efficientnet_lite2 transform.size=260 {_SIZES.format(320)}",
        "cub_384": f"model=efficientnet_lite2 transform.size=288 {_SIZES.format(384)}",
    }
    return [
        *(run("best row", data, words, seed) for data, words in rows.items() for seed in range(5)),
        *(run("best row", "cars_288", cars, seed, steps=2000) for seed in range(5)),
        *(
            run("best row, Lite2", data, changed(words, [lite2[data]]), seed)
            for data, words in rows.items()
            for seed in range(3)
        ),
        *(
            run(
                "Lite2's best row",
                THIRD.data,
                changed(THIRD.words, list(chosen(lines, THIRD).values())),
                seed,
            )
            for seed in range(3)
        ),
    ]


def selection(of: Round, seed: int, steps: int = 1000) -> list[Run]:
    """Return the runs of a round with one seed, the base and each change alone."""
    alone = {
        of.base: "",
        **{name: words for group in of.groups.values() for name, words in group.items()},
    }
    return [
        run(name, of.data, changed(of.words, [words]), seed, 0.3, steps)
        for name, words in alone.items()
    ]


_LINES = read(RESULTS)
RUNS = [
    *(one for seed in THIRD.seeds for one in selection(THIRD, seed)),
    *(one for seed in SECOND.seeds for one in selection(SECOND, seed)),
    *(one for seed in FIRST.seeds for one in selection(FIRST, seed)),
    *selection(CARS, 0, 2000),
    *best_rows(_LINES),
]


def main() -> None:
    """Print what each change gains on held-out classes, and the best rows on the test classes."""
    for of in (FIRST, SECOND, THIRD, CARS):
        kept = chosen(_LINES, of)
        for name, gain in gains(_LINES, of).items():
            print(
                f"{of.data}, {name}: {100 * gain:+.1f} {of.metric} held "
                f"out{', kept' if name in kept else ''}"
            )
    for title in dict.fromkeys(
        (line["data"], line["run"]) for line in _LINES if not line["hold_out"]
    ):
        ended = [
            line["test"]
            for line in _LINES
            if (line["data"], line["run"]) == title and line["ended"]
        ]
        for metric in ("recall@1", "map@r") if ended else ():
            values = [100 * scores[metric] for scores in ended]
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            print(
                f"{', '.join(title)}: {metric} {statistics.mean(values):.1f} ± {spread:.1f}, "
                f"{len(values)} seeds"
            )


if __name__ == "__main__":
    main()

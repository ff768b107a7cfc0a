"""The best row on CUB-200-2011 and Cars196: which changes are kept is decided by held-out training classes alone.

    python experiments/learning_curves.py all experiments/best_row.py DATA OUT --together 8 --only 'held out'
    cat OUT/*.jsonl >> experiments/results/best_row.jsonl
    python experiments/learning_curves.py all experiments/best_row.py DATA OUT --together 8 --only 'best row'
    python experiments/best_row.py                      # what was chosen, and the scores

First each change of ``CHANGES`` is tried alone, with 30 % of the training classes held out, two seeds. Of the changes
in a group the best is kept if it gains ``LEAST`` or more. All that are kept together are the best row, which then is
trained on all training classes. Cars196 chooses its learning rate itself and takes the rest from CUB. The base, the
length on Cars196 and the sizes of Lite2 were set beforehand. Test scores of all runs are recorded, but decide nothing.
"""

import statistics
from collections.abc import Sequence
from pathlib import Path

from learning_curves import Line, Run, read
from long_runs import COMPILED, SHARP

RESULTS = Path(__file__).parent / "results" / "best_row.jsonl"
LEAST, SEEDS, BASE = 0.002, (0, 1), "base"
_SIZES = "transform.resize={0} transform.canvas={0} transform.test_size={0}"
CUB = f"{SHARP} {_SIZES.format(288)} transform.area=0.2,1.0 {COMPILED}"
CHANGES: dict[str, dict[str, str]] = {
    "loss": {
        "Recall@k": "loss=recall_at_k",
        "Smooth-AP": "loss=smooth_ap",
        "InfoNCE": "loss=info_nce",
    },
    "rate": {"rate 1e-5": "optimizer.learning_rate=1e-5", "rate 4e-5": "optimizer.learning_rate=4e-5"},
    "length": {"500 steps": "training.steps=500", "2,000 steps": "training.steps=2000"},
    "sizes": {
        "tested at 224 of 256 pixels": _SIZES.format(256).replace("test_size=256", "test_size=224"),
        "tested at 320 pixels": _SIZES.format(320),
    },
    "area": {"area from 0.08": "transform.area=0.08,1.0", "area from 0.4": "transform.area=0.4,1.0"},
    "color": {"colors": "transform.brightness=0.3 transform.contrast=0.3 transform.saturation=0.3"},
    "erasing": {"erasing": "transform.erase=0.5"},
    "averaging": {"EMA": "training.ema=0.998"},
    "pooling": {"average and maximum": "model.pooling=both"},
    "drop_connect": {"drop connect": "model.drop_connect=0.2"},
}
CARS_RATES = {f"rate {rate}": f"optimizer.learning_rate={rate}" for rate in ("4e-5", "1e-4")}


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


def run(name: str, data: str, words: str, seed: int, hold_out: float = 0.0, steps: int = 1000) -> Run:
    """Return a run of so many steps, unless the words name another number."""
    found = words.split()
    for word in [word for word in found if word.startswith("training.steps=")]:
        steps = int(word.partition("=")[2])
        found.remove(word)
    evaluated = (250, 500, 1000, 2000) if hold_out else (0, 250, 500, 1000, 2000)
    return Run(name, data, data.removesuffix("_288"), " ".join(found), seed, steps, hold_out, evaluated)


def gains(lines: Sequence[Line], data: str, names: Sequence[str]) -> dict[str, float]:
    """Return R@1 on held-out classes minus the base's, after the last step, the mean over seeds that both have."""
    ended = (line for line in lines if line["data"] == data and line["ended"] and "held_out" in line)
    last = {(line["run"], line["seed"]): line["held_out"]["recall@1"] for line in ended}
    both = {name: [s for s in SEEDS if {(name, s), (BASE, s)} <= last.keys()] for name in names}
    return {
        name: statistics.mean(last[name, s] - last[BASE, s] for s in seeds) for name, seeds in both.items() if seeds
    }


def chosen(lines: Sequence[Line], data: str, groups: dict[str, dict[str, str]]) -> dict[str, str]:
    """Return the changes that are kept, by name."""
    kept = {}
    for group in groups.values():
        found = gains(lines, data, list(group))
        best = max(found, key=found.__getitem__, default=None)
        if best is not None and found[best] >= LEAST:
            kept[best] = group[best]
    return kept


def best_rows(lines: Sequence[Line]) -> list[Run]:
    """Return the runs on all training classes that held-out classes have chosen."""
    cub = chosen(lines, "cub_288", CHANGES)
    lite0 = changed(CUB, list(cub.values()))
    rest = [word for name, word in cub.items() if name not in (*CHANGES["rate"], *CHANGES["length"])]
    cars = changed(CUB, [*rest, *chosen(lines, "cars_288", {"rate": CARS_RATES}).values()])
    lite2 = changed(lite0, [f"model=efficientnet_lite2 transform.size=260 {_SIZES.format(320)}"])
    return [
        *(run("best row", "cub_288", lite0, seed) for seed in range(5)),
        *(run("best row", "cars_288", cars, seed, steps=2000) for seed in range(3)),
        *(run("best row, Lite2", "cub_288", lite2, seed) for seed in range(3)),
    ]


_ALONE = {BASE: "", **{name: words for group in CHANGES.values() for name, words in group.items()}}
SELECTION = [
    *(run(name, "cub_288", changed(CUB, [words]), SEEDS[0], 0.3) for name, words in _ALONE.items()),
    *(
        run(name, "cars_288", changed(CUB, [words]), SEEDS[0], 0.3, steps=2000)
        for name, words in {BASE: "", **CARS_RATES}.items()
    ),
    *(run(name, "cub_288", changed(CUB, [words]), SEEDS[1], 0.3) for name, words in _ALONE.items()),
]
_LINES = read(RESULTS)
RUNS = [*SELECTION, *best_rows(_LINES)]


def main() -> None:
    """Print what each change gains on held-out classes, and the best rows on the test classes."""
    for data, groups in (("cub_288", CHANGES), ("cars_288", {"rate": CARS_RATES})):
        kept = chosen(_LINES, data, groups)
        for group in groups.values():
            for name, gain in gains(_LINES, data, list(group)).items():
                print(f"{data}, {name}: {100 * gain:+.1f} on held-out classes{', kept' if name in kept else ''}")
    for title in dict.fromkeys((line["data"], line["run"]) for line in _LINES if not line["hold_out"]):
        ended = [line["test"] for line in _LINES if (line["data"], line["run"]) == title and line["ended"]]
        for metric in ("recall@1", "map@r") if ended else ():
            values = [100 * scores[metric] for scores in ended]
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            print(f"{', '.join(title)}: {metric} {statistics.mean(values):.1f} ± {spread:.1f}, {len(values)} seeds")


if __name__ == "__main__":
    main()

"""DML-ALA on CUB features beside its plain twin and its controls: paired seeds, differences with 95 % intervals.

    python benchmarks/ala_features.py --seeds 5 --output ala.jsonl          # trains what the file does not hold yet
    python benchmarks/ala_features.py --table --output ala.jsonl            # prints the tables of docs/ala.md

    python benchmarks/ala_features.py --tune --case triplet "variant=ala assessing.rate=1e-3" --output tuning.jsonl

One process, one thread; VICINAL_DATA names the data. Each line of the output is one run: its recipe, overrides and
seed, Recall@1 and MAP@R on the test classes, Recall@1 on the training and on the held-out training classes. The model
of the epoch that does best on the held-out training classes is measured, as ``vicinal train`` does; ``--tune`` looks at
no other classes.
"""

import argparse
import copy
import json
import math
import statistics
import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path

T_QUANTILE = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 8: 2.365, 10: 2.262}  # two-sided 95 %, n - 1 degrees
LOSSES = ("triplet", "contrastive", "margin")
CONTROLS = ("constant", "random", "mlp")


def cases() -> list[tuple[str, str]]:
    """(loss, overrides) of every row of the tables, twins first."""
    found = [(loss, f"variant={variant}") for loss in LOSSES for variant in ("plain", "ala")]
    found += [("triplet", f"variant={variant}") for variant in CONTROLS]
    found += [("triplet", "variant=ala assessing.relative=false")]
    found += [("triplet", f"variant={variant} disjoint=false") for variant in ("plain", "ala")]
    return found


def train(loss: str, overrides: str, seed: int, *, tune: bool) -> dict:
    """One run, measured."""
    import torch

    from vicinal.data.loader import load
    from vicinal.data.splits import hold_out
    from vicinal.evaluation.encoder import Encoder
    from vicinal.evaluation.measure import measure
    from vicinal.training.experiment import build_method
    from vicinal.training.overrides import apply
    from vicinal.training.recipe import find_recipe

    recipe = apply(find_recipe(f"cub_features_ala_{loss}"), [*overrides.split(), f"seed={seed}"])
    records = hold_out(_loaded(recipe.data), recipe.validation, recipe.seed)
    parts = {split: records.part(split) for split in ("train", "validation", "test")}
    method = build_method(recipe, parts["train"], torch.device("cpu"))
    encoder = Encoder(method.embedder, recipe.transform.evaluation(), torch.device("cpu"))

    def scores(split: str) -> dict[str, float]:
        return measure(encoder.embed(parts[split]), recalls=(1,), clustering=False, seed=0)

    def steps_of(epoch: int) -> list[dict[str, float]]:
        method.embedder.train()
        batches = load(parts["train"], method.batches(epoch), recipe.transform, seed=recipe.seed, epoch=epoch)
        return [{name: float(value) for name, value in method.step(batch).items()} for batch in batches]

    began, best, weights, told = time.perf_counter(), -1.0, None, []
    for epoch in range(recipe.epochs):
        told.append(steps_of(epoch))
        held_out = scores("validation")["recall@1"]
        if held_out > best:
            best, weights = held_out, copy.deepcopy(method.embedder.state_dict())
    line = {"loss": loss, "overrides": overrides, "seed": seed, "epochs": recipe.epochs, "validation": best}
    line |= {"seconds": round(time.perf_counter() - began, 1), "notes": list(method.notes)}
    line["by_epoch"] = [{name: statistics.fmean(step[name] for step in steps) for name in steps[0]} for steps in told]
    if not tune:
        method.embedder.load_state_dict(weights)
        test = scores("test")
        line |= {"test": test["recall@1"], "map@r": test["map@r"], "train": scores("train")["recall@1"]}
    return line


@cache
def _loaded(data):
    return data.load()


def table(lines: list[dict]) -> str:
    """A row for each case: means over seeds, and the difference to its twin by seed."""
    found = {(line["loss"], line["overrides"]): {} for line in lines}
    for line in lines:
        found[line["loss"], line["overrides"]][line["seed"]] = line
    rows = [
        "| loss | case | seeds | test R@1 | test MAP@R | train R@1 | R@1 minus twin | MAP@R minus twin |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (loss, overrides), runs in found.items():
        words = overrides.replace("variant=", "")
        twin = found.get((loss, "variant=plain" + (" disjoint=false" if "disjoint=false" in overrides else "")), {})
        cells = [
            loss,
            words,
            str(len(runs)),
            *(spread(r[key] for r in runs.values()) for key in ("test", "map@r", "train")),
        ]
        for key in ("test", "map@r"):
            pairs = [runs[seed][key] - twin[seed][key] for seed in runs if seed in twin]
            cells.append("" if "plain" in overrides else interval(pairs))
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def spread(values: Iterable[float]) -> str:
    values = [100 * value for value in values]
    return f"{statistics.fmean(values):.2f} ± {statistics.stdev(values):.2f}" if len(values) > 1 else f"{values[0]:.2f}"


def interval(differences: list[float]) -> str:
    """Mean difference in per cent with its 95 % interval by Student's t."""
    if len(differences) < 2:
        return ""
    values = [100 * value for value in differences]
    half = T_QUANTILE[len(values)] * statistics.stdev(values) / math.sqrt(len(values))
    return f"{statistics.fmean(values):+.2f} ± {half:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5, help="seeds 0 to n - 1")
    parser.add_argument("--output", type=Path, required=True, help="a file of JSON lines, one for each run")
    parser.add_argument("--case", nargs=2, metavar=("LOSS", "OVERRIDES"), help="this case alone")
    parser.add_argument("--tune", action="store_true", help="measure the held-out training classes alone")
    parser.add_argument("--table", action="store_true", help="print the table of what the file holds")
    options = parser.parse_args()
    text = options.output.read_text() if options.output.exists() else ""
    lines = [json.loads(line) for line in text.splitlines()]
    if options.table:
        print(table(lines))
        return
    import torch

    torch.set_num_threads(1)
    done = {(line["loss"], line["overrides"], line["seed"]) for line in lines}
    for seed in range(options.seeds):
        for loss, overrides in [tuple(options.case)] if options.case else cases():
            if (loss, overrides, seed) in done:
                continue
            line = train(loss, overrides, seed, tune=options.tune)
            with options.output.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(
                loss,
                overrides,
                seed,
                f"{line['test']:.4f} held out {line['validation']:.4f} {line['seconds']} s",
                flush=True,
            )


if __name__ == "__main__":
    main()

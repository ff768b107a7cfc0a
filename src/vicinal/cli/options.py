"""What commands share: an option, and the examples below their help."""

from typing import Annotated

import typer

Trust = Annotated[
    bool,
    typer.Option("--trust", help="Use folders and engines named by a collection of another user or of version 0.1."),
]

EXAMPLES: dict[str, tuple[str, ...]] = {
    "vicinal": (
        "vicinal train",
        "vicinal train --data pictures/ --run runs/birds",
        "vicinal index runs/birds pictures/",
        "vicinal serve runs/birds",
    ),
    "data": ("vicinal data check pictures/",),
    "train": (
        "vicinal train --data pictures/ --head-only",
        "vicinal train --data pictures/",
        "vicinal train --data pictures/ loss=n_pair method=hdml training.steps=2000 --run runs/hdml",
        "vicinal train --resume runs/hdml",
    ),
    "evaluate": ("vicinal evaluate runs/birds", "vicinal evaluate runs/birds --data pictures/ --split all"),
    "embed": ("vicinal embed runs/birds pictures/ --out vectors.npz",),
    "report": ("vicinal report runs/birds",),
    "list": ("vicinal list losses", "vicinal list presets"),
    "explain": ("vicinal explain loss=proxy_anchor", "vicinal explain training"),
    "bench": ("vicinal bench experiments/hdml.py", "vicinal bench experiments/quick.py"),
    "compare": ("vicinal compare runs/plain runs/mine", "vicinal compare runs/plain runs/mine --metric map@r"),
    "tune": ("vicinal tune cub_features optimizer.learning_rate=1e-5..1e-3:log --trials 10",),
    "index": ("vicinal index runs/birds pictures/", "vicinal index runs/birds --split test"),
    "search": (
        "vicinal search runs/birds wren.jpg",
        "vicinal search runs/birds --id 12 --k 5 --format sheet --out near.png",
    ),
    "cluster": ("vicinal cluster runs/birds", "vicinal cluster runs/birds --groups 20"),
    "dedupe": ("vicinal dedupe runs/birds",),
    "clean": ("vicinal clean runs/birds", "vicinal clean runs/birds --apply decisions.csv"),
    "suggest": ("vicinal suggest runs/birds pool/ --k 100",),
    "export": ("vicinal export runs/birds --to deployed/",),
    "serve": ("vicinal serve runs/birds",),
    "check": ("vicinal data check pictures/", "vicinal data check pictures.csv --json"),
    "pack": ("vicinal data pack pictures/ packed/ --resize 256",),
    "unpack": ("vicinal data unpack packed/ pictures/",),
}


def epilog(command: str) -> str:
    """The examples of a command as typer prints them below its options."""
    lines = EXAMPLES[command]
    return "\n".join(["Example:" if len(lines) == 1 else "Examples:", *(f"  {line}" for line in lines)])

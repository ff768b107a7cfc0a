"""The regression guard: glyphs and CUB features with little training, 2 seeds, against recorded
values.

    vicinal bench experiments/quick.py --results new --runs new

Recorded on two aarch64 cores with torch 2.13. Without training only rounding can move a row; with
it, rounding grows over the steps, and another machine is another draw: the two seeds of a glyphs
row are 2 to 5 points apart.
"""

from benchmarks import CUB_FEATURES, GLYPHS, LOSSES
from vicinal.bench import Table, row
from vicinal.bench.table import PCA, UNTRAINED, WHITENED

_MULTI_SIMILARITY = {
    "name": "multi_similarity",
    "alpha": 2.0,
    "beta": 40.0,
    "base": 0.5,
    "epsilon": 0.1,
}
TABLES = [
    Table(
        "Losses on glyphs, reduced",
        row("triplet", loss={**LOSSES["batch-all"], "normalize": False}),
        row("multi-similarity", loss=_MULTI_SIMILARITY),
        name="glyphs-quick",
        words=(
            "data.per_class=12",
            "training.epochs=3",
            "evaluation.restarts=1",
            "optimizer.loss_factor=1",
        ),
        seeds=2,
        expected={
            **{UNTRAINED: (0.140, 0.01), PCA: (0.130, 0.01), WHITENED: (0.162, 0.01)},
            **{"triplet": (0.589, 0.04), "multi-similarity": (0.640, 0.04)},
        },
        sampler=GLYPHS.classes,
        **GLYPHS.slots,
    ),
    Table(
        "A linear head on CUB-200 features, reduced",
        row("multi-similarity", loss=_MULTI_SIMILARITY),
        name="cub_features-quick",
        words=(
            "training.epochs=2",
            "evaluation.restarts=1",
            "optimizer.loss_factor=1",
            "model.start=random",
        ),
        seeds=2,
        expected={
            **{UNTRAINED: (0.5658, 0.002), PCA: (0.5584, 0.004), WHITENED: (0.5604, 0.004)},
            "multi-similarity": (0.5577, 0.01),
        },
        sampler=CUB_FEATURES.classes,
        **CUB_FEATURES.slots,
    ),
]

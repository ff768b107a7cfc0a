"""HER (Cai et al., ICCV 2019): its three parts on and off over two views, and its weights over
classes."""

from itertools import product

from benchmarks import CUB, CUB_FEATURES, SOFTMAX, Benchmark, Rows
from findings import FINDINGS
from vicinal.bench import Table, baseline, row

TRIPLETS = "soft-margin triplets"
PARTS = {  # what a row is called by, and what switches it on
    "weights": "loss.weighted=true",
    "FCAM": "model.attention=fcam",
    "orientation": "method.regression=true",
}
_OFF = {"loss": {"name": "hard_exemplar", "margin": 0.15, "scale": 5.0, "weighted": False}}
_OFF |= {"method": {"name": "her", "regression": False}}


def parts_on_omniglot() -> Table:
    """All eight ways of HER's three parts on Omniglot across drawers; and a classifier."""
    rows = [
        row(SOFTMAX, "method.classifier=true", "optimizer.loss_factor=10", former=True, **_OFF),
        baseline(TRIPLETS, **_OFF),
    ]
    for chosen in sorted(product((False, True), repeat=len(PARTS)), key=sum)[1:]:
        names = [name for name, there in zip(PARTS, chosen, strict=True) if there]
        rows.append(row(" + ".join(names), *(PARTS[name] for name in names), against=TRIPLETS))
    return Table(
        "HER's parts: Omniglot across drawers, turned by any angle",
        *rows,
        name="her-omniglot_pairs",
        network=TRIPLETS,
        metrics=("recall@1", "recall@1%", "recall@10"),
        seeds=3,
        finding=FINDINGS["her-omniglot_pairs"],
        preset="omniglot_pairs",
        data="omniglot_pairs",
        transform={"size": 32, "pad": 2, "fill": 255, "crop": "random", "channels": 1},
        model={
            "name": "small_resnet",
            "widths": [32, 64, 128],
            "stride": 1,
            "attention": "none",
            "dim": 64,
        },
        sampler={"name": "cross_view", "classes": 256},
        optimizer={
            **{"learning_rate": 3e-3, "head_factor": 1.0, "loss_factor": 1.0, "weight_decay": 1e-4},
            **{"schedule": "cosine", "warmup": 0},
        },
        training={"epochs": 120, "evaluate_every": 12, "precision": "float32"},
        evaluation={"recalls": [1, 5, 10], "restarts": 1},
    )


def weights(ours: Benchmark) -> Table:
    """HER's weights against none."""
    rows = Rows(ours).begun()
    rows.plain(
        "HER's weights: plain",
        "soft margin",
        ours.classes,
        "evaluation.restarts=3",
        "optimizer.loss_factor=1",
    )
    rows.add("HER's weights", "HER's weights: plain", "loss.weighted=true")
    rows.found = [
        row(one.name, against=one.against, **one.own) for one in rows.found
    ]  # their trials were not counted
    metrics = ("recall@1", "map@r", "nmi")
    return rows.table(
        "her", f"HER's weights: {ours.title}", network="HER's weights: plain", metrics=metrics
    )


TABLES = [parts_on_omniglot(), weights(CUB_FEATURES), weights(CUB)]

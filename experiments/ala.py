"""DML-ALA (Zheng, Lu and Zhou, CVPR 2020): Tables 1 to 3 and 6, and controls of what helps."""

from dataclasses import replace

import published
from benchmarks import ALA, HDML_ON_EPISODES, HERE, MARGIN, Benchmark, Rows
from vicinal.bench import Table

# Table 2.
TRAINING = tuple(f"train {metric}" for metric in ("recall@1", "recall@2", "recall@4", "nmi", "f1"))


def ala(ours: Benchmark) -> Table:
    rows = Rows(ours, published.ALA).begun()
    for name, loss in (
        ("contrastive", "contrastive"),
        ("triplet", "triplet, squared"),
        ("margin", "margin"),
    ):
        rows.plain(name, loss, ours.episodes())
        rows.add(f"{name} + ALA", name, method=ALA)
    constant = {**ALA, "assessor": "constant", "weight": 0.48}
    rows.add("constant weight", "triplet", method=constant, search=MARGIN)
    # Recorded when these were settings; `controls.py` has them now.
    drawn = {**ALA, "assessor": "random", "weight": 0.48, "spread": 0.004}
    rows.add("random weights", "triplet", method=drawn, search=MARGIN, former=True)
    memoryless = {**ALA, "assessor": "mlp"}
    rows.add("assessor without memory", "triplet", method=memoryless, former=True)
    searched = (*MARGIN, "method.hdml.alpha=0.1..1.0:log")
    rows.add("triplet + HDML", "triplet", method=HDML_ON_EPISODES, search=searched, former=True)
    rows.add("triplet at ALA's cost", "triplet", f"training.epochs={2 * ours.epochs}")
    rows.plain("random triplet", "triplet, squared", ours.episodes(disjoint=False))
    rows.add("random triplet + ALA", "random triplet", method=ALA)
    rows.plain("semi-hard triplet", "semi-hard", ours.classes)
    if ours.papers == "cub":
        rows.found = [
            replace(row, published={**row.published, **published.ALA_TRAINING.get(row.name, {})})
            for row in rows.found
        ]
    return rows.table("ala", f"DML-ALA: {ours.title}", metrics=(*ours.metrics, *TRAINING))


TABLES = [ala(benchmark) for benchmark in HERE]

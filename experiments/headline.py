"""One row of each method on its own baseline, to be run first; and the generalized mean as pooling
(ours)."""

import published
from benchmarks import (
    ALA,
    CUB,
    CUB_LITE2,
    HDML,
    HDML_PAIRS,
    HERE,
    HTL,
    LOOP,
    LOSSES,
    SOFTMAX,
    Benchmark,
    Rows,
)
from vicinal.bench import Table

_POOLED = "model.pooling=generalized"


def headline(ours: Benchmark) -> Table:
    rows = Rows(ours, published.HDML).begun()
    rows.plain("N-pair", "N-pair", ours.pairs)
    rows.add("HDML (N-pair)", "N-pair", method=HDML_PAIRS)
    for name, loss in (("triplet, episodes", "triplet, squared"), ("margin, episodes", "margin")):
        rows.plain(name, loss, ours.episodes())
        rows.add(f"{name} + ALA", name, method=ALA)
    rows.plain("multi-similarity", "multi-similarity", ours.classes)
    rows.add("DANML", "multi-similarity", loss=LOSSES["DANML"])
    rows.add("multi-similarity + LoOp", "multi-similarity", method=LOOP)
    rows.plain("random classes, one margin", "hierarchical", ours.wide)
    rows.add("HTL", "random classes, one margin", method=HTL, sampler=ours.neighbors)
    return rows.table("headline", f"Each method against its baseline: {ours.title}")


def pooled(ours: Benchmark) -> Table:
    """The generalized mean in place of the average, chosen on halves of the training classes
    (experiments/settings.md).

    Untrained rows are pooled so, too.
    """
    rows = Rows(ours).begun(_POOLED)
    rows.plain("multi-similarity, average", "multi-similarity", ours.classes)
    rows.add("multi-similarity", "multi-similarity, average", _POOLED)
    rows.add("DANML", "multi-similarity", loss=LOSSES["DANML"])
    rows.add("multi-similarity + LoOp", "multi-similarity", method=LOOP)
    rows.add("multi-similarity + HDML", "multi-similarity", method=HDML)
    rows.add("DANML + LoOp", "DANML", method=LOOP)
    return rows.table("pooled", f"Pooled by the generalized mean: {ours.title}", network=SOFTMAX)


TABLES = [*(headline(benchmark) for benchmark in (*HERE, CUB_LITE2)), pooled(CUB)]

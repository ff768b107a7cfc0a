"""What nobody has published: two methods together, beside each alone and neither."""

from benchmarks import (
    ALA,
    HDML,
    HDML_ALA,
    HDML_ON_EPISODES,
    HERE,
    HTL,
    HTL_HDML,
    LOOP,
    LOSSES,
    MARGIN,
    SOFTMAX,
    Benchmark,
    Rows,
)
from best_of import BestOf
from vicinal.bench import Table

COMBINATIONS = (
    "triplet + HDML + ALA",
    "multi-similarity + HDML",
    "DANML + HDML",
    "DANML + LoOp",
    "HTL + HDML",
)


def combinations(ours: Benchmark) -> Table:
    rows = Rows(ours).begun()
    rows.plain("triplet", "triplet, squared", ours.episodes())
    searched = (*MARGIN, "method.hdml.alpha=0.1..1.0:log")
    # Former rows: recorded when a method combined the two.
    rows.add("triplet + HDML", "triplet", method=HDML_ON_EPISODES, search=searched, former=True)
    rows.add("triplet + ALA", "triplet", method=ALA)
    rows.add("triplet + HDML + ALA", "triplet", method=HDML_ALA, former=True)
    rows.plain("multi-similarity", "multi-similarity", ours.classes)
    rows.add("multi-similarity + HDML", "multi-similarity", method=HDML)
    rows.add("multi-similarity + LoOp", "multi-similarity", method=LOOP)
    rows.add("DANML", "multi-similarity", loss=LOSSES["DANML"])
    rows.add("DANML + HDML", "DANML", method=HDML)
    rows.add("DANML + LoOp", "DANML", method=LOOP)
    plain = "random classes, one margin"
    rows.plain(plain, "hierarchical", ours.wide)
    rows.add("random classes + HDML", plain, method=HDML)
    rows.add("HTL", plain, method=HTL, sampler=ours.neighbors)
    rows.add("HTL + HDML", "HTL", method=HTL_HDML, former=True)  # recorded by version 0.2
    others = tuple(row.name for row in rows.found if row.name not in (*COMBINATIONS, SOFTMAX))
    remark = BestOf({"combinations": COMBINATIONS, "others": others})
    return rows.table("combinations", f"Two methods together: {ours.title}", remark=remark)


TABLES = [combinations(benchmark) for benchmark in HERE]

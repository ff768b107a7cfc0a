"""HTL as the 2 x 2 of its halves; LoOp over four losses and Embedding Expansion beside one; HER's
weights.

``survey`` has LoOp as published, ``loop`` as it is by default.
"""

import published
from benchmarks import (
    CUB_FEATURES,
    EXPANSION,
    GLYPHS,
    HERE,
    HTL,
    LOOP,
    MARGIN,
    Benchmark,
    Rows,
)
from vicinal.bench import Table


def survey(ours: Benchmark) -> Table:
    rows = Rows(ours, published.HTL).begun()
    plain = "random classes, one margin"
    rows.plain(plain, "hierarchical", ours.wide)
    fixed = {**HTL, "form": "ours"}
    rows.add(
        "HTL's classes, one margin", plain, method=fixed, sampler=ours.neighbors, search=MARGIN
    )
    rows.add("random classes, HTL's margins", plain, method=HTL)
    rows.add("HTL", plain, method=HTL, sampler=ours.neighbors)
    for name, loss in (
        *(("triplet of classes", "triplet"), ("HPHN", "HPHN")),
        *(("lifted, min form", "lifted, min form"), ("multi-similarity", "multi-similarity")),
    ):
        search = MARGIN if name == "lifted, min form" else None
        rows.plain(name, loss, ours.classes, search=search)
        rows.add(f"{name} + LoOp", name, method=LOOP, search=search)
    rows.add("HPHN + Embedding Expansion", "HPHN", method=EXPANSION)
    rows.plain("soft-margin triplet", "soft margin", ours.classes)
    rows.add("soft-margin triplet + HER weights", "soft-margin triplet", "loss.weighted=true")
    return rows.table("survey", f"HTL, LoOp and HER: {ours.title}")


def loop(ours: Benchmark) -> Table:
    rows = Rows(ours, published.HTL)
    for name in ("triplet", "HPHN", "lifted, min form", "multi-similarity", "DANML"):
        rows.plain(name, name, ours.classes)
        rows.add(f"{name} + LoOp", name, method="loop")
    return rows.table("loop", f"LoOp at its defaults: {ours.title}")


TABLES = [
    *(survey(benchmark) for benchmark in HERE),
    *(loop(benchmark) for benchmark in (GLYPHS, CUB_FEATURES)),
]

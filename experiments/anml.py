"""ANML's deep losses (Song et al., TPAMI 2022): Tables 3 and 4, and each part of DANML."""

import published
from benchmarks import HERE, LOSSES, SHARP, Benchmark, Rows
from vicinal.bench import Table


def anml(ours: Benchmark) -> Table:
    rows = Rows(ours, published.ANML).begun()
    for name in ("lifted", "Proxy-NCA", "N-pair"):
        rows.plain(name, name, ours.classes)
        rows.add(f"improved {name}", name, loss=LOSSES[f"improved {name}"])
    rows.add(
        "N-pair with a temperature", "N-pair", loss={**LOSSES["improved N-pair"], "offset": 0.0}
    )
    rows.plain("circle", "circle", ours.classes)
    rows.plain("multi-similarity", "multi-similarity", ours.classes)
    rows.plain(
        "DANML without λ",
        "DANML",
        ours.classes,
        "loss.lambda1=none",
        "loss.lambda2=none",
        search=SHARP,
    )
    rows.add("DANML", "multi-similarity", loss=LOSSES["DANML"])
    rows.add("DANML, identity", "DANML", "loss.outer=identity")
    rows.add(
        "DANML, λ1 = λ2",
        "DANML",
        "loss.lambda2=0.55",
        search=(*SHARP, "loss.lambda1+loss.lambda2=0.4..0.7"),
    )
    rows.add("DANML without mining", "DANML", "loss.epsilon=none")
    return rows.table("anml", f"ANML's deep losses: {ours.title}")


TABLES = [anml(benchmark) for benchmark in HERE]

"""HDML (Zheng et al., CVPR 2019): Table 1 and the ablations of Figures 4 to 7.

Rows with real members and without a generator were recorded by version 0.2, whose HDML had them.
"""

import published
from benchmarks import HDML, HDML_PAIRS, HERE, Benchmark, Rows
from figures import Scatter
from vicinal.bench import Table

# λ = exp(-α J_first / J_avg): chosen for λ of about 1, 0.8, 0.5, 0.2, 0.05 and 0 once the loss has
# fallen to a third.
ALPHAS = ("0", "0.07", "0.25", "1", "30")  # and 0.5, with which HDML itself runs


def hdml(ours: Benchmark) -> Table:
    """Table 1."""
    rows = Rows(ours, published.HDML).begun()
    for name, loss in (
        ("contrastive", "contrastive"),
        ("lifted, smooth form", "lifted"),
        ("semi-hard triplet", "semi-hard"),
        ("batch-all triplet", "batch-all"),
    ):
        rows.plain(name, loss, ours.classes)
    for name, loss, sampler, method in (
        ("triplet", "triplet, squared", ours.triplets, HDML),
        ("N-pair", "N-pair", ours.pairs, HDML_PAIRS),
    ):
        rows.plain(name, loss, sampler)
        rows.add(f"HDML ({name})", name, method=method)
        real = {**method, "members": "real"}
        rows.add(f"HDML ({name}), real members", name, method=real, former=True)
        rows.add(f"{name} at HDML's cost", name, f"training.epochs={ours.epochs_at_hdmls_cost}")
    return rows.table("hdml", f"HDML: {ours.title}")


def ablations(ours: Benchmark) -> Table:
    """Figures 4 to 7, over N-pair loss as there."""
    rows = Rows(ours).begun()
    rows.plain("N-pair", "N-pair", ours.pairs)
    rows.add("HDML", "N-pair", method=HDML_PAIRS)
    rows.add("without J_soft", "HDML", "method.label_factor=0")
    rows.add("without J_recon", "HDML", "method.reconstruction_factor=0")
    words = ("method.generate=false", "method.real_share=0.5")
    rows.add("without a generator", "HDML", *words, former=True)
    figure = swept(rows, HDML_PAIRS, "N-pair")
    seeds = min(ours.seeds, 3) if ours.name == "glyphs" else ours.seeds
    return rows.table(
        "hdml_ablations", f"HDML's ablations: {ours.title}", figure=figure, seeds=seeds
    )


def swept(rows: Rows, method: dict, against: str) -> Scatter:
    """A row for each other α than HDML's own, and the figure of all of them by the λ that they
    reach."""
    for alpha in ALPHAS:
        moved = {**method, "alpha": float(alpha)}
        rows.add(f"α = {alpha}", against, method=moved)
    points = ("HDML", *(f"α = {alpha}" for alpha in ALPHAS))
    return Scatter(
        "hardness/lambda",
        "λ in mid-training (1 leaves negatives as they are)",
        points,
        level=against,
    )


TABLES = [table(benchmark) for table in (hdml, ablations) for benchmark in HERE]

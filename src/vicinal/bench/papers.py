"""The papers' tables and those that nobody has published, for any ground: rows with their plain twins.

Every table begins with a normalised-softmax classifier at the same budget. Rows that stand in several tables have the
same settings in each, so they are run once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from vicinal.bench import published
from vicinal.bench.grounds import Ground, Rows
from vicinal.bench.tables import Readings, Row, Table

SOFTMAX = "normalised softmax"
_TRIPLETS, _PAIRS = "method.batches=triplets method.loss=triplet", "method.batches=pairs method.loss=n_pair"
_EPISODES = "method.batches=episodes method.loss"
_ALL = "hdml.hardest=none"  # the paper's N-pair tuples: every negative has a synthetic one
COMBINATIONS = ("triplet + HDML + ALA", "multi-similarity + HDML", "DANML + HDML", "DANML + LoOp", "HTL + HDML")
_TRAINING = tuple(f"train {metric}" for metric in ("recall@1", "recall@2", "recall@4", "nmi", "f1"))  # ALA's Table 2
# λ = exp(-α J_first / J_avg): chosen for λ of about 1, 0.8, 0.5, 0.2, 0.05 and 0 once the loss has fallen to a third.
ALPHAS = ("0", "0.07", "0.25", "1", "30")  # and 0.5, with which HDML itself runs


def hdml(ground: Ground) -> Table:
    """Zheng et al. 2019, Tables 1 to 3."""
    rows = _begun(ground, published.HDML)
    rows.add("contrastive", "method.loss=contrastive")
    rows.add("lifted", "method.loss=lifted")
    rows.add("semi-hard triplet", "method.loss=semi_hard")
    rows.add("batch-all triplet", "method.loss=batch_all")
    for name, tuples in (("triplet", _TRIPLETS), ("N-pair", _PAIRS)):
        full = f"{tuples} method.name=hdml" + (f" {_ALL}" if name == "N-pair" else "")
        rows.add(name, tuples)
        rows.add(f"HDML ({name})", full, name)
        rows.add(f"HDML ({name}), real members", f"{full} hdml.members=real", name)
        rows.add(f"{name} at HDML's cost", f"{tuples} epochs={ground.dearer}", name)
    return _table("hdml", "HDML", rows)


def hdml_ablations(ground: Ground) -> Table:
    """Zheng et al. 2019, Figures 4 to 7, over N-pair loss as there."""
    rows = _begun(ground, {})
    rows.add("N-pair", _PAIRS)
    full = f"{_PAIRS} method.name=hdml {_ALL}"
    rows.add("HDML", full, "N-pair")
    rows.add("without J_soft", f"{full} hdml.label_factor=0", "HDML")
    rows.add("without J_recon", f"{full} hdml.reconstruction_factor=0", "HDML")
    rows.add("without a generator", f"{full} hdml.generate=false hdml.real_share=0.5", "HDML")
    figure = _swept(rows, full, "N-pair")
    return replace(_table("hdml_ablations", "HDML's ablations", rows), figure=figure)


def real_members(ground: Ground) -> Table:
    """Ours: HDML whose anchors and positives stay real, over random triplets, and its sweep of α."""
    rows = _begun(ground, {})
    rows.add("triplet", _TRIPLETS)
    full = f"{_TRIPLETS} method.name=hdml hdml.members=real"
    rows.add("HDML", full, "triplet")
    figure = _swept(rows, full, "triplet")
    return replace(_table("real_members", "HDML with real members", rows), figure=figure)


def paper_regime(ground: Ground) -> Table:
    """HDML and ALA as their authors ran them: random disjoint tuples, no mining, a random head, their rates and scale.

    Differs: AdamW and our network and crops in place of Adam without decay and GoogLeNet; fewer steps.
    """
    on_episodes = published.renamed(published.ALA, _on_episodes)
    rows = _begun(ground, {name: {**own, **on_episodes[name]} for name, own in published.HDML.items()})
    rate = "optimisation.learning_rate=1e-4 optimisation.head_factor=10 optimisation.schedule=constant"
    rate += " start.head=random"
    for name, tuples, more in (("triplet", _TRIPLETS, ""), ("N-pair", _PAIRS, f" {_ALL}")):
        plain = f"{tuples} {rate} hdml.scale=authors hdml.window=64"
        rows.add(name, plain)
        rows.add(f"HDML ({name})", f"{plain} method.name=hdml{more}", name)
    for loss in ("contrastive", "triplet", "margin"):
        plain, twin = f"{_EPISODES}={loss} {rate}", _on_episodes(loss)
        rows.add(twin, plain)
        rows.add(f"{twin} + ALA", f"{plain} method.name=ala assessing.relative=false", twin)
    return _table("paper_regime", "The papers' regime", rows)


def _on_episodes(name: str) -> str:
    """A row of ALA's tables as it is called where another one of its loss has tuples of another kind."""
    loss, plus, method = name.partition(" + ")
    return f"{loss}, episodes{plus}{method}"


def ala(ground: Ground) -> Table:
    """Zheng, Lu and Zhou 2020, Tables 1 to 8, and controls that show what helps."""
    rows = _begun(ground, published.ALA)
    for loss in ("contrastive", "triplet", "margin"):
        rows.add(loss, f"{_EPISODES}={loss}")
        rows.add(f"{loss} + ALA", f"{_EPISODES}={loss} method.name=ala", loss)
    for name, words in (
        ("constant weight", "constant"),
        ("random weights", "random"),
        ("assessor without memory", "mlp"),
        ("triplet + HDML", "hdml"),
    ):
        rows.add(name, f"{_EPISODES}=triplet method.name={words}", "triplet")
    rows.add("triplet at ALA's cost", f"{_EPISODES}=triplet epochs={2 * ground.epochs}", "triplet")
    rows.add("random triplet", f"{_EPISODES}=triplet method.disjoint=false")
    rows.add("random triplet + ALA", f"{_EPISODES}=triplet method.disjoint=false method.name=ala", "random triplet")
    rows.add("semi-hard triplet", "method.loss=semi_hard")
    table = _table("ala", "DML-ALA", rows)
    shown = tuple(
        replace(row, published={**row.published, **published.ALA_TRAINING.get(row.name, {})})
        if ground.papers == "cub"
        else row
        for row in table.rows
    )
    return replace(table, rows=shown, metrics=(*ground.metrics, *_TRAINING))


def anml(ground: Ground) -> Table:
    """Song et al. 2022, Tables 3 to 6, and what each part of DANML does."""
    rows = _begun(ground, published.ANML)
    for name, original, improved, more in (
        ("lifted", "lifted", "improved_lifted", ""),
        ("Proxy-NCA", "proxy_nca", "improved_proxy_nca", "anml.offset=0.5"),
        ("N-pair", "n_pair", "improved_n_pair", "anml.offset=0.5"),
    ):
        rows.add(name, f"method.loss={original}")
        rows.add(f"improved {name}", f"method.loss={improved} {more}", name)
    rows.add("N-pair with a temperature", "method.loss=improved_n_pair anml.offset=0", "N-pair")
    rows.add("circle", "method.loss=circle")
    rows.add("multi-similarity", "method.loss=multi_similarity")
    rows.add("DANML without λ", "method.loss=original")
    rows.add("DANML", "method.loss=danml", "multi-similarity")
    rows.add("DANML, identity", "method.loss=danml anml.outer=identity", "DANML")
    rows.add("DANML, λ1 = λ2", "method.loss=danml anml.sigma=0", "DANML")
    rows.add("DANML without mining", "method.loss=danml anml.epsilon=none", "DANML")
    return _table("anml", "ANML's deep losses", rows)


def survey(ground: Ground) -> Table:
    """HTL as the 2 x 2 of its halves; LoOp over four losses with their twins, Embedding Expansion beside one; HER."""
    rows = _begun(ground, published.HTL)
    near = f"method.loss=hierarchical {ground.near}"
    rows.add("random classes, one margin", near)
    rows.add("HTL's classes, one margin", f"{near} method.name=htl_sampling", "random classes, one margin")
    rows.add("random classes, HTL's margins", f"{near} method.name=htl_margin", "random classes, one margin")
    rows.add("HTL", f"{near} method.name=htl", "random classes, one margin")
    for name, loss in (
        ("triplet of classes", "triplet"),
        ("HPHN", "hphn"),
        ("lifted, min form", "lifted_min"),
        ("multi-similarity", "multi_similarity"),
    ):
        rows.add(name, f"method.loss={loss}")
        rows.add(f"{name} + LoOp", f"method.loss={loss} method.name=loop", name)
    rows.add("HPHN + Embedding Expansion", "method.loss=hphn method.name=expansion", "HPHN")
    rows.add("soft-margin triplet", "method.loss=soft_margin")
    rows.add("soft-margin triplet + HER weights", "method.loss=hard_exemplar", "soft-margin triplet")
    return _table("survey", "HTL, LoOp and HER", rows)


def combinations(ground: Ground) -> Table:
    """What nobody has published: two methods together, beside each alone and neither."""
    rows = _begun(ground, {})
    rows.add("triplet", f"{_EPISODES}=triplet")
    rows.add("triplet + HDML", f"{_EPISODES}=triplet method.name=hdml", "triplet")
    rows.add("triplet + ALA", f"{_EPISODES}=triplet method.name=ala", "triplet")
    rows.add("triplet + HDML + ALA", f"{_EPISODES}=triplet method.name=hdml_ala", "triplet")
    rows.add("multi-similarity", "method.loss=multi_similarity")
    rows.add("multi-similarity + HDML", "method.loss=multi_similarity method.name=hdml", "multi-similarity")
    rows.add("multi-similarity + LoOp", "method.loss=multi_similarity method.name=loop", "multi-similarity")
    rows.add("DANML", "method.loss=danml", "multi-similarity")
    rows.add("DANML + HDML", "method.loss=danml method.name=hdml", "DANML")
    rows.add("DANML + LoOp", "method.loss=danml method.name=loop", "DANML")
    near = f"method.loss=hierarchical {ground.near}"
    rows.add("random classes, one margin", near)
    rows.add("random classes + HDML", f"{near} method.name=hdml", "random classes, one margin")
    rows.add("HTL", f"{near} method.name=htl", "random classes, one margin")
    rows.add("HTL + HDML", f"{near} method.name=htl_hdml", "HTL")
    table = _table("combinations", "Two methods together", rows)
    others = tuple(row.name for row in table.rows if row.name not in (*COMBINATIONS, SOFTMAX))
    return replace(table, best_of={"combinations": COMBINATIONS, "others": others})


def headline(ground: Ground) -> Table:
    """One row of each method on its own twin, to be run first."""
    rows = _begun(ground, published.HDML)
    rows.add("N-pair", _PAIRS)
    rows.add("HDML (N-pair)", f"{_PAIRS} method.name=hdml {_ALL}", "N-pair")
    rows.add("triplet, episodes", f"{_EPISODES}=triplet")
    rows.add("triplet, episodes + ALA", f"{_EPISODES}=triplet method.name=ala", "triplet, episodes")
    rows.add("margin, episodes", f"{_EPISODES}=margin")
    rows.add("margin, episodes + ALA", f"{_EPISODES}=margin method.name=ala", "margin, episodes")
    rows.add("multi-similarity", "method.loss=multi_similarity")
    rows.add("DANML", "method.loss=danml", "multi-similarity")
    rows.add("multi-similarity + LoOp", "method.loss=multi_similarity method.name=loop", "multi-similarity")
    near = f"method.loss=hierarchical {ground.near}"
    rows.add("random classes, one margin", near)
    rows.add("HTL", f"{near} method.name=htl", "random classes, one margin")
    return _table("headline", "Each method on its plain twin", rows)


def pooled(ground: Ground) -> Table:
    """Ours: the generalised mean in place of the average over a picture's places, under losses and methods of batches.

    Chosen on halves of the training classes (docs/results.md); untrained rows are pooled so, too.
    """
    rows, generalized = Rows(ground), "pooling=generalized"
    rows.add(SOFTMAX, f"{generalized} method.loss=normalized_softmax")
    rows.add("multi-similarity, average", "method.loss=multi_similarity")
    for name, words, twin in (
        ("multi-similarity", "method.loss=multi_similarity", "multi-similarity, average"),
        ("DANML", "method.loss=danml", "multi-similarity"),
        ("multi-similarity + LoOp", "method.loss=multi_similarity method.name=loop", "multi-similarity"),
        ("multi-similarity + HDML", "method.loss=multi_similarity method.name=hdml", "multi-similarity"),
        ("DANML + LoOp", "method.loss=danml method.name=loop", "DANML"),
    ):
        rows.add(name, f"{generalized} {words}", twin)
    return _table("pooled", "Pooled by the generalised mean", rows)


def _swept(rows: Rows, full: str, twin: str) -> Readings:
    """A row for each other α than HDML's own, and the figure of all of them by the λ that they reach."""
    for alpha in ALPHAS:
        rows.add(f"α = {alpha}", f"{full} hdml.alpha={alpha}", twin)
    swept = ("HDML", *(f"α = {alpha}" for alpha in ALPHAS))
    return Readings("hardness/lambda", "λ in mid-training (1 draws nothing)", swept, level=twin)


def _begun(ground: Ground, tables: published.ByData) -> Rows:
    rows = Rows(ground, tables)
    rows.add(SOFTMAX, "method.loss=normalized_softmax")
    return rows


def _table(name: str, title: str, rows: Rows) -> Table:
    ground = rows.ground
    return Table(
        f"{name}-{ground.name}",
        f"{title}: {ground.title}",
        tuple(rows.found),
        network=SOFTMAX,
        dim=ground.dim,
        protocol=ground.protocol,
        metrics=_columns(ground.metrics, rows.found),
    )


def _columns(metrics: Sequence[str], rows: Iterable[Row]) -> tuple[str, ...]:
    """The ground's metrics, and Recall@K for every other K that the paper prints of these rows."""
    printed = {metric for row in rows for metric in row.published}
    recalls = {metric for metric in (*metrics, *printed) if metric.startswith("recall@")}
    others = (metric for metric in metrics if metric not in recalls)
    return (*sorted(recalls, key=lambda metric: int(metric.partition("@")[2])), *others)

"""HDML and ALA as their authors ran them: random disjoint tuples, no mining, a random head, their
rates and scale.

Differs: AdamW, our network and crops in place of Adam without decay and GoogLeNet; fewer steps.
"""

import published
from benchmarks import ALA, CUB, HDML, Rows

RATES = ("optimizer.learning_rate=1e-4", "optimizer.head_factor=10", "optimizer.schedule=constant")
RANDOM_HEAD = ("model.start=random", "model.start_length=1")


def _on_episodes(name: str) -> str:
    """A row of ALA's tables as it is called where another one of its loss has tuples of another
    kind."""
    loss, plus, method = name.partition(" + ")
    return f"{loss}, episodes{plus}{method}"


_ALA = published.renamed(published.ALA, _on_episodes)
rows = Rows(CUB, {name: {**own, **_ALA[name]} for name, own in published.HDML.items()}).begun()
for name, loss, sampler, hardest in (
    ("triplet", "triplet, authors", CUB.triplets, 8),
    ("N-pair", "N-pair", CUB.pairs, None),
):
    rows.plain(name, loss, sampler, *RATES, *RANDOM_HEAD)
    rows.add(
        f"HDML ({name})",
        name,
        method={**HDML, "form": "authors", "window": 64, "hardest": hardest},
    )
for name, loss in (
    ("contrastive", "contrastive"),
    ("triplet", "triplet, squared"),
    ("margin", "margin"),
):
    rows.plain(_on_episodes(name), loss, CUB.episodes(), *RATES, *RANDOM_HEAD)
    rows.add(f"{_on_episodes(name)} + ALA", _on_episodes(name), method={**ALA, "relative": False})
TABLE = rows.table("paper_regime", f"The papers' regime: {CUB.title}")

"""Every table that ``vicinal bench`` knows, by name: NAME-GROUND for the papers' tables."""

from dataclasses import replace

from vicinal.bench import grounds, hard_exemplars, papers
from vicinal.bench.findings import FINDINGS
from vicinal.bench.hardness import hardness
from vicinal.bench.linear_plan import NAME as ANML_LINEAR
from vicinal.bench.tables import Row, Table
from vicinal.errors import ConfigError, unknown

_QUICK = (
    Table(
        "glyphs",
        "Losses on rendered characters",
        (
            Row("normalised softmax", "glyphs_normalized_softmax"),
            Row("N-pair", "glyphs_n_pair"),
            Row("triplet", "glyphs_triplet", quick=True),
            Row("multi-similarity", "glyphs_multi_similarity", quick=True),
        ),
        network="triplet",
        dim=64,
        quick_overrides=("epochs=3", "restarts=1", "data.per_class=12"),
    ),
    Table(
        "cub_features",
        "A linear head on CUB-200-2011 features",
        (
            Row("normalised softmax", "cub_features_normalized_softmax"),
            Row("multi-similarity", "cub_features", quick=True),
        ),
        network="multi-similarity",
        dim=512,
        quick_overrides=("epochs=2", "restarts=1"),
    ),
)
_EVERYWHERE = (
    papers.headline,
    papers.hdml,
    papers.hdml_ablations,
    papers.real_members,
    papers.ala,
    papers.anml,
    papers.survey,
    papers.combinations,
)
_ALL = (
    *_QUICK,
    *(table(ground) for ground in grounds.HERE for table in _EVERYWHERE),
    papers.paper_regime(grounds.CUB),
    papers.headline(grounds.CUB_LITE2),
    papers.pooled(grounds.CUB),
    hard_exemplars.parts_on_omniglot(),
    hard_exemplars.weights_on_cub_features(),
    hard_exemplars.weights_on_cub(),
    hardness(),
    # For who has the data: Cars196, Stanford Online Products, In-Shop.
    *(table(grounds.CARS) for table in (papers.hdml, papers.hdml_ablations, papers.ala, papers.anml, papers.survey)),
    *(table(grounds.SOP) for table in (papers.hdml, papers.ala, papers.anml, papers.survey)),
    *(table(grounds.INSHOP) for table in (papers.anml, papers.survey)),
)
TABLES = tuple(replace(table, says=FINDINGS.get(table.name, table.says)) for table in _ALL)


def find_table(name: str, tables: tuple[Table, ...] = TABLES) -> Table:
    """The table of that name, fit to be run.

    >>> find_table("hdml-glyfs")
    Traceback (most recent call last):
    vicinal.errors.ConfigError: unknown table 'hdml-glyfs'; did you mean 'hdml-glyphs'? Known: ...
    """
    found = {table.name: table for table in tables}
    if name not in found:
        raise ConfigError(unknown("table", name, (*found, ANML_LINEAR)))  # which is run by itself
    return found[name].check()

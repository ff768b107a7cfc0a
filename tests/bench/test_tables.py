"""Tables refuse what cannot run, before anything runs."""

from dataclasses import replace

import pytest

from vicinal.bench.catalogue import TABLES, find_table
from vicinal.bench.tables import PROTOCOLS, REALITY_METRICS, Matrix, Readings, Row
from vicinal.errors import ConfigError


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_table_can_be_run_also_reduced_and_under_each_protocol(table):
    find_table(table.name)
    assert table.reduced().check().seeds == 2
    for protocol in PROTOCOLS:
        assert table.under(protocol).check().protocol == protocol


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"network": "plian"}, "did you mean 'plain'"),
        ({"protocol": "finale"}, "did you mean 'final'"),
        ({"seeds": 0}, "needs a seed"),
        ({"rows": (Row("plain", "glyphs_tripel"),)}, "row 'plain' of table 'tiny': unknown recipe 'glyphs_tripel'"),
        ({"rows": (Row("plain", "glyphs_triplet"), Row("plain", "glyphs_n_pair"))}, "rows of one name"),
        ({"rows": (Row("plain", "glyphs_triplet"), Row("PCA", "glyphs_n_pair"))}, "every table has: PCA"),
        ({"rows": (Row("plain", "glyphs_triplet", twin="other"),)}, "unknown row 'other'"),
        ({"figure": Readings("hardness/lambda", "λ", ("method", "methid"))}, "did you mean 'method'"),
        ({"figure": Matrix({"clean": {"mining": "minin"}})}, "unknown row 'minin'"),
    ],
)
def test_a_table_that_cannot_run_is_refused(table, changes, message):
    with pytest.raises(ConfigError, match=message):
        replace(table, **changes).check()


def test_the_reduced_table_keeps_its_network_and_drops_twins_that_left(table):
    reduced = replace(table, rows=(*table.rows, Row("third", "glyphs_triplet", twin="method", quick=True))).reduced()
    assert [(row.name, row.twin) for row in reduced.rows] == [("plain", None), ("third", None)]


def test_another_protocol_is_a_table_of_its_own(table):
    other = table.under("reality_check")
    assert other.name == "tiny-reality_check" and other.metrics == REALITY_METRICS
    assert other.dim == 4 * 128 and table.under("authors").dim == table.dim  # PCA is as wide as what it stands beside
    assert table.under("validation") is table
    with pytest.raises(ConfigError, match="did you mean 'authors'"):
        table.under("author")

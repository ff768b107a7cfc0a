"""The paper's own Table 2: that it is whole, and that single numbers are those of their method."""

from vicinal.bench.linear_contestants import METHODS
from vicinal.bench.linear_plan import SETS
from vicinal.bench.linear_published import PRINTED


def test_every_set_has_every_method_that_the_paper_compares():
    assert tuple(PRINTED) == SETS
    for scores in PRINTED.values():
        assert set(scores) == set(METHODS) - {"euclidean", "lda"} and all(0.6 < x < 1 for x in scores.values())


def test_methods_are_not_mixed_up():
    """What the paper's text says of its table, and the bold numbers of three of its lines."""
    assert all(scores["lanml-"] > scores["lmnn"] for name, scores in PRINTED.items() if name != "letter")
    assert all(scores["pnca"] > scores["nca"] for scores in PRINTED.values())
    assert PRINTED["australian"]["gmml"] == 0.8594 and PRINTED["letter"]["rvml"] == 0.9572
    assert PRINTED["isolet1"]["lanml+"] == 0.9385 and PRINTED["solar_flare"]["itml"] == 0.6212

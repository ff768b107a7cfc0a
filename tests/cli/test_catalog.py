"""``vicinal list`` and ``vicinal explain``."""

import pytest

from vicinal.cli.train import KINDS
from vicinal.config import presets
from vicinal.losses import LOSSES


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_listed_with_a_sentence_each(kind, works):
    done = works("list", kind)
    lines = [line for line in done.stdout.split("\n\n")[0].splitlines() if line]
    assert len(lines) >= 4
    assert all(len(line.split(maxsplit=1)) == 2 for line in lines), "each has a name and a sentence"


def test_losses_and_presets_are_all_there(vicinal):
    assert all(name in vicinal("list losses").stdout for name in LOSSES)
    assert all(name in vicinal("list presets").stdout for name in presets())


def test_a_loss_is_explained_with_arguments_and_paper(works):
    done = works("explain loss=proxy_anchor")
    assert (
        "Kim" in done.stdout
        and "loss.margin=0.1" in done.stdout
        and "loss.classes" not in done.stdout
    )


@pytest.mark.parametrize(
    "what",
    ["training", "model", "model=small", "method=hdml", "sampler=pairs", "glyphs", "data=cub"],
)
def test_everything_can_be_explained(what, works):
    done = works("explain", what)
    assert "=" in done.stdout


@pytest.mark.parametrize(
    ("what", "hint"),
    [("loss=tripelt", "'triplet'"), ("los=triplet", "'loss'"), ("loss", "loss=NAME")],
)
def test_a_mistake_is_met_with_the_nearest(what, hint, rejected):
    assert hint in rejected("explain", what)

"""Images that stay decoded, and maps of a frozen part that stay, train the same network as those
made again and again."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.pictures import paint
from torch import nn

from vicinal.config import compose, from_words
from vicinal.errors import DataError
from vicinal.models import EfficientNetLite, Embedder, SmallConvNet
from vicinal.models.finetuning import FrozenPart
from vicinal.training.experiment import Experiment, prepare
from vicinal.training.run import start

SETTINGS = (
    "training.epochs=1",
    "training.validation=0.0",
    "sampler.classes=3",
    "sampler.per_class=4",
    "model.dim=8",
    "model.widths=4,8",
    "transform.size=16",
    "transform.resize=20",
    "transform.canvas=20",
    "evaluation.restarts=1",
    "training.workers=0",
)


@pytest.fixture
def pictures(tmp_path):
    return paint(tmp_path / "pictures", 8, 6)


def config(pictures, *words):
    layers = (
        {"preset": "images_from_scratch", "data": str(pictures)},
        from_words([*SETTINGS, *words]),
    )
    return compose(*layers)


def decoded(config, console):
    return prepare(config, console).records.source.decoded


def test_resident_images_train_the_same_network_bit_for_bit(pictures, tmp_path, console):
    written = []
    for resident in ("auto", "disk", "off"):
        asked = config(
            pictures, f"training.resident={resident}", f"training.cache={tmp_path / 'cache'}"
        )
        run = start(asked, tmp_path / resident, command="", console=console)
        written.append((run.metrics_path.read_bytes(), run.weights_path.read_bytes(), run.results))
    assert written[0] == written[1] == written[2]


def test_images_stay_where_they_fit_and_not_where_the_user_says_no(pictures, console):
    assert decoded(config(pictures), console) is not None
    assert decoded(config(pictures, "training.resident=off"), console) is None


def test_a_damaged_image_is_rejected_before_training(pictures, console):
    (pictures / "class_2" / "3.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"3\.png"):
        prepare(config(pictures), console)
    assert decoded(config(pictures, "training.skip_corrupt=true"), console).unreadable


FIXED = ("transform.crop=center", "transform.mirror=false", "training.epochs=2")
SAID = "what the frozen part makes of each picture is computed once"


@pytest.fixture
def said(console, monkeypatch):
    lines = []
    monkeypatch.setattr(console, "line", lambda text, **_: lines.append(text))
    return lines


@pytest.mark.parametrize("freeze", ["all", "blocks.[0-1].*"])
def test_cached_maps_train_the_same_network(freeze, pictures, tmp_path, console, said, monkeypatch):
    asked = config(pictures, *FIXED, f"model.freeze={freeze}")
    runs = [start(asked, tmp_path / "cached", command="", console=console)]
    assert said.count(SAID) == 1
    monkeypatch.setattr(Experiment, "_frozen_maps", lambda self: None)
    runs.append(start(asked, tmp_path / "plain", command="", console=console))
    assert said.count(SAID) == 1
    cached, plain = (load_file(run.weights_path) for run in runs)
    assert cached.keys() == plain.keys()
    for name in plain:
        torch.testing.assert_close(cached[name], plain[name], rtol=1e-4, atol=1e-6)
    losses = [[line["loss"] for line in run.metrics() if "loss" in line] for run in runs]
    np.testing.assert_allclose(*losses, rtol=1e-5)


@pytest.mark.parametrize(
    "word", ["transform.crop=random", "transform.mirror=true", "method=metrix"]
)
def test_what_changes_from_step_to_step_is_computed_in_each(
    word, pictures, tmp_path, console, said
):
    asked = config(pictures, *FIXED, "model.freeze=all", word)
    start(asked, tmp_path / "run", command="", console=console)
    assert SAID not in said


class Dropping(nn.Sequential):
    width = 8


def test_the_part_ends_before_what_trains_hangs_on_chance_or_sees_other_rows():
    torch.manual_seed(0)
    example = torch.randn(4, 3, 32, 32)
    network = Embedder(EfficientNetLite(), freeze="_conv_stem.*,_bn0.*,_blocks.[0-3].*").train()
    part = FrozenPart(network.backbone, example)
    assert part.end is network.backbone._blocks[3]
    network.eval()
    with torch.no_grad():
        assert part.holds()
    # The first layer trains, so nothing before it is fixed.
    late = Embedder(SmallConvNet(3, (4, 8)), freeze="blocks.4.*").train()
    assert FrozenPart(late.backbone, example).end is None
    layers = [nn.Conv2d(3, 4, 3), nn.Dropout(0.01), nn.Conv2d(4, 8, 3)]
    drops = Embedder(Dropping(*layers), freeze="all").train()
    assert FrozenPart(drops.backbone, example).end is layers[0]
    norms = Dropping(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8, affine=False), nn.Conv2d(8, 8, 3))
    part = FrozenPart(norms.requires_grad_(False).train(), example)
    norms.eval()
    with torch.no_grad():
        assert not part.holds()

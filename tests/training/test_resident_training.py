"""Images that stay decoded train the same network as images that are read again and again."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from vicinal import parallel
from vicinal.config import compose, from_words
from vicinal.errors import ConfigError, DataError
from vicinal.evaluation.encoder import Encoder
from vicinal.training.experiment import prepare
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
    """Eight classes of six pictures, all of different sizes."""
    rng = np.random.default_rng(0)
    for label in range(8):
        (tmp_path / "pictures" / f"c{label}").mkdir(parents=True)
        for number in range(6):
            shape = (24 + label, 30 + number, 3)
            image = Image.fromarray(rng.integers(0, 255, shape, dtype=np.uint8))
            image.save(tmp_path / "pictures" / f"c{label}" / f"{number}.png")
    return tmp_path / "pictures"


def config(pictures, *words):
    layers = (
        {"preset": "images_from_scratch", "data": str(pictures)},
        from_words([*SETTINGS, *words]),
    )
    return compose(*layers)


def decoded(config, console):
    return prepare(config, console).records.source.decoded


class Averages(nn.Module):
    """A network of the user's own."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, images):
        return self.scale * images.mean(dim=(2, 3))


def test_resident_images_train_the_same_network_bit_for_bit(pictures, tmp_path, console):
    written = []
    for resident in ("on", "disk", "off"):
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
    (pictures / "c2" / "3.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"3\.png"):
        prepare(config(pictures), console)
    assert decoded(config(pictures, "training.skip_corrupt=true"), console).unreadable


@pytest.fixture
def asked(pictures, tmp_path):
    """Settings whose head starts from features, kept in a folder."""
    return config(
        pictures,
        "model.start=discriminant",
        "training.resident=on",
        f"training.cache={tmp_path / 'cache'}",
    )


def head(config, console, *, scale=1.0):
    """The head's start over a backbone whose first weights are scaled."""
    experiment = prepare(config, console)
    embedder = experiment.method.embedder
    with torch.no_grad():
        next(embedder.backbone.parameters()).mul_(scale)
    experiment.start_head()
    return embedder.head.weight.detach().clone()


def test_a_run_from_the_cache_writes_the_same_bytes(asked, tmp_path, console):
    written = []
    for name, cache in {
        "without": None,
        "first": asked.training.cache,
        "second": asked.training.cache,
    }.items():
        run = start(
            asked.replace(training={"cache": cache}), tmp_path / name, command="", console=console
        )
        written.append((run.metrics_path.read_bytes(), run.weights_path.read_bytes(), run.results))
    assert written[0] == written[1] == written[2]
    assert len(list((tmp_path / "cache").glob("*.npy"))) == 2


def test_the_second_head_needs_no_embedding(asked, console, monkeypatch):
    first = head(asked, console)
    monkeypatch.setattr(Encoder, "embed", lambda *rest, **options: pytest.fail("embedded again"))
    assert torch.equal(head(asked, console), first)
    other = asked.replace(model={"dim": 4, "start": "principal"})
    assert len(head(other, console)) == 4  # another head over the same features


def test_other_weights_and_other_settings_are_embedded_again(asked, console, tmp_path):
    head(asked, console)
    changed = head(asked, console, scale=2.0)
    assert torch.equal(changed, head(asked.replace(training={"cache": None}), console, scale=2.0))
    head(asked.replace(model={"pooling": "max"}), console)
    head(
        asked.replace(evaluation={"batch_size": 5}), console
    )  # sums of other shapes differ in their last bits
    head(asked.replace(transform=replace(asked.transform, mean=(0.4,))), console)
    assert len(list((tmp_path / "cache").glob("*.npy"))) == 1 + 5


def test_features_are_not_kept_of_several_processes_unreadable_images_and_own_networks(
    asked, console, pictures, tmp_path, monkeypatch
):
    own = asked.replace(model=replace(asked.model, name="", module=Averages()))
    ready = prepare(asked, console)
    with monkeypatch.context() as patch:
        patch.setattr(parallel, "processes", lambda: 2)
        patch.setattr(Encoder, "embed", lambda *rest, **options: "embedded")
        assert ready._start_features(lambda done: None) == "embedded"
    (pictures / "c2" / "3.png").write_bytes(b"no picture")
    head(asked.replace(training={"skip_corrupt": True}), console)
    (pictures / "c2" / "3.png").unlink()
    head(own, console)
    assert all(
        np.load(path, mmap_mode="r").dtype == np.uint8
        for path in (tmp_path / "cache").glob("*.npy")
    )


def test_a_cache_that_cannot_be_written_is_rejected_before_the_data_are_read(
    asked, console, tmp_path
):
    (tmp_path / "file").touch()
    bad = asked.replace(data=None, training={"cache": str(tmp_path / "file")})
    with pytest.raises(
        ConfigError, match=r"training\.cache=.*file is no folder that can be written"
    ):
        prepare(bad, console)

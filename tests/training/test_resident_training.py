"""Images that stay decoded train the same network as images that are read again and again."""

import numpy as np
import pytest
from PIL import Image

from vicinal.config import compose, from_words
from vicinal.errors import DataError
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
    (pictures / "c2" / "3.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"3\.png"):
        prepare(config(pictures), console)
    assert decoded(config(pictures, "training.skip_corrupt=true"), console).unreadable

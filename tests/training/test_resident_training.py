"""Images that stay decoded train the same network as images that are read again and again."""

import numpy as np
import pytest
from PIL import Image

from vicinal.errors import DataError
from vicinal.training.experiment import prepare
from vicinal.training.overrides import apply
from vicinal.training.recipe import find_recipe
from vicinal.training.run import start

SETTINGS = (
    "epochs=1",
    "validation=0.0",
    "classes=3",
    "per_class=4",
    "dim=8",
    "widths=4,8",
    "transform.size=16",
    "transform.resize=20",
    "transform.canvas=20",
    "restarts=1",
    "workers=0",
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


def recipe(pictures, *overrides):
    return apply(find_recipe("images_from_scratch"), [f"data={pictures}", *SETTINGS, *overrides])


def test_resident_images_train_the_same_network_bit_for_bit(pictures, tmp_path, console):
    written = []
    for resident in ("on", "off"):
        run = start("images_from_scratch", recipe(pictures, f"resident={resident}"), tmp_path / resident, command="",
                    console=console)  # fmt: skip
        written.append((run.metrics_path.read_bytes(), run.weights_path.read_bytes(), run.results))
    assert written[0] == written[1]


def test_images_stay_where_they_fit_and_not_where_the_user_says_no(pictures, console):
    assert prepare(recipe(pictures), console).resident is not None
    assert prepare(recipe(pictures, "resident=off"), console).resident is None


def test_a_damaged_image_is_refused_before_training(pictures, console):
    (pictures / "c2" / "3.png").write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"3\.png"):
        prepare(recipe(pictures), console)
    assert prepare(recipe(pictures, "skip_corrupt=true"), console).resident.unreadable

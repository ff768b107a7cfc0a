"""Images decoded once for many processes: who comes second reads what the first has decoded, to the last pixel."""

import numpy as np
import pytest
import torch
from PIL import Image

from vicinal.data import Folder, ImageTransform, residency
from vicinal.data.decoded import VARIABLE, shared

CPU = torch.device("cpu")


@pytest.fixture
def pictures(tmp_path):
    rng = np.random.default_rng(0)
    for label in range(3):
        (tmp_path / "set" / f"c{label}").mkdir(parents=True)
        for number in range(4):
            pixels = rng.integers(0, 255, (20, 24, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "set" / f"c{label}" / f"{number}.png")
    return Folder(str(tmp_path / "set")).load()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "decoded"))
    return tmp_path / "decoded"


TRANSFORM = ImageTransform(size=8, resize=12, canvas=12, crop="random")


def decoded(records, transform=TRANSFORM, **options):
    return residency.decode(records, transform, CPU, workers=0, **options).pixels


def test_the_second_decodes_nothing_and_has_the_same_pixels(pictures, folder, monkeypatch):
    monkeypatch.delenv(VARIABLE)
    alone = decoded(pictures)
    monkeypatch.setenv(VARIABLE, str(folder))
    first = decoded(pictures)
    monkeypatch.setattr(residency, "_prepared", lambda *rest: pytest.fail("decoded again"))
    assert torch.equal(alone, first) and torch.equal(decoded(pictures), alone)
    assert len(list(folder.glob("*.npy"))) == 1 and not list(folder.glob("*.part"))


def test_other_settings_and_other_rows_are_other_images(pictures, folder):
    decoded(pictures)
    decoded(pictures, ImageTransform(size=8, resize=16, canvas=12, crop="random"))
    decoded(pictures.take(np.arange(5)))
    assert len(list(folder.glob("*.npy"))) == 3


def test_where_an_image_cannot_be_read_everybody_sees_for_himself(pictures, folder, tmp_path):
    (tmp_path / "set" / "c0" / "0.png").write_bytes(b"no image")
    for _ in range(2):
        assert len(residency.decode(pictures, TRANSFORM, CPU, workers=0, skip_corrupt=True).unreadable) == 1
    assert not list(folder.glob("*.npy"))


def test_without_the_variable_nothing_is_shared(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    assert shared(lambda: pytest.fail("asked"), lambda _: pytest.fail("filled"), (1, 1, 1, 1)) is None

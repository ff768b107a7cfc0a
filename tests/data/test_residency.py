"""When images stay on the device."""

import numpy as np
import pytest
import torch

from vicinal.data import residency
from vicinal.data.folder import Folder
from vicinal.data.records import FeatureArray, ImageArray, Records
from vicinal.data.residency import decode, free_memory, resident_if_it_fits
from vicinal.data.transforms import FeatureTransform, ImageTransform
from vicinal.errors import ConfigError, DataError

CPU = torch.device("cpu")
SQUASHED = ImageTransform(size=8, resize=9, fit="squash")


@pytest.fixture
def images(class_folders):
    return Folder(str(class_folders), test=0.0).load()


def in_memory():
    pixels = np.zeros((4, 8, 8), dtype=np.uint8)
    return Records("m", ImageArray(pixels, list("abcd")), np.arange(4), tuple("wxyz"), np.array(["train"] * 4))


def test_auto_decides_by_bytes(images, monkeypatch):
    need = 12 * 3 * 9 * 9
    monkeypatch.setattr(residency, "free_memory", lambda device: 4 * need)
    assert resident_if_it_fits(images, SQUASHED, CPU) is not None
    monkeypatch.setattr(residency, "free_memory", lambda device: 4 * need - 4)
    assert resident_if_it_fits(images, SQUASHED, CPU) is None
    assert resident_if_it_fits(images, SQUASHED, CPU, resident="on") is not None
    assert resident_if_it_fits(images, SQUASHED, CPU, resident="off") is None


def test_auto_leaves_to_the_loader_what_it_need_not_or_cannot_keep(images):
    assert resident_if_it_fits(images, ImageTransform(size=8, resize=9), CPU) is None
    assert resident_if_it_fits(in_memory(), ImageTransform(size=8, channels=1), CPU) is None
    features = Records(
        "f", FeatureArray(np.zeros((2, 3), np.float32), list("ab")), np.arange(2), ("x", "y"), np.array(["train"] * 2)
    )
    assert resident_if_it_fits(features, FeatureTransform(), CPU) is None
    with pytest.raises(ConfigError, match="f holds features"):
        resident_if_it_fits(features, FeatureTransform(), CPU, resident="on")


def test_on_refuses_images_of_different_sizes_and_says_what_to_set(images):
    with pytest.raises(ConfigError, match=r"differ under fit = 'shorter' with resize = 9\. Set `canvas`"):
        resident_if_it_fits(images, ImageTransform(size=8, resize=9), CPU, resident="on")
    with pytest.raises(ConfigError, match=r"unknown value of `resident` 'yes'"):
        resident_if_it_fits(images, SQUASHED, CPU, resident="yes")


def test_an_image_that_the_transform_refuses_is_named_also_where_damaged_ones_are_skipped(images):
    with pytest.raises(DataError, match=r"a/0.jpg: a square of 99 pixels"):
        decode(images, ImageTransform(size=9, canvas=99), CPU, skip_corrupt=True)


def test_decoding_tells_how_far_it_is(images, monkeypatch):
    monkeypatch.setattr(residency, "IMAGES_AT_ONCE", 5)
    told = []
    resident = decode(images, SQUASHED, CPU, progress=told.append)
    assert told == [5, 10, 12]
    expected = torch.stack([SQUASHED.prepare(images.source.read(row)) for row in range(12)])
    assert resident.pixels.equal(expected)


def test_processes_decode_the_same_and_pass_on_the_refusal(images):
    """One test for all, since starting the processes takes seconds."""
    state = torch.get_rng_state()
    alone = decode(images, SQUASHED, CPU)
    assert decode(images, SQUASHED, CPU, workers=1).pixels.equal(alone.pixels)
    assert torch.get_rng_state().equal(state)
    path = images.source.root / images.source.paths[7]
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DataError, match=r"^image .*c/1\.jpg cannot be read"):
        decode(images, SQUASHED, CPU, workers=1)


def test_free_memory_is_some_of_it_or_unknown(monkeypatch):
    assert free_memory(CPU) > 2**20

    def refuse(name):
        raise ValueError(name)

    monkeypatch.setattr("os.sysconf", refuse)
    assert free_memory(CPU) == 0

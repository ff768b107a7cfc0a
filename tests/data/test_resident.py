"""Batches of images that stay decoded are those of image files, row for row and pixel for pixel."""

import os
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from tests.gpu import never_waiting
from tests.reading import broken, load, same

from vicinal.data import loader
from vicinal.data.folder import Folder
from vicinal.data.loader import CACHE, keep_decoded, load_all, open_cache
from vicinal.data.records import FeatureArray, ImageArray, ImageFiles, Records
from vicinal.data.transforms import FeatureTransform, ImageTransform
from vicinal.errors import ConfigError, DataError

CPU = torch.device("cpu")
RANDOM = ImageTransform(size=8, resize=11, fit="squash", pad=1, crop="random", mirror=True)
BOXES = ImageTransform(size=9, resize=12, canvas=12, crop="resized", mirror=True, area=(0.2, 1.0))
GRAY = ImageTransform(size=8, channels=1)
CAFFE = replace(BOXES, order="BGR", scale=255.0)
PLAN = [[0, 5, 3], [11, 7], [1, 2, 3, 4], []]


def decode(records, transform=RANDOM, **options):
    """The same records, with what is decoded of them."""
    again = deepcopy(records)  # which takes nothing decoded along
    keep_decoded(again, transform, CPU, **options)
    return again


def decoded(records):
    return records.source.origin(np.arange(1))[0].decoded


@pytest.fixture
def images(class_folders, write_pictures):
    """Classes a, b, c, d hold rows 0-2, 3-5, 6-8, 9-11; wide pictures, so that the canvas cuts some
    off."""
    write_pictures(*(f"{c}/{n}.jpg" for c in "abcd" for n in range(3)), size=(29, 17))
    records = Folder(str(class_folders), test=0.5, order="sorted").load()
    return replace(records, columns={"angle": np.linspace(0, 1, 12), "camera": np.arange(12)})


@pytest.fixture
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("kept") / "cache"


@pytest.fixture(params=["host", "device"])
def where(request, monkeypatch):
    """Both places where decoded images are cut, also where there is no GPU."""
    monkeypatch.setattr(loader, "cuts_there", lambda device: request.param == "device")
    return request.param


def of(source):
    return Records("m", source, np.arange(4), tuple("abcd"), np.array(["train"] * 4))


@pytest.mark.parametrize("transform", [RANDOM, BOXES, CAFFE])
@pytest.mark.parametrize("kind", ["auto", "disk"])
def test_batches_of_decoded_images_are_those_of_files(images, transform, kind, where, folder):
    there = decode(images, transform, resident=kind, cache=folder)
    assert decoded(there) is not None
    plan = [[row % 12, (5 * row + 1) % 12] for row in range(40)] + PLAN
    # Pillow itself gives the same to the last bit.
    exact = where == "host" or transform.crop == "random"
    level = transform.scale / 255 / transform.std[0]
    ours = load(there, plan, transform, seed=1, epoch=2)
    theirs = load(images, plan, transform, seed=1, epoch=2)
    same(ours, theirs, levels=0.0 if exact else 1.01 * level)
    part = np.array([5, 0, 3])
    ours, theirs = (one.part("test").take(part) for one in (there, images))
    same(load_all(ours, transform, 2), load_all(theirs, transform, 2))


def test_other_preparations_are_read(images, monkeypatch):
    there = decode(images.part("test"))
    assert len(decoded(there).pixels) == 6
    monkeypatch.setattr(ImageFiles, "read", lambda *rest: pytest.fail("read again"))
    assert len(list(load_all(there, RANDOM))) == 1
    for other in (BOXES, ImageTransform(size=14, resize=12, fit="squash", pad=1)):
        with pytest.raises(pytest.fail.Exception):
            next(load_all(there, other))


def test_an_unreadable_image_is_an_error_or_replaced_as_among_files(images, where):
    plan = [[4, 1], [3, 4], [4, 5], [3, 4, 5], [5, 3]]  # 5 comes after 4, unless it is in the batch
    name = broken(images, 4)
    with pytest.raises(DataError, match=f"{name} cannot be read"):
        decode(images)
    there = decode(images, skip_corrupt=True)
    for batches in (load(there, plan, RANDOM, seed=0, epoch=0), load_all(there, RANDOM)):
        with pytest.raises(DataError, match=f"{name} cannot be read"):
            list(batches)

    def replaced(records, plan=plan):
        return load(records, plan, RANDOM, seed=0, epoch=0, skip_corrupt=True)

    for row in (4, 5):
        broken(images, row)
        there = decode(images, skip_corrupt=True)
        same(replaced(there), replaced(images))
    same(*(load_all(one, RANDOM, 2, skip_corrupt=True) for one in (there, images)))
    broken(images, 3)
    message = r"b/0.jpg cannot be read, and no other .* 'b' .* \(2 tried\)"
    with pytest.raises(DataError, match=message):
        list(replaced(decode(images, skip_corrupt=True), [[3]]))


@pytest.mark.gpu
@pytest.mark.parametrize("transform", [RANDOM, CAFFE])
@pytest.mark.parametrize("kind", ["auto", "disk"])
def test_on_a_gpu_the_host_never_waits_and_pixels_are_the_same(images, transform, kind, folder):
    gpu = torch.device("cuda")
    there = decode(images, transform)
    keep_decoded(images, transform, gpu, resident=kind, cache=folder)
    assert decoded(images).pixels.device.type == ("cpu" if kind == "disk" else "cuda")
    read = loader.Loader(images, transform, device=gpu)
    list(read.batches(PLAN))
    with never_waiting():
        batches = list(read.batches(PLAN * 8))
    host = load(there, PLAN * 8, transform, seed=0, epoch=0)
    for ours, theirs in zip(batches, host, strict=True):
        assert ours.inputs.is_contiguous(memory_format=torch.channels_last)
        difference = (ours.inputs.cpu() - theirs.inputs).abs() * 255 / (transform.scale * 2)
        assert ours.labels.cpu().equal(theirs.labels)
        assert not difference.numel() or (difference.max() <= 3 and difference.mean() < 0.1)


# -- what is kept ---------------------------------------------------------------------------------


def test_what_fits_is_kept_and_would_be_decoded_again(images, monkeypatch, folder):
    def kept(records, transform=RANDOM, **options):
        return decoded(decode(records, transform, **options)) is not None

    free = [4 * 12 * 3 * 13 * 13]
    monkeypatch.setattr(loader, "free_memory", lambda device: free[0])
    assert kept(images)
    free[0] -= 4
    assert not kept(images)
    assert kept(images, cache=folder)
    free[0] = 10**9
    assert not kept(images, resident="off")
    assert not kept(images, ImageTransform(size=8, resize=9))
    assert not kept(of(ImageArray(np.zeros((4, 8, 8), np.uint8), list("abcd"))), GRAY)
    assert not kept(of(FeatureArray(np.ones((4, 3), np.float32), list("abcd"))), FeatureTransform())
    with pytest.raises(ConfigError, match=r"Name it in `training\.cache`"):
        decode(images, resident="disk")
    with pytest.raises(ConfigError, match=r"a/0.jpg: a square of 99 pixels"):
        decode(images, ImageTransform(size=9, canvas=99), skip_corrupt=True)


def test_processes_decode_the_same_tell_how_far_they_are_and_pass_on_the_error(images, monkeypatch):
    """One test for all, since starting the processes takes seconds."""
    told = []
    state = torch.get_rng_state()
    with monkeypatch.context() as patch:
        patch.setattr(loader, "IMAGES_AT_ONCE", 5)
        alone = decoded(decode(images, progress=told.append)).pixels
    expected = torch.stack([RANDOM.prepare(images.source.read(row)) for row in range(12)])
    assert told == [5, 10, 12] and alone.permute(0, 3, 1, 2).equal(expected)
    assert decoded(decode(images, workers=1)).pixels.equal(alone)
    assert torch.get_rng_state().equal(state)
    broken(images, 7)
    with pytest.raises(DataError, match=r"^image .*c/1\.jpg cannot be read"):
        decode(images, workers=1)


# -- the folder that keeps arrays -----------------------------------------------------------------


def pixels(records, folder=None, transform=RANDOM):
    return decoded(decode(records, transform, cache=folder)).pixels


def test_the_second_decodes_nothing_and_has_the_same_pixels(images, folder, monkeypatch):
    alone = pixels(images)
    first = pixels(images, folder)
    pixels(images, folder, replace(RANDOM, resize=12))
    pixels(images.take(np.arange(5)), folder)
    again = lambda *rest: pytest.fail("decoded again")  # noqa: E731
    monkeypatch.setattr(loader._Preparation, "__call__", again)
    assert torch.equal(alone, first) and torch.equal(pixels(images, folder), alone)
    assert len([*folder.glob("*.npy")]) == 3 and not [*folder.glob(".*.part")]


def test_a_file_replaced_by_one_of_equal_size_is_decoded_again(images, folder):
    file = images.source.root / "a" / "0.jpg"
    found = []
    for color in ("blue", "red"):
        Image.new("RGB", (24, 20), color).save(file, "BMP")
        found.append(pixels(images, folder))
    assert torch.equal(found[1], pixels(images)) and not torch.equal(*found)


def test_a_damaged_array_is_made_again(images, folder):
    whole = pixels(images, folder)
    (path,) = folder.glob("*.npy")
    os.truncate(path, path.stat().st_size - 1)
    for _ in range(2):
        assert torch.equal(pixels(images, folder), whole)
    assert np.array_equal(np.load(path), whole)


def test_what_is_not_known_by_its_files_is_not_kept(images, folder):
    class Upside(ImageFiles):
        def read(self, index):
            return super().read(index).rotate(180)

    own = replace(images, source=Upside(images.source.root, images.source.paths))
    keep_decoded(own, RANDOM, CPU, cache=folder)
    assert decoded(own) is not None and not folder.exists()


def test_the_setting_wins_over_the_environment(tmp_path, monkeypatch):
    monkeypatch.delenv(CACHE, raising=False)
    assert open_cache(None) is None
    monkeypatch.setenv(CACHE, str(tmp_path / "environment"))
    monkeypatch.setenv("VICINAL_DATA", str(tmp_path))
    assert open_cache(None) == tmp_path / "environment"
    assert open_cache("$VICINAL_DATA/setting") == tmp_path / "setting"


def test_where_an_image_cannot_be_read_nothing_is_kept(images, folder):
    broken(images, 4)
    found = decoded(decode(images, skip_corrupt=True, cache=folder))
    assert list(found.unreadable) == [4] and not [*folder.glob("*.npy")]

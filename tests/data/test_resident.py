"""Batches cut from a resident tensor are the loader's, row for row and pixel for pixel."""

import itertools
import os
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from tests.gpu import never_waiting
from tests.reading import load

from vicinal.data import resident as resident_module
from vicinal.data.augmentation import cut_resized, cut_squares
from vicinal.data.folder import Folder
from vicinal.data.loader import in_order, load_all
from vicinal.data.records import FeatureArray, ImageArray, ImageFiles, Records
from vicinal.data.resident import CACHE, free_memory, kept, open_cache, resident_if_it_fits
from vicinal.data.shards import Shards, pack
from vicinal.data.transforms import FeatureTransform, ImageTransform
from vicinal.errors import ConfigError, DataError

CPU = torch.device("cpu")
RANDOM = ImageTransform(size=8, resize=11, fit="squash", pad=1, crop="random", mirror=True)
BOXES = ImageTransform(size=9, resize=12, canvas=12, crop="resized", mirror=True, area=(0.2, 1.0))
COLORS = {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "order": "BGR", "scale": 255.0}
PLAN = [[0, 5, 3], [11, 7], [1, 2, 3, 4], []]


def cut(resident, records, plan, transform, *, seed, epoch, skip_corrupt=False):
    """Batches as ``load`` makes them."""
    return resident.batches(
        records, plan, transform, seed, epoch, "replace" if skip_corrupt else "raise"
    )


def cut_all(resident, records, transform, *, batch_size=256, skip_corrupt=False):
    """Batches as ``load_all`` makes them."""
    plan = in_order(len(records), batch_size)
    return resident.batches(
        records, plan, transform.evaluation(), 0, 0, "drop" if skip_corrupt else "raise"
    )


def decode(*arguments, **options):
    return resident_if_it_fits(*arguments, resident="on", **options)


@pytest.fixture
def images(write_pictures):
    """Classes a, b, c, d hold rows 0-2, 3-5, 6-8, 9-11; wide pictures, so that the canvas cuts some
    off."""
    root = write_pictures(
        *(f"{name}/{number}.jpg" for name in "abcd" for number in range(3)), size=(29, 17)
    )
    records = Folder(str(root), test=0.5, order="sorted").load()
    angles = {"angle": np.linspace(0, 1, 12), "camera": np.arange(12)}
    return Records(
        records.name, records.source, records.labels, records.classes, records.splits, angles
    )


def break_file(records, row):
    path = records.source.root / records.source.paths[row]
    path.write_bytes(path.read_bytes()[:100])
    return records.source.paths[row]


def same(ours, loaded, *, levels=0.0):
    """Equal batches; pixels may differ by so many of 255 levels, seldom."""
    ours, loaded = list(ours), list(loaded)
    assert len(ours) == len(loaded) > 0
    for one, other in zip(ours, loaded, strict=True):
        assert one.inputs.shape == other.inputs.shape and one.inputs.dtype == torch.float32
        difference = (one.inputs - other.inputs).abs()
        if difference.numel():
            assert difference.max() <= levels + 1e-6 and difference.mean() <= levels / 10 + 1e-6
        assert one.labels.equal(other.labels) and one.indices.equal(other.indices)
        assert one.skipped == other.skipped and one.extras.keys() == other.extras.keys()
        assert all(column.equal(other.extras[name]) for name, column in one.extras.items())


def test_random_crops_are_the_loader_s(images):
    resident = decode(images, RANDOM, CPU)
    same(
        cut(resident, images, PLAN, RANDOM, seed=3, epoch=2),
        load(images, PLAN, RANDOM, seed=3, epoch=2),
    )
    same(cut_all(resident, images, RANDOM, batch_size=5), load_all(images, RANDOM, batch_size=5))


@pytest.fixture(params=["host", "device"])
def way(request, monkeypatch):
    """Both ways of resizing, also where there is no GPU."""
    if request.param == "device":

        def cut(transform, images, rows, crops):
            resize = cut_resized if transform.crop == "resized" else cut_squares
            return resize(images, rows, crops, transform.size)

        monkeypatch.setattr(resident_module, "_cut", cut)
    return request.param


@pytest.mark.parametrize("colours", [{}, COLORS, {"erase": 0.7}])
def test_resized_crops_and_colours_are_the_loader_s_to_one_level(images, colours, way):
    transform = ImageTransform(**{**vars(BOXES), "mean": (0.0,), "std": (1.0,), **colours})
    resident = decode(images, transform, CPU)
    level = transform.scale / 255
    # A level more before the colours change may be some more after it; Pillow itself gives the same
    # to the last bit.
    levels = 0.0 if way == "host" else (3.0 if colours else 1.01) * level
    ours = cut(resident, images, PLAN, transform, seed=1, epoch=0)
    same(ours, load(images, PLAN, transform, seed=1, epoch=0), levels=levels)
    same(cut_all(resident, images, transform), load_all(images, transform))


def test_a_part_of_the_records_is_served_with_its_own_rows(images):
    resident = decode(images, RANDOM, CPU)
    part = images.part("test").take(np.array([5, 0, 3]))
    same(
        cut(resident, part, [[2, 0], [1]], RANDOM, seed=0, epoch=0),
        load(part, [[2, 0], [1]], RANDOM, seed=0, epoch=0),
    )
    half = decode(images.part("test"), RANDOM, CPU)
    assert len(half.pixels) == 6 and half.serves(part, RANDOM) and not half.serves(images, RANDOM)
    same(cut_all(half, part, RANDOM), load_all(part, RANDOM))


def test_more_batches_than_are_made_ahead_come_in_order(images):
    resident = decode(images, RANDOM, CPU)
    plan = [[row % 12, (row + 1) % 12] for row in range(40)]
    same(
        cut(resident, images, plan, RANDOM, seed=0, epoch=0),
        load(images, plan, RANDOM, seed=0, epoch=0),
    )
    endless = cut(
        resident, images, ([row % 12] for row in itertools.count()), RANDOM, seed=0, epoch=0
    )
    assert next(endless).indices.tolist() == [0]


def test_images_in_memory_may_be_grey(rng, way):
    pixels = torch.randint(0, 256, (6, 13, 10), generator=rng, dtype=torch.uint8).numpy()
    records = Records(
        "m",
        ImageArray(pixels, list("abcdef")),
        np.arange(6),
        tuple("uvwxyz"),
        np.array(["train"] * 6),
    )
    transform = ImageTransform(size=9, pad=2, crop="resized", channels=1, contrast=0.3)
    resident = decode(records, transform, CPU)
    assert resident.pixels.shape == (6, 1, 17, 14)
    assert not resident.serves(records, ImageTransform(size=15, pad=2, channels=1))
    same(
        cut(resident, records, [[2, 0, 5]], transform, seed=0, epoch=0),
        load(records, [[2, 0, 5]], transform, seed=0, epoch=0),
        levels=4 / 255,
    )


def test_an_unreadable_image_is_rejected_when_it_is_decoded(images):
    name = break_file(images, 4)
    with pytest.raises(DataError, match=f"{name} cannot be read"):
        decode(images, RANDOM, CPU)
    resident = decode(images, RANDOM, CPU, skip_corrupt=True)
    with pytest.raises(DataError, match=f"{name} cannot be read"):
        list(cut(resident, images, PLAN, RANDOM, seed=0, epoch=0))
    with pytest.raises(DataError, match=f"{name} cannot be read"):
        list(cut_all(resident, images, RANDOM))


def test_or_replaced_as_the_loader_replaces_it(images):
    plan = [[4, 1], [3, 4], [4, 5], [3, 4, 5], [5, 3]]  # 5 comes after 4, unless it is in the batch
    for row in (4, 5):
        break_file(images, row)
        resident = decode(images, RANDOM, CPU, skip_corrupt=True)
        same(
            cut(resident, images, plan, RANDOM, seed=0, epoch=0, skip_corrupt=True),
            load(images, plan, RANDOM, seed=0, epoch=0, skip_corrupt=True),
        )
    same(
        cut_all(resident, images, RANDOM, batch_size=2, skip_corrupt=True),
        load_all(images, RANDOM, batch_size=2, skip_corrupt=True),
    )
    break_file(images, 3)
    resident = decode(images, RANDOM, CPU, skip_corrupt=True)
    with pytest.raises(
        DataError, match=r"b/0.jpg cannot be read, and no other .* 'b' .* \(2 tried\)"
    ):
        list(cut(resident, images, [[3]], RANDOM, seed=0, epoch=0, skip_corrupt=True))


def test_what_is_not_there_is_rejected_at_once(images):
    resident = decode(images.part("test"), RANDOM, CPU)
    with pytest.raises(ConfigError, match="holds 6 images"):
        next(cut(resident, images, PLAN, RANDOM, seed=0, epoch=0))
    part = images.part("test")
    assert resident.serves(part, RANDOM)
    assert not resident.serves(
        Folder(str(images.source.root), order="sorted").load().part("test"), RANDOM
    )  # read anew
    for other in (
        BOXES,
        ImageTransform(size=14, resize=12, fit="squash", pad=1),
        FeatureTransform(),
    ):
        assert not resident.serves(part, other)
        with pytest.raises(ConfigError, match="Decode all records that are used"):
            next(cut_all(resident, part, other))
    with pytest.raises(ConfigError, match="`batch_size` must be at least 1"):
        next(cut_all(resident, part, RANDOM, batch_size=0))
    with pytest.raises(ConfigError, match=r"rows 0 to 6 of .*, which has 6"):
        next(cut(resident, part, [[0, 6]], RANDOM, seed=0, epoch=0))


@pytest.mark.gpu
@pytest.mark.parametrize(
    "transform",
    [
        RANDOM,
        ImageTransform(**{**vars(BOXES), **COLORS}),
        ImageTransform(**{**vars(BOXES), "erase": 0.7}),
    ],
)
@pytest.mark.parametrize("where", ["on", "disk"])
def test_on_a_gpu_the_host_never_waits_and_pixels_are_the_same(images, transform, where, tmp_path):
    options = {"resident": where, "cache": tmp_path / "cache"}
    resident = resident_if_it_fits(images, transform, torch.device("cuda"), **options)
    assert resident.pixels.device.type == ("cpu" if where == "disk" else "cuda")
    with never_waiting():
        batches = list(cut(resident, images, PLAN * 8, transform, seed=0, epoch=0))
    host = cut(decode(images, transform, CPU), images, PLAN * 8, transform, seed=0, epoch=0)
    for ours, theirs in zip(batches, host, strict=True):
        assert ours.inputs.is_contiguous(memory_format=torch.channels_last)
        difference = (ours.inputs.cpu() - theirs.inputs).abs() * 255 / (transform.scale * 2)
        assert ours.labels.cpu().equal(theirs.labels)
        assert not difference.numel() or (difference.max() <= 3 and difference.mean() < 0.1)


SQUASHED = ImageTransform(size=8, resize=9, fit="squash")


@pytest.fixture
def folders(class_folders):
    return Folder(str(class_folders), test=0.0).load()


def in_memory():
    pixels = np.zeros((4, 8, 8), dtype=np.uint8)
    return Records(
        "m", ImageArray(pixels, list("abcd")), np.arange(4), tuple("wxyz"), np.array(["train"] * 4)
    )


def test_auto_decides_by_bytes(folders, monkeypatch):
    need = 12 * 3 * 9 * 9
    monkeypatch.setattr(resident_module, "free_memory", lambda device: 4 * need)
    assert resident_if_it_fits(folders, SQUASHED, CPU) is not None
    monkeypatch.setattr(resident_module, "free_memory", lambda device: 4 * need - 4)
    assert resident_if_it_fits(folders, SQUASHED, CPU) is None
    assert resident_if_it_fits(folders, SQUASHED, CPU, resident="on") is not None
    assert resident_if_it_fits(folders, SQUASHED, CPU, resident="off") is None


def test_auto_leaves_to_the_loader_what_it_need_not_or_cannot_keep(folders):
    assert resident_if_it_fits(folders, ImageTransform(size=8, resize=9), CPU) is None
    assert resident_if_it_fits(in_memory(), ImageTransform(size=8, channels=1), CPU) is None
    features = Records(
        "f",
        FeatureArray(np.zeros((2, 3), np.float32), list("ab")),
        np.arange(2),
        ("x", "y"),
        np.array(["train"] * 2),
    )
    assert resident_if_it_fits(features, FeatureTransform(), CPU) is None
    with pytest.raises(ConfigError, match="f holds features"):
        resident_if_it_fits(features, FeatureTransform(), CPU, resident="on")


def test_on_rejects_images_of_different_sizes_and_says_what_to_set(folders):
    with pytest.raises(
        ConfigError, match=r"differ under fit = 'shorter' with resize = 9\. Set `transform.canvas`"
    ):
        resident_if_it_fits(folders, ImageTransform(size=8, resize=9), CPU, resident="on")


def test_an_image_that_the_transform_rejects_is_named_also_where_damaged_ones_are_skipped(folders):
    with pytest.raises(DataError, match=r"a/0.jpg: a square of 99 pixels"):
        decode(folders, ImageTransform(size=9, canvas=99), CPU, skip_corrupt=True)


def test_decoding_tells_how_far_it_is(folders, monkeypatch):
    monkeypatch.setattr(resident_module, "IMAGES_AT_ONCE", 5)
    told = []
    resident = decode(folders, SQUASHED, CPU, progress=told.append)
    assert told == [5, 10, 12]
    expected = torch.stack([SQUASHED.prepare(folders.source.read(row)) for row in range(12)])
    assert resident.pixels.equal(expected)


def test_processes_decode_the_same_and_pass_on_the_error(folders):
    """One test for all, since starting the processes takes seconds."""
    state = torch.get_rng_state()
    alone = decode(folders, SQUASHED, CPU)
    assert decode(folders, SQUASHED, CPU, workers=1).pixels.equal(alone.pixels)
    assert torch.get_rng_state().equal(state)
    path = folders.source.root / folders.source.paths[7]
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(DataError, match=r"^image .*c/1\.jpg cannot be read"):
        decode(folders, SQUASHED, CPU, workers=1)


def test_free_memory_is_some_of_it_or_unknown(monkeypatch):
    assert free_memory(CPU) > 2**20

    def reject(name):
        raise ValueError(name)

    monkeypatch.setattr("os.sysconf", reject)
    assert free_memory(CPU) == 0


@pytest.fixture
def pictures(tmp_path):
    rng = np.random.default_rng(0)
    for label in range(3):
        (tmp_path / "set" / f"c{label}").mkdir(parents=True)
        for number in range(4):
            pixels = rng.integers(0, 255, (20, 24, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "set" / f"c{label}" / f"{number}.png")
    return Folder(str(tmp_path / "set")).load()


TRANSFORM = ImageTransform(size=8, resize=12, canvas=12, crop="random")


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "cache"


def decoded(records, folder=None, transform=TRANSFORM):
    return decode(records, transform, CPU, workers=0, cache=folder).pixels


def arrays(folder):
    return sorted(folder.glob("*.npy"))


def test_the_second_decodes_nothing_and_has_the_same_pixels(pictures, folder, monkeypatch):
    alone, first = decoded(pictures), decoded(pictures, folder)
    monkeypatch.setattr(
        resident_module._Preparation, "__call__", lambda *rest: pytest.fail("decoded again")
    )
    assert torch.equal(alone, first) and torch.equal(decoded(pictures, folder), alone)
    assert len(arrays(folder)) == 1 and not list(folder.glob("*.part"))


@pytest.mark.parametrize(
    "transform", [RANDOM, BOXES, ImageTransform(**{**vars(BOXES), **COLORS, "channels": 3})]
)
def test_batches_cut_from_the_disk_are_those_of_memory(images, folder, transform):
    plan = [[row % 12, (5 * row + 1) % 12] for row in range(40)] + PLAN
    there, mapped = (
        resident_if_it_fits(images, transform, CPU, resident=where, cache=folder)
        for where in ("on", "disk")
    )
    assert len(arrays(folder)) == 1
    ours, theirs = (
        list(cut(one, images, plan, transform, seed=1, epoch=2)) for one in (mapped, there)
    )
    same(ours, theirs)
    assert all(
        one.inputs.stride() == other.inputs.stride()
        for one, other in zip(ours, theirs, strict=True)
    )
    part = images.part("test")
    same(cut_all(mapped, part, transform, batch_size=5), load_all(part, transform, batch_size=5))


def test_auto_keeps_on_the_disk_what_memory_cannot_hold(pictures, folder, monkeypatch):
    monkeypatch.setattr(resident_module, "free_memory", lambda device: 0)
    assert resident_if_it_fits(pictures, TRANSFORM, CPU) is None
    kept = resident_if_it_fits(pictures, TRANSFORM, CPU, cache=folder)
    assert kept.device == CPU and len(kept.pixels) == 12
    (next(path for path in (pictures.source.root).rglob("*.png"))).write_bytes(b"no image")
    assert (
        resident_if_it_fits(pictures, TRANSFORM, CPU, cache=folder, skip_corrupt=True) is None
    )  # a loader replaces it


def test_the_disk_needs_a_folder_and_files_that_can_be_told_apart(pictures, folder):
    with pytest.raises(ConfigError, match=r"Name it in `training\.cache`"):
        resident_if_it_fits(pictures, TRANSFORM, CPU, resident="disk")
    with pytest.raises(ConfigError, match=r"resident=disk` cannot tell when images of m change"):
        resident_if_it_fits(in_memory(), SQUASHED, CPU, resident="disk", cache=folder)
    source = FeatureArray(np.ones((2, 3), np.float32), ["a", "b"])
    features = Records("f", source, np.arange(2), ("a", "b"), np.array(["train"] * 2))
    with pytest.raises(ConfigError, match=r"resident=disk` keeps images, but f holds features"):
        resident_if_it_fits(features, FeatureTransform(), CPU, resident="disk", cache=folder)


def test_other_settings_and_other_rows_are_other_images(pictures, folder):
    decoded(pictures, folder)
    decoded(pictures, folder, ImageTransform(size=8, resize=16, canvas=12, crop="random"))
    decoded(pictures.take(np.arange(5)), folder)
    assert len(arrays(folder)) == 3


def test_a_changed_file_is_decoded_again(pictures, folder, tmp_path):
    file = tmp_path / "set" / "c0" / "0.png"
    Image.new("RGB", (24, 20), "blue").save(file, compress_level=0)
    before, known = decoded(pictures, folder), file.stat()
    Image.new("RGB", (24, 20), "red").save(file, compress_level=0)
    os.utime(file, ns=(known.st_atime_ns, known.st_mtime_ns))  # of equal size and time
    assert file.stat().st_size == known.st_size
    after = decoded(pictures, folder)
    assert torch.equal(after, decoded(pictures)) and not torch.equal(after, before)


@pytest.mark.parametrize("damage", ["cut", "text", "shape", "kind"])
def test_a_damaged_array_is_made_again(pictures, folder, damage):
    whole = decoded(pictures, folder)
    (path,) = arrays(folder)
    if damage == "cut":
        os.truncate(path, path.stat().st_size - 1)
    elif damage == "text":
        path.write_text("no array")
    else:
        array = np.load(path)
        np.save(path, array[1:] if damage == "shape" else array.astype(np.int8))
    for _ in range(2):
        assert torch.equal(decoded(pictures, folder), whole)
    assert np.array_equal(np.load(path).transpose(0, 3, 1, 2), whole)


def test_where_an_image_cannot_be_read_everybody_sees_for_himself(pictures, folder, tmp_path):
    (tmp_path / "set" / "c0" / "0.png").write_bytes(b"no image")
    (tmp_path / "set" / "c0" / "1.png").unlink()
    for count in (2, 1):
        for _ in range(2):
            found = decode(pictures, TRANSFORM, CPU, workers=0, skip_corrupt=True, cache=folder)
            assert len(found.unreadable) == count
        Image.new("RGB", (24, 20)).save(tmp_path / "set" / "c0" / "1.png")
    with pytest.raises(DataError, match="cannot be read"):
        decoded(pictures, folder)
    assert not arrays(folder) and not list(folder.glob("*.part"))


def test_tar_files_are_identified_by_hashes_or_times(pictures, tmp_path):
    pack(pictures, tmp_path / "packed")
    shutil.copytree(tmp_path / "packed", tmp_path / "copy")
    rows = np.array([3, 1])
    packed, copy = (Shards(str(tmp_path / name)).load().source for name in ("packed", "copy"))
    assert packed.identity(rows) == copy.identity(rows) != packed.identity(rows[::-1])
    shard = tmp_path / "copy" / "part-00000.tar"
    copy.hashes = []
    before = copy.identity(rows)
    os.utime(shard, ns=(0, 0))
    assert str(shard) in before and before != copy.identity(rows)
    shard.unlink()
    assert copy.identity(rows) is None


def test_what_is_not_known_by_its_files_is_not_kept(pictures, folder):
    class Upside(ImageFiles):
        def read(self, index):
            return super().read(index).rotate(180)

    files = pictures.source
    own = Records(
        "own", Upside(files.root, files.paths), pictures.labels, pictures.classes, pictures.splits
    )
    decoded(own, folder)
    decoded(in_memory(), folder, ImageTransform(size=8, channels=1))
    assert not folder.exists()
    assert (
        kept(None, lambda: pytest.fail("asked"), (1,), np.uint8, lambda _: pytest.fail("filled"))
        is None
    )


def test_the_folder_may_be_removed_at_any_time(folder):
    def fill(array):
        array[:] = 3
        shutil.rmtree(folder)
        return True

    assert kept(folder, lambda: "threes", (2,), np.float32, fill).tolist() == [3, 3]


def test_a_full_disk_is_an_error_before_anything_is_made(folder, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=10**9))
    with pytest.raises(
        ConfigError, match=r"needs 1\.2 GB and has 1\.0 GB free\. Name another folder"
    ):
        kept(folder, lambda: "much", (300_000_000,), np.float32, lambda _: pytest.fail("filled"))


def test_the_setting_wins_over_the_environment_and_is_expanded(tmp_path, monkeypatch):
    monkeypatch.delenv(CACHE, raising=False)
    assert open_cache(None) is None
    monkeypatch.setenv(CACHE, str(tmp_path / "environment"))
    monkeypatch.setenv("VICINAL_DATA", str(tmp_path))
    assert open_cache(None) == tmp_path / "environment"
    assert (
        open_cache("$VICINAL_DATA/setting") == tmp_path / "setting"
        and (tmp_path / "setting").is_dir()
    )


def test_a_folder_that_cannot_be_written_is_rejected(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.touch()
    for path in (file, file / "below"):
        with pytest.raises(
            ConfigError,
            match=rf"training\.cache={path} is no folder .* Name another, or leave it out",
        ):
            open_cache(str(path))

    def reject(dir):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tempfile.TemporaryFile", reject)
    monkeypatch.setenv(CACHE, str(tmp_path))
    with pytest.raises(
        ConfigError,
        match=rf"{CACHE}={tmp_path} is no folder that can be written: Permission denied",
    ):
        open_cache(None)

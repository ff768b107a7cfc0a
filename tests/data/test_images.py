"""Reading images of every kind."""

import io
import os
import shutil
import tarfile

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from PIL import ExifTags, Image, ImageOps

from vicinal.data import check, open_path
from vicinal.data.folder import Folder
from vicinal.data.records import ImageFiles
from vicinal.errors import DataError
from vicinal.files import read_image, upright


def save(path, image, **options):
    image.save(path, **options)
    return path


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "1", "CMYK", "YCbCr"])
def test_other_modes_become_rgb(mode, tmp_path):
    ending = "jpg" if mode in ("CMYK", "YCbCr") else "png"
    path = save(tmp_path / f"x.{ending}", Image.new("RGB", (6, 4), (255, 0, 0)).convert(mode))
    assert read_image(path).mode == "RGB" and read_image(path).size == (6, 4)


def test_only_whole_boxes_name_a_region(tmp_path):
    path = save(tmp_path / "x#xywh=1,2.png", Image.new("L", (6, 4)))
    assert read_image(path).size == (6, 4)
    assert read_image(f"{path}#xywh=1,1,9,2").size == (5, 2)
    with pytest.raises(DataError, match=r"missing"):
        read_image(tmp_path / "y.png#xywh=a,b,c,d")


def test_sixteen_bits_are_scaled_not_clipped(tmp_path):
    ramp = (np.arange(256, dtype=np.uint16) * 257).reshape(16, 16)
    image = read_image(save(tmp_path / "x.png", Image.fromarray(ramp)))
    assert image.mode == "L" and np.asarray(image).ravel().tolist() == list(range(256))


def test_a_palette_with_transparency_reads_without_a_warning(tmp_path):
    palette = Image.new("P", (4, 4))
    palette.putpalette([10, 20, 30, 40, 50, 60])
    path = save(tmp_path / "x.png", palette, transparency=bytes([0, 128]))
    assert read_image(path).getpixel((0, 0)) == (10, 20, 30)


def test_decimal_pixels_are_rejected(tmp_path):
    path = save(tmp_path / "x.tiff", Image.fromarray(np.zeros((4, 4), np.float32)))
    with pytest.raises(DataError, match=r"x.tiff cannot be read: its pixels are decimal numbers"):
        read_image(path)


@pytest.mark.parametrize("ending", ["JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP"])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.95])
def test_truncated_files_are_rejected_by_name(ending, share, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, ending)
    path = tmp_path / f"cut.{ending.lower()}"
    path.write_bytes(file.getvalue()[: int(share * len(file.getvalue()))])
    with pytest.raises(DataError, match=r"cut\..* cannot be read"):
        read_image(path)


def test_postscript_is_not_read_whatever_its_name(tmp_path, monkeypatch):
    """Pillow would start Ghostscript on it."""
    monkeypatch.setattr("subprocess.check_call", lambda *_, **__: pytest.fail("a program ran"))
    Image.new("RGB", (6, 4)).save(tmp_path / "x.png", "EPS")
    with pytest.raises(
        DataError, match=r"x\.png cannot be read: cannot identify .*--skip-corrupt elsewhere"
    ):
        read_image(tmp_path / "x.png")


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("ending", ["png", "webp", "tiff"])
def test_a_photograph_is_read_upright_however_the_camera_was_held(orientation, ending, tmp_path):
    pixels = np.random.default_rng(orientation).integers(0, 256, (4, 6, 3), dtype=np.uint8)
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    options = {"lossless": True} if ending == "webp" else {}
    path = save(tmp_path / f"x.{ending}", Image.fromarray(pixels), exif=exif, **options)
    with Image.open(path) as image:
        expected = np.asarray(ImageOps.exif_transpose(image))
    found = read_image(path)
    assert_array_equal(np.asarray(found), expected)
    assert_array_equal(np.asarray(upright(found)), expected)  # and is not turned again


@pytest.mark.parametrize("size", [(20_000, 1), (1, 20_000), (40, 40)])
def test_pictures_too_long_or_large_are_rejected_before_they_are_decoded(
    size, tmp_path, monkeypatch
):
    path = save(tmp_path / "x.png", Image.new("L", size))
    with tarfile.open(tmp_path / "set.tar", "w") as archive:
        archive.add(folder_of(path))
    sources = [open_path(tmp_path / name).load().source for name in ("set", "set.tar")]
    monkeypatch.setattr("vicinal.files.MOST_PIXELS", 1500)
    monkeypatch.setattr(Image.Image, "resize", lambda *_: pytest.fail("resized"))
    for read in (lambda: read_image(path), lambda: sources[0].read(0), lambda: sources[1].read(0)):
        with pytest.raises(DataError, match=rf"{size[0]:,} x {size[1]:,} pixels"):
            read()
    assert len(check(Folder(str(tmp_path / "set"))).findings["unusable"]) == 2


def folder_of(path):
    for name in "ab":
        (path.parent / "set" / name).mkdir(parents=True)
        shutil.copy(path, path.parent / "set" / name / "x.png")
    return path.parent / "set"


def test_only_regular_files_are_read(tmp_path):
    os.mkfifo(tmp_path / "pipe.png")  # nobody writes into it: reading would wait forever
    for path in (tmp_path / "pipe.png", tmp_path):
        with pytest.raises(DataError, match=r"cannot be read: .* is not a regular file"):
            read_image(path)
        with pytest.raises(DataError, match="not a regular file"):
            ImageFiles(tmp_path, [str(path)]).content(0)


def test_a_heic_file_is_read(tmp_path):
    heif = pytest.importorskip("pillow_heif", exc_type=ImportError)
    pixels = np.zeros((48, 80, 3), np.uint8)
    pixels[:, :20, 0] = 255
    path = tmp_path / "set/a/IMG_0001.HEIC"
    path.parent.mkdir(parents=True)
    heif.from_pillow(Image.fromarray(pixels)).save(path, quality=95)
    for found in (read_image(path), Folder(str(tmp_path / "set"), test=0.0).load().source.read(0)):
        assert found.mode == "RGB" and found.size == (80, 48)
        assert np.abs(np.asarray(found)[:, [5, 60]].astype(int) - pixels[:, [5, 60]]).max() < 12
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataError, match=r"IMG_0001\.HEIC cannot be read"):
        read_image(path)

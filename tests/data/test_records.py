"""Records, their sources, and reading images of every kind."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from vicinal.data.records import Batch, FeatureArray, ImageArray, ImageFiles, Records, Taken, read_image
from vicinal.errors import DataError


def save(path, image, **options):
    image.save(path, **options)
    return path


def test_taking_parts_of_parts_stays_one_deep():
    source = FeatureArray(np.arange(10.0)[:, None], [str(row) for row in range(10)])
    records = Records("r", source, np.arange(10) % 2, ("even", "odd"), np.array(["train", "test"] * 5))
    part = records.part("test").take(np.array([4, 0]))
    assert isinstance(part.source, Taken) and part.source.source is source
    assert [part.source.name(row) for row in range(2)] == ["9", "1"]
    assert part.source.read(0).tolist() == [9.0] and part.labels.tolist() == [1, 1]
    origin, positions = part.source.origin(np.array([1]))
    assert origin is source and positions.tolist() == [1]


def test_a_vector_that_was_read_is_a_copy():
    source = FeatureArray(np.zeros((2, 2), np.float32), ["a", "b"])
    source.read(0)[:] = 1
    assert not source.features.any()


def test_unequal_columns_and_unknown_labels_are_refused():
    source = FeatureArray(np.zeros((2, 1)), ["a", "b"])
    with pytest.raises(DataError, match=r"differ in length: .*'labels': 3"):
        Records("r", source, np.zeros(3, int), ("a",), np.array(["train"] * 2))
    with pytest.raises(DataError, match="run from 0 to 1, but there are 1 classes"):
        Records("r", source, np.array([0, 1]), ("a",), np.array(["train"] * 2))
    with pytest.raises(DataError, match="unknown split 'tset'; did you mean 'test'"):
        Records("r", source, np.zeros(2, int), ("a",), np.array(["train"] * 2)).part("tset")


def test_arrays_of_the_wrong_kind_are_refused():
    with pytest.raises(DataError, match="uint8"):
        ImageArray(np.zeros((2, 4, 4)), ["a", "b"])
    with pytest.raises(DataError, match=r"float array \[n d\]"):
        FeatureArray(np.zeros(3), ["a"] * 3)


def test_the_fingerprint_sees_names_classes_and_splits():
    source = FeatureArray(np.zeros((2, 1)), ["a", "b"])
    base = Records("r", source, np.array([0, 1]), ("x", "y"), np.array(["train", "test"]))
    others = [
        Records("r", source, np.array([1, 0]), ("x", "y"), np.array(["train", "test"])),
        Records("r", source, np.array([0, 1]), ("x", "y"), np.array(["test", "train"])),
        Records("r", FeatureArray(np.zeros((2, 1)), ["a", "c"]), np.array([0, 1]), ("x", "y"), base.splits),
    ]
    assert len({records.fingerprint() for records in [base, *others]}) == 4


def test_a_batch_moves_to_a_device_with_its_extras():
    batch = Batch(torch.zeros(2, 3), torch.zeros(2, dtype=torch.int64), torch.arange(2), {"angle": torch.ones(2)}, (7,))
    moved = batch.to(torch.device("meta"))
    assert moved.inputs.is_meta and moved.extras["angle"].is_meta and moved.skipped == (7,)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "1", "CMYK", "YCbCr"])
def test_other_modes_become_rgb(mode, tmp_path):
    ending = "jpg" if mode in ("CMYK", "YCbCr") else "png"
    path = save(tmp_path / f"x.{ending}", Image.new("RGB", (6, 4), (255, 0, 0)).convert(mode))
    assert read_image(path).mode == "RGB" and read_image(path).size == (6, 4)


def test_sixteen_bits_are_scaled_not_clipped(tmp_path):
    ramp = (np.arange(256, dtype=np.uint16) * 257).reshape(16, 16)
    image = read_image(save(tmp_path / "x.png", Image.fromarray(ramp)))
    assert image.mode == "L" and np.asarray(image).ravel().tolist() == list(range(256))


def test_a_palette_with_transparency_reads_without_a_warning(tmp_path):
    palette = Image.new("P", (4, 4))
    palette.putpalette([10, 20, 30, 40, 50, 60])
    path = save(tmp_path / "x.png", palette, transparency=bytes([0, 128]))
    assert read_image(path).getpixel((0, 0)) == (10, 20, 30)


def test_decimal_pixels_are_refused(tmp_path):
    path = save(tmp_path / "x.tiff", Image.fromarray(np.zeros((4, 4), np.float32)))
    with pytest.raises(DataError, match=r"x.tiff cannot be read: its pixels are decimal numbers"):
        read_image(path)


@pytest.mark.parametrize("ending", ["JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP"])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.95])
def test_truncated_files_are_refused_by_name(ending, share, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, ending)
    path = tmp_path / f"cut.{ending.lower()}"
    path.write_bytes(file.getvalue()[: int(share * len(file.getvalue()))])
    with pytest.raises(DataError, match=r"cut\..* cannot be read"):
        read_image(path)


def test_a_missing_file_and_a_folder_are_refused_by_name(tmp_path):
    with pytest.raises(DataError, match=r"gone.png is missing"):
        ImageFiles(tmp_path, ["gone.png"]).read(0)
    with pytest.raises(DataError, match="cannot be read"):
        read_image(tmp_path)

"""Data packed here, carried, and read or unpacked there."""

import numpy as np
import pytest
from PIL import Image

from vicinal.data import Folder, Packed


@pytest.fixture
def pictures(tmp_path):
    """Four classes of three pictures, in ``tmp_path / "pictures"``."""
    rng = np.random.default_rng(0)
    for name in "abcd":
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for number in range(3):
            pixels = rng.integers(0, 256, (20, 30, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "pictures" / name / f"{number}.png")
    return tmp_path / "pictures"


def test_a_folder_is_packed_and_unpacked_byte_for_byte(pictures, vicinal, tmp_path):
    done = vicinal("data", "pack", "pictures", "packed")
    assert done.returncode == 0, done.stderr
    assert (
        "12 images of pictures: 3 files" in done.stdout
        and "vicinal train --data packed/" in done.stdout
    )
    done = vicinal("data", "unpack", "packed", "out")
    assert done.returncode == 0 and "12 images of pictures: in out" in done.stdout
    for path in pictures.rglob("*.png"):
        assert (tmp_path / "out" / path.relative_to(pictures)).read_bytes() == path.read_bytes()
    assert vicinal("data", "check", "out/records.csv").returncode == 0


def test_a_packed_set_is_data_for_every_command(pictures, vicinal):
    vicinal("data", "pack", "pictures", "packed")
    done = vicinal("data", "check", "packed")
    assert done.returncode == 0 and "pictures: 12 images of 4 classes" in done.stdout


@pytest.mark.parametrize(
    ("options", "size", "mode"),
    [
        (["--resize", "8"], (12, 8), "RGB"),
        (["--resize", "8", "--squash"], (8, 8), "RGB"),
        (["--resize", "10", "--canvas", "8", "--gray"], (8, 8), "L"),
        (["--canvas", "16", "--quality", "50"], (16, 16), "RGB"),
    ],
)
def test_images_are_made_smaller_on_request(options, size, mode, pictures, vicinal, tmp_path):
    done = vicinal("data", "pack", "pictures", "packed", *options)
    assert done.returncode == 0, done.stderr
    image = Packed(str(tmp_path / "packed")).load().source.read(0)
    assert image.size == size and image.mode == mode


def test_parts_are_as_small_as_asked_for(vicinal, tmp_path):
    rng = np.random.default_rng(0)
    for number in range(4):  # noise: 0.7 MB each as PNG
        (tmp_path / "noise" / str(number)).mkdir(parents=True)
        pixels = rng.integers(0, 256, (480, 480, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "noise" / str(number) / "x.png")
    vicinal("data", "pack", "noise", "packed", "--part-megabytes", "1")
    parts = list((tmp_path / "packed").glob("part-*.tar"))
    assert len(parts) == 4 and max(part.stat().st_size for part in parts) <= 10**6
    assert (
        Packed(str(tmp_path / "packed")).load().fingerprint()
        == Folder(str(tmp_path / "noise")).load().fingerprint()
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pack", "nowhere", "packed"], "nowhere does not exist"),
        (["pack", "pictures", "packed", "--quality", "50"], "need --resize or --canvas"),
        (["pack", "pictures", "packed", "--gray", "--squash"], "need --resize or --canvas"),
        (["pack", "pictures", "packed", "--canvas", "8", "--squash"], "--squash needs --resize"),
        (
            ["pack", "pictures", "packed", "--resize", "8", "--canvas", "9"],
            "larger than the resized image",
        ),
        (["unpack", "pictures", "out"], "no packed.json"),
        (["unpack", "nowhere", "out"], "nowhere does not exist"),
    ],
)
def test_a_error_is_one_message_not_a_traceback(words, message, pictures, vicinal, tmp_path):
    done = vicinal("data", *words)
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "packed").exists() and not (tmp_path / "out").exists()


def test_unpacking_touches_nothing_that_is_there(pictures, vicinal):
    vicinal("data", "pack", "pictures", "packed")
    done = vicinal("data", "unpack", "packed", "pictures", "--by-class")
    assert done.returncode == 2 and "not empty" in done.stderr
    assert vicinal("data", "unpack", "packed", "out", "--by-class").returncode == 0

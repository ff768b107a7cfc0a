"""Data packed here, carried, and read there."""

import numpy as np
import pytest
from PIL import Image

from vicinal.data import Folder, Shards


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


def test_a_packed_folder_is_data_for_every_command(pictures, vicinal, tmp_path):
    done = vicinal("data", "pack", "pictures", "packed")
    assert done.returncode == 0, done.stderr
    assert "12 images of pictures: 2 files" in done.stdout
    assert "vicinal train --data packed/" in done.stdout
    packed = Shards(str(tmp_path / "packed")).load()
    assert packed.fingerprint() == Folder(str(pictures)).load().fingerprint()
    done = vicinal("data", "check", "packed")
    assert done.returncode == 0 and "pictures: 12 images of 4 classes" in done.stdout


@pytest.mark.parametrize(
    ("options", "size"),
    [
        (["--resize", "8"], (12, 8)),
        (["--resize", "10", "--canvas", "8"], (8, 8)),
        (["--canvas", "16", "--quality", "50"], (16, 16)),
    ],
)
def test_images_are_made_smaller_on_request(options, size, pictures, vicinal, tmp_path):
    done = vicinal("data", "pack", "pictures", "packed", *options)
    assert done.returncode == 0, done.stderr
    assert Shards(str(tmp_path / "packed")).load().source.read(0).size == size


def test_shards_are_as_small_as_asked_for(vicinal, tmp_path):
    rng = np.random.default_rng(0)
    for number in range(4):  # noise: 0.7 MB each as PNG
        (tmp_path / "noise" / str(number)).mkdir(parents=True)
        pixels = rng.integers(0, 256, (480, 480, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "noise" / str(number) / "x.png")
    vicinal("data", "pack", "noise", "packed", "--part-megabytes", "1")
    shards = list((tmp_path / "packed").glob("*.tar"))
    assert len(shards) == 4 and max(shard.stat().st_size for shard in shards) <= 10**6


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pack", "nowhere", "packed"], "nowhere does not exist"),
        (["pack", "pictures", "packed", "--quality", "50"], "needs --resize or --canvas"),
        (
            ["pack", "pictures", "packed", "--resize", "8", "--canvas", "9"],
            "larger than the resized",
        ),
    ],
)
def test_a_error_is_one_message_not_a_traceback(words, message, pictures, vicinal, tmp_path):
    done = vicinal("data", *words)
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "packed").exists()

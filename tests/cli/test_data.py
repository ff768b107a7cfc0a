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
    assert "12 images of pictures: 1 files" in done.stdout
    assert "vicinal train --data packed/" in done.stdout
    packed = Shards(str(tmp_path / "packed")).load()
    assert packed.fingerprint() == Folder(str(pictures)).load().fingerprint()
    done = vicinal("data", "check", "packed")
    assert done.returncode == 0 and "packed: 12 images of 4 classes" in done.stdout


def test_images_are_made_smaller_on_request(pictures, vicinal, tmp_path):
    done = vicinal("data", "pack", "pictures", "packed", "--resize", "8")
    assert done.returncode == 0, done.stderr
    assert Shards(str(tmp_path / "packed")).load().source.read(0).size == (12, 8)


def test_an_error_is_one_message_not_a_traceback(vicinal, tmp_path):
    done = vicinal("data", "pack", "nowhere", "packed")
    assert done.returncode == 2 and "nowhere does not exist" in done.stderr
    assert "Traceback" not in done.stderr and not (tmp_path / "packed").exists()

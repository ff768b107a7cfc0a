"""Data packed here, carried, and read there."""

import pytest

from vicinal.data import Folder, Shards


@pytest.fixture
def pictures(paint):
    return paint("abcd", 3)


def test_a_packed_folder_is_data_for_every_command(pictures, tmp_path, works):
    done = works("data", "pack", "pictures", "packed")
    assert "12 images of pictures: 1 files" in done.stdout
    assert "vicinal train --data packed/" in done.stdout
    packed = Shards(str(tmp_path / "packed")).load()
    assert packed.fingerprint() == Folder(str(pictures)).load().fingerprint()
    done = works("data", "check", "packed")
    assert "packed: 12 images of 4 classes" in done.stdout
    works("data", "pack", "pictures", "small", "--resize", "8")
    assert Shards(str(tmp_path / "small")).load().source.read(0).size == (9, 8)


def test_an_error_is_one_message_not_a_traceback(vicinal, tmp_path):
    done = vicinal("data", "pack", "nowhere", "packed")
    assert done.returncode == 2 and "nowhere does not exist" in done.stderr
    assert "Traceback" not in done.stderr and not (tmp_path / "packed").exists()

"""Data packed here, carried, and read there."""

import tarfile

from vicinal.data import Shards


def test_a_tar_of_class_folders_is_data_for_every_command(paint, tmp_path, works):
    with tarfile.open(tmp_path / "birds.tar", "w") as archive:
        archive.add(paint("abcd", 3), "birds")
    done = works("data check birds.tar")
    assert "birds: 12 images of 4 classes" in done.stdout
    assert len(Shards(str(tmp_path / "birds.tar")).load()) == 12


def test_an_error_is_one_message_not_a_traceback(vicinal):
    done = vicinal("data check nowhere")
    assert done.returncode == 2 and "nowhere does not exist" in done.stderr
    assert "Traceback" not in done.stderr

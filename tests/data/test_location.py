"""Where data lies, and arrays in the user's cache."""

from pathlib import Path

import numpy as np
import pytest

from vicinal.data import folder
from vicinal.data.folder import cache_folder, existing, expanded
from vicinal.errors import DataError


@pytest.mark.parametrize("path", ["$VICINAL_DATA/features/x.npz", "${VICINAL_DATA}/features/x.npz"])
def test_a_path_may_start_from_the_root(path, monkeypatch, tmp_path):
    monkeypatch.setenv("VICINAL_DATA", str(tmp_path))
    assert expanded(path) == tmp_path / "features" / "x.npz"


def test_other_paths_stay_as_they_are(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert expanded("a/$VICINAL_DATA") == Path("a/$VICINAL_DATA")
    assert expanded("$VICINAL_DATABASE/x") == Path("$VICINAL_DATABASE/x")
    assert expanded("~/x") == tmp_path / "x"


def test_what_is_not_there_is_rejected_with_the_place_that_was_meant(monkeypatch, tmp_path):
    monkeypatch.setenv("VICINAL_DATA", str(tmp_path))
    with pytest.raises(
        DataError, match=rf"\$VICINAL_DATA/x: {tmp_path}/x does not exist. Check the path"
    ):
        existing("$VICINAL_DATA/x")
    monkeypatch.delenv("VICINAL_DATA")
    with pytest.raises(DataError, match="Set VICINAL_DATA to the folder of data sets"):
        existing("$VICINAL_DATA/no such thing")


def test_the_cache_follows_the_desktop_convention(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "vicinal"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "vicinal"


@pytest.fixture
def made(monkeypatch, tmp_path):
    """A maker that counts how often it is asked, and a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    calls = []

    def make():
        calls.append(True)
        return {"x": np.arange(3)}

    def ask():
        assert folder.cached("numbers", make)["x"].tolist() == [0, 1, 2]
        return len(calls)

    return ask


def test_what_was_made_once_is_read_again(made):
    assert [made(), made(), made()] == [1, 1, 1]


@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_a_damaged_file_is_made_anew(damage, made, tmp_path):
    made()
    path = tmp_path / "vicinal" / "numbers.npz"
    whole = path.read_bytes()
    if damage == "cut":
        path.write_bytes(whole[: len(whole) // 2])
    else:
        path.write_bytes(whole[:80] + bytes(255 - byte for byte in whole[80:100]) + whole[100:])
    assert [made(), made()] == [2, 2]


def test_a_cache_that_cannot_be_written_is_done_without(made, tmp_path, monkeypatch):
    (tmp_path / "vicinal").write_text("a file where the folder should be")
    assert [made(), made()] == [1, 2]

"""Arrays in the user's cache."""

import numpy as np
import pytest

from vicinal.data import cache, location


@pytest.fixture
def made(monkeypatch, tmp_path):
    """A maker that counts how often it is asked, and a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    calls = []

    def ask(size=3):
        def make():
            calls.append(size)
            return {"x": np.arange(size)}

        arrays = cache.cached("numbers", make, lambda kept: kept["x"].shape == (size,))
        assert arrays["x"].tolist() == list(range(size))
        return len(calls)

    return ask


def test_what_was_made_once_is_read_again(made):
    assert [made(), made(), made()] == [1, 1, 1]


def test_what_does_not_fit_is_made_anew(made):
    assert [made(3), made(4), made(4)] == [1, 2, 2]


@pytest.mark.parametrize("damage", ["cut", "flipped", "other"])
def test_a_damaged_file_is_made_anew(damage, made, tmp_path):
    made()
    path = tmp_path / "vicinal" / "numbers.npz"
    whole = path.read_bytes()
    if damage == "cut":
        path.write_bytes(whole[: len(whole) // 2])
    elif damage == "flipped":
        path.write_bytes(whole[:80] + bytes(255 - byte for byte in whole[80:100]) + whole[100:])
    else:
        np.savez(path, y=np.zeros(1))
    assert [made(), made()] == [2, 2]


def test_a_cache_that_cannot_be_written_is_done_without(made, tmp_path, monkeypatch):
    (tmp_path / "vicinal").write_text("a file where the folder should be")
    assert [made(), made()] == [1, 2]


def test_a_user_without_a_home_has_none(made, monkeypatch):
    monkeypatch.setattr(cache, "cache_folder", lambda: None)
    assert location.cache_folder() is not None
    assert [made(), made()] == [1, 2]

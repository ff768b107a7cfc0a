"""The embedded set: what it holds, that a seed fixes it, and its cache."""

import os

import numpy as np
import pytest

from vicinal.data import DATASETS, alphabet
from vicinal.data.glyphs import Glyphs
from vicinal.data.splits import overlapping_classes
from vicinal.description import build, describe
from vicinal.errors import ConfigError


@pytest.fixture(scope="module")
def records(tmp_path_factory, codes, drawings):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alphabet, "plain_drawings", lambda wanted: drawings)
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        rendered, cached = Glyphs().load(), Glyphs().load()
    assert (rendered.source.pixels == cached.source.pixels).all()
    assert rendered.fingerprint() == cached.fingerprint()
    return rendered


@pytest.fixture
def counted(monkeypatch, tmp_path):
    """A cheap rendering that counts how often it is asked for, and a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    calls = []

    def render(self):
        calls.append(self)
        return {
            "pixels": np.full((2 * self.per_class, 8, 8), self.seed, dtype=np.uint8),
            "names": np.array([f"name {row}" for row in range(2 * self.per_class)]),
            "classes": np.array(["A · Α", "B"]),
        }

    monkeypatch.setattr(Glyphs, "render", render)
    return calls


def test_several_hundred_classes_with_enough_renderings_each(records):
    assert len(records.classes) >= 400
    assert np.bincount(records.labels).tolist() == [24] * len(records.classes)
    assert records.source.pixels.shape == (len(records), 32, 32)
    assert "A · Α · А" in records.classes


def test_half_of_the_classes_are_for_testing_and_none_is_in_both(records):
    assert not overlapping_classes(records)
    assert len(np.unique(records.part("test").labels)) == pytest.approx(len(records.classes) / 2, abs=1)
    assert not (records.splits == "validation").any()


def test_every_rendering_shows_something_and_has_a_name_of_its_own(records):
    assert (records.source.pixels.max(axis=(1, 2)) > 100).all()
    names = [records.source.name(row) for row in range(len(records))]
    assert len(set(names)) == len(names)
    first = records.classes[records.labels[0]].split(" · ")
    assert names[0].startswith("U+") and chr(int(names[0].split()[0][2:], 16)) in first
    assert {name.split()[1] for name in names[:24]} <= set(alphabet.FONTS)


def test_raw_pixels_find_some_of_the_unseen_characters_but_not_most(records):
    """The room that learning has: raw pixels near 0.46, where a small trained network passes 0.9."""
    vectors = records.source.pixels[records.splits == "test"].reshape(-1, 32 * 32).astype(np.float32)
    labels = records.labels[records.splits == "test"]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    queries = np.arange(0, len(vectors), 4)
    similarity = vectors[queries] @ vectors.T
    similarity[np.arange(len(queries)), queries] = -1
    assert 0.35 < (labels[similarity.argmax(axis=1)] == labels[queries]).mean() < 0.6


def test_another_seed_gives_other_images_and_another_split(counted):
    first, again, second = Glyphs(seed=1).load(), Glyphs(seed=1).load(), Glyphs(seed=2).load()
    assert (first.source.pixels == again.source.pixels).all() and (first.source.pixels != second.source.pixels).all()
    assert len(counted) == 2


def test_the_split_is_no_part_of_the_cache(counted):
    Glyphs(test=0.5).load()
    assert (Glyphs(test=1.0).load().splits == "test").all()
    assert len(counted) == 1


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04 not really", None])
def test_a_damaged_cache_is_rendered_anew(damage, counted, tmp_path):
    Glyphs().load()
    (file,) = (tmp_path / "vicinal").iterdir()
    file.write_bytes(file.read_bytes()[:-40] if damage is None else damage)
    Glyphs().load()
    assert len(counted) == 2
    Glyphs().load()
    assert len(counted) == 2  # and was mended


def test_a_cache_of_another_shape_is_rendered_anew(counted, tmp_path):
    Glyphs().load()
    (file,) = (tmp_path / "vicinal").iterdir()
    np.savez(file, pixels=np.zeros((3, 8, 8), np.uint8), names=np.array(["a"]), classes=np.array(["b"]))
    Glyphs().load()
    np.savez(file, pixels=np.zeros((3, 8, 8), np.uint8))
    Glyphs().load()
    assert len(counted) == 3


def test_an_unwritable_cache_costs_time_and_nothing_else(counted, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("a file where a folder should be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert len(Glyphs().load()) == len(Glyphs().load()) == 48
    assert len(counted) == 2


def test_nothing_is_left_beside_the_cache(counted, tmp_path):
    Glyphs().load()
    assert [name for name in os.listdir(tmp_path / "vicinal") if not name.startswith("glyphs-")] == []


@pytest.mark.parametrize("settings", [{"per_class": 1}, {"size": 4}])
def test_settings_that_cannot_work_are_refused(settings):
    with pytest.raises(ConfigError, match="at least 2 renderings"):
        Glyphs(**settings)


def test_the_set_is_rebuilt_from_its_description():
    assert build(describe(Glyphs(seed=3, size=28)), DATASETS) == Glyphs(seed=3, size=28)

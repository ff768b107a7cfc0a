"""Omniglot across drawers: who asks, who answers, and how far the answers are turned."""

import io
from zipfile import ZipFile

import numpy as np
import pytest
from PIL import Image

from vicinal.data import DATASETS, OmniglotPairs, omniglot
from vicinal.data.published import Part
from vicinal.data.records import GALLERY, QUERY
from vicinal.data.splits import hold_out, kin_of, overlapping_classes
from vicinal.description import build, describe
from vicinal.errors import ConfigError


def drawing() -> bytes:
    """A thick stroke from the centre to the right, on white."""
    pixels = np.full((105, 105), 255, dtype=np.uint8)
    pixels[48:57, 52:100] = 0
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def root(tmp_path, monkeypatch):
    """Two characters to train on and two to test on, by twenty drawers who draw alike."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(
        omniglot, "_PUBLISHED", {"train": Part(images=40, classes=2), "test": Part(images=40, classes=2)}
    )
    for archive, alphabet in (("images_background", "Latin"), ("images_evaluation", "Ge'ez")):
        with ZipFile(tmp_path / f"{archive}.zip", "w") as file:
            for character in (1, 2):
                for drawer in range(1, 21):
                    member = f"{alphabet}/character{character:02d}/{character:04d}_{drawer:02d}.png"
                    file.writestr(f"{archive}/{member}", drawing())
    return str(tmp_path)


def direction(pixels: np.ndarray) -> float:
    """Where the stroke points, in degrees counter-clockwise from the right."""
    ink = 255.0 - pixels
    rows, columns = np.indices(pixels.shape)
    centre = (np.array(pixels.shape) - 1) / 2
    up, right = ((centre[0] - rows) * ink).sum(), ((columns - centre[1]) * ink).sum()
    return float(np.degrees(np.arctan2(up, right)) % 360)


def test_ten_drawers_ask_and_ten_answer(root):
    records = OmniglotPairs(root).load()
    assert records.name == "Omniglot pairs"
    train, test = records.part("train"), records.part("test")
    for part, answers in ((train, 10), (test, 1)):
        for label in np.unique(part.labels):
            mine = part.labels == label
            assert (part.columns["role"][mine] == QUERY).sum() == 10
            assert (part.columns["role"][mine] == GALLERY).sum() == answers
    assert not overlapping_classes(records)
    assert set(train.columns["alphabet"]).isdisjoint(test.columns["alphabet"])
    drawers = records.columns["drawer"]
    assert ((drawers <= 10) == (records.columns["role"] == QUERY)).all()


def test_queries_are_upright_and_answers_are_turned_by_their_angle(root):
    records = OmniglotPairs(root, size=48).load()
    angle = records.columns["angle"]
    assert (angle[records.columns["role"] == QUERY] == 0).all()
    assert len(set(angle[records.columns["role"] == GALLERY])) == (records.columns["role"] == GALLERY).sum()
    for row in range(len(records)):
        pixels = np.asarray(records.source.read(row))
        assert pixels.shape == (48, 48)
        off = (direction(pixels) - angle[row] + 180) % 360 - 180
        assert abs(off) < 3


def test_angles_follow_from_the_seed_and_not_from_the_size_of_the_gallery(root):
    one, all_ten, other = (OmniglotPairs(root, **more).load() for more in ({}, {"galleries": 10}, {"seed": 1}))
    names = {all_ten.source.name(row): all_ten.columns["angle"][row] for row in range(len(all_ten))}
    assert len(all_ten) == 80 and len(one) == 62
    assert [names[one.source.name(row)] for row in range(len(one))] == one.columns["angle"].tolist()
    assert (other.columns["angle"] != one.columns["angle"]).sum() == 22


def test_is_described_and_rebuilt_and_checks_its_settings(root):
    assert build(describe(OmniglotPairs(root, size=28)), DATASETS) == OmniglotPairs(root, size=28)
    with pytest.raises(ConfigError, match="galleries = 11"):
        OmniglotPairs(root, galleries=11)


def test_a_check_reads_the_archives_themselves(root):
    records = OmniglotPairs(root).load(strict=False)
    assert len(records) == 62 and records.source.read(0).size == (105, 105)


def test_the_kin_of_a_character_is_its_alphabet(root):
    records = OmniglotPairs(root).load()
    assert np.array_equal(kin_of(records), records.columns["alphabet"]) and len(np.unique(kin_of(records))) == 2


@pytest.mark.data
def test_the_published_archives(data_root):
    records = OmniglotPairs(str(data_root / "omniglot")).load()
    assert len(records.part("train")) == 19_280
    held = hold_out(records, 0.2, 0)
    alphabets = {split: set(held.part(split).columns["alphabet"].tolist()) for split in ("train", "validation", "test")}
    assert [len(found) for found in alphabets.values()] == [24, 6, 20] and len(set.union(*alphabets.values())) == 50
    roles = records.part("test").columns["role"]
    assert (roles == QUERY).sum() == 6_590 and (roles == GALLERY).sum() == 659

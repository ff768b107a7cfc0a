"""Omniglot by character and across drawers."""

import io
from zipfile import ZipFile

import numpy as np
import pytest
from PIL import Image

from vicinal.data import ImageTransform, Omniglot, OmniglotPairs, open_path, published
from vicinal.data.records import GALLERY, QUERY, SPLITS
from vicinal.data.splits import hold_out, kin_of, overlapping_classes
from vicinal.errors import DataError

BACKGROUND = [f"Latin/character{c:02d}/{c:04d}_{d:02d}.png" for c in (2, 1) for d in (2, 1)]
EVALUATION = [
    f"{alphabet}/character01/0{c}_{d:02d}.png"
    for c, alphabet in enumerate(("Ge'ez_(x)", "Atlantean"))
    for d in (1, 12)
]


def noise(seed):
    """1 bit, mostly white."""
    few = np.random.default_rng(seed).random((21, 21)) < 0.8
    return np.kron(few, np.ones((5, 5), dtype=bool))


def stroke(seed):
    """A thick stroke from the center to the right, on white."""
    pixels = np.full((105, 105), 255, dtype=np.uint8)
    pixels[48:57, 52:100] = 0
    return pixels


def png(pixels):
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def write_archive(path, members, drawn=noise):
    with ZipFile(path, "w") as archive:
        archive.writestr(f"{path.stem}/", b"")
        archive.writestr(f"__MACOSX/{path.stem}/._x.png", b"not a drawing")
        for seed, member in enumerate(members):
            archive.writestr(f"{path.stem}/{member}", png(drawn(seed + 10 * len(path.stem))))


@pytest.fixture
def lay(tmp_path, monkeypatch):
    """Write archives of two characters to train on and two to test on; a cache of its own."""

    def make(background, evaluation, drawn=noise):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        counts = {"train": (len(background), 2), "test": (len(evaluation), 2)}
        monkeypatch.setattr(Omniglot, "counts", counts)
        write_archive(tmp_path / "images_background.zip", background, drawn)
        write_archive(tmp_path / "images_evaluation.zip", evaluation, drawn)
        return tmp_path

    return make


@pytest.fixture
def root(lay):
    return lay(BACKGROUND, EVALUATION)


@pytest.fixture
def pairs(lay):
    """Drawings of twenty drawers who draw alike."""
    every = [f"character{c:02d}/{c:04d}_{d:02d}.png" for c in (1, 2) for d in range(1, 21)]
    root = lay(*([f"{name}/{each}" for each in every] for name in ("Latin", "Ge'ez")), stroke)
    return OmniglotPairs(str(root), size=48).load()


def test_rows_are_sorted_with_the_background_first(root):
    assert open_path(root) == Omniglot(str(root))
    records = Omniglot(str(root)).load()
    latin = [f"Latin/character0{number}" for number in (1, 2)]
    assert records.name == "Omniglot"
    assert records.classes == (*latin, "Atlantean/character01", "Ge'ez_(x)/character01")
    assert records.labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert records.splits.tolist() == ["train"] * 4 + ["test"] * 4
    assert records.columns["drawer"].tolist() == [1, 2, 1, 2, 1, 12, 1, 12]
    assert records.columns["alphabet"].tolist() == [0, 0, 0, 0, 1, 1, 2, 2]
    assert records.source.name(0) == "images_background/Latin/character01/0001_01.png"


@pytest.mark.parametrize("size", [28, 64])
def test_reducing_here_or_in_the_transform_gives_the_same_pixels(size, root):
    transform = ImageTransform(size=size, resize=size, channels=1)
    whole, reduced = (Omniglot(str(root), size=side).load().source for side in (105, size))
    assert reduced.pixels.shape == (8, size, size)
    for row in range(8):
        assert transform.batch([whole.read(row)]).equal(transform.batch([reduced.read(row)]))


def test_drawings_are_decoded_once_for_each_size_and_content(root, monkeypatch):
    decoded = []
    decode = published._decoded

    def counted(root, names, size):
        decoded.append(size)
        return decode(root, names, size)

    monkeypatch.setattr(published, "_decoded", counted)
    for size in (28, 28, 32, 28):
        Omniglot(str(root), size=size).load()
    assert decoded == [28, 32]
    # the same names, other drawings
    write_archive(root / "images_background.zip", BACKGROUND[::-1])
    Omniglot(str(root), size=28).load()
    assert decoded == [28, 32, 28]


@pytest.mark.parametrize("name", ["images_background.zip", "images_evaluation.zip"])
def test_a_truncated_archive_is_rejected_by_name(name, root):
    whole = (root / name).read_bytes()
    for length in (len(whole) // 2, len(whole) - 10, 0):
        (root / name).write_bytes(whole[:length])
        with pytest.raises(DataError, match=f"{name} is no zip archive that opens.*fetch it"):
            Omniglot(str(root)).load()


def test_a_damaged_drawing_is_rejected_by_name(root):
    path = root / "images_evaluation.zip"
    some = png(noise(170))[40:60]
    path.write_bytes(path.read_bytes().replace(some, bytes(20)))
    name = r"images_evaluation/Ge'ez_\(x\)/character01/00_01\.png"
    with pytest.raises(DataError, match=rf"drawing {name} of .*Bad CRC"):
        Omniglot(str(root)).load()


@pytest.mark.slow(5)
@pytest.mark.data
def test_the_real_set_has_the_published_counts(data_root):
    records = Omniglot().load()  # which counts them
    assert not overlapping_classes(records)
    assert np.bincount(records.columns["drawer"])[1:].tolist() == [1623] * 20
    assert np.bincount(records.columns["alphabet"]).astype(bool).tolist() == [True] * 50
    assert records.source.read(0).size == (105, 105) and records.source.read(32459).mode == "L"


def direction(pixels):
    """Where the stroke points, in degrees counter-clockwise from the right."""
    down, right = (np.indices(pixels.shape) - 23.5) * (255.0 - pixels)
    return np.degrees(np.arctan2(-down.sum(), right.sum())) % 360


def test_ten_drawers_ask_and_ten_answer(pairs):
    assert pairs.name == "Omniglot pairs"
    for part, answers in (("train", 10), ("test", 1)):
        rows = pairs.part(part)
        for label in np.unique(rows.labels):
            roles = rows.columns["role"][rows.labels == label]
            assert (roles == QUERY).sum() == 10 and (roles == GALLERY).sum() == answers
    assert not overlapping_classes(pairs)
    assert ((pairs.columns["drawer"] <= 10) == (pairs.columns["role"] == QUERY)).all()
    np.testing.assert_array_equal(kin_of(pairs), pairs.columns["alphabet"])


def test_queries_are_upright_and_answers_are_turned_by_their_angle(pairs):
    angle = pairs.columns["angle"]
    asked = pairs.columns["role"] == QUERY
    assert not angle[asked].any() and len(set(angle[~asked])) == (~asked).sum()
    for row in range(len(pairs)):
        pixels = np.asarray(pairs.source.read(row))
        assert pixels.shape == (48, 48)
        off = (direction(pixels) - angle[row] + 180) % 360 - 180
        assert abs(off) < 3


@pytest.mark.slow(5)
@pytest.mark.data
def test_the_published_archives(data_root):
    records = OmniglotPairs(str(data_root / "omniglot")).load()
    assert len(records.part("train")) == 19_280
    held = hold_out(records, 0.2, 0)
    alphabets = [set(held.part(split).columns["alphabet"]) for split in SPLITS]
    assert [len(found) for found in alphabets] == [24, 6, 20]
    assert len(set.union(*alphabets)) == 50
    roles = records.part("test").columns["role"]
    assert (roles == QUERY).sum() == 6_590 and (roles == GALLERY).sum() == 659

"""Reading a whole set: everything that is wrong is named, and nothing else."""

import json
import shutil

import numpy as np
import pytest

from vicinal.data.check import check
from vicinal.data.folder import Folder
from vicinal.data.memory import InMemory
from vicinal.data.table import Arrays, Table

SPLIT = ("train/a", "train/b", "test/c", "test/d")


@pytest.fixture
def split_folders(write_pictures):
    """Classes a and b to train on, c and d to test on, two pictures each."""
    names = [f"{part}/{number}.jpg" for part in SPLIT for number in range(2)]
    return write_pictures(*names, size=(20, 14))


def test_a_sound_set_is_found_sound(split_folders):
    seen = []
    report = check(Folder(str(split_folders)), progress=seen.append)
    assert report.ok and report.rows == 8 and report.classes == 4 and report.kind == "images"
    assert report.splits == {"train": {"rows": 4, "classes": 2}, "test": {"rows": 4, "classes": 2}}
    expected = {"width": (20, 20, 20), "height": (14, 14, 14), "rows per class": (2, 2, 2)}
    assert report.sizes == expected
    assert seen[-1] == 8
    assert (
        not report.findings and "half of the classes have fewer than 4 rows" in report.lines()[-1]
    )
    assert json.loads(json.dumps(report.as_json()))["ok"] is True


def test_every_unreadable_image_is_named_with_its_reason(split_folders):
    whole = (split_folders / "train/a/0.jpg").read_bytes()
    (split_folders / "train/a/0.jpg").write_bytes(whole[: len(whole) // 2])  # truncated
    (split_folders / "test/c/1.jpg").write_text("not an image")
    (split_folders / "test/d/1.jpg").write_bytes(b"")
    report = check(Folder(str(split_folders)))
    assert not report.ok
    reasons = dict(line.split(": ", 1) for line in report.findings["unusable"])
    assert set(reasons) == {"train/a/0.jpg", "test/c/1.jpg", "test/d/1.jpg"}
    assert "truncated" in reasons["train/a/0.jpg"].lower()
    assert report.rows == 8 and report.sizes["width"] == (20, 20, 20)
    assert any("test/c/1.jpg" in line for line in report.lines())


def test_class_folders_without_an_image_are_named_among_all_else(split_folders):
    (split_folders / "train/empty").mkdir()
    (split_folders / "test/c/1.jpg").write_text("not an image")
    report = check(Folder(str(split_folders)))
    assert not report.ok and report.findings["empty_classes"] == ["train/empty"]
    assert report.findings["unusable"][0].startswith("test/c/1.jpg: ")
    assert report.rows == 8 and report.classes == 4
    (split_folders / "test/c/1.jpg").unlink()
    assert not check(Folder(str(split_folders))).ok
    records = Folder(str(split_folders)).load(strict=False)
    assert check(records.part("test")).ok  # a part need not have every class


@pytest.mark.parametrize(
    ("copy", "ok", "found"),
    [
        ("test/c/copy.jpg", False, ("leaks", "conflicts")),  # and they are called a here, c there
        ("train/a/copy.jpg", True, ("duplicates",)),
        ("train/b/copy.jpg", False, ("conflicts", "duplicates")),
    ],
)
def test_equal_files_are_faults_between_parts_and_classes(split_folders, copy, ok, found):
    shutil.copy(split_folders / "train/a/0.jpg", split_folders / copy)
    report = check(Folder(str(split_folders)))
    assert report.ok == ok and tuple(report.findings) == found
    for names in report.findings.values():
        assert sorted(names[0].split(" = ")) == sorted([copy, "train/a/0.jpg"])


def test_a_set_that_leaves_one_class_to_train_on_says_so(write_pictures):
    """`vicinal train` rejects it: half of the classes are for testing."""
    root = write_pictures(*(f"{label}/{number}.png" for label in "ab" for number in range(4)))
    assert "1 training class is too few: set data.test=0" in check(Folder(str(root))).lines()[-1]
    assert "nothing wrong" in check(Folder(str(root), test=0.0)).lines()[-1]


def test_small_and_shared_classes_are_notes(write_pictures):
    names = ("train/a/0", "train/a/1", "train/b/0", "test/a/2", "test/a/3", "test/b/1")
    report = check(Folder(str(write_pictures(*(f"{name}.png" for name in names)))))
    assert report.ok
    assert report.findings == {
        "small_classes": ["b (train)", "b (test)"],
        "overlapping_classes": ["a", "b"],
    }


def test_long_lists_are_cut_in_words_but_not_in_json(write_pictures):
    root = write_pictures("0.png")
    (root / "list.csv").write_text(
        "path,label\n0.png,0\n" + "".join(f"lost {n}.png,{n}\n" for n in range(50))
    )
    report = check(Table(str(root / "list.csv")))
    assert "    ... and 30 more" in report.lines()
    lost = report.as_json()["findings"]["unusable"]
    assert len(lost) == 50 and lost[0].startswith("lost 0.png: ") and "No such file" in lost[0]


def test_features_that_cannot_be_compared_are_named(tmp_path):
    features = np.random.default_rng(0).normal(size=(8, 3))
    features[1, 0] = np.nan
    features[2] = 0
    features[6] = features[0]
    np.savez(tmp_path / "x.npz", features=features, labels=np.repeat([1, 2, 3, 4], 2))
    report = check(Arrays(str(tmp_path / "x.npz")))
    assert not report.ok
    assert report.findings["unusable"] == [
        "row 1: holds NaN or infinite numbers",
        "row 2: all zeros, which have no direction",
    ]
    assert report.findings["leaks"] == ["row 0 = row 6"]
    assert report.sizes["dimension"] == (3, 3, 3)


def test_images_in_memory_are_compared_by_their_pixels():
    pixels = np.random.default_rng(0).integers(0, 256, (4, 8, 8), dtype=np.uint8)
    pixels[3] = pixels[0]
    splits = ["train", "train", "test", "test"]
    records = InMemory(inputs=pixels, labels=[0, 0, 1, 1], splits=splits).load()
    assert check(records).findings["leaks"] == ["row 0 = row 3"]
    assert check(records.take(np.array([1, 2, 3]))).ok

"""What published sets share: their lists, and the counts they are held to."""

import numpy as np
import pytest

from vicinal.data.published import Part, first_classes_train, held_to, numbered_from_one, read_list, whole_numbers
from vicinal.data.records import ImageFiles, Records
from vicinal.errors import ConfigError, DataError

PUBLISHED = {"train": Part(images=4, classes=2), "test": Part(images=4, classes=2)}
PATHS = [f"{name}/{number}.png" for name in "abcd" for number in range(2)]


@pytest.fixture
def root(write_pictures):
    return write_pictures(*PATHS)


def listed(root, paths=PATHS):
    labels = np.array(["abcd".index(path[0]) for path in paths])
    return Records("Letters", ImageFiles(root, paths), labels, tuple("abcd"), first_classes_train(labels, PUBLISHED))


def test_a_whole_set_comes_back_as_it_is(root):
    records = listed(root)
    assert held_to(PUBLISHED, records, "refuse", place=root) is records
    assert held_to(PUBLISHED, records, "use", place=root) is records
    assert records.splits.tolist() == ["train"] * 4 + ["test"] * 4


def test_missing_images_are_refused_with_their_number_and_the_first_few(root):
    for path in PATHS[:4]:
        (root / path).unlink()
    (root / "a").rmdir()  # a folder that is not there at all
    message = r"Letters lists 8 images, of which 4 are missing in .*: a/0\.png; a/1\.png; b/0\.png; \.\.\."
    with pytest.raises(DataError, match=message):
        held_to(PUBLISHED, listed(root), "refuse", place=root)


def test_on_request_the_rest_is_used_and_its_name_tells_the_difference(root):
    for path in ("a/0.png", "a/1.png", "c/1.png"):
        (root / path).unlink()
    records = held_to(PUBLISHED, listed(root), "use", place=root)
    assert records.name == ("Letters (2 train images, not 4; 1 train classes, not 2; 3 test images, not 4)")
    assert [records.source.name(row) for row in range(len(records))] == [
        "b/0.png",
        "b/1.png",
        "c/0.png",
        "d/0.png",
        "d/1.png",
    ]
    assert records.classes == tuple("abcd") and records.labels.tolist() == [1, 1, 2, 3, 3]


def test_lists_that_deviate_are_refused_or_told(root):
    short = listed(root, PATHS[:-1])
    with pytest.raises(DataError, match=r"is not the published set: 3 test images, not 4\. Restore it, or set"):
        held_to(PUBLISHED, short, "refuse", place=root)
    assert held_to(PUBLISHED, short, "use", place=root).name == "Letters (3 test images, not 4)"
    more = {"train": Part(4, 2), "test": Part(3, 2)}
    with pytest.raises(DataError, match="4 test images, not 3"):
        held_to(more, listed(root), "refuse", place=root)


def test_a_check_gets_the_missing_images_but_no_other_lists(root):
    (root / "a/0.png").unlink()
    assert len(held_to(PUBLISHED, listed(root), "refuse", place=root, strict=False)) == 8
    with pytest.raises(DataError, match="is not the published set"):
        held_to(PUBLISHED, listed(root, PATHS[:-1]), "refuse", place=root, strict=False)


@pytest.mark.parametrize("missing", ["refuse", "use"])
def test_a_set_without_any_image_is_always_refused(missing, tmp_path):
    with pytest.raises(DataError, match=r"8 images, of which 8 are missing .* Unpack the images there"):
        held_to(PUBLISHED, listed(tmp_path), missing, place=tmp_path)


def test_an_empty_set_is_always_refused(tmp_path):
    with pytest.raises(DataError, match="nothing of it is there"):
        held_to(PUBLISHED, listed(tmp_path, []), "use", place=tmp_path)


def test_parts_may_be_finer_than_splits(root):
    parts = np.array(["train"] * 4 + ["query", "gallery"] * 2)
    published = {"train": Part(4, 2), "query": Part(2, 2), "gallery": Part(2, 2)}
    assert held_to(published, listed(root), "refuse", place=root, parts=parts).name == "Letters"
    (root / "c/1.png").unlink()
    records = held_to(published, listed(root), "use", place=root, parts=parts)
    assert records.name == "Letters (1 gallery images, not 2; 1 gallery classes, not 2)"


def test_another_word_is_refused(root):
    with pytest.raises(ConfigError, match="unknown value of `missing` 'used'; did you mean 'use'"):
        held_to(PUBLISHED, listed(root), "used", place=root)


def test_a_list_has_fields_between_spaces_and_lines_to_name(tmp_path):
    (tmp_path / "list.txt").write_text("2\nname   item\na.png     id_1  \n\nb.png  id_2\n")
    columns = read_list(tmp_path / "list.txt", ("name", "item"), header=2)
    assert columns.cells == {"name": ["a.png", "b.png"], "item": ["id_1", "id_2"]}
    assert columns.place(1).endswith("list.txt, line 5")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"x 1\ny\n", r"line 2: 2 fields \(name, number\) should stand here, but 1 came"),
        (b"x 1 2\n", "line 1: 2 fields"),
        (b"\xff\xfe 1\n", "is not UTF-8 text"),
    ],
)
def test_a_damaged_list_is_refused_with_its_place(text, message, tmp_path):
    (tmp_path / "list.txt").write_bytes(text)
    with pytest.raises(DataError, match=message):
        read_list(tmp_path / "list.txt", ("name", "number"))


@pytest.mark.parametrize("text", ["", "name\n", "1\nname number\n"])
def test_a_list_without_its_header_is_refused(text, tmp_path):
    (tmp_path / "list.txt").write_text(text)
    with pytest.raises(DataError, match="line 1: the header should be `name number`"):
        read_list(tmp_path / "list.txt", ("name", "number"), header=1)


def test_a_list_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"list\.txt was to be read, but does not exist"):
        read_list(tmp_path / "list.txt", ("name",))


def test_numbers_are_whole_and_classes_count_from_one(tmp_path):
    (tmp_path / "list.txt").write_text("1\n2\n3\n")
    columns = read_list(tmp_path / "list.txt", ("class",))
    numbers = whole_numbers(columns, "class")
    assert numbered_from_one(numbers, "abc", columns.place).tolist() == [0, 1, 2]
    with pytest.raises(DataError, match="line 3: classes are numbered from 1 to 2, but 3 came"):
        numbered_from_one(numbers, "ab", columns.place)
    with pytest.raises(DataError, match="line 1: classes are numbered from 1 to 2, but 0 came"):
        numbered_from_one(numbers - 1, "ab", columns.place)
    (tmp_path / "list.txt").write_text("1\n-2\n")
    with pytest.raises(DataError, match="line 2: `class` should be a whole number, but '-2' came"):
        whole_numbers(read_list(tmp_path / "list.txt", ("class",)), "class")

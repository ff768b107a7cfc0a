"""What a place holds: labels from folders, metadata from tables, pictures never from outside."""

import numpy as np
import pytest

from vicinal.data import CrossView
from vicinal.errors import DataError
from vicinal.retrieval.listing import list_data_set, list_place


def entries(listing):
    return {entry.path: (entry.label, dict(entry.metadata)) for entry in listing.entries}


def listed(path, **settings):
    return entries(list_place(str(path), **settings))


def test_the_first_folder_is_the_label_and_loose_images_have_none(tmp_path, draw):
    for name in ("b/deep/1.png", "a/2.png", "3.png", ".hidden/4.png", "a/.5.png"):
        draw(tmp_path / "root" / name, 0)
    (tmp_path / "root" / "a" / "notes.txt").write_text("no image")
    listing = list_place(str(tmp_path / "root"))
    assert entries(listing) == {
        "3.png": (None, {}),
        "a/2.png": ("a", {}),
        "b/deep/1.png": ("b", {}),
    }
    assert listing.source.read(0).size == (24, 20)


def test_split_folders_become_metadata(tmp_path, draw):
    for name in ("train/a/1.png", "test/b/2.png"):
        draw(tmp_path / "root" / name, 0)
    assert listed(tmp_path / "root") == {
        "test/b/2.png": ("b", {"split": "test"}),
        "train/a/1.png": ("a", {"split": "train"}),
    }


def test_a_table_gives_labels_where_it_has_them_and_all_other_columns(tmp_path, draw):
    draw(tmp_path / "p" / "1.png", 0)
    table = tmp_path / "p" / "table.csv"
    table.write_text("path,label,camera,remark\n1.png,wren,3,\n2.png,,4,dark\n")
    assert listed(table) == {
        "1.png": ("wren", {"camera": "3"}),
        "2.png": (None, {"camera": "4", "remark": "dark"}),
    }
    table.write_text("path\n1.png\n")
    assert listed(table) == {"1.png": (None, {})}


def test_a_split_of_a_table_is_taken_by_name(tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("path,split\n1.png,train\n2.png,test\n")
    assert [*listed(table, split="test")] == ["2.png"]
    with pytest.raises(DataError, match="of the split 'validation'"):
        listed(table, split="validation")


@pytest.mark.parametrize("path", ["../1.png", "/etc/1.png", "a/../../1.png"])
def test_a_table_must_not_lead_out_of_its_folder(path, tmp_path):
    (tmp_path / "table.csv").write_text(f"path\n{path}\n")
    with pytest.raises(DataError, match=r"table\.csv, line 2.*--images"):
        listed(tmp_path / "table.csv")


def test_with_images_a_table_may_lie_anywhere(tmp_path, draw):
    draw(tmp_path / "pictures" / "1.png", 0)
    (tmp_path / "table.csv").write_text(f"path\n{tmp_path}/pictures/1.png\n")
    root = str(tmp_path / "pictures")
    listing = list_place(str(tmp_path / "table.csv"), images=root)
    assert entries(listing) == {"1.png": (None, {})} and listing.place.root == root


def test_feature_vectors_have_names_labels_and_columns(vectors_file, tmp_path):
    listing = list_place(str(vectors_file))
    assert listing.place.root is None
    assert entries(listing)["b/01.png"] == ("1", {"camera": "1"})


def test_vectors_made_of_a_data_set_take_its_pictures_row_by_row(tmp_path, draw, monkeypatch):
    root = tmp_path / "CUB"
    paths = [f"{name}/{number}.jpg" for name in ("001.Wren", "002.Jay") for number in range(2)]
    for number, path in enumerate(paths):
        draw(root / "images" / path, number)
    (root / "classes.txt").write_text("1 001.Wren\n2 002.Jay\n")
    (root / "images.txt").write_text("1 {}\n2 {}\n3 {}\n4 {}\n".format(*paths))
    (root / "image_class_labels.txt").write_text("1 1\n2 1\n3 2\n4 2\n")
    monkeypatch.setattr("vicinal.data.CUB.counts", {"train": (0, 0), "test": (4, 2)})

    def made(labels, **settings):
        vectors = np.eye(len(labels))
        np.savez(
            tmp_path / "v.npz", features=vectors, labels=labels, splits=["train", *["test"] * 3]
        )
        return listed(tmp_path / "v.npz", images=str(root), **settings)

    assert made([0, 0, 1, 1], split="test") == {path: (path[:-6], {}) for path in paths[1:]}
    with pytest.raises(DataError, match="differ in their classes"):
        made([0, 1, 0, 1])
    np.savez(tmp_path / "v.npz", features=np.eye(3), labels=[0, 0, 1])
    with pytest.raises(DataError, match=r"the 3 images .* with 4 records"):
        listed(tmp_path / "v.npz", images=str(root))


def test_an_embedded_data_set_is_listed_by_its_word(tmp_path):
    listing = list_place("glyphs", split="test")
    assert listing.place.path == "glyphs" and listing.place.description["class"] == "Glyphs"
    assert listing.digest(0) == listing.digest(0) != listing.digest(1)


def test_digests_follow_the_content(tmp_path, draw, vectors_file):
    for name, seed in (("1.png", 0), ("2.png", 0), ("3.png", 1)):
        draw(tmp_path / "root" / name, seed)
    listing = list_place(str(tmp_path / "root"))
    first, second, third = (listing.digest(row) for row in range(3))
    assert first == second != third
    (tmp_path / "root" / "3.png").unlink()
    with pytest.raises(DataError, match=r"3\.png cannot be read: No such file"):
        listing.digest(2)
    features = list_place(str(vectors_file))
    assert len({features.digest(row) for row in range(40)}) == 40


def test_regions_of_one_picture_are_items_of_their_own(tmp_path, draw):
    draw(tmp_path / "p" / "1.png", 0)
    table = tmp_path / "p" / "table.csv"
    table.write_text("path,label,x,y,w,h\n1.png,wren,0,0,4,4\n1.png,robin,4,4,4,4\n")
    listing = list_place(str(table))
    assert entries(listing) == {
        "1.png#xywh=0,0,4,4": ("wren", {}),
        "1.png#xywh=4,4,4,4": ("robin", {}),
    }
    assert listing.digest(0) != listing.digest(1) and listing.source.read(1).size == (4, 4)


def test_errors_say_what_came(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="nothing to index"):
        list_place(str(tmp_path / "empty"))
    np.savez(tmp_path / "twice.npz", features=np.ones((2, 3)), labels=[0, 1], names=["a", "a"])
    with pytest.raises(DataError, match="'a' 2 times"):
        list_place(str(tmp_path / "twice.npz"))


def test_of_queries_and_a_gallery_only_the_gallery_can_be_found(tmp_path, draw):
    for name in ("ground/1.png", "ground/2.png", "air/1.png", "air/2.png"):
        draw(tmp_path / name, 0)
    table = tmp_path / "pairs.csv"
    table.write_text("query_path,gallery_path\nground/1.png,air/1.png\nground/2.png,air/2.png\n")
    found = list_data_set(CrossView(str(table)))
    assert [entry.path for entry in found.entries] == ["air/1.png", "air/2.png"]

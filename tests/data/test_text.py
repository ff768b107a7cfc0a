"""Texts as data: beside pictures, beside feature vectors, alone; and everything that no text is."""

import numpy as np
import pytest
from PIL import Image
from tests.reading import load

from vicinal.data import Arrays, Sentences, Table, check, open_path
from vicinal.data.loader import load_all
from vicinal.data.records import GALLERY, QUERY
from vicinal.data.transforms import FeatureTransform, ImageTransform, TextTransform
from vicinal.errors import DataError


@pytest.fixture
def table(tmp_path):
    """``table("path,text", "0.png,an owl", ...)``: a table beside eight small pictures."""
    for number in range(8):
        Image.new("L", (8, 8), 30 * number).save(tmp_path / f"{number}.png")

    def write(*lines):
        (tmp_path / "pairs.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return tmp_path / "pairs.csv"

    return write


def rows(records):
    classes = [records.classes[label] for label in records.labels]
    return [*zip(records.source.names, classes, records.columns["role"], strict=True)]


def test_a_table_of_pictures_and_texts_is_both(table):
    lines = "0.png,an owl,owl,1", "1.png,an owl,owl,2", "2.png,a wren,wren,3"
    records = open_path(table("path,text,label,camera", *lines)).load()
    pictures = [("0.png", "owl"), ("1.png", "owl"), ("2.png", "wren")]
    texts = [("an owl", "owl"), ("a wren", "wren")]
    expected = [(*one, GALLERY) for one in pictures] + [(*one, QUERY) for one in texts]
    assert rows(records) == expected
    assert records.columns["camera"].tolist() == [1, 2, 3, 1, 3]
    assert records.source.read(0).size == (8, 8) and records.source.read(3).size == (128, 128)
    pictures = records.take(np.array([2, 0]))
    assert pictures.captions is None and pictures.source.source.paths == ["0.png", "1.png", "2.png"]
    assert records.part("train").captions is records.part("test").captions is records.source


def test_without_labels_a_text_is_a_class_or_a_picture_that_has_several(table):
    path = table("path,text", "0.png,an owl", "1.png,an owl", "2.png,a wren")
    assert open_path(path).load().classes == ("a wren", "an owl")
    path = table("path,caption", "0.png,an owl", "0.png,a bird at night", "1.png,a wren")
    records = Table(str(path), text="caption").load()
    assert records.classes == ("0.png", "1.png") and len(records) == 5


def test_vectors_may_have_texts(tmp_path):
    vectors = {"features": np.eye(3, dtype=np.float32), "labels": [0, 0, 1]}
    np.savez(tmp_path / "a.npz", **vectors, texts=["owl", "owl", "wren"])
    data = open_path(tmp_path / "a.npz")
    records = data.load()
    assert isinstance(data, Arrays) and data.text == "texts" and records.source.kind == "features"
    (batch,) = load(records, [[3, 1, 4]], FeatureTransform(), seed=0, epoch=0)
    assert batch.inputs.tolist() == [[0, 1, 0]] and batch.labels.tolist() == [0, 0, 1]
    assert [bytes(row.tolist()) for row in batch.texts] == [b"owl\0", b"wren"]


def test_sentences_are_read_with_a_name_each(table):
    lines = "where?,place,train", "how much?,money,test", "where?,other,test"
    path = table("text,label,split", *lines)
    records = open_path(path).load()
    assert records.source.names == ["where?", "how much?", "where? (line 4)"]
    (batch,) = load_all(records, TextTransform())
    assert batch.texts is None and bytes(batch.inputs[2].tolist()) == b"where?\0\0\0"
    report = check(Sentences(str(path)))
    assert report.sizes["characters"] == (6.0, 6.0, 9.0) and len(report.findings["conflicts"]) == 1


def test_pictures_that_cannot_be_read_are_replaced_by_pictures_or_left_out(table, tmp_path):
    records = open_path(
        table("path,text,label,split", *(f"{n}.png,text {n},a,train" for n in range(4)))
    ).load()
    (tmp_path / "1.png").write_bytes(b"no picture")
    transform = ImageTransform(size=8, channels=1)
    (batch,) = load(records, [[4, 1, 5, 0]], transform, seed=0, epoch=0, skip_corrupt=True)
    assert batch.indices.tolist() == [4, 2, 5, 0] and batch.skipped == (1,)
    assert len(batch.inputs) == len(batch.texts) == 2
    kept = list(load_all(records, transform, batch_size=3, skip_corrupt=True))
    assert [one.indices.tolist() for one in kept] == [[0, 2], [3, 4, 5], [6, 7]]
    assert [(len(one.inputs), one.texts is None) for one in kept] == [
        (2, True),
        (1, False),
        (0, False),
    ]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["path,text,label", "0.png,an owl,owl", "1.png, ,owl"], "line 3: `text` is empty"),
        (
            ["path,text", "0.png,an owl", "1.png,a\0wren"],
            "line 3: `text` holds a NUL at character 1",
        ),
        (
            ["path,text", f"0.png,{'x' * 10_001}"],
            "line 2: `text` has 10,001 characters; at most 10,000",
        ),
        (
            ["path,text", "0.png,an owl", f"1.png,{'x' * 10_000_000}"],
            "line 3: field larger than",
        ),
        (["path,text", "9.png,an owl"], "of `path`: line 2"),
        (["text,label", "an owl,owl", ",wren"], "line 3: `text` is empty"),
        (["text", "an owl"], "unknown column 'label'"),
    ],
)
def test_what_is_no_text_is_named_with_file_and_row(table, lines, said):
    path = table(*lines)
    with pytest.raises(DataError, match=f"{path.name}.*{said}"):
        open_path(path).load()

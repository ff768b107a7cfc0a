"""Data sets of Hugging Face."""

import io
import json
import os

import numpy as np
import pytest
from PIL import Image

import vicinal
from vicinal.data import HuggingFace, open_path
from vicinal.data.hugging_face import FromHuggingFace
from vicinal.data.kept import contents
from vicinal.errors import DataError


def png(shade):
    file = io.BytesIO()
    Image.fromarray(np.full((8, 8, 3), shade, np.uint8)).save(file, "PNG")
    return file.getvalue()


def test_without_the_package_the_pip_line_is_given(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    (tmp_path / "state.json").write_text("{}")
    assert isinstance(open_path(tmp_path), HuggingFace)
    with pytest.raises(DataError, match=r"pip install 'vicinal\[huggingface\]'"):
        HuggingFace(str(tmp_path)).load()


@pytest.mark.slow
def test_only_files_in_its_own_folder_are_read_for_a_data_set_of_hugging_face(tmp_path):
    datasets = pytest.importorskip("datasets")
    folder = tmp_path / "set"
    (tmp_path / "outside.png").write_bytes(png(7))
    row = {"bytes": None, "path": "inside.png"}
    texts = {"bytes": datasets.Value("binary"), "path": datasets.Value("string")}
    features = datasets.Features({"image": texts, "label": datasets.Value("string")})
    outside = (str(tmp_path / "outside.png"), "../outside.png", "link.png", "http://127.0.0.1:9/x")
    rows = {
        "image": [row, {"bytes": png(3), "path": None}, *({**row, "path": o} for o in outside)],
        "label": list("ababab"),
    }
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(str(folder))
    (folder / "inside.png").write_bytes(png(5))
    (folder / "link.png").symlink_to("../outside.png")
    info = json.loads((folder / "dataset_info.json").read_text())
    info["features"]["image"] = {"_type": "Image"}  # as whoever writes the folder may say
    (folder / "dataset_info.json").write_text(json.dumps(info))
    source = open_path(folder).load().source
    assert [int(np.asarray(source.read(row))[0, 0, 0]) for row in (0, 1)] == [5, 3]
    for number in range(2, 6):
        with pytest.raises(DataError, match=r"outside of|is missing"):
            source.read(number)
    before = contents(open_path(folder).load())
    (folder / "inside.png").write_bytes(png(6))
    (folder / "link.png").unlink()
    os.mkfifo(folder / "link.png")  # nobody writes into it: reading would wait forever
    after = contents(open_path(folder).load())
    assert (before != after).tolist() == [True] + [False] * 5
    assert before[1] and not before[2:].any()  # what is not read tells nothing
    mine = datasets.Dataset.from_dict(
        {"image": [str(tmp_path / "outside.png")] * 2, "label": ["a", "b"]},
        features=datasets.Features({"image": datasets.Image(), "label": datasets.Value("string")}),
    )
    assert FromHuggingFace("", dataset=mine).load().source.read(0).size == (8, 8)  # in Python


@pytest.mark.slow
def test_data_sets_of_hugging_face(tmp_path):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b", "c", "d"])}
    )
    rows = {
        "image": [Image.fromarray(np.full((8, 8), 10 * row, np.uint8)) for row in range(16)],
        "label": [row % 4 for row in range(16)],
    }
    whole = datasets.Dataset.from_dict(rows, features=features)
    whole.save_to_disk(str(tmp_path / "one"))
    records = open_path(tmp_path / "one").load()
    assert (
        records.classes == ("a", "b", "c", "d")
        and int(np.asarray(records.source.read(3))[0, 0]) == 30
    )
    deep = {
        **rows,
        "image": [Image.fromarray(np.full((8, 8), 256 * 40 + row, np.uint16)) for row in range(16)],
    }
    datasets.Dataset.from_dict(deep, features=features).save_to_disk(str(tmp_path / "deep"))
    # 16 bits are scaled to 8.
    assert int(np.asarray(open_path(tmp_path / "deep").load().source.read(3))[0, 0]) == 40
    split = datasets.DatasetDict(train=whole.select(range(8)), test=whole.select(range(8, 16)))
    split.save_to_disk(str(tmp_path / "two"))
    records = open_path(tmp_path / "two").load()
    assert records.splits.tolist() == ["train"] * 8 + ["test"] * 8
    assert int(np.asarray(records.source.read(9))[0, 0]) == 90

    rng = np.random.default_rng(0)
    labels = np.arange(8).repeat(6)
    vectors = rng.normal(size=(8, 5))[labels] + 0.1 * rng.normal(size=(48, 5))
    table = datasets.Dataset.from_dict({"image": vectors.tolist(), "label": labels.tolist()})
    run = vicinal.train(
        table, training={"steps": 2, "validation": 0.0}, run=tmp_path / "run", quiet=True
    )
    assert run.results["trained"]["recall@1"] > 0.5

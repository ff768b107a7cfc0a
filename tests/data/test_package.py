"""The package's front: which data set lies at a path."""

import os

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from vicinal.arguments import build, describe, parameters
from vicinal.data import (
    CUB,
    DATASETS,
    DATASETS_BY_NAME,
    Arrays,
    Cars196,
    Folder,
    Glyphs,
    InShop,
    Omniglot,
    StanfordOnlineProducts,
    Table,
    open_path,
)
from vicinal.errors import DataError


def test_a_path_tells_what_lies_there(tmp_path):
    (tmp_path / "list.csv").write_text("path,label\n")
    (tmp_path / "list.TSV").write_text("path\tlabel\n")
    np.savez(tmp_path / "x.npz", features=np.zeros((1, 1)))
    for name, column in {"list": {"path": ["a"]}, "x": {"features": [[1.0]]}}.items():
        table = pyarrow.table({**column, "label": [1]})
        pyarrow.parquet.write_table(table, tmp_path / f"{name}.parquet")
    kinds = {Folder: "", Table: "list.csv list.TSV list.parquet", Arrays: "x.npz x.parquet"}
    for kind, names in kinds.items():
        for name in names.split(" "):
            assert open_path(tmp_path / name) == kind(str(tmp_path / name))


def test_the_embedded_set_has_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert open_path("glyphs") == Glyphs()
    (tmp_path / "glyphs").mkdir()
    assert open_path("glyphs") == Folder(str(tmp_path / "glyphs"))  # what lies there comes first


@pytest.mark.parametrize("kind", [CUB, Cars196, StanfordOnlineProducts, InShop, Omniglot])
def test_a_published_set_has_a_place_also_while_it_is_not_there(kind, tmp_path, monkeypatch):
    monkeypatch.setenv("VICINAL_DATA", str(tmp_path))
    assert open_path(kind().path) == kind()
    with pytest.raises(DataError, match="does not exist"):
        kind().load()
    (tmp_path / kind().path.removeprefix("$VICINAL_DATA/")).mkdir()
    assert open_path(kind().path) == Folder(kind().path)  # what lies there comes first


def test_a_relative_path_is_known_from_any_folder(tmp_path, monkeypatch):
    (tmp_path / "birds" / "wren").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert open_path("birds") == open_path("./birds/") == Folder(str(tmp_path / "birds"))


def test_what_is_no_data_set_is_rejected(tmp_path):
    (tmp_path / "notes.txt").write_text("hm")
    pyarrow.parquet.write_table(pyarrow.table({"x": [1]}), tmp_path / "x.parquet")
    with pytest.raises(DataError, match=r"notes\.txt is not a known data set"):
        open_path(tmp_path / "notes.txt")
    with pytest.raises(DataError, match=r"unknown column 'label'"):
        open_path(tmp_path / "x.parquet").load()
    with pytest.raises(DataError, match="does not exist"):
        open_path(tmp_path / "nowhere")


OURS = sorted(
    name for name, kind in DATASETS_BY_NAME.items() if kind.__module__.startswith("vicinal.")
)


@pytest.mark.parametrize("name", OURS)
def test_every_set_has_a_name_and_is_rebuilt_from_its_description(name):
    kind = DATASETS_BY_NAME[name]
    assert DATASETS[kind.__name__] is kind
    path = {"path": "$VICINAL_DATA/x"} if "path" in parameters(kind) else {}
    numbers = {"seed": 3, "size": 28, "test": 0.25, "label": "y", "images": "pictures"}
    dataset = kind(**path, **{key: numbers[key] for key in numbers if key in parameters(kind)})
    assert build(describe(dataset), DATASETS) == dataset


@pytest.mark.parametrize("name", ["x.csv", "x.npz", "x.parquet", "x.png"])
def test_a_pipe_is_no_data(name, tmp_path):
    os.mkfifo(tmp_path / name)  # nobody writes into it: opening it would wait forever
    with pytest.raises(DataError, match="neither a file nor a folder"):
        open_path(tmp_path / name)

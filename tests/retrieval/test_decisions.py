"""Decisions on findings are checked, and become new data."""

import csv
from io import StringIO

import numpy as np
import pytest

from vicinal.errors import DataError
from vicinal.retrieval.decisions import apply_decisions


@pytest.fixture
def reviewed(collect):
    """Six things with labels a and b, one without, metadata of one."""
    metadata = [{}, {"split": "test"}, *([{}] * 5)]
    return collect(np.eye(7), [*"aabbab", None], metadata=metadata)


def applied(reviewed, tmp_path, text):
    (tmp_path / "decisions.csv").write_text(text)
    made = apply_decisions(reviewed, tmp_path / "decisions.csv")
    rows = list(csv.DictReader(StringIO(made.table)))
    return {row["path"]: row["label"] for row in rows}, made.changed, made.dropped, rows


def test_decisions_relabel_and_drop(reviewed, tmp_path):
    text = "path,label\n0.png,b\n1.png,\n4.png,a\n6.png,b\n"
    labels, changed, dropped, rows = applied(reviewed, tmp_path, text)
    assert labels == {f"{row}.png": "bbbabb"[place] for place, row in enumerate([0, 2, 3, 4, 5, 6])}
    assert (changed, dropped) == (2, 1) and list(rows[0]) == ["path", "label", "split"]


@pytest.mark.parametrize("label", ["drop", "keep", "robin"])
def test_any_word_is_a_label_and_new_ones_are_told(label, reviewed, tmp_path):
    """An item labeled drop was dropped, and keep ignored."""
    assert applied(reviewed, tmp_path, f"path,label\n1.png,{label}\n")[0]["1.png"] == label
    assert apply_decisions(reviewed, tmp_path / "decisions.csv").added == [label]


def test_pictures_are_named_by_their_files(collect, tmp_path):
    snapshot = collect(np.eye(2), "ab", path=["a/0.png", "b/1.png"], root=tmp_path)
    labels = applied(snapshot, tmp_path, "path,label\na/0.png,b\n")[0]
    assert labels == {str(tmp_path / "a/0.png"): "b", str(tmp_path / "b/1.png"): "b"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path,label\n0.png,b\nnowhere.png,a\n", r"csv, line 3: 'nowhere.png' .* it 0 times"),
        ("path,label\n0.png,b\n0.png,a\n", "line 2: '0.png' .* this table 2 times"),
        ("path,lable\n0.png,b\n", "did you mean 'lable'"),
    ],
)
def test_decisions_that_make_no_sense_name_their_row(text, message, reviewed, tmp_path):
    with pytest.raises(DataError, match=message):
        applied(reviewed, tmp_path, text)


def test_a_path_that_two_places_hold_is_not_decided_on(collect, tmp_path):
    snapshot = collect(np.eye(2), "ab", path=["x.png", "x.png"])
    with pytest.raises(DataError, match="has it 2 times"):
        applied(snapshot, tmp_path, "path,label\nx.png,b\n")

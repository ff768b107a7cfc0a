"""Data that Python holds: arrays, data frames and data sets of torch."""

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch.utils.data import TensorDataset

from vicinal.data.memory import adopt
from vicinal.errors import ConfigError, DataError

LABELS = ["b", "b", "a", "a"]
NUMBERS = np.arange(8.0).reshape(4, 2)
GRAY = np.arange(4 * 36, dtype=np.uint8).reshape(4, 6, 6)


class Photos(torch.utils.data.Dataset):
    classes = ("wren", "robin")

    def __init__(self, scale=1):
        self.scale = scale

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.full((3, 5, 5), self.scale * index / 4), index // 2


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ((NUMBERS, LABELS), "features"),
        ((NUMBERS.tolist(), np.array(LABELS)), "features"),
        ((torch.tensor(NUMBERS), torch.tensor([1, 1, 0, 0])), "features"),
        ((GRAY, LABELS), "images"),
        (([Image.fromarray(one) for one in GRAY], LABELS), "images"),
        ((["a wren", "wrens", "a robin", "robins"], LABELS), "text"),
        (pd.DataFrame({"x": NUMBERS[:, 0], "y": [1, 2, 3, 4], "label": LABELS}), "features"),
        (TensorDataset(torch.tensor(NUMBERS), torch.tensor([1, 1, 0, 0])), "features"),
        (Photos(), "images"),
    ],
)
def test_what_python_holds_is_a_data_set(given, kind):
    data = adopt(given)
    records = data.load()
    assert data.kind == records.source.kind == kind
    assert len(records) == 4 and len(records.classes) == 2
    assert set(records.splits) == {"train", "test"}
    assert records.source.read(3) is not None
    if kind == "features":
        assert records.source.read(3).dtype == np.float32


def test_values_and_names_are_those_given():
    frame = pd.DataFrame(
        {"x": [1, 2], "note": ["p", "q"], "label": ["a", "b"], "split": ["train", "test"]}
    )
    records = adopt(frame).load()
    assert records.source.read(1).tolist() == [2.0]
    assert records.splits.tolist() == ["train", "test"]
    photos = adopt(Photos()).load()
    assert photos.classes == ("robin", "wren")
    assert photos.source.read(2).getpixel((0, 0)) == (128, 128, 128)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((NUMBERS, LABELS[:3]), "4 inputs and 3 labels"),
        ((NUMBERS * np.nan, LABELS), "4 of 4 rows hold NaN"),
        ((NUMBERS, [1.0, 1.0, float("nan"), 2.0]), "a label is missing"),
        ((NUMBERS[:0], []), "are empty"),
        ((NUMBERS[None], LABELS), "are numbers"),
        (pd.DataFrame({"x": [1], "kind": ["a"]}), r"needs a column `label`, got x, kind"),
        (7, "got int"),
        ([7], "got list"),
    ],
)
def test_what_is_no_data_is_rejected(given, message):
    with pytest.raises((ConfigError, DataError), match=message):
        adopt(given).load()


def test_normalized_pictures_are_rejected():
    with pytest.raises(DataError, match="Leave Normalize out"):
        adopt(Photos(scale=9)).load().source.read(3)


@pytest.mark.slow
def test_data_sets_of_hugging_face_are_read_with_their_splits():
    datasets = pytest.importorskip("datasets")
    label = datasets.ClassLabel(names=["a", "b"])
    features = datasets.Features({"image": datasets.Image(), "label": label})
    rows = {"image": [Image.fromarray(one) for one in GRAY], "label": [0, 1, 0, 1]}
    whole = datasets.Dataset.from_dict(rows, features=features)
    records = adopt(whole).load()
    assert (
        records.classes == ("a", "b") and records.source.read(3).getpixel((0, 0)) == GRAY[3, 0, 0]
    )
    split = datasets.DatasetDict(train=whole.select(range(2)), test=whole.select(range(2, 4)))
    assert adopt(split).load().splits.tolist() == ["train"] * 2 + ["test"] * 2
    vectors = datasets.Dataset.from_dict({"image": NUMBERS.tolist(), "label": LABELS})
    assert adopt(vectors).load().source.read(3).tolist() == [6.0, 7.0]
    with pytest.raises(ConfigError, match="needs columns `image` and `label`, got photo"):
        adopt(vectors.rename_column("image", "photo"))

"""Data in memory, from Python: arrays with labels, data frames, and data sets of torch."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from vicinal.data.records import (
    Dataset,
    FeatureArray,
    ImageArray,
    Kind,
    Records,
    Source,
    Texts,
)
from vicinal.data.splits import SplitByClass, labels_in
from vicinal.data.transforms import as_image
from vicinal.errors import ConfigError, DataError, few
from vicinal.files import eight_bit, upright


class Pictures(Source):
    """Pictures that a torch data set or a list holds, as PIL images or as tensors."""

    in_memory = True  # reading processes would copy what the user holds

    def __init__(self, examples: Any) -> None:
        super().__init__([f"row {row}" for row in range(len(examples))])
        self.examples = examples

    def read(self, index: int) -> Image.Image:
        picture = _first(self.examples[index])
        if isinstance(picture, Image.Image):
            return eight_bit(upright(picture))
        pixels = torch.as_tensor(picture)
        if pixels.ndim == 2:
            pixels = pixels[None]
        if pixels.ndim != 3 or len(pixels) not in (1, 3):
            raise DataError(
                f"{self.names[index]} is a PIL image or a tensor [c h w], got {list(pixels.shape)}."
            )
        if pixels.is_floating_point():
            if not ((pixels >= 0) & (pixels <= 1)).all():
                raise DataError(
                    f"{self.names[index]} has pixels outside of 0..1. Leave Normalize out of the "
                    "data set's transforms: vicinal does that."
                )
            pixels = (pixels * 255).round()
        return as_image(pixels.to(torch.uint8))


class InMemory(SplitByClass, kw_only=True):
    """Inputs with labels, for Python: ``vicinal.train((inputs, labels))``.

    >>> InMemory(inputs=np.eye(4), labels=["a", "a", "b", "b"]).load().classes
    ('a', 'b')

    Args:
        inputs: numbers [n d], uint8 images [n h w] or [n h w 3], texts, PIL images, or a torch data
            set of pairs (input, label).
        labels: a class for each, a list of several, or a matrix of zeros and ones with a column
            for each class; None takes those of the torch data set.
        splits: ``train``, ``validation`` or ``test`` for each; None splits by class.
        test: share of the classes that are for testing, where there are no splits.
        order: whether those are drawn or the last ones of the sorted labels.
        seed: of the draw.
    """

    path: str = field(default="", init=False)
    inputs: Any = field(compare=False)
    labels: Any = field(default=None, compare=False)
    splits: Any = field(default=None, compare=False)

    @property
    def kind(self) -> Kind:
        return self._source.kind

    @property
    def _source(self) -> Source:
        rows = _plain(self.inputs)
        if not len(rows):
            raise DataError("the data given are empty. Give at least two classes of examples.")
        first = _first(rows[0])
        if isinstance(first, Image.Image) or (self.labels is None and np.ndim(first) > 1):
            return Pictures(rows)
        if self.labels is None:
            rows = [_first(rows[row]) for row in range(len(rows))]
        if isinstance(first, str):
            return Texts(list(rows))
        array = np.asarray(rows)
        names = [f"row {row}" for row in range(len(array))]
        if array.dtype == np.uint8 and array.ndim in (3, 4):
            return ImageArray(array, names)
        if array.ndim != 2 or array.dtype.kind not in "fiub" or not array.size:
            raise DataError(
                "inputs are numbers [n d], uint8 images [n h w] or [n h w 3], texts or PIL images, "
                f"got {array.dtype} {list(array.shape)}."
            )
        features = array.astype(np.float32)
        if len(bad := np.flatnonzero(~np.isfinite(features).all(axis=1))):
            raise DataError(
                f"{len(bad)} of {len(array)} rows hold NaN or infinite numbers (rows "
                f"{few(bad.tolist(), 5)}). Fix or remove them."
            )
        return FeatureArray(features, names)

    def load(self) -> Records:
        source = self._source
        if self.labels is not None:
            labels = _listed(self.labels)
        else:  # of a torch data set, by the names that it may have for them
            examples = self.inputs
            labels = _listed(getattr(examples, "targets", ()))
            if len(labels) != len(examples):
                labels = _listed([examples[row][1] for row in range(len(examples))])
            names = getattr(examples, "classes", None)
            if isinstance(names, Sequence) and all(isinstance(label, int) for label in labels):
                labels = [names[label] for label in labels]
        if len(labels) != len(source):
            raise DataError(f"got {len(source)} inputs and {len(labels)} labels. Give each one.")
        if any(label != label or label is None for label in labels):
            raise DataError("a label is missing (NaN or None). Fill it in or remove the row.")
        splits = None if self.splits is None else list(map(str, _listed(self.splits)))
        return self._records("data", source, [*map(labels_in, labels)], splits, "row {}".format)

    def to_description(self) -> dict[str, Any]:
        """Return what a run writes down; the data themselves are the user's."""
        return {"class": "InMemory", "test": self.test, "order": self.order, "seed": self.seed}


def adopt(given: Any) -> Dataset:
    """Return the data set that an object of the user's own stands for.

    Args:
        given: a `Dataset`; ``(inputs, labels)``; a data frame with a column ``label``; a data set
            of torch, of pairs (input, label); or one of Hugging Face.
    """
    if hasattr(given, "load"):
        return given
    if is_hugging_face(given):  # the parts of a dictionary are the splits
        from datasets import concatenate_datasets

        parts = given if isinstance(given, Mapping) else {"train": given}
        rows = concatenate_datasets([*parts.values()])
        if not {"image", "label"} <= rows.features.keys():
            raise ConfigError(
                "the data set needs columns `image` and `label`, got "
                f"{few([*rows.features], 6)}. Rename them: dataset.rename_column."
            )
        label = rows.features["label"]
        named = hasattr(label, "int2str")
        pictures = type(rows.features["image"]).__name__ == "Image"  # decoded one at a time
        splits = [split for split, part in parts.items() for _ in part]
        return InMemory(
            inputs=rows if pictures else rows.with_format("numpy")["image"][:],
            labels=[label.int2str(one) if named else one for one in rows["label"]],
            splits=splits if len(parts) > 1 else None,
        )
    if isinstance(given, tuple) and len(given) == 2:
        return InMemory(inputs=given[0], labels=given[1])
    if hasattr(given, "select_dtypes"):
        if "label" not in given.columns:
            raise ConfigError(
                "the data frame needs a column `label`, got "
                f"{few(list(map(str, given.columns)), 6)}. Or give (frame[columns], frame[label])."
            )
        rest = given.drop(columns=["label", "split"], errors="ignore")
        inputs = rest.get("text", rest.select_dtypes("number"))
        return InMemory(inputs=inputs, labels=given["label"], splits=given.get("split"))
    if hasattr(given, "__getitem__") and hasattr(given, "__len__") and not isinstance(given, list):
        return InMemory(inputs=given)
    raise ConfigError(
        "data is a path, a name, (inputs, labels), a data frame, a data set of torch or a Dataset, "
        f"got {type(given).__name__}."
    )


def is_hugging_face(value: object) -> bool:
    """Whether this is a data set of Hugging Face, which also has dictionaries of them."""
    return type(value).__module__.partition(".")[0] == "datasets"


def _first(example: Any) -> Any:
    """Return the input of an example of a data set of torch or of Hugging Face."""
    if isinstance(example, Mapping):
        return example["image"]
    return example[0] if isinstance(example, (tuple, list)) else example


def _listed(values: Any) -> list[Any]:
    """Return labels as plain values; of a matrix, in which columns each row has any."""
    values = _plain(values)
    if isinstance(values, np.ndarray) and values.ndim == 2:
        return [np.flatnonzero(row).tolist() for row in values]
    return [value.item() if hasattr(value, "item") else value for value in values]


def _plain(values: Any) -> Any:
    """Return tensors and data frames as arrays."""
    if isinstance(values, Tensor):
        return values.detach().cpu().numpy()
    return values.to_numpy() if hasattr(values, "to_numpy") else values

"""Data sets of Hugging Face."""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from vicinal.data.images import decode, read_image
from vicinal.data.location import existing
from vicinal.data.records import FeatureArray, Kind, Records, Source
from vicinal.data.splits import SplitByClass
from vicinal.errors import DataError, unknown


class HuggingFaceImages(Source):
    """The images of a column of a Hugging Face data set, part by part.

    A row holds an image's bytes, or the path of a file: below ``folder``, where the rows come from
    a folder that anyone may have written.
    """

    def __init__(self, parts: Mapping[str, Any], folder: Path | None) -> None:
        super().__init__(
            [f"{name} {row}" for name, column in parts.items() for row in range(len(column))]
        )
        self.folder, self.columns = folder, list(parts.values())
        self.starts = np.cumsum([0, *map(len, parts.values())])

    def read(self, index: int) -> Image.Image:
        part = int(np.searchsorted(self.starts, index, side="right")) - 1
        try:
            row = self.columns[part][index - int(self.starts[part])]
            if row["bytes"] is not None:
                return decode(io.BytesIO(row["bytes"]))
            file = Path(row["path"])
            if self.folder is not None:
                file = (self.folder / file).resolve()
                if not file.is_relative_to(self.folder.resolve()):
                    raise DataError(f"{row['path']} lies outside of {self.folder}")
            return read_image(file)
        except Exception as error:  # as of files
            raise DataError(f"image {self.names[index]} cannot be read: {error}.") from error


@dataclass(frozen=True)
class HuggingFace(SplitByClass):
    """A data set that ``datasets.Dataset.save_to_disk`` or ``DatasetDict.save_to_disk`` wrote.

    The splits of a dictionary are kept (``train``, ``validation``, ``test``); the classes of a
    single set are split here. Needs the package ``datasets``.

    Args:
        path: its folder; ``$VICINAL_DATA`` and ``~`` are expanded.
        image: the column of images, or of vectors.
        label: the column of classes, numbers, names or a ``ClassLabel``.

    >>> HuggingFace("birds/", image="photo")
    HuggingFace(path='birds/', test=0.5, order='random', seed=0, image='photo', label='label')
    """

    image: str = "image"
    label: str = "label"

    @staticmethod
    def lies_in(folder: Path) -> bool:
        """Whether a folder was written by ``save_to_disk``."""
        return (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file()

    @property
    def kind(self) -> Kind:
        """Images or vectors, as the column says."""
        return _kind(self._parts(), self.image)

    def _open(self) -> Any:
        try:
            import datasets
        except ImportError:
            raise DataError(
                "Hugging Face's datasets is not installed: `pip install 'vicinal[huggingface]'`"
            ) from None
        return datasets.load_from_disk(str(existing(self.path)))

    def _folder(self) -> Path | None:
        return existing(self.path)

    def _parts(self) -> Mapping[str, Any]:
        dataset = self._open()
        return dataset if isinstance(dataset, Mapping) else {"train": dataset}

    def load(self) -> Records:
        parts = self._parts()
        source, names = _columns(parts, self.image, self.label, self._folder())
        given = (
            [split for split, part in parts.items() for _ in range(len(part))]
            if len(parts) > 1
            else None
        )
        name = Path(self.path).name or "data set"
        return self._records(name, source, names, given, lambda row: f"{self.path}, row {row}")


@dataclass(frozen=True)
class FromHuggingFace(HuggingFace):
    """A ``datasets.Dataset`` or ``DatasetDict`` in memory, for Python:
    ``vicinal.train(dataset)``."""

    dataset: Any = None

    def _open(self) -> Any:
        return self.dataset

    def _folder(self) -> None:
        """Read files wherever they lie: the rows are the user's own."""

    def to_description(self) -> dict[str, str]:
        """Return what a run writes down; the data themselves are the user's."""
        return {"class": "FromHuggingFace", "image": self.image, "label": self.label}


def _kind(parts: Mapping[str, Any], image: str) -> Kind:
    features = next(iter(parts.values())).features
    if image not in features:
        raise DataError(
            unknown("column", image, features)
            + " Set data.image to the column of images or vectors."
        )
    return "images" if type(features[image]).__name__ == "Image" else "features"


def _columns(
    parts: Mapping[str, Any], image: str, label: str, folder: Path | None
) -> tuple[Source, list[str]]:
    """Return the inputs and the class names of all parts, one after the other."""
    kind = _kind(parts, image)
    names: list[str] = []
    for part in parts.values():
        if label not in part.features:
            raise DataError(
                unknown("column", label, part.features)
                + " Set data.label to the column of classes."
            )
        numbered = getattr(part.features[label], "int2str", None)
        names += [str(numbered(each) if numbered else each) for each in part[label]]
    if kind == "features":
        rows = np.concatenate(
            [np.asarray(part.with_format("numpy")[image][:], np.float32) for part in parts.values()]
        )
        return FeatureArray(rows, [f"row {row}" for row in range(len(rows))]), names
    encoded = {split: _encoded(part, image)[image] for split, part in parts.items()}
    return HuggingFaceImages(encoded, folder), names


def _encoded(part: Any, image: str) -> Any:
    """Return a part whose images are bytes or paths: nothing is opened or fetched."""
    return part.with_format(None).cast_column(image, type(part.features[image])(decode=False))

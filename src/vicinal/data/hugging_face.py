"""Data sets of Hugging Face."""

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
from vicinal.files import regular


class HuggingFaceImages(Source):
    """The images of a column of a Hugging Face data set.

    A row holds an image's bytes, or the path of a file: below ``folder``, where the rows come from
    a folder that anyone may have written.
    """

    def __init__(self, rows: Any, folder: Path | None) -> None:
        super().__init__([f"row {row}" for row in range(len(rows))])
        self.rows = rows
        self.folder = folder

    def read(self, index: int) -> Image.Image:
        with self._naming(index):
            if self.rows[index]["bytes"] is None:
                return read_image(self._file(index))
            return decode(io.BytesIO(self.content(index)))

    def content(self, index: int) -> bytes:
        with self._naming(index):
            encoded: bytes | None = self.rows[index]["bytes"]
            return regular(self._file(index)).read_bytes() if encoded is None else encoded

    @contextmanager
    def _naming(self, index: int) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # as of files
            raise DataError(f"image {self.names[index]} cannot be read: {error}.") from error

    def _file(self, index: int) -> Path:
        file = Path(self.rows[index]["path"])
        if self.folder is None:
            return file
        file = (self.folder / file).resolve()
        if not file.is_relative_to(self.folder.resolve()):
            raise DataError(f"{file} lies outside of {self.folder}")
        return file


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
        features = next(iter(self._parts().values())).features
        for setting, name in (("image", self.image), ("label", self.label)):
            if name not in features:
                known = unknown("column", name, features)
                raise DataError(f"{known} Set data.{setting} to the column of {setting}s.")
        return "images" if type(features[self.image]).__name__ == "Image" else "features"

    @property
    def folder(self) -> Path | None:
        """Where the files of images lie."""
        return existing(self.path)

    def _open(self) -> Any:
        try:
            import datasets
        except ImportError:
            raise DataError(
                "Hugging Face's datasets is not installed: `pip install 'vicinal[huggingface]'`"
            ) from None
        return datasets.load_from_disk(str(existing(self.path)))

    def _parts(self) -> Mapping[str, Any]:
        dataset = self._open()
        return dataset if isinstance(dataset, Mapping) else {"train": dataset}

    def load(self) -> Records:
        parts = self._parts()
        kind = self.kind
        from datasets import ClassLabel, concatenate_datasets

        rows = concatenate_datasets([*parts.values()])
        label = rows.features[self.label]
        numbered = label.int2str if isinstance(label, ClassLabel) else str
        names = [str(numbered(each)) for each in rows[self.label]]
        source: Source
        if kind == "features":
            vectors = np.asarray(rows.with_format("numpy")[self.image][:], np.float32)
            source = FeatureArray(vectors, [f"row {row}" for row in range(len(rows))])
        else:  # bytes or paths: nothing is opened or fetched
            encoded = type(rows.features[self.image])(decode=False)
            images = rows.with_format(None).cast_column(self.image, encoded)[self.image]
            source = HuggingFaceImages(images, self.folder)
        splits = [split for split, part in parts.items() for _ in range(len(part))]
        return self._records(
            Path(self.path).name or "data set",
            source,
            names,
            splits if len(parts) > 1 else None,
            lambda row: f"{self.path}, row {row}",
        )


@dataclass(frozen=True)
class FromHuggingFace(HuggingFace):
    """A ``datasets.Dataset`` or ``DatasetDict`` in memory, for Python:
    ``vicinal.train(dataset)``."""

    dataset: Any = None

    def _open(self) -> Any:
        return self.dataset

    @property
    def folder(self) -> None:
        """Files are read wherever they lie: the rows are the user's own."""

    def to_description(self) -> dict[str, str]:
        """Return what a run writes down; the data themselves are the user's."""
        return {"class": "FromHuggingFace", "image": self.image, "label": self.label}

"""Data as other libraries keep it: WebDataset's tar shards, and data sets of Hugging Face."""

import io
import json
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from vicinal.data.folder import is_image
from vicinal.data.images import decode, read_image
from vicinal.data.location import existing
from vicinal.data.packed import TarImages
from vicinal.data.records import FeatureArray, Kind, Records, Source
from vicinal.data.splits import SplitByClass
from vicinal.errors import DataError, unknown

_SPLITS = ("train", "validation", "valid", "val", "test")  # how the names of shards may begin
_MOST = 2**20  # bytes of a label: more is no label


@dataclass(frozen=True)
class Shards(SplitByClass):
    """Images in tar files as WebDataset keeps them: ``KEY.jpg`` beside ``KEY.cls``, or ``KEY.json``
    with its label.

    Where the names of all shards begin with ``train``, ``validation`` (``val``) or ``test``, these
    are the splits; otherwise classes are split here. Shards are read in place, in any order;
    nothing is unpacked.

    Args:
        path: a ``.tar`` file, or a folder of them; ``$VICINAL_DATA`` and ``~`` are expanded.
        label: the name of the label in ``KEY.json``, where there is no ``KEY.cls``.

    >>> Shards("shards/", label="species", test=0.3)
    Shards(path='shards/', test=0.3, order='random', seed=0, label='species')
    """

    label: str = "label"

    @staticmethod
    def lies_in(folder: Path) -> bool:
        """Whether a folder holds shards and no class folders."""
        return any(folder.glob("*.tar")) and not any(each.is_dir() for each in folder.iterdir())

    def load(self) -> Records:
        root = existing(self.path)
        shards = sorted(root.glob("*.tar")) if root.is_dir() else [root]
        if not shards:
            raise DataError(f"{root} holds no .tar file. Name a folder of shards, or one shard.")
        given = [
            next((split for split in _SPLITS if path.name.startswith(split)), None)
            for path in shards
        ]
        names, places, labels, splits = [], [], [], []
        for number, (path, split) in enumerate(zip(shards, given, strict=True)):
            for member, label in self._samples(path):
                if not label:
                    advice = f"Add KEY.cls, or KEY.json with {self.label!r}."
                    raise DataError(f"{path}: {member.name} has no label. {advice}")
                names.append(f"{path.name}/{member.name}")
                places.append((number, member.offset_data, member.size))
                labels.append(label)
                splits.append(split or "")
        if not names:
            raise DataError(
                f"{root} holds no image with a label. A sample is KEY.jpg and KEY.cls, or KEY.json."
            )
        named = splits if all(given) else None
        source = TarImages(
            shards[0].parent, [path.name for path in shards], np.array(places), names
        )
        return self._records(
            root.stem, source, labels, named, lambda row: str(shards[places[row][0]])
        )

    def _samples(self, path: Path) -> Iterator[tuple[tarfile.TarInfo, str]]:
        """Yield the image and the label of each sample, if any; the files of a sample stand beside
        each other."""
        try:
            with tarfile.open(path, "r:") as archive:
                for _, members in groupby(filter(tarfile.TarInfo.isfile, archive), _key):
                    image, label = None, ""
                    for member in members:
                        ending = member.name.rpartition("/")[2].partition(".")[2]
                        if is_image(member.name.rpartition("/")[2]):
                            image = member
                        elif ending in ("cls", "json") and member.size <= _MOST:
                            text = archive.extractfile(member).read().decode()  # type: ignore[union-attr]  # a file
                            found = (
                                text.strip()
                                if ending == "cls"
                                else json.loads(text).get(self.label)
                            )
                            label = label if found is None else str(found)
                    if image is not None:
                        yield image, label
        except (
            tarfile.TarError,
            UnicodeDecodeError,
            ValueError,
            AttributeError,
            EOFError,
            RecursionError,
            OSError,
        ) as error:
            fault = f"{path} cannot be read as a shard: {error}"
            raise DataError(f"{fault}. Shards are uncompressed .tar files.") from error


def _key(member: tarfile.TarInfo) -> str:
    """Return what the files of a sample share: their folder and all before the first dot of their
    names."""
    folder, _, name = member.name.rpartition("/")
    return f"{folder}/{name.partition('.')[0]}"


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

"""Cars196: cars (Krause et al., 3dRR 2013)."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vicinal.data.location import existing
from vicinal.data.published import Missing, Part, first_classes_train, held_to, numbered_from_one
from vicinal.data.records import ImageFiles, Records
from vicinal.errors import DataError

# Song et al., CVPR 2016: the first 98 classes train, the others test.
_PUBLISHED = {"train": Part(images=8_054, classes=98), "test": Part(images=8_131, classes=98)}


@dataclass(frozen=True)
class Cars196:
    """16,185 photographs of 196 models of cars; zero-shot: classes 1-98 train, 99-196 test.

    In its own layout: ``cars_annos.mat`` and ``car_ims/000001.jpg``. The split that the annotations bring, which has
    all classes in both parts, is not used.

    Args:
        path: the set's folder; ``$VICINAL_DATA`` and ``~`` are expanded.
        missing: whether a set that lacks images is refused or used; its name then says what it lacks.
    """

    path: str = "$VICINAL_DATA/cars196"
    missing: Missing = "refuse"

    @staticmethod
    def lies_in(folder: Path) -> bool:
        return (folder / "cars_annos.mat").is_file()

    def load(self, *, strict: bool = True) -> Records:
        """Read the annotations. With ``strict=False`` missing images stay in, for a check that names each of them."""
        root = existing(self.path)
        paths, numbers, classes = _read_annotations(root / "cars_annos.mat")
        labels = numbered_from_one(numbers, classes, lambda row: f"{root / 'cars_annos.mat'}, image {paths[row]}")
        records = Records(
            name="Cars196",
            source=ImageFiles(root, paths),
            labels=labels,
            classes=classes,
            splits=first_classes_train(labels, _PUBLISHED),
        )
        return held_to(_PUBLISHED, records, self.missing, place=root, strict=strict)


def _read_annotations(path: Path) -> tuple[list[str], np.ndarray, tuple[str, ...]]:
    """Path and class number of each image, and the classes' names."""
    from scipy.io import loadmat  # here, for only this set needs it

    if not path.is_file():
        raise DataError(f"{path} was to be read, but does not exist. Name the folder that holds it and car_ims.")
    try:
        content = loadmat(path, squeeze_me=True, variable_names=("annotations", "class_names"))
        annotations = np.atleast_1d(content["annotations"])
        paths = [str(path) for path in annotations["relative_im_path"]]
        numbers = annotations["class"].astype(np.int64)
        return paths, numbers, tuple(str(name) for name in np.atleast_1d(content["class_names"]))
    except Exception as error:  # the reader raises whatever its parsing of a damaged file runs into
        raise DataError(
            f"{path} is not readable as MATLAB annotations with `relative_im_path`, `class` and `class_names`: "
            f"{type(error).__name__}: {error}. Restore it."
        ) from error

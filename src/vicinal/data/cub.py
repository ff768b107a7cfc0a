"""CUB-200-2011: birds (Wah et al., 2011)."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vicinal.data.location import existing
from vicinal.data.published import (
    Missing,
    Part,
    first_classes_train,
    held_to,
    numbered_from_one,
    read_list,
    whole_numbers,
)
from vicinal.data.records import ImageFiles, Records
from vicinal.errors import DataError

# Song et al., CVPR 2016: the first 100 classes train, the others test.
_PUBLISHED = {"train": Part(images=5_864, classes=100), "test": Part(images=5_924, classes=100)}


@dataclass(frozen=True)
class CUB:
    """11,788 photographs of 200 species of birds; zero-shot: classes 1-100 train, 101-200 test.

    In its own layout: ``images.txt``, ``image_class_labels.txt``, ``classes.txt`` and ``images/CLASS/NAME.jpg``. The
    set's ``train_test_split.txt``, which has all classes in both parts, is not used.

    Args:
        path: the set's folder; ``$VICINAL_DATA`` and ``~`` are expanded.
        missing: whether a set that lacks images is refused or used; its name then says what it lacks.
    """

    path: str = "$VICINAL_DATA/CUB_200_2011"
    missing: Missing = "refuse"

    @staticmethod
    def lies_in(folder: Path) -> bool:
        return all((folder / name).is_file() for name in ("images.txt", "image_class_labels.txt"))

    def load(self, *, strict: bool = True) -> Records:
        """Read the lists. With ``strict=False`` missing images stay in, for a check that names each of them."""
        root = existing(self.path)
        classes = read_list(root / "classes.txt", ("class", "name")).texts("name")
        images = read_list(root / "images.txt", ("image", "path"))
        listed = read_list(root / "image_class_labels.txt", ("image", "class"))
        known = numbered_from_one(whole_numbers(listed, "class"), classes, listed.place)
        label_of = dict(zip(listed.texts("image"), known.tolist(), strict=True))
        ids = images.texts("image")
        for row, image in enumerate(ids):
            if image not in label_of:
                raise DataError(f"{images.place(row)}: image {image} has no class in {listed.path}. Restore the lists.")
        labels = np.array([label_of[image] for image in ids], dtype=np.int64)
        records = Records(
            name="CUB-200-2011",
            source=ImageFiles(root / "images", images.texts("path")),
            labels=labels,
            classes=tuple(classes),
            splits=first_classes_train(labels, _PUBLISHED),
        )
        return held_to(_PUBLISHED, records, self.missing, place=root, strict=strict)

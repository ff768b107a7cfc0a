"""A folder of class folders."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vicinal.data.location import existing, expanded
from vicinal.data.records import ImageFiles, Records
from vicinal.data.splits import Order, by_class, classes_of, named_splits
from vicinal.errors import DataError

ENDINGS = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"})
_LAYOUTS = ({"train", "test"}, {"train", "test", "validation"}, {"train", "test", "val"})
_SPLIT_NAMES = frozenset().union(*_LAYOUTS)


@dataclass(frozen=True)
class Folder:
    """Images in one folder per class: ``PATH/class/**/image.jpg``.

    Where the top level is exactly ``train`` and ``test``, or these with ``validation`` or ``val``, they are the
    splits and hold the class folders. Otherwise classes are split here. Hidden files are left out, and so are files
    without an image's ending.

    Args:
        path: the folder; ``$VICINAL_DATA`` and ``~`` are expanded.
        test: share of the classes that are for testing, where the folders do not say.
        order: whether those are drawn or the last ones of the sorted names.
        seed: of the draw.
    """

    path: str
    test: float = 0.5
    order: Order = "random"
    seed: int = 0

    def load(self, *, strict: bool = True) -> Records:
        """List the images. With ``strict=False`` classes without one stay, for a check that names each of them."""
        root = existing(self.path)
        if not root.is_dir():
            raise DataError(f"a folder of class folders was to be read, but {root} is a file. Name the folder.")
        tops = _folders(root)
        if set(tops) in _LAYOUTS:
            found = [
                (split, name, _images(root, f"{split}/{name}")) for split in tops for name in _folders(root / split)
            ]
        elif tops and set(tops) <= _SPLIT_NAMES:
            raise DataError(
                f"{root} holds only {', '.join(tops)}. Splits are `train` and `test`, with or without "
                f"`validation`; add the missing one, or name the folder that holds the class folders."
            )
        else:
            found = [("", name, _images(root, name)) for name in tops]
        empty = _empty_classes(root, found, strict=strict)
        paths = [path for _, _, images in found for path in images]
        classes, labels = classes_of([name for _, name, images in found for _ in images])
        given = [split for split, _, images in found for _ in images]
        if given[0]:
            splits = named_splits(given, lambda row: str(root / paths[row]))
        else:
            splits = by_class(labels, classes, self.test, self.order, self.seed)
        return Records(
            name=root.resolve().name,
            source=ImageFiles(root, paths),
            labels=labels,
            classes=(*classes, *empty),
            splits=splits,
        )


def _folders(root: Path) -> list[str]:
    return sorted(entry.name for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def _images(root: Path, folder: str) -> list[str]:
    """Images below a class folder as sorted paths from the root, ``/`` between parts on every system."""
    found = []
    for here, folders, files in os.walk(root / folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        images = [name for name in files if _is_image(name)]
        found += [(Path(here) / name).relative_to(root).as_posix() for name in images]
    return sorted(found)


def _is_image(name: str) -> bool:
    return Path(name).suffix.lower() in ENDINGS and not name.startswith(".")


def _empty_classes(root: Path, found: list[tuple[str, str, list[str]]], *, strict: bool) -> tuple[str, ...]:
    """The class folders without an image; refused if ``strict``, or if there is no image at all."""
    if not found:
        loose = sum(_is_image(entry.name) for entry in root.iterdir())
        beside = f"; {loose} images lie in it directly" if loose else ""
        raise DataError(f"{root} should hold one folder per class, but has none{beside}. Put each class in its own.")
    empty = tuple("/".join(filter(None, (split, name))) for split, name, images in found if not images)
    if empty and (strict or len(empty) == len(found)):
        named = ", ".join(empty[:5]) + (", ..." if len(empty) > 5 else "")
        raise DataError(
            f"every class folder of {root} should hold images ({', '.join(sorted(ENDINGS))}), but {len(empty)} of "
            f"{len(found)} hold none: {named}. Fill or remove them."
        )
    return empty


def without_labels(path: str) -> Records | None:
    """Images that nobody sorted, as rows of one class named like their folder: for embedding, not for training.

    ``path`` is an image file or a folder without class folders; None for anything else.
    """
    root = expanded(path)
    if root.is_file() and _is_image(root.name):
        root, paths = root.parent, [root.name]
    elif root.is_dir() and not _folders(root):
        paths = sorted(entry.name for entry in root.iterdir() if _is_image(entry.name))
    else:
        paths = []
    if not paths:
        return None
    labels, splits = np.zeros(len(paths), np.int64), np.full(len(paths), "test")
    name = root.resolve().name
    return Records(name=name, source=ImageFiles(root, paths), labels=labels, classes=(name,), splits=splits)

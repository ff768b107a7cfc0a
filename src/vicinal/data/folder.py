"""A folder of class folders."""

import os
from dataclasses import dataclass
from pathlib import Path

from vicinal.data.location import existing
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

    def load(self) -> Records:
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
        _refuse_empty(root, found)
        paths = [path for _, _, images in found for path in images]
        classes, labels = classes_of([name for _, name, images in found for _ in images])
        given = [split for split, _, images in found for _ in images]
        if given[0]:
            splits = named_splits(given, lambda row: str(root / paths[row]))
        else:
            splits = by_class(labels, classes, self.test, self.order, self.seed)
        return Records(
            name=root.resolve().name, source=ImageFiles(root, paths), labels=labels, classes=classes, splits=splits
        )


def _folders(root: Path) -> list[str]:
    return sorted(entry.name for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def _images(root: Path, folder: str) -> list[str]:
    """Images below a class folder as sorted paths from the root, ``/`` between parts on every system."""
    found = []
    for here, folders, files in os.walk(root / folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        images = [name for name in files if Path(name).suffix.lower() in ENDINGS and not name.startswith(".")]
        found += [(Path(here) / name).relative_to(root).as_posix() for name in images]
    return sorted(found)


def _refuse_empty(root: Path, found: list[tuple[str, str, list[str]]]) -> None:
    if not found:
        loose = sum(Path(entry.name).suffix.lower() in ENDINGS for entry in root.iterdir())
        beside = f"; {loose} images lie in it directly" if loose else ""
        raise DataError(f"{root} should hold one folder per class, but has none{beside}. Put each class in its own.")
    empty = ["/".join(filter(None, (split, name))) for split, name, images in found if not images]
    if empty:
        named = ", ".join(empty[:5]) + (", ..." if len(empty) > 5 else "")
        raise DataError(
            f"{len(empty)} of the {len(found)} class folders of {root} hold no image "
            f"({', '.join(sorted(ENDINGS))}): {named}. Fill or remove them."
        )

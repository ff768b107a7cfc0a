"""Where data lie: the folder of data sets that VICINAL_DATA names, the user's cache of what can be
made again, and folders of class folders."""

import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from vicinal.data.records import ImageFiles, Records, as_text
from vicinal.data.splits import Labeled, grouped, labels_in
from vicinal.errors import DataError, few
from vicinal.files import HEIC, read_arrays, write_arrays
from vicinal.remote import cache_folder, listed, mirrored

ENDINGS = frozenset(
    {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", *HEIC}
)
SPLIT_FOLDERS = {"train", "test", "validation", "val"}
_VARIABLE = "VICINAL_DATA"
_REPOSITORY = Path(__file__).parents[3]  # repository/src/vicinal/data/folder.py


def data_root() -> Path:
    """Return the folder of data sets: VICINAL_DATA, or ``../shared/data`` from the repository. It
    need not exist."""
    named = os.environ.get(_VARIABLE)
    return Path(named).expanduser() if named else _REPOSITORY.parent / "shared" / "data"


def expanded(path: str) -> Path:
    """Expand ``$VICINAL_DATA/...`` and ``~`` in a data set's ``path``; of a URL, its mirror.

    The data set keeps the short form, so that a run's description holds on another machine too.
    """
    for spelling in (f"${_VARIABLE}", f"${{{_VARIABLE}}}"):
        if path == spelling or path.startswith(spelling + "/"):
            return data_root() / path[len(spelling) :].lstrip("/")
    return mirrored(path) if "://" in path else Path(path).expanduser()


def existing(path: str) -> Path:
    """Return ``expanded(path)``; an error where no file or folder lies there."""
    found = listed(expanded(path))
    if not found.exists():
        unset = _VARIABLE in path and not os.environ.get(_VARIABLE)
        advice = f"Set {_VARIABLE} to the folder of data sets." if unset else "Check the path."
        raise DataError(f"no data at {path}: {found} does not exist. {advice}")
    if not found.is_file() and not found.is_dir():  # a pipe would wait for whoever writes into it
        raise DataError(f"{found} is neither a file nor a folder. Check the path.")
    return found


def cached(name: str, make: Callable[[], Mapping[str, np.ndarray]]) -> Mapping[str, np.ndarray]:
    """Return the arrays that the user's cache has under a name; make them where it has none, or
    damaged ones.

    Args:
        name: of the file, with a hash of all that the arrays depend on.
        make: makes them.
    """
    path = cache_folder() / f"{name}.npz"
    if not path.is_absolute():  # of a user without a home
        return make()
    with contextlib.suppress(OSError, DataError):  # absent or damaged: it can be made again
        return read_arrays(path)
    made = make()
    # A cache that cannot be written costs seconds the next time, no more.
    with contextlib.suppress(OSError):
        write_arrays(path, made)
    return made


class Folder(Labeled):
    """Images in one folder per class: ``PATH/class/**/image.jpg``.

    Where the top level is exactly ``train`` and ``test``, or these with ``validation`` or ``val``,
    they are the splits and hold the class folders. Otherwise classes are split here. Hidden files
    are left out, and so are files without an image's ending. With ``hierarchy`` as many levels of
    folders as it names lie above the class folders: ``PATH/family/genus/class/**/image.jpg``.

    Args:
        path: the folder; ``$VICINAL_DATA`` and ``~`` are expanded.
        test: share of the classes that are for testing, where the folders do not say.
        order: whether those are drawn or the last ones of the sorted names.
        seed: of the draw.
    """

    def load(self, *, strict: bool = True) -> Records:
        """List the images. With ``strict=False`` classes without one stay, for a check that names
        each of them."""
        root = existing(self.path)
        if not root.is_dir():
            raise DataError(
                f"{root} should be a folder of class folders, but is a file. Name the folder."
            )
        tops = folders_in(root)
        split = {"train", "test"} <= set(tops) <= SPLIT_FOLDERS
        if tops and not split and set(tops) <= SPLIT_FOLDERS:
            raise DataError(
                f"{root} holds only {', '.join(tops)}. Splits are `train` and `test`, with or "
                "without `validation`; add the missing one, or name the folder that holds the "
                "class folders."
            )
        names = tops
        for _ in range(split + len(self.hierarchy)):
            names = [f"{name}/{inner}" for name in names for inner in folders_in(root / name)]
        images = {name: images_below(root, name) for name in names}
        empty = [name for name, found in images.items() if not found]
        if len(empty) == len(images) or (empty and strict):
            found = f"{len(empty)} of {len(images)} hold none: {few(empty, 5)}" if empty else "none"
            raise DataError(
                f"{root} should hold one folder of images per class, but {found}. Put each class "
                f"in its own ({', '.join(sorted(ENDINGS))})."
            )
        paths = [path for found in images.values() for path in found]
        folders = [name for name, found in images.items() for _ in found]
        given = [name.split("/")[0] for name in folders] if split else None
        source = ImageFiles(root, paths)
        parts = [name.split("/")[split:] for name in folders]
        labels = [labels_in(names[-1], self.separator) for names in parts]
        records = self._records(
            root.resolve().name, source, labels, given, lambda row: str(root / paths[row])
        )
        groups = zip(self.hierarchy, zip(*parts, strict=True), strict=False)
        records = replace(records, classes=(*records.classes, *map(as_text, empty)))
        return grouped(records, dict(groups))


def folders_in(root: Path) -> list[str]:
    """Return the names of the folders in a folder, sorted, without hidden ones."""
    return sorted(
        entry.name for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith(".")
    )


def images_below(root: Path, folder: str) -> list[str]:
    """Return the images below a folder of the root as sorted paths from the root, ``/`` between
    parts on every system."""
    found = []
    for here, folders, files in os.walk(root / folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        inside = Path(here).relative_to(root).as_posix().removeprefix(".")
        found += [f"{inside}/{name}".lstrip("/") for name in files if is_image(name)]
    return sorted(found)


def is_image(name: str) -> bool:
    """Whether a file's name has an image's ending and is not hidden."""
    return name[name.rfind(".") :].lower() in ENDINGS and not name.startswith(".")


def without_labels(path: str) -> Records | None:
    """Return unsorted images as rows of one class named like their folder: for embedding, not for
    training.

    ``path`` is an image file or a folder without class folders; None for anything else.
    """
    root = expanded(path)
    files = [root] if root.is_file() else [*root.iterdir()] if root.is_dir() else []
    if any(file.is_dir() for file in files if not file.name.startswith(".")):
        return None
    paths = sorted(file.name for file in files if is_image(file.name))
    if not paths:
        return None
    folder = files[0].parent
    name = folder.resolve().name
    labels = np.zeros(len(paths), np.int64)
    splits = np.full(len(paths), "test")
    return Records(name, ImageFiles(folder, paths), labels, (name,), splits)

"""In-Shop Clothes Retrieval, a benchmark of DeepFashion (Liu et al., CVPR 2016)."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vicinal.data.location import existing
from vicinal.data.published import Missing, Part, held_to, read_list
from vicinal.data.records import ImageFiles, Records
from vicinal.data.splits import classes_of
from vicinal.errors import DataError, unknown

# Liu et al., CVPR 2016.
_PUBLISHED = {
    "train": Part(images=25_882, classes=3_997),
    "query": Part(images=14_218, classes=3_985),
    "gallery": Part(images=12_612, classes=3_985),
}
_ROLES = {"train": 0, "query": 1, "gallery": 2}  # as Records has them
_COLUMNS = ("image_name", "item_id", "evaluation_status")


@dataclass(frozen=True)
class InShop:
    """52,712 photographs of 7,982 items of clothing; items to train on, and others to query a gallery for.

    In its own layout: ``list_eval_partition.txt`` and ``img/``, or ``Eval/list_eval_partition.txt`` and ``Img/img/`` as
    the archive of all of DeepFashion has them. Query and gallery are both split ``test``; the column ``role`` of the
    records parts them.

    Args:
        path: the set's folder; ``$VICINAL_DATA`` and ``~`` are expanded.
        missing: whether a set that lacks images is refused or used; its name then says what it lacks.
    """

    path: str = "$VICINAL_DATA/inshop"
    missing: Missing = "refuse"

    @staticmethod
    def lies_in(folder: Path) -> bool:
        path = _list_in(folder)
        if not path.is_file():
            return False
        with path.open("rb") as file:  # CelebA, of the same authors, has a list of this name, but no such header
            return _COLUMNS[1].encode() in file.read(200)

    def load(self, *, strict: bool = True) -> Records:
        """Read the list. With ``strict=False`` missing images stay in, for a check that names each of them."""
        root = existing(self.path)
        listed = read_list(_list_in(root), _COLUMNS, header=2)
        parts = np.array(listed.texts("evaluation_status"), dtype=str)
        for row in np.flatnonzero(~np.isin(parts, list(_ROLES))):
            raise DataError(f"{listed.place(int(row))}: " + unknown("evaluation status", str(parts[row]), _ROLES))
        classes, labels = classes_of(listed.texts("item_id"))
        records = Records(
            name="In-Shop",
            source=ImageFiles(root / "Img" if (root / "Img" / "img").is_dir() else root, listed.texts("image_name")),
            labels=labels,
            classes=classes,
            splits=np.where(parts == "train", "train", "test"),
            columns={"role": np.array([_ROLES[part] for part in parts], dtype=np.int64)},
        )
        return held_to(_PUBLISHED, records, self.missing, place=root, parts=parts, strict=strict)


def _list_in(folder: Path) -> Path:
    beside = folder / "Eval" / "list_eval_partition.txt"
    return beside if beside.is_file() else folder / "list_eval_partition.txt"

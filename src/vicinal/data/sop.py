"""Stanford Online Products (Song et al., CVPR 2016)."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vicinal.data.location import existing
from vicinal.data.published import Missing, Part, held_to, read_list, whole_numbers
from vicinal.data.records import ImageFiles, Records

# Song et al., CVPR 2016.
_PUBLISHED = {"train": Part(images=59_551, classes=11_318), "test": Part(images=60_502, classes=11_316)}
_LISTS = {"train": "Ebay_train.txt", "test": "Ebay_test.txt"}
_COLUMNS = ("image_id", "class_id", "super_class_id", "path")


@dataclass(frozen=True)
class StanfordOnlineProducts:
    """120,053 photographs of 22,634 products from online shops, in 12 kinds; split by product as published.

    In its own layout: ``Ebay_train.txt``, ``Ebay_test.txt`` and ``KIND_final/NAME.JPG``. The column ``super_class``
    of the records is the number of the kind, 1-12.

    Args:
        path: the set's folder; ``$VICINAL_DATA`` and ``~`` are expanded.
        missing: whether a set that lacks images is refused or used; its name then says what it lacks.
    """

    path: str = "$VICINAL_DATA/Stanford_Online_Products"
    missing: Missing = "refuse"

    @staticmethod
    def lies_in(folder: Path) -> bool:
        return any((folder / name).is_file() for name in _LISTS.values())

    def load(self, *, strict: bool = True) -> Records:
        """Read the lists. With ``strict=False`` missing images stay in, for a check that names each of them."""
        root = existing(self.path)
        lists = {split: read_list(root / name, _COLUMNS, header=1) for split, name in _LISTS.items()}
        paths = [path for rows in lists.values() for path in rows.texts("path")]
        products, kinds = (
            np.concatenate([whole_numbers(rows, name) for rows in lists.values()])
            for name in ("class_id", "super_class_id")
        )
        numbers, first, labels = np.unique(products, return_index=True, return_inverse=True)
        records = Records(
            name="Stanford Online Products",
            source=ImageFiles(root, paths),
            labels=labels,
            classes=tuple(
                f"{paths[row].split('/')[0].removesuffix('_final')}/{number}"
                for number, row in zip(numbers, first, strict=True)
            ),
            splits=np.repeat(list(lists), [len(rows) for rows in lists.values()]),
            columns={"super_class": kinds},
        )
        return held_to(_PUBLISHED, records, self.missing, place=root, strict=strict)

"""Embeddings as a folder of Parquet shards: what ``vicinal embed`` writes and every command reads.

A shard has the columns ``path``, ``label``, ``split``, ``content`` (of what was embedded, see
``check.contents``), further numbers and ``vector``.
``embeddings.json`` says how many shards there are and which model made the vectors.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from vicinal.data.check import contents
from vicinal.data.folder import cache_folder, existing
from vicinal.data.records import FeatureArray, Records
from vicinal.data.splits import SplitByClass
from vicinal.data.table import pyarrow_module, read_columns
from vicinal.errors import DataError
from vicinal.files import decoding, read_object, write_atomically

MANIFEST = "embeddings.json"
_TEXTS = ("path", "label", "split")


def shard_path(folder: Path, number: int) -> Path:
    """Return where a shard lies."""
    return folder / f"part-{number:05d}.parquet"


def write_shard(path: Path, records: Records, vectors: Float[np.ndarray, "n d"]) -> None:
    """Write the vectors of some records, whole or not at all."""
    arrow = pyarrow_module()
    columns: Mapping[str, Any] = {
        "path": [records.source.name(row) for row in range(len(records))],
        "label": [records.classes[label] for label in records.labels],
        "split": records.splits.tolist(),
        "content": contents(records),
        **records.columns,
        "vector": arrow.FixedSizeListArray.from_arrays(vectors.reshape(-1), vectors.shape[1]),
    }
    table = arrow.table(columns)
    texts = [*_TEXTS]
    write_atomically(
        path, lambda file: arrow.parquet.write_table(table, file, use_dictionary=texts)
    )


def embedding_count(folder: Path) -> int:
    """Return how many embeddings a folder holds."""
    read = pyarrow_module().parquet.read_metadata
    return sum(read(file).num_rows for file in folder.glob("part-*.parquet"))


@dataclass(frozen=True)
class Embeddings(SplitByClass):
    """Embeddings that ``vicinal embed`` wrote as a folder of Parquet shards.

    They lie in a temporary file while they are used, not in memory. A run whose model made them
    takes them as its embeddings; any other takes them as feature vectors.

    Args:
        path: the folder; ``$VICINAL_DATA`` and ``~`` are expanded.

    >>> Embeddings("embedded/")
    Embeddings(path='embedded/', test=0.5, order='random', seed=0)
    """

    kind: ClassVar[str] = "features"

    @staticmethod
    def lies_in(folder: Path) -> bool:
        """Whether a folder holds embeddings."""
        return (folder / MANIFEST).is_file()

    def load(self) -> Records:
        root = existing(self.path)
        with decoding(root / MANIFEST):
            about = read_object(root / MANIFEST)
            files = [shard_path(root, number) for number in range(about["shards"])]
            shape = (about["rows"], about["dim"])
            model = about["model"]
        if missing := [file.name for file in files if not file.is_file()]:
            raise DataError(
                f"{root} lacks {len(missing)} of {len(files)} shards, such as {missing[0]}. Give "
                "the same `vicinal embed` once more: it goes on."
            )
        cache_folder().mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=cache_folder()) as space:
            vectors = np.memmap(space, np.float32, "w+", shape=shape)
        parts = list[dict[str, Any]]()
        count = 0
        for file in files:
            cells = read_columns(file).cells
            found = np.reshape(cells.pop("vector"), (-1, shape[1]))
            if not np.isfinite(found).all():
                raise DataError(f"{file} holds NaN or infinite numbers. Check the model.")
            vectors[count : count + len(found)] = found
            count += len(found)
            parts.append(cells)
        columns = {name: [cell for part in parts for cell in part[name]] for name in parts[0]}
        source = FeatureArray(vectors[:count], columns["path"])
        source.model = model
        source.contents = np.array(columns.pop("content"), np.uint64)
        numbers = {name: np.array(columns[name]) for name in columns if name not in _TEXTS}
        return self._records(
            root.name, source, columns["label"], columns["split"], source.name, numbers
        )

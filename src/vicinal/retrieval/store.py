"""What a collection holds, and the exact search over its vectors that needs no other engine."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from vicinal.distances import Metric
from vicinal.errors import DataError
from vicinal.evaluation.neighbors import Gallery, Neighbors, joined, require_finite
from vicinal.files import followed

Queries = Float[np.ndarray, "q d"]
Where = Mapping[str, str]  # attributes that what is found must have
_CHUNK_BYTES = 2**26  # of products at a time
# a part of the rows smaller than 1/8 is copied out rather than masked: a product over all costs
# more
_GATHER = 8


@dataclass(frozen=True)
class Place:
    """A folder, table, array file or data set that was indexed.

    Attributes:
        path: what the user named, absolute; by it a place is known again.
        kind: folder, table, features or data set.
        root: folder below which the items' pictures lie, absolute; None where there are no picture
            files.
        split: the part of a data set that was indexed; ``"all"`` for all of it.
        images: what ``--images`` named, so that indexing again need not name it again.
        description: of a data set that keeps its pictures in another form than files, as
            ``DATASETS`` build it.
    """

    path: str
    kind: str
    root: str | None
    split: str = "all"
    images: str | None = None
    description: Any = None

    def file(self, path: str) -> Path | None:
        """Return the picture file of an item; None where this place has no files; a DataError
        outside the root.

        Links are followed before the check, so that neither ``..`` nor a link leads out.
        """
        if self.root is None:
            return None
        root = followed(Path(self.root))
        found = followed(root / path)
        if not found.is_relative_to(root):
            raise DataError(
                f"{path!r} leads out of the indexed folder {root} and is not read. Index that "
                "file's own."
            )
        return found


@dataclass(frozen=True)
class Item:
    """One item in a collection.

    Attributes:
        id: stays with the item through all generations, also when its content changes; never used
            again.
        path: where it lies below its place (``Snapshot.places``), ``/`` between parts; for feature
            vectors their name.
        label: its class, where one is known.
        metadata: further facts by which a search can be narrowed.
        place: position of the folder, table or array file it is from in ``Snapshot.places``.
        digest: SHA-256 of its content, by which a change is detected.
    """

    id: int
    path: str
    label: str | None
    metadata: Mapping[str, str] = field(default_factory=dict)
    place: int = 0
    digest: str = ""

    @property
    def attributes(self) -> dict[str, str]:
        """What a search can be narrowed by: metadata, ``label`` and ``path``."""
        label = {} if self.label is None else {"label": self.label}
        return {**self.metadata, "path": self.path, **label}


class FlatStore:
    """All vectors in one matrix, which may be a memory map, prepared once and searched often.

    Args:
        vectors: float32; kept, not copied, where it may be (rows no longer than 1).
        metric: by which rows are near.
    """

    def __init__(self, vectors: Float[np.ndarray, "n d"], metric: Metric = "euclidean") -> None:
        self.vectors = vectors
        self.metric = metric

    @cached_property
    def gallery(self) -> Gallery:
        return Gallery(_tensor(self.vectors), self.metric, in_place=True)

    def search(
        self, queries: Queries, k: int, *, among: Int[np.ndarray, "m"] | None = None
    ) -> Neighbors:
        """Find the ``k`` nearest rows of each query, exactly, among all or some ascending ones; ids
        end in -1 where there is no further one."""
        asked = torch.from_numpy(np.array(queries, dtype=np.float32))
        require_finite(asked, "queries")
        total = len(self.vectors)
        if among is None or len(among) == total:
            return self._nearest(asked, k, None)
        excluded = torch.ones(total, dtype=torch.bool)
        excluded[torch.from_numpy(among)] = False
        if len(among) * _GATHER >= total:
            return self._nearest(asked, k, excluded)
        found = FlatStore(np.array(self.vectors[among]), self.metric)._nearest(asked, k, None)
        return replace(found, ids=torch.from_numpy(np.append(among, -1)[found.ids.numpy()]))

    def _nearest(self, asked: torch.Tensor, k: int, excluded: torch.Tensor | None) -> Neighbors:
        if not len(self.vectors):
            shape = len(asked), k
            return Neighbors(0, torch.full(shape, -1), torch.full(shape, torch.inf))
        chunks = self.gallery.search(asked, k, excluded=excluded, chunk_bytes=_CHUNK_BYTES)
        return joined(chunks, asked, k)


def _tensor(vectors: Float[np.ndarray, "n d"]) -> torch.Tensor:
    """Return an array, which may be read-only, as a tensor that nobody writes to."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(vectors)

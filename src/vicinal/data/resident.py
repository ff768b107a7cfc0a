"""Images decoded once and kept on the device as one uint8 tensor; batches are cut from it there.

The same batches as ``loader.load`` and ``loader.load_all`` make of the same records, plan, transform, seed and epoch:
the same rows in the same order, and the same pixels (resized crops on a GPU to one grey level, see ``cutting``). The
host only computes parameters, for several batches ahead, and never waits for the GPU.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise
from typing import Literal

import numpy as np
import torch
from jaxtyping import Int, UInt8
from torch import Tensor

from vicinal.data.crops import Crops, sent
from vicinal.data.cutting import cut_resized, cut_squares
from vicinal.data.draws import uniform
from vicinal.data.records import Batch, Records, Source
from vicinal.data.transforms import ImageTransform, Transform
from vicinal.errors import ConfigError, DataError

BATCHES_AHEAD = 16  # parameters sent at once: few transfers, and no long wait for the first batch


@dataclass(frozen=True)
class Resident:
    """Prepared images of a source on one device.

    Attributes:
        pixels: one prepared image per slot.
        transform: that prepared them; others may be used that prepare alike (``ImageTransform.preparation``).
        source: that holds the images; any records that read from it are served.
        slots: for each position in the source the place in ``pixels``, or -1.
        unreadable: positions that could not be read, with the reason; their slots are black.
        dtype: of the inputs that come out.
        channels_last: whether their memory is laid out pixel by pixel, as convolutions on a GPU like it.
    """

    pixels: UInt8[Tensor, "m c h w"]
    transform: ImageTransform
    source: Source
    slots: Int[np.ndarray, "p"]
    unreadable: Mapping[int, str]
    dtype: torch.dtype = torch.float32
    channels_last: bool = False

    def serves(self, records: Records, transform: Transform) -> bool:
        """Whether these records under this transform are here."""
        source, positions = records.source.origin(np.arange(len(records)))
        return (
            isinstance(transform, ImageTransform)
            and source is self.source
            and transform.preparation == self.transform.preparation
            and transform.size <= min(self.pixels.shape[2:])
            and bool((self.slots[positions] >= 0).all())
        )

    def load(
        self,
        records: Records,
        plan: Iterable[Sequence[int]],
        transform: ImageTransform,
        *,
        seed: int,
        epoch: int,
        skip_corrupt: bool = False,
        start: int = 0,
    ) -> Iterator[Batch]:
        """Yield one batch per index list of the plan, on the device; see ``loader.load``."""
        self._refuse_strangers(records, transform)
        corrupt: Literal["replace", "refuse"] = "replace" if skip_corrupt else "refuse"
        return self._batches(records, islice(plan, start, None), transform, seed, epoch, corrupt)

    def load_all(
        self, records: Records, transform: ImageTransform, *, batch_size: int = 256, skip_corrupt: bool = False
    ) -> Iterator[Batch]:
        """Yield all records in their order, not augmented; see ``loader.load_all``."""
        if batch_size < 1:
            raise ConfigError(f"batches hold at least 1 row, but batch_size = {batch_size} came.")
        self._refuse_strangers(records, transform)
        plan = (range(first, min(first + batch_size, len(records))) for first in range(0, len(records), batch_size))
        return self._batches(records, plan, transform.evaluation(), 0, 0, "drop" if skip_corrupt else "refuse")

    def _refuse_strangers(self, records: Records, transform: Transform) -> None:
        if not self.serves(records, transform):
            raise ConfigError(
                f"the images of {records.name} under {transform} were asked for, but the tensor on "
                f"{self.pixels.device} holds {len(self.pixels)} images as {self.transform} prepares them. "
                f"Decode all records that are used, with the settings of resize, canvas, pad and channels in use."
            )

    def _batches(
        self,
        records: Records,
        plan: Iterable[Sequence[int]],
        transform: ImageTransform,
        seed: int,
        epoch: int,
        corrupt: Literal["refuse", "replace", "drop"],
    ) -> Iterator[Batch]:
        device, plan = self.pixels.device, iter(plan)
        normalisation = transform.normalisation(device)
        while chunk := list(islice(plan, BATCHES_AHEAD)):
            picked = [self._picked(records, indices, corrupt) for indices in chunk]
            rows = np.concatenate([kept for kept, _ in picked])
            draws = uniform(seed, epoch, rows, transform.draws) if transform.draws else None
            height, width = (np.full(len(rows), length) for length in self.pixels.shape[2:])
            crops = transform.crops(height, width, draws).to(device)
            slots = sent(torch.from_numpy(self.slots[records.source.origin(rows)[1]]), device)
            labels = sent(torch.from_numpy(records.labels[rows].astype(np.int64)), device)
            columns = {name: _column(column[rows]) for name, column in records.columns.items()}
            extras = {name: sent(column, device) for name, column in columns.items()}
            ends = accumulate((len(kept) for kept, _ in picked), initial=0)
            for (kept, skipped), (first, last) in zip(picked, pairwise(ends), strict=True):
                part = slice(first, last)
                cut = self._cut(transform, slots[part], crops[part])
                if self.channels_last:
                    cut = cut.contiguous(memory_format=torch.channels_last)
                yield Batch(
                    inputs=transform.finish(cut, crops.colour[part], normalisation).to(self.dtype),
                    labels=labels[part],
                    indices=torch.from_numpy(kept),
                    extras={name: column[part] for name, column in extras.items()},
                    skipped=skipped,
                )

    def _cut(self, transform: ImageTransform, slots: Tensor, crops: Crops) -> Tensor:
        if transform.crop != "resized":
            return cut_squares(self.pixels, slots, crops, transform.size)
        if self._resizes_by_pillow:
            return transform.cut([self.pixels[slot] for slot in slots.tolist()], crops)
        return cut_resized(self.pixels, slots, crops, transform.size)

    @property
    def _resizes_by_pillow(self) -> bool:
        """On a CPU: Pillow reads the few pixels that have weight, where a product of matrices reads them all."""
        return self.pixels.device.type == "cpu"

    def _picked(
        self, records: Records, indices: Sequence[int], corrupt: Literal["refuse", "replace", "drop"]
    ) -> tuple[Int[np.ndarray, "n"], tuple[int, ...]]:
        """The rows that make a batch, and those that were asked for but cannot be read."""
        wanted = np.asarray(indices, dtype=np.int64)
        if len(wanted) and not 0 <= wanted.min() <= wanted.max() < len(records):
            raise ConfigError(
                f"a batch asks for rows {wanted.min()} to {wanted.max()} of {records.name}, which has {len(records)}. "
                f"Plan batches on the records that are loaded."
            )
        if not self.unreadable:
            return wanted, ()
        skipped = self._unreadable(records, wanted)
        if not skipped.any():
            return wanted, ()
        if corrupt == "refuse":
            raise DataError(self.unreadable[int(records.source.origin(wanted[skipped])[1][0])])
        rows = list[int]()
        for row, bad in zip(wanted.tolist(), skipped, strict=True):
            if not bad:
                rows.append(row)
            elif corrupt == "replace":
                rows.append(self._replacement(records, row, {*wanted.tolist(), *rows}))
        return np.array(rows, dtype=np.int64), tuple(wanted[skipped].tolist())

    def _unreadable(self, records: Records, rows: np.ndarray) -> np.ndarray:
        return np.isin(records.source.origin(rows)[1], list(self.unreadable))

    def _replacement(self, records: Records, row: int, batch: set[int]) -> int:
        """The row that the loader would take: the next readable one of the class, one of the batch only in need."""
        members = np.flatnonzero(records.labels == records.labels[row])
        others = np.roll(members, -np.searchsorted(members, row))[1:]
        readable = others[~self._unreadable(records, others)].tolist()
        if not readable:
            raise DataError(
                f"{records.source.name(row)} cannot be read, and no other image of its class "
                f"{records.classes[records.labels[row]]!r} can take its place ({len(others)} tried). "
                f"Restore the files or remove the class; `vicinal data check` lists all such files."
            )
        return int(min(readable, key=batch.__contains__))


def _column(values: np.ndarray) -> Tensor:
    column = torch.from_numpy(values)
    return column.float() if column.is_floating_point() else column

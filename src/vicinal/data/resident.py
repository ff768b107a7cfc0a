"""Images decoded once and kept on the device as one uint8 tensor; batches are cut from it there.

The same batches as ``loader.Loader`` and ``loader.load_all`` make of the same records, plan, transform, seed and epoch:
the same rows in the same order, and the same pixels (resized crops on a GPU to one gray level, see ``augmentation``).
The host only computes parameters, for several batches ahead, and never waits for the GPU.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import accumulate, islice, pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from filelock import FileLock
from jaxtyping import Int, UInt8
from torch import Tensor

from vicinal.data.augmentation import Crops, cut_resized, cut_squares, to_device
from vicinal.data.draws import uniform
from vicinal.data.loader import Corrupt, Plan, Processes, checked_rows, readable_rows, tensor_columns
from vicinal.data.records import Batch, ImageArray, Progress, Records, Source
from vicinal.data.transforms import ImageTransform, TrainingTransform, Transform
from vicinal.errors import ConfigError, DataError
from vicinal.files import read_array

BATCHES_AHEAD = 16  # parameters sent at once: few transfers, and no long wait for the first batch
DECODED = "VICINAL_DECODED"  # names a folder in which processes of one machine, as a bench's jobs, share decoded images
IMAGES_AT_ONCE = 64  # decoded on the host before they go to the device
_SHARED_AT_ONCE = 1024  # of those that another process has decoded
_WORTH_PROCESSES = 500  # images: fewer are decoded before processes have started
_FREE_SHARE = {"cuda": 0.5, "cpu": 0.25}  # of the free memory that `auto` may take: the network needs the rest

Residency = Literal["auto", "on", "off"]


@dataclass(frozen=True)
class Resident:
    """Prepared images of a source on one device.

    Attributes:
        pixels: one prepared image per slot.
        transform: that prepared them; others may be used that prepare alike (``ImageTransform.preparation``).
        source: that holds the images; any records that read from it are served.
        slots: for each position in the source the place in ``pixels``, or -1.
        unreadable: positions that could not be read, with the reason; their slots are black.
        channels_last: whether the memory of inputs is laid out pixel by pixel, as convolutions on a GPU like it.
    """

    pixels: UInt8[Tensor, "m c h w"]
    transform: ImageTransform
    source: Source
    slots: Int[np.ndarray, "p"]
    unreadable: Mapping[int, str]
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

    def batches(
        self, records: Records, plan: Plan, transform: ImageTransform, seed: int, epoch: int, corrupt: Corrupt
    ) -> Iterator[Batch]:
        """Yield one batch per index list of the plan, on the device; arguments as ``loader.Loader`` has them.

        ``corrupt`` says what becomes of unreadable rows: an error, another row of the class, or none.
        """
        if not self.serves(records, transform):
            raise ConfigError(
                f"the tensor on {self.pixels.device} holds {len(self.pixels)} images as {self.transform} prepares "
                f"them, not those of {records.name} under {transform}. Decode all records that are used."
            )
        device, plan = self.pixels.device, iter(plan)
        normalization = transform.normalization(device)
        while chunk := list(islice(plan, BATCHES_AHEAD)):
            picked = [self._picked(records, checked_rows(records, indices), corrupt) for indices in chunk]
            rows = np.concatenate([kept for kept, _ in picked])
            draws = uniform(seed, epoch, rows, transform.draws) if transform.draws else None
            height, width = (np.full(len(rows), length) for length in self.pixels.shape[2:])
            crops = transform.crops(height, width, draws).to(device)
            slots = to_device(torch.from_numpy(self.slots[records.source.origin(rows)[1]]), device)
            labels = to_device(torch.from_numpy(records.labels[rows].astype(np.int64)), device)
            extras = {name: to_device(column, device) for name, column in tensor_columns(records, rows).items()}
            ends = accumulate((len(kept) for kept, _ in picked), initial=0)
            for (kept, skipped), (first, last) in zip(picked, pairwise(ends), strict=True):
                part = slice(first, last)
                cut = self._cut(transform, slots[part], crops[part])
                if self.channels_last:
                    cut = cut.contiguous(memory_format=torch.channels_last)
                yield Batch(
                    inputs=transform.finish(cut, crops[part], normalization),
                    labels=labels[part],
                    indices=torch.from_numpy(kept),
                    extras={name: column[part] for name, column in extras.items()},
                    skipped=skipped,
                )

    def _picked(
        self, records: Records, rows: Int[np.ndarray, "n"], corrupt: Corrupt
    ) -> tuple[Int[np.ndarray, "n"], tuple[int, ...]]:
        """Return the rows that make a batch, and those that were asked for but cannot be read."""
        if not self.unreadable:
            return rows, ()
        skipped = list[int]()

        def read(row: int) -> None:
            position = int(records.source.origin(np.array([row]))[1][0])
            if position in self.unreadable:
                raise DataError(self.unreadable[position])

        kept = [row for row, _ in readable_rows(records, rows.tolist(), read, corrupt, skipped)]
        return np.array(kept, dtype=np.int64), tuple(skipped)

    def _cut(self, transform: ImageTransform, slots: Tensor, crops: Crops) -> Tensor:
        if transform.crop != "resized":
            return cut_squares(self.pixels, slots, crops, transform.size)
        if self.pixels.device.type == "cpu":  # Pillow reads the few pixels that have weight, a matrix product all
            return transform.cut([self.pixels[slot] for slot in slots.tolist()], crops).contiguous()
        return cut_resized(self.pixels, slots, crops, transform.size)


def resident_if_it_fits(
    records: Records,
    transform: TrainingTransform,
    device: torch.device,
    *,
    resident: Residency = "auto",
    workers: int | None = None,
    skip_corrupt: bool = False,
    channels_last: bool = False,
    progress: Progress = lambda done: None,
) -> Resident | None:
    """Read and prepare all records and keep them on the device; None where a loader should read them.

    Args:
        records: images; features, which need no decoding, are never kept.
        transform: whose ``prepare`` is done once.
        device: where the images stay.
        resident: ``"auto"`` keeps images that all have one size if they take at most half of a GPU's free memory; on a
            CPU, a quarter of the free memory, and only images that would have to be decoded again and again. ``"on"``
            is an error for what cannot be kept.
        workers: processes that read; 0 reads in this one, None takes one per processor where that pays.
        skip_corrupt: record unreadable images instead of raising the first error.
        channels_last: memory layout of the inputs.
        progress: called with the number of images decoded.
    """
    if resident == "off":
        return None
    texts = records.captions is not None
    if not isinstance(transform, ImageTransform) or records.source.kind != "images" or texts:
        if resident == "on":
            kind = "images and texts" if texts else records.source.kind
            raise ConfigError(f"`training.resident=on` keeps images, but {records.name} holds {kind}.")
        return None
    source, positions = records.source.origin(np.arange(len(records)))
    shape = prepared_shape(source, transform)
    if resident == "auto":
        if shape is None or (isinstance(source, ImageArray) and device.type == "cpu"):
            return None
        if len(records) * int(np.prod(shape)) > _FREE_SHARE.get(device.type, 0.0) * free_memory(device):
            return None
    if shape is None:
        fault = f"those of {records.name} differ under fit = {transform.fit!r} with resize = {transform.resize}"
        hint = "Set `transform.canvas` (the center square is kept), or `transform.fit=squash` with `transform.resize`."
        raise ConfigError(f"images that stay on a device need one size, but {fault}. {hint}")
    held = np.unique(positions)
    slots = np.full(len(source), -1, dtype=np.int64)
    slots[held] = np.arange(len(held))
    prepare = _Preparation(source, held, transform, shape, skip_corrupt)
    starts = range(0, len(held), IMAGES_AT_ONCE)
    if workers is None:
        few = isinstance(source, ImageArray) or len(held) < _WORTH_PROCESSES
        workers = 0 if few else os.cpu_count() or 1
    pixels = torch.zeros(len(held), *shape, dtype=torch.uint8, device=device)
    unreadable: dict[int, str] = {}

    def fill(images: Tensor | np.ndarray) -> bool:
        done = 0
        # In processes, since Pillow's decoders hold Python's lock: threads were no faster.
        for prepared, errors in Processes(prepare, min(workers, len(starts)))(starts):
            images[done : done + len(prepared)] = prepared.to(device) if isinstance(images, Tensor) else prepared
            unreadable.update(errors)
            done += len(prepared)
            progress(done)
        return not unreadable

    shared = None if isinstance(source, ImageArray) else _shared(prepare.name, fill, (len(held), *shape))
    if shared is None:
        fill(pixels)
    else:
        for start in range(0, len(held), _SHARED_AT_ONCE):
            part = np.array(shared[start : start + _SHARED_AT_ONCE])  # a copy: torch takes no read-only memory
            pixels[start : start + len(part)] = torch.from_numpy(part).to(device)
    return Resident(pixels, transform, source, slots, unreadable, channels_last)


@dataclass(frozen=True)
class _Preparation:
    """Reads and prepares the images at some positions of a source, some at a time."""

    source: Source
    positions: Int[np.ndarray, "n"]
    transform: ImageTransform
    shape: Sequence[int]
    skip: bool

    def name(self) -> str:
        """Tell these prepared images from all others."""
        names = "\n".join(self.source.name(position) for position in self.positions.tolist())
        return f"{type(self.source).__name__} {self.transform.preparation} {tuple(self.shape)}\n{names}"

    def __call__(self, start: int) -> tuple[UInt8[Tensor, "n c h w"], dict[int, str]]:
        """Return prepared images, and why some positions are black."""
        positions = self.positions[start : start + IMAGES_AT_ONCE].tolist()
        prepared, errors = torch.zeros(len(positions), *self.shape, dtype=torch.uint8), dict[int, str]()
        for row, position in enumerate(positions):
            try:
                image = self.source.read(position)
            except DataError as error:
                if not self.skip:
                    raise
                errors[position] = str(error)
            else:  # an image that the settings do not fit is no damaged file, and never skipped
                prepared[row] = self.transform.prepare(image, self.source.name(position))
        return prepared, errors


def _shared(
    name: Callable[[], str], fill: Callable[[UInt8[np.ndarray, "n c h w"]], bool], shape: tuple[int, ...]
) -> UInt8[np.ndarray, "n c h w"] | None:
    """Return images that one process decodes and others wait for, as a read-only map; None where none are shared.

    Args:
        name: everything that tells these images from others; they are taken to stay as they are.
        fill: decodes into an array; False if some could not be read, so that every process should see for itself.
        shape: of the array.
    """
    folder = os.environ.get(DECODED)
    if not folder:
        return None
    path = Path(folder) / f"{sha256(name().encode()).hexdigest()[:20]}.npy"
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):  # the lock goes with the process, however that ends
        if not path.is_file():
            unfinished = path.with_suffix(".part")
            array = np.lib.format.open_memmap(unfinished, mode="w+", dtype=np.uint8, shape=shape)
            whole = fill(array)
            array.flush()
            if not whole:
                unfinished.unlink()
                return None
            unfinished.replace(path)
    return read_array(path, mapped=True)


def prepared_shape(source: Source, transform: ImageTransform) -> tuple[int, int, int] | None:
    """Return channels, height and width of every prepared image of a source; None where they differ."""
    side = transform.prepared_side
    if side is not None:
        return transform.channels, side, side
    if isinstance(source, ImageArray) and len(source):
        channels, height, width = transform.prepare(source.read(0)).shape
        return channels, height, width
    return None


def free_memory(device: torch.device) -> int:
    """Return the free bytes on a device; 0 where the system does not say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not every system has this way to ask
        return 0

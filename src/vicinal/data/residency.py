"""Whether images stay on the device (see ``resident``), and the decoding that brings them there."""

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from vicinal.data.decoded import shared
from vicinal.data.records import ImageArray, Records, Source
from vicinal.data.resident import Resident
from vicinal.data.transforms import ImageTransform, TrainingTransform
from vicinal.errors import ConfigError, DataError, unknown

Residency = Literal["auto", "on", "off"]
Progress = Callable[[int], None]  # told how many images are decoded
IMAGES_AT_ONCE = 64  # decoded on the host before they go to the device
_AT_ONCE = 1024  # of those that another process has decoded
_WORTH_PROCESSES = 500  # images: fewer are decoded before processes have started
_SHARE = {"cuda": 0.5, "cpu": 0.25}  # of the free memory that `auto` may take: the network needs the rest


def resident_if_it_fits(
    records: Records,
    transform: TrainingTransform,
    device: torch.device,
    *,
    resident: Residency = "auto",
    workers: int | None = None,
    skip_corrupt: bool = False,
    dtype: torch.dtype = torch.float32,
    channels_last: bool = False,
    progress: Progress | None = None,
) -> Resident | None:
    """The records on the device, or None where a loader should read them.

    ``"auto"`` keeps images that all have one size if they take at most half of a GPU's free memory; on a CPU, a quarter
    of the free memory, and only images that would have to be decoded again and again. ``"on"`` refuses what cannot be
    kept. Features, which need no decoding, are never kept.
    """
    if resident not in ("auto", "on", "off"):
        raise ConfigError(unknown("value of `resident`", resident, ("auto", "on", "off")))
    if resident == "off":
        return None
    if not isinstance(transform, ImageTransform) or records.source.kind != "images":
        if resident == "on":
            raise ConfigError(f'resident = "on" keeps images, but {records.name} holds {records.source.kind}.')
        return None
    if resident == "auto":
        shape = prepared_shape(records, transform)
        decoded = isinstance(records.source.origin(np.arange(0))[0], ImageArray)
        if shape is None or (decoded and device.type == "cpu"):
            return None
        if len(records) * int(np.prod(shape)) > _SHARE.get(device.type, 0.0) * free_memory(device):
            return None
    return decode(
        records,
        transform,
        device,
        workers=workers,
        skip_corrupt=skip_corrupt,
        dtype=dtype,
        channels_last=channels_last,
        progress=progress,
    )


def decode(
    records: Records,
    transform: ImageTransform,
    device: torch.device,
    *,
    workers: int | None = None,
    skip_corrupt: bool = False,
    dtype: torch.dtype = torch.float32,
    channels_last: bool = False,
    progress: Progress | None = None,
) -> Resident:
    """Read and prepare all records and keep them on the device.

    Args:
        workers: processes that read; 0 reads in this one, None takes one per processor where that pays.
        skip_corrupt: note unreadable images instead of refusing the first.
    """
    shape = prepared_shape(records, transform)
    if shape is None:
        raise ConfigError(
            f"images that stay on a device have one size, but those of {records.name} differ under fit = "
            f"{transform.fit!r} with resize = {transform.resize}. Set `canvas` (the centre square is kept), or fit = "
            f'"squash" with `resize`.'
        )
    source, positions = records.source.origin(np.arange(len(records)))
    held = np.unique(positions)
    slots = np.full(len(source), -1, dtype=np.int64)
    slots[held] = np.arange(len(held))
    pixels = torch.zeros(len(held), *shape, dtype=torch.uint8, device=device)
    unreadable: dict[int, str] = {}
    if workers is None:
        few = isinstance(source, ImageArray) or len(held) < _WORTH_PROCESSES
        workers = 0 if few else os.cpu_count() or 1
    chunks = _Chunks(source, held, transform, shape, skip_corrupt)

    def fill(images: Tensor | np.ndarray) -> bool:
        done = 0
        for prepared, errors in _prepared(chunks, workers):
            images[done : done + len(prepared)] = prepared.to(device) if isinstance(images, Tensor) else prepared
            unreadable.update(errors)
            done += len(prepared)
            if progress is not None:
                progress(done)
        return not unreadable

    together = None if isinstance(source, ImageArray) else shared(chunks.named, fill, (len(held), *shape))
    if together is None:
        fill(pixels)
    else:
        for start in range(0, len(held), _AT_ONCE):
            part = np.array(together[start : start + _AT_ONCE])  # a copy: torch takes no read-only memory
            pixels[start : start + len(part)] = torch.from_numpy(part).to(device)
    return Resident(pixels, transform, source, slots, unreadable, dtype, channels_last)


Chunk = tuple[Tensor, dict[int, str]]  # prepared images, and why some positions are black


class _Chunks(Dataset[Chunk | DataError]):
    """Prepared images, some at a time; a refusal is a value, since torch would bury its text in a traceback."""

    def __init__(
        self, source: Source, positions: np.ndarray, transform: ImageTransform, shape: Sequence[int], skip: bool
    ) -> None:
        self.source, self.positions, self.transform, self.shape, self.skip = source, positions, transform, shape, skip

    def __len__(self) -> int:
        return -(-len(self.positions) // IMAGES_AT_ONCE)

    def named(self) -> str:
        """What tells these prepared images from all others."""
        names = "\n".join(self.source.name(position) for position in self.positions.tolist())
        return f"{type(self.source).__name__} {self.transform.preparation} {tuple(self.shape)}\n{names}"

    def __getitem__(self, chunk: int) -> Chunk | DataError:
        positions = self.positions[chunk * IMAGES_AT_ONCE : (chunk + 1) * IMAGES_AT_ONCE].tolist()
        prepared, errors = torch.zeros(len(positions), *self.shape, dtype=torch.uint8), dict[int, str]()
        for row, position in enumerate(positions):
            try:
                image = self.source.read(position)
            except DataError as error:
                if not self.skip:
                    return error
                errors[position] = str(error)
                continue
            try:
                prepared[row] = self.transform.prepare(image)
            except DataError as error:  # settings that do not fit the image, not a damaged file: never skipped
                return DataError(f"{self.source.name(position)}: {error}")
        return prepared, errors


def _prepared(chunks: _Chunks, workers: int) -> Iterator[Chunk]:
    """The chunks in order. Processes, since Pillow's decoders hold Python's lock: threads were no faster than one."""
    if workers == 0:
        outcomes: Iterable[Chunk | DataError] = (chunks[number] for number in range(len(chunks)))
    else:
        # A clean process that forks, not a fork of this one: torch has started threads (see `loader`).
        method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
        context = multiprocessing.get_context(method)
        if method == "forkserver":
            context.set_forkserver_preload([__name__])
        outcomes = DataLoader(
            chunks,
            batch_size=None,
            collate_fn=_unchanged,
            num_workers=min(workers, len(chunks)),
            multiprocessing_context=context,
            generator=torch.Generator(),  # its own: the global generator's state belongs to the training loop
        )
    for outcome in outcomes:
        if isinstance(outcome, DataError):
            raise outcome
        yield outcome


def _unchanged(outcome: Any) -> Any:
    return outcome


def prepared_shape(records: Records, transform: ImageTransform) -> tuple[int, int, int] | None:
    """Channels, height and width that every prepared image of these records has; None where they differ."""
    side = transform.prepared_side
    if side is not None:
        return transform.channels, side, side
    source, _ = records.source.origin(np.arange(0))
    if isinstance(source, ImageArray) and len(source):
        channels, height, width = transform.prepare(source.read(0)).shape
        return channels, height, width
    return None


def free_memory(device: torch.device) -> int:
    """Bytes that are free on a device; 0 where the system does not say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not every system has this way to ask
        return 0

"""Images decoded once and kept as one uint8 tensor, on the device or on the disk; batches are cut
on the device.

The same batches as ``loader.Loader`` and ``loader.load_all`` make of the same records, plan,
transform, seed and epoch: the same rows in the same order, and the same pixels (resized crops on a
GPU to one gray level, see ``augmentation``). The host only computes parameters, for several batches
ahead, and never waits for the GPU.
"""

import os
import shutil
import tempfile
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import distributions
from itertools import accumulate, islice, pairwise
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from filelock import FileLock
from jaxtyping import Int, UInt8
from numpy.typing import DTypeLike
from torch import Tensor

from vicinal.data.augmentation import Crops, cut_resized, cut_squares, to_device
from vicinal.data.draws import uniform
from vicinal.data.loader import (
    Corrupt,
    Plan,
    Processes,
    checked_rows,
    readable_rows,
    tensor_columns,
)
from vicinal.data.location import expanded
from vicinal.data.records import Batch, ImageArray, Progress, Records, Source
from vicinal.data.transforms import ImageTransform, TrainingTransform, Transform
from vicinal.errors import ConfigError, DataError
from vicinal.files import read_array

BATCHES_AHEAD = 16  # parameters sent at once: few transfers, and no long wait for the first batch
# names the folder of `training.cache` where that is not set, for a bench's jobs
CACHE = "VICINAL_CACHE"
IMAGES_AT_ONCE = 64  # decoded on the host before they go to the device
_KEPT_AT_ONCE = 1024  # of those that were decoded before
_READERS = 4  # threads that read decoded images from the disk, a batch each
WORTH_PROCESSES = 500  # images: fewer are decoded before processes have started
_PACKAGES = ("vicinal", "torch", "pillow")  # other versions may decode or compute otherwise
_FREE_SHARE = {
    "cuda": 0.5,
    "cpu": 0.25,
}  # of the free memory that `auto` may take: the network needs the rest

Residency = Literal["auto", "on", "disk", "off"]


@dataclass(frozen=True)
class Resident:
    """Prepared images of a source on one device, or in a file; batches are made on the device.

    Attributes:
        pixels: one prepared image per slot.
        transform: that prepared them; others may be used that prepare alike
            (``ImageTransform.preparation``).
        source: that holds the images; any records that read from it are served.
        slots: for each position in the source the place in ``pixels``, or -1.
        unreadable: positions that could not be read, with the reason; their slots are black.
        device: where batches are made; on a GPU with channels last, as its convolutions like it.
    """

    pixels: UInt8[Tensor, "m c h w"]
    transform: ImageTransform
    source: Source
    slots: Int[np.ndarray, "p"]
    unreadable: Mapping[int, str]
    device: torch.device

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
        self,
        records: Records,
        plan: Plan,
        transform: ImageTransform,
        seed: int,
        epoch: int,
        corrupt: Corrupt,
    ) -> Iterator[Batch]:
        """Yield one batch per index list of the plan, on the device; arguments as ``loader.Loader``
        has them.

        ``corrupt`` says what becomes of unreadable rows: an error, another row of the class, or
        none.
        """
        if not self.serves(records, transform):
            raise ConfigError(
                f"the tensor on {self.pixels.device} holds {len(self.pixels)} images as "
                f"{self.transform} prepares "
                f"them, not those of {records.name} under {transform}. Decode all records that "
                "are used."
            )
        normalization = transform.normalization(self.device)
        layout = torch.channels_last if self.device.type == "cuda" else torch.contiguous_format
        for part, images, rows in self._with_images(
            self._planned(records, plan, transform, seed, epoch, corrupt)
        ):
            cut = _cut(transform, images, rows, part.crops).contiguous(memory_format=layout)
            yield Batch(
                inputs=transform.finish(cut, part.crops, normalization),
                labels=part.labels,
                indices=torch.from_numpy(part.kept),
                extras=part.extras,
                skipped=part.skipped,
            )

    def _planned(
        self,
        records: Records,
        plan: Plan,
        transform: ImageTransform,
        seed: int,
        epoch: int,
        corrupt: Corrupt,
    ) -> Iterator["_Planned"]:
        """Yield the parameters of each batch, which are computed and sent for several at once."""
        device, plan = self.device, iter(plan)
        while chunk := list(islice(plan, BATCHES_AHEAD)):
            picked = [
                self._picked(records, checked_rows(records, indices), corrupt) for indices in chunk
            ]
            rows = np.concatenate([kept for kept, _ in picked])
            draws = uniform(seed, epoch, rows, transform.draws) if transform.draws else None
            height, width = (np.full(len(rows), length) for length in self.pixels.shape[2:])
            crops = transform.crops(height, width, draws).to(device)
            slots = to_device(
                torch.from_numpy(self.slots[records.source.origin(rows)[1]]), self.pixels.device
            )
            labels = to_device(torch.from_numpy(records.labels[rows].astype(np.int64)), device)
            extras = {
                name: to_device(column, device)
                for name, column in tensor_columns(records, rows).items()
            }
            ends = accumulate((len(kept) for kept, _ in picked), initial=0)
            for (kept, skipped), (first, last) in zip(picked, pairwise(ends), strict=True):
                part = slice(first, last)
                columns = {name: column[part] for name, column in extras.items()}
                yield _Planned(kept, skipped, slots[part], crops[part], labels[part], columns)

    def _with_images(
        self, planned: Iterable["_Planned"]
    ) -> Iterator[tuple["_Planned", Tensor, Tensor]]:
        """Yield each batch's parameters, images on its device, and where its rows are among
        these."""
        if self.pixels.device.type == self.device.type and self.pixels.is_contiguous():
            for part in planned:
                yield part, self.pixels, part.slots
            return
        waiting: deque[tuple[_Planned, Future[Tensor]]] = deque()
        planned = iter(planned)
        with ThreadPoolExecutor(_READERS) as pool:
            while True:
                for part in islice(planned, _READERS + 1 - len(waiting)):
                    waiting.append((part, pool.submit(self._read, part.slots)))
                if not waiting:
                    return
                part, read = waiting.popleft()
                images = (
                    read.result()
                    .to(self.device, non_blocking=True)
                    .permute(0, 3, 1, 2)
                    .contiguous()
                )
                yield part, images, torch.arange(len(images), device=self.device)

    def _read(self, slots: Int[Tensor, "n"]) -> UInt8[Tensor, "n h w c"]:
        """Return images of the file, in memory from which a GPU copies without making the host
        wait."""
        stored = self.pixels.permute(0, 2, 3, 1)
        pinned = self.device.type == "cuda"
        images = torch.empty(len(slots), *stored.shape[1:], dtype=torch.uint8, pin_memory=pinned)
        torch.index_select(stored.flatten(1), 0, slots, out=images.flatten(1))
        return images

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


class _Planned(NamedTuple):
    """What is known of a batch before its pixels."""

    kept: Int[np.ndarray, "n"]
    skipped: tuple[int, ...]
    slots: Int[Tensor, "n"]
    crops: Crops
    labels: Int[Tensor, "n"]
    extras: dict[str, Tensor]


def _cut(transform: ImageTransform, images: Tensor, rows: Tensor, crops: Crops) -> Tensor:
    if transform.crop != "resized":
        return cut_squares(images, rows, crops, transform.size)
    if images.device.type == "cpu":  # Pillow reads few pixels, a matrix product all
        return transform.cut([images[row] for row in rows.tolist()], crops)
    return cut_resized(images, rows, crops, transform.size)


def resident_if_it_fits(
    records: Records,
    transform: TrainingTransform,
    device: torch.device,
    *,
    resident: Residency = "auto",
    workers: int | None = None,
    skip_corrupt: bool = False,
    cache: Path | None = None,
    progress: Progress = lambda done: None,
) -> Resident | None:
    """Read and prepare all records and keep them on the device or on the disk; None where a loader
    should read them.

    Args:
        records: images; features, which need no decoding, are never kept.
        transform: whose ``prepare`` is done once.
        device: where the images stay.
        resident: ``"auto"`` keeps images that all have one size if they take at most half of a
            GPU's free memory; on a CPU, a quarter of the free memory, and only images that would
            have to be decoded again and again. Others stay decoded in ``cache``, where that is
            given, as all do with ``"disk"``. ``"on"`` and ``"disk"`` are an error for what cannot
            be kept.
        workers: processes that read; 0 reads in this one, None takes one per processor where that
            pays.
        skip_corrupt: record unreadable images instead of raising the first error.
        cache: folder that keeps decoded images for other runs; see ``kept``.
        progress: called with the number of images decoded.
    """
    if resident == "off":
        return None
    texts = records.captions is not None
    if not isinstance(transform, ImageTransform) or records.source.kind != "images" or texts:
        if resident != "auto":
            kind = "images and texts" if texts else records.source.kind
            raise ConfigError(
                f"`training.resident={resident}` keeps images, but {records.name} holds {kind}."
            )
        return None
    if resident == "disk" and cache is None:
        raise ConfigError(
            "`training.resident=disk` keeps decoded images in a folder. Name it in "
            "`training.cache`."
        )
    source, positions = records.source.origin(np.arange(len(records)))
    shape, on_disk = prepared_shape(source, transform), resident == "disk"
    if resident == "auto":
        if shape is None or (isinstance(source, ImageArray) and device.type == "cpu"):
            return None
        if len(records) * int(np.prod(shape)) > _FREE_SHARE.get(device.type, 0.0) * free_memory(
            device
        ):
            if cache is None:
                return None
            on_disk = True
    if shape is None:
        fault = (
            f"those of {records.name} differ under fit = {transform.fit!r} with resize = "
            f"{transform.resize}"
        )
        hint = (
            "Set `transform.canvas` (the center square is kept), or `transform.fit=squash` "
            "with `transform.resize`."
        )
        raise ConfigError(f"images that stay decoded need one size, but {fault}. {hint}")
    held = np.unique(positions)
    slots = np.full(len(source), -1, dtype=np.int64)
    slots[held] = np.arange(len(held))
    prepare = _Preparation(source, held, transform, shape, skip_corrupt)
    starts = range(0, len(held), IMAGES_AT_ONCE)
    if workers is None:
        few = isinstance(source, ImageArray) or len(held) < WORTH_PROCESSES
        workers = 0 if few else os.cpu_count() or 1
    pixels = torch.zeros(0 if on_disk else len(held), *shape, dtype=torch.uint8, device=device)
    unreadable: dict[int, str] = {}

    stored = pixels.permute(0, 2, 3, 1)  # as decoders write; a GPU transposes in no time

    def fill(target: UInt8[np.ndarray, "m h w c"] | UInt8[Tensor, "m h w c"]) -> bool:
        done = 0
        # In processes, since Pillow's decoders hold Python's lock: threads were no faster.
        for prepared, errors in Processes(prepare, min(workers, len(starts)))(starts):
            target[done : done + len(prepared)] = prepared
            unreadable.update(errors)
            done += len(prepared)
            progress(done)
        return not unreadable

    decoded = kept(cache, prepare.name, (len(held), *shape[1:], shape[0]), np.uint8, fill)
    if decoded is None and on_disk:
        if resident == "disk" and not unreadable:
            raise ConfigError(
                f"`training.resident=disk` cannot tell when images of {records.name} change. Keep "
                "them as files or shards, or set training.resident=off."
            )
        return None
    if decoded is None:
        fill(stored)
    else:
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", "The given NumPy array is not writable"
            )  # and is not written to
            if on_disk:
                mapped = torch.from_numpy(decoded).permute(0, 3, 1, 2)
                return Resident(mapped, transform, source, slots, unreadable, device)
            for start in range(0, len(held), _KEPT_AT_ONCE):
                part = slice(start, start + _KEPT_AT_ONCE)
                stored[part] = torch.from_numpy(decoded[part])
    return Resident(pixels, transform, source, slots, unreadable, device)


@dataclass(frozen=True)
class _Preparation:
    """Reads and prepares the images at some positions of a source, some at a time."""

    source: Source
    positions: Int[np.ndarray, "n"]
    transform: ImageTransform
    shape: Sequence[int]
    skip: bool

    def name(self) -> str | None:
        """Tell these prepared images from all others; None where the source cannot."""
        contents = self.source.identity(self.positions)
        return (
            None
            if contents is None
            else f"pixels {self.transform.preparation} {tuple(self.shape)}\n{contents}"
        )

    def __call__(self, start: int) -> tuple[UInt8[Tensor, "n h w c"], dict[int, str]]:
        """Return prepared images, and why some positions are black."""
        positions, (channels, height, width) = (
            self.positions[start : start + IMAGES_AT_ONCE].tolist(),
            self.shape,
        )
        prepared = torch.empty(len(positions), height, width, channels, dtype=torch.uint8)
        errors = dict[int, str]()
        for row, position in enumerate(positions):
            try:
                image = self.source.read(position)
            except DataError as error:
                if not self.skip:
                    raise
                errors[position] = str(error)
                prepared[row] = 0
            else:  # an image that the settings do not fit is no damaged file, and never skipped
                prepared[row] = self.transform.prepare(image, self.source.name(position)).permute(
                    1, 2, 0
                )
        return prepared, errors


def open_cache(setting: str | None) -> Path | None:
    """Return the folder that `training.cache`, or else the environment, names, made if need be;
    None for neither."""
    key, value = (CACHE, os.environ.get(CACHE)) if setting is None else ("training.cache", setting)
    if not value:
        return None
    folder = expanded(value)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        fault = f"{key}={value} is no folder that can be written: {error.strerror}"
        raise ConfigError(f"{fault}. Name another, or leave it out.") from error
    return folder


def kept(
    folder: Path | None,
    name: Callable[[], str | None],
    shape: tuple[int, ...],
    dtype: DTypeLike,
    fill: Callable[[np.ndarray], bool],
) -> np.ndarray | None:
    """Return an array that was made before, or by this process while others wait, on the disk; None
    where none is kept.

    One that is damaged is made again.

    Args:
        folder: where arrays are kept; None keeps nothing.
        name: everything that tells this array from others but versions of the software; None keeps
            nothing.
        shape: of the array.
        dtype: of its numbers.
        fill: makes the array in place; False if something could not be read, so that every process
            should see for itself.
    """
    if folder is None or (told := name()) is None:
        return None
    versions = {
        package: one.version for package in _PACKAGES for one in distributions(name=package)
    }
    told = f"{versions} {shape} {np.dtype(dtype)}\n{told}"
    path = folder / f"{sha256(told.encode(errors='surrogateescape')).hexdigest()[:20]}.npy"
    folder.mkdir(parents=True, exist_ok=True)  # somebody may have removed it since it was opened
    with FileLock(path.with_suffix(".lock")):  # the lock goes with the process, however that ends
        with suppress(FileNotFoundError, DataError):
            found = read_array(path, mapped=True)
            if found.shape == shape and found.dtype == dtype:
                return found
        needed, free = (
            int(np.prod(shape)) * np.dtype(dtype).itemsize,
            shutil.disk_usage(folder).free,
        )
        if needed > free:  # a full disk would kill a process that writes through a map
            fault = f"{folder} needs {needed / 1e9:.1f} GB and has {free / 1e9:.1f} GB free"
            raise ConfigError(
                f"the cache in {fault}. Name another folder in `training.cache`, or leave it out."
            )
        unfinished = path.with_suffix(".part")
        array = np.lib.format.open_memmap(unfinished, mode="w+", dtype=dtype, shape=shape)
        try:
            if not fill(array):
                return None
            array.flush()
            with suppress(
                FileNotFoundError
            ):  # the folder was removed meanwhile; the array is still there
                unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
    return array


def prepared_shape(source: Source, transform: ImageTransform) -> tuple[int, int, int] | None:
    """Return channels, height and width of every prepared image of a source; None where they
    differ."""
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

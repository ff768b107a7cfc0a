"""Images decoded once and kept as one uint8 tensor, on the device or on the disk, where a
``loader.Loader`` takes them; and a folder that keeps arrays for other runs."""

import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import distributions
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from filelock import FileLock
from jaxtyping import Int, UInt8
from numpy.typing import DTypeLike
from torch import Tensor

from vicinal.data.loader import Processes
from vicinal.data.location import expanded
from vicinal.data.records import Decoded, ImageArray, Progress, Records, Source
from vicinal.data.transforms import ImageTransform, TrainingTransform
from vicinal.errors import ConfigError, DataError
from vicinal.files import read_array

# names the folder of `training.cache` where that is not set, for a bench's jobs
CACHE = "VICINAL_CACHE"
IMAGES_AT_ONCE = 64  # decoded on the host before they go to the device
WORTH_PROCESSES = 500  # images: fewer are decoded before processes have started
_PACKAGES = ("vicinal", "torch", "pillow")  # other versions may decode or compute otherwise
# of the free memory that `auto` may take: the network needs the rest
_FREE_SHARE = {"cuda": 0.5, "cpu": 0.25}

Residency = Literal["auto", "on", "disk", "off"]


def keep_decoded(
    records: Records,
    transform: TrainingTransform,
    device: torch.device,
    *,
    resident: Residency = "auto",
    workers: int | None = None,
    skip_corrupt: bool = False,
    cache: Path | None = None,
    progress: Progress = lambda done: None,
) -> None:
    """Read and prepare all records and keep them with their source, on the device or on the disk;
    do nothing where a loader should read them.

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
        cache: folder that keeps decoded images for other runs; see ``cached``.
        progress: called with the number of images decoded.
    """
    if resident == "off":
        return
    texts = records.captions is not None
    if not isinstance(transform, ImageTransform) or records.source.kind != "images" or texts:
        if resident != "auto":
            kind = "images and texts" if texts else records.source.kind
            raise ConfigError(
                f"`training.resident={resident}` keeps images, but {records.name} holds {kind}."
            )
        return
    if resident == "disk" and cache is None:
        raise ConfigError(
            "`training.resident=disk` keeps decoded images in a folder. Name it in "
            "`training.cache`."
        )
    source, positions = records.source.origin(np.arange(len(records)))
    shape = _prepared_shape(source, transform)
    on_disk = resident == "disk"
    if resident == "auto":
        if shape is None or (isinstance(source, ImageArray) and device.type == "cpu"):
            return
        share = _FREE_SHARE.get(device.type, 0.0)
        on_disk = len(records) * int(np.prod(shape)) > share * free_memory(device)
        if on_disk and cache is None:
            return
    if shape is None:
        raise ConfigError(
            f"images that stay decoded need one size, but those of {records.name} differ under "
            f"fit = {transform.fit!r} with resize = {transform.resize}. Set `transform.canvas` "
            "(the center square is kept), or `transform.fit=squash` with `transform.resize`."
        )
    held = np.unique(positions)
    prepare = _Preparation(source, held, transform, shape, skip_corrupt)
    starts = range(0, len(held), IMAGES_AT_ONCE)
    if workers is None:
        few = isinstance(source, ImageArray) or len(held) < WORTH_PROCESSES
        workers = 0 if few else os.cpu_count() or 1
    unreadable: dict[int, str] = {}

    def fill(target: UInt8[np.ndarray, "m h w c"] | UInt8[Tensor, "m h w c"]) -> bool:
        done = 0
        # In processes, since Pillow's decoders hold Python's lock: threads were no faster.
        for prepared, errors in Processes(prepare, min(workers, len(starts)))(starts):
            target[done : done + len(prepared)] = prepared
            unreadable.update(errors)
            done += len(prepared)
            progress(done)
        return not unreadable

    stored = cached(cache, prepare.name, (len(held), *shape), np.uint8, fill)
    if stored is None and on_disk:
        if resident == "disk" and not unreadable:
            raise ConfigError(
                f"`training.resident=disk` cannot tell when images of {records.name} change. Keep "
                "them as files or shards, or set training.resident=off."
            )
        return
    if stored is None:
        pixels = torch.zeros(len(held), *shape, dtype=torch.uint8, device=device)
        fill(pixels)
    else:
        with warnings.catch_warnings():  # it is read-only, and is not written to
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            pixels = torch.from_numpy(stored)
        pixels = pixels if on_disk else pixels.to(device, copy=True)
    slots = np.full(len(source), -1, dtype=np.int64)
    slots[held] = np.arange(len(held))
    source.decoded = Decoded(pixels, transform.preparation, slots, unreadable)


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
        return None if contents is None else f"pixels {self.transform.preparation}\n{contents}"

    def __call__(self, start: int) -> tuple[UInt8[Tensor, "n h w c"], dict[int, str]]:
        """Return prepared images, and why some positions are black."""
        positions = self.positions[start : start + IMAGES_AT_ONCE].tolist()
        prepared = torch.zeros(len(positions), *self.shape, dtype=torch.uint8)
        errors = dict[int, str]()
        for row, position in enumerate(positions):
            try:
                image = self.source.read(position)
            except DataError as error:
                if not self.skip:
                    raise
                errors[position] = str(error)
            else:  # an image that the settings do not fit is no damaged file, and never skipped
                pixels = self.transform.prepare(image, self.source.name(position))
                prepared[row] = pixels.permute(1, 2, 0)
        return prepared, errors


def _prepared_shape(source: Source, transform: ImageTransform) -> tuple[int, int, int] | None:
    """Return height, width and channels of every prepared image of a source; None where they
    differ."""
    side = transform.prepared_side
    if side is not None:
        return side, side, transform.channels
    if isinstance(source, ImageArray) and len(source):
        channels, height, width = transform.prepare(source.read(0)).shape
        return height, width, channels
    return None


def free_memory(device: torch.device) -> int:
    """Return the free bytes on a device; 0 where the system does not say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not every system has this way to ask
        return 0


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


def cached(
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
        needed = int(np.prod(shape)) * np.dtype(dtype).itemsize
        free = shutil.disk_usage(folder).free
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
            # The folder was removed meanwhile; the array is still there.
            with suppress(FileNotFoundError):
                unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
    return array

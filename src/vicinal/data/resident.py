"""Images decoded once and kept as one uint8 tensor, on the device or on the disk, where a
``loader.Loader`` takes them; and a folder that keeps arrays for other runs."""

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
import torch
from filelock import FileLock
from jaxtyping import Int, UInt8
from torch import Tensor

from vicinal.data.check import contents
from vicinal.data.folder import expanded
from vicinal.data.loader import Processes
from vicinal.data.records import Decoded, ImageArray, Progress, Records, Source
from vicinal.data.transforms import ImageTransform, TrainingTransform
from vicinal.errors import ConfigError, DataError
from vicinal.files import read_array, write_atomically

# names the folder of `training.cache` where that is not set, for a bench's jobs
CACHE = "VICINAL_CACHE"
IMAGES_AT_ONCE = 64  # decoded on the host before they go to the device
WORTH_PROCESSES = 500  # images: fewer are decoded before processes have started
_PACKAGES = ("torch", "pillow")  # other versions may decode or compute otherwise
# of the free memory that may be taken: the network needs the rest
_FREE_SHARE = {"cuda": 0.5, "cpu": 0.25}

Residency = Literal["auto", "disk", "off"]


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

    Kept are images that all have one size: on the device if they take at most half of a GPU's free
    memory, or a quarter of a CPU's, else in ``cache``, where that is given. On a CPU images in
    memory are not kept.

    Args:
        records: their images are kept; features and texts need no decoding.
        transform: whose ``prepare`` is done once.
        device: where the images stay.
        resident: ``"disk"`` keeps them in ``cache`` though they fit, ``"off"`` nowhere.
        workers: processes that read; 0 reads in this one, None takes one per processor where that
            pays.
        skip_corrupt: record unreadable images instead of raising the first error.
        cache: folder that keeps decoded images for other runs too.
        progress: called with the number of images decoded.
    """
    if resident == "disk" and cache is None:
        raise ConfigError("`training.resident=disk` needs a folder. Name it in `training.cache`.")
    source, positions = records.source.origin(np.arange(len(records)))
    in_memory = isinstance(source, ImageArray)
    if (
        resident == "off"
        or not isinstance(transform, ImageTransform)
        or records.captions is not None
        or (shape := _prepared_shape(source, transform)) is None
        or (in_memory and device.type == "cpu")
    ):
        return
    room = _FREE_SHARE.get(device.type, 0.0) * free_memory(device)
    fits = resident == "auto" and len(records) * int(np.prod(shape)) <= room
    if not fits and cache is None:
        return
    held, first = np.unique(positions, return_index=True)
    prepare = _Preparation(source, held, transform, shape, skip_corrupt)
    starts = range(0, len(held), IMAGES_AT_ONCE)
    if workers is None:
        few = in_memory or len(held) < WORTH_PROCESSES
        workers = 0 if few else os.cpu_count() or 1
    unreadable: dict[int, str] = {}

    def decoded() -> Iterator[UInt8[Tensor, "_ h w c"]]:
        done = 0
        # In processes, since Pillow's decoders hold Python's lock: threads were no faster.
        for prepared, errors in Processes(prepare, min(workers, len(starts)))(starts):
            unreadable.update(errors)
            done += len(prepared)
            progress(done)
            yield prepared

    def write(file: BinaryIO) -> None:
        layout = {"descr": "|u1", "fortran_order": False, "shape": (len(held), *shape)}
        np.lib.format.write_array_header_1_0(file, layout)
        for prepared in decoded():
            file.write(prepared.numpy().tobytes())
        if unreadable:  # every run should see for itself
            raise _IncompleteError

    pixels = None
    path = None if cache is None else prepare.path(cache, records.take(first))
    if path is not None:
        # The lock, by which other processes wait for this one, goes with it, however it ends.
        with suppress(_IncompleteError), FileLock(path.with_suffix(".lock")):
            pixels = _mapped(path, (len(held), *shape))
            if pixels is None:
                write_atomically(path, write)
                pixels = _mapped(path, (len(held), *shape))
    if fits and pixels is not None:
        pixels = pixels.to(device, copy=True)
    elif fits:
        pixels = torch.empty(len(held), *shape, dtype=torch.uint8, device=device)
        for start, prepared in zip(starts, decoded(), strict=True):
            pixels[start : start + len(prepared)] = prepared
    if pixels is not None:
        slots = np.full(len(source), -1, dtype=np.int64)
        slots[held] = np.arange(len(held))
        source.decoded = Decoded(pixels, transform.preparation, slots, unreadable)


class _IncompleteError(Exception):
    """Some images could not be read, so none are kept in a file."""


def _mapped(path: Path, shape: tuple[int, ...]) -> Tensor | None:
    """Return the pixels of a file, left on the disk; None where there are none, or other ones."""
    with suppress(FileNotFoundError, DataError), warnings.catch_warnings():
        # it is read-only, and is not written to
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        found = read_array(path, mapped=True)
        if found.shape == shape and found.dtype == np.uint8:
            return torch.from_numpy(found)
    return None


@dataclass(frozen=True)
class _Preparation:
    """Reads and prepares the images at some positions of a source, some at a time."""

    source: Source
    positions: Int[np.ndarray, "n"]
    transform: ImageTransform
    shape: Sequence[int]
    skip: bool

    def path(self, folder: Path, records: Records) -> Path | None:
        """Name the file of just these prepared images; None where their content is not known, or
        where code of the user's own reads them, which may change."""
        found = contents(records)
        if not type(self.source).__module__.startswith("vicinal.") or not found.all():
            return None
        versions = [version(package) for package in _PACKAGES]
        told = f"{versions} {self.shape} {self.transform.preparation} {found.tolist()}"
        return folder / f"{sha256(told.encode()).hexdigest()[:20]}.npy"

    def __call__(self, start: int) -> tuple[UInt8[Tensor, "n h w c"], dict[int, str]]:
        """Return prepared images, and why some positions are black."""
        positions = self.positions[start : start + IMAGES_AT_ONCE].tolist()
        prepared = torch.zeros(len(positions), *self.shape, dtype=torch.uint8)
        errors = dict[int, str]()
        for row, position in enumerate(positions):
            try:
                image = self.source.read(position)
                pixels = self.transform.prepare(image, self.source.name(position))
                prepared[row] = pixels.permute(1, 2, 0)
            except DataError as error:
                if not self.skip:
                    raise
                errors[position] = str(error)
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
    named = setting or os.environ.get(CACHE)
    if not named:
        return None
    folder = expanded(named)
    folder.mkdir(parents=True, exist_ok=True)
    return folder

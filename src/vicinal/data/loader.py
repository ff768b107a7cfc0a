"""Index lists to batches: in the plan's order, the same for any number of workers.

Images may be decoded once and kept as one uint8 tensor, on the device or on the disk, from where a
``Loader`` takes them.
"""

import multiprocessing
import os
import signal
import sys
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b, sha256
from importlib.metadata import version
from multiprocessing import spawn
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, BinaryIO, Generic, Literal, TypeVar

import numpy as np
import torch
from filelock import FileLock
from jaxtyping import Int, UInt8, UInt64
from torch import Tensor

from vicinal.data.draws import uniform
from vicinal.data.folder import expanded
from vicinal.data.records import (
    Batch,
    Decoded,
    ImageArray,
    ImageFiles,
    Progress,
    Records,
    Source,
)
from vicinal.data.transforms import (
    Crops,
    FeatureTransform,
    ImageTransform,
    TextTransform,
    TrainingTransform,
)
from vicinal.errors import ConfigError, DataError
from vicinal.files import read_array, read_arrays, write_arrays, write_atomically
from vicinal.remote import cache_folder

Plan = Iterable[Sequence[int]]
Corrupt = Literal["raise", "replace", "drop"]  # what is done about rows that cannot be read
CPU = torch.device("cpu")
_SAFE_PATH = "PYTHONSAFEPATH"
# names the folder of `training.cache` where that is not set, for a bench's jobs
CACHE = "VICINAL_CACHE"
IMAGES_AT_ONCE = 64  # decoded on the host before they go to the device
WORTH_KEEPING = 10_000  # files whose contents are kept: fewer are read in a second
_TOLD = 256  # files that a thread reads at a time
WORTH_PROCESSES = 500  # images: fewer are decoded before processes have started
_PACKAGES = ("torch", "pillow")  # other versions may decode or compute otherwise
# of the free memory that may be taken: the network needs the rest
_FREE_SHARE = {"cuda": 0.5, "cpu": 0.25}

Residency = Literal["auto", "disk", "off"]
T = TypeVar("T")


class Loader:
    """Batches of records, augmented by numbers that depend on (seed, epoch, index) alone.

    The processes that read image files stay from epoch to epoch. They send the pixels of crops as
    bytes; normalization follows on the device. Images that are already decoded (see
    ``keep_decoded``) are taken from where they lie; for a GPU they are cut there, resized crops to
    one gray level as on the host (see ``transforms``).

    Args:
        records: what the indices count in.
        transform: of images or of features, as the records are.
        seed: of the augmentation.
        workers: processes that read image files ahead; no more are started than there are
            processors. Data in memory need none.
        corrupt: what becomes of an unreadable image: ``"raise"`` a DataError that names the file,
            ``"replace"`` it by another one of its class, or ``"drop"`` it; then it is named in
            ``Batch.skipped``.
        device: where the batches go; to a GPU with channels last.
    """

    def __init__(
        self,
        records: Records,
        transform: TrainingTransform,
        *,
        seed: int = 0,
        workers: int = 0,
        corrupt: Corrupt = "raise",
        device: torch.device = CPU,
    ) -> None:
        self.transform = transform
        self.device = device
        decoded = _decoded(records, transform)
        self._decoded = decoded if cuts_there(device) else None
        there = None if self._decoded is None else device
        reader = _Reader(records, transform, seed, corrupt, decoded, there)
        source = records.source
        ahead = decoded is None and not source.in_memory and source.kind == "images"
        processes = Processes(reader, min(workers, os.cpu_count() or 1) if ahead else 0)
        self._read = processes if self._decoded is None else partial(in_threads, reader)

    def batches(self, plan: Plan, epoch: int = 0) -> Iterator[Batch]:
        """Yield one batch per index list of the plan, on the device."""
        transform = self.transform
        for there, crops in self._read((epoch, indices) for indices in plan):
            batch = there.to(self.device)
            if isinstance(transform, FeatureTransform | TextTransform):
                yield batch
                continue
            cut = batch.inputs
            if self._decoded and crops and isinstance(transform, ImageTransform):
                pixels = self._decoded.pixels
                if cut.ndim > 1:  # they lie elsewhere, and those of this batch were sent
                    pixels = cut
                    cut = torch.arange(len(pixels), device=self.device)
                cut = transform.cut_there(pixels, cut, crops)
            yield replace(batch, inputs=transform.finish(cut))


def cuts_there(device: torch.device) -> bool:
    """Whether decoded images are cut on the device. On a CPU Pillow is faster: it reads the few
    pixels of a box, a matrix product all."""
    return device.type == "cuda"


def _decoded(records: Records, transform: TrainingTransform) -> Decoded | None:
    """Return the decoded images of records; None where some are not there as this transform
    prepares them."""
    source, positions = records.source.origin(np.arange(len(records)))
    found = source.decoded
    if found is None or not isinstance(transform, ImageTransform):
        return None
    alike = transform.preparation == found.preparation and (found.slots[positions] >= 0).all()
    return found if alike and transform.size <= min(found.pixels.shape[1:3]) else None


def load_all(
    records: Records,
    transform: TrainingTransform,
    batch_size: int = 256,
    workers: int = 0,
    skip_corrupt: bool = False,
    device: torch.device = CPU,
) -> Iterator[Batch]:
    """Yield all records in their order, not augmented, on the device.

    With ``skip_corrupt``, unreadable rows are left out and named in ``Batch.skipped``; a batch may
    then be empty.
    """
    corrupt: Corrupt = "drop" if skip_corrupt else "raise"
    loader = Loader(
        records, transform.evaluation(), workers=workers, corrupt=corrupt, device=device
    )
    starts = range(0, len(records), batch_size)
    return loader.batches(range(s, min(s + batch_size, len(records))) for s in starts)


@dataclass(frozen=True)
class _Reader:
    """Makes the batch of an epoch's index list on the host, its images still pixels of 0..255; may
    be sent to another process.

    With ``cut_on``, a device that cuts, inputs are places among the decoded images there, or
    decoded images for it, and come with their crops.
    """

    records: Records
    transform: TrainingTransform
    seed: int
    corrupt: Corrupt
    decoded: Decoded | None
    cut_on: torch.device | None

    def __post_init__(self) -> None:
        kind = self.records.source.kind
        if kind != self.transform.kind:
            mine = type(self.transform).__name__
            raise ConfigError(
                f"{self.records.name} holds {kind}, but {mine} takes {self.transform.kind}."
            )

    def __call__(self, item: tuple[int, Sequence[int]]) -> tuple[Batch, Crops | None]:
        epoch, indices = item
        records = self.records
        transform = self.transform
        rows = np.array(indices, dtype=np.int64)
        told = records.texts_among(rows)
        skipped = rows[:0]
        crops: Crops | None = None
        if isinstance(transform, FeatureTransform | TextTransform):
            source, positions = records.source.origin(rows[~told])
            inputs = transform.batch(source.read_all(positions))
        else:
            wanted = rows[~told]
            found, images = self._readable(wanted)
            skipped = wanted[found != wanted]
            rows[~told] = found
            told = told[rows >= 0]
            rows = rows[rows >= 0]
            shown = rows[~told]
            draws = uniform(self.seed, epoch, shown, transform.draws)
            decoded = self.decoded
            if decoded is None or self.cut_on is None or not isinstance(transform, ImageTransform):
                inputs = transform.cut_drawn(images, draws)
            else:
                slots = torch.from_numpy(decoded.slots[records.source.origin(shown)[1]])
                pixels = decoded.pixels
                crops = transform.crops(np.tile(pixels.shape[1:3], (len(shown), 1)), draws)
                there = pixels.device.type == self.cut_on.type
                inputs = slots if there else pixels[slots].pin_memory()
        texts = [records.source.name(row) for row in rows[told].tolist()]
        batch = Batch(
            inputs,
            torch.from_numpy(records.targets[rows]),
            torch.from_numpy(rows),
            {
                name: torch.as_tensor(
                    column[rows], dtype=torch.float32 if column.dtype.kind == "f" else None
                )
                for name, column in records.columns.items()
            },
            tuple(skipped.tolist()),
            texts=TextTransform().batch(texts) if texts else None,
        )
        return batch, crops

    def _readable(self, wanted: Int[np.ndarray, "n"]) -> tuple[Int[np.ndarray, "n"], list[Any]]:
        """Return the rows that take part, -1 for an unreadable one that is dropped, and their
        prepared images.

        One is replaced by the next readable one of its class; by one of the batch, which would then
        be there twice, only if there is no other.
        """
        rows = list[int]()
        images = list[Any]()
        used = set(wanted.tolist())
        for row in wanted.tolist():
            try:
                images.append(self._prepared(row))
            except DataError:
                if self.corrupt == "raise":
                    raise
                if self.corrupt == "drop":
                    row = -1
                else:
                    row, image = self._replacement(row, used)
                    used.add(row)
                    images.append(image)
            rows.append(row)
        return np.array(rows, dtype=np.int64), images

    def _replacement(self, row: int, used: set[int]) -> tuple[int, Any]:
        records = self.records
        members = np.flatnonzero(records.labels == records.labels[row])
        members = members[~records.texts_among(members)]
        others = np.roll(members, -np.searchsorted(members, row))[1:].tolist()
        for other in sorted(others, key=used.__contains__):
            with suppress(DataError):
                return other, self._prepared(other)
        raise DataError(
            f"{records.source.name(row)} cannot be read, and no other image of its class "
            f"{records.classes[records.labels[row]]!r} can take its place ({len(others)} tried). "
            "Restore the files or remove the class; `vicinal data check` lists all such files."
        )

    def _prepared(self, row: int) -> Any:
        """Return a row's prepared image, None for one that the device cuts."""
        source = self.records.source
        if self.decoded is None:
            return self.transform.prepare(source.read(row), source.name(row))  # type: ignore[union-attr]
        decoded = self.decoded
        position = int(source.origin(np.array([row]))[1][0])
        if position in decoded.unreadable:
            raise DataError(decoded.unreadable[position])
        if self.cut_on is not None:
            return None
        return decoded.pixels[decoded.slots[position]].permute(2, 0, 1)


# -- images that stay decoded ----------------------------------------------------------------------


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
        or (in_memory and device.type == "cpu")
    ):
        return
    side = transform.prepared_side
    if side is not None:
        shape: tuple[int, ...] = (side, side, transform.channels)
    elif in_memory and len(source):  # images in memory are alike, others may not be
        shape = tuple(transform.prepare(source.read(0)).permute(1, 2, 0).shape)
    else:
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
            pixels = _mapped(path)
            if pixels is None:
                write_atomically(path, write)
                pixels = _mapped(path)
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


def _mapped(path: Path) -> Tensor | None:
    """Return the pixels of a file, left on the disk; None where there are none, or damaged ones."""
    with suppress(FileNotFoundError, DataError), warnings.catch_warnings():
        # it is read-only, and is not written to
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(read_array(path, mapped=True))
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


# -- threads and processes that work ahead ---------------------------------------------------------


def _ahead(
    pool: Executor, make: Callable[[Any], T], items: Iterable[Any], most: int
) -> Iterator[T]:
    waiting = deque[Future[T]]()
    for item in items:
        waiting.append(pool.submit(make, item))
        if len(waiting) > most:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def in_threads(make: Callable[[Any], T], items: Iterable[Any], threads: int = 4) -> Iterator[T]:
    """Yield what is made of each item, in their order, a few of them ahead."""
    with ThreadPoolExecutor(threads) as pool:
        yield from _ahead(pool, make, items, threads)


class Processes(Generic[T]):
    """Make items in other processes, which stay for the next items; in this one where ``workers``
    is 0, or where ``make`` cannot travel."""

    def __init__(self, make: Callable[[Any], T], workers: int) -> None:
        self._make = make
        self._workers = workers if workers and travels(make) else 0
        self._pool: Executor | None = None

    def __call__(self, items: Iterable[Any]) -> Iterator[T]:
        """Yield what is made of each item, in their order."""
        if self._workers == 0:
            yield from map(self._make, items)
            return
        if self._pool is None:
            start_early()
            self._pool = ProcessPoolExecutor(self._workers, _Context(), _begin, (self._make,))
            weakref.finalize(self, self._pool.shutdown, wait=False, cancel_futures=True)
        yield from _ahead(self._pool, _made, items, 2 * self._workers)


def travels(value: object) -> bool:
    """Return whether another process can have ``value``: a lambda cannot be sent, and a class of a
    script, a notebook or a REPL is only in this process."""
    try:
        return b"__main__" not in bytes(ForkingPickler.dumps(value))
    except Exception:  # an object of the user's own raises anything
        return False


_make: Callable[[Any], Any]  # of this process, if it is one of `Processes`


def _made(item: Any) -> Any:
    return _make(item)


def _begin(make: Callable[[Any], Any]) -> None:
    """Begin a process that ends as soon as the one that started it is gone, however that ended: the
    pipe between them closes then."""
    global _make
    _make = make
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is for the one that started this

    def watch() -> None:
        multiprocessing.parent_process().join()  # type: ignore[union-attr]
        os._exit(1)

    # Whoever was sending to it when it ended says nothing.
    sys.excepthook = lambda *_: None
    threading.Thread(target=watch, daemon=True).start()


# A process that has started threads (torch has) must not fork itself: the child may hang on a lock
# that a thread held. The fork server is a clean process, which imports torch once and then forks
# quickly.
_METHOD = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
_BASE = multiprocessing.get_context(_METHOD)
_STARTING = threading.Lock()


class _Process(_BASE.Process):  # type: ignore[name-defined,misc]
    """A process that does not run the program's file again, as Python's own would for what is
    defined there: a program needs no ``if __name__ == "__main__":``."""

    def run(self) -> None:
        with suppress(ConnectionError):  # the one that started this is gone
            super().run()

    @staticmethod
    def _Popen(process: BaseProcess) -> Any:
        with _STARTING:
            given = spawn.get_preparation_data

            def prepared(name: str) -> dict[str, Any]:
                data = given(name).items()
                return {key: value for key, value in data if not key.startswith("init_main")}

            spawn.get_preparation_data = prepared
            try:
                return super()._Popen(process)  # type: ignore[misc]
            finally:
                spawn.get_preparation_data = given


class _Context(type(_BASE)):  # type: ignore[misc]
    Process = _Process


def start_early() -> None:
    """Start the process that readers are forked from: it imports torch, for seconds, while this one
    does other work."""
    if _METHOD == "forkserver":
        from multiprocessing import forkserver

        _BASE.set_forkserver_preload([__name__, "vicinal.data.shards"])
        before = os.environ.get(_SAFE_PATH)
        os.environ[_SAFE_PATH] = "1"  # nothing is imported from the current folder
        try:
            forkserver.ensure_running()
        finally:
            os.environ.pop(_SAFE_PATH)
            os.environ.update({} if before is None else {_SAFE_PATH: before})


def contents(records: Records, progress: Progress = lambda done: None) -> UInt64[np.ndarray, "n"]:
    """Return 64 bits of each row's content; 0 where its source tells none, or it cannot be read.

    Those of many files are kept in the user's cache, until a file's size or times are others.

    Args:
        progress: called with the number of rows done, where files have to be read.
    """
    source, positions = records.source.origin(np.arange(len(records)))
    if source.contents is not None:
        return source.contents[positions]
    found = np.zeros(len(positions), np.uint64)
    known = np.zeros((2, 1), np.uint64)  # stamps, rising, and contents
    path = None
    if isinstance(source, ImageFiles) and len(positions) >= WORTH_KEEPING:
        place = blake2b(os.fsencode(source.root), digest_size=10).hexdigest()
        path = cache_folder() / f"contents-{place}.npz"
        stamps = _told(source.stamp, positions)
        with suppress(OSError, DataError, KeyError):  # of an earlier version
            known = read_arrays(path)["known"]
        order = np.searchsorted(known[0], stamps).clip(max=known.shape[1] - 1)
        found = np.where(known[0, order] == stamps, known[1, order], found)
    new = np.flatnonzero(found == 0)
    found[new] = _told(
        source.content, positions[new], lambda done: progress(len(found) - len(new) + done)
    )
    if path is not None and stamps[new].any():
        told = np.stack([stamps, found])[:, (stamps != 0) & (found != 0)]
        known = np.hstack([known, told])
        with suppress(OSError):  # a cache that cannot be written costs time, no more
            write_arrays(path, {"known": known[:, np.unique(known[0], return_index=True)[1]]})
    return found


def _told(
    tell: Callable[[int], bytes | None],
    positions: np.ndarray,
    progress: Progress = lambda done: None,
) -> UInt64[np.ndarray, "n"]:
    """Return 64 bits of what is told of each position; 0 for nothing."""
    found = np.zeros(len(positions), np.uint64)

    def some(start: int) -> int:
        end = min(start + _TOLD, len(positions))
        for row in range(start, end):
            with suppress(OSError, DataError):
                if told := tell(int(positions[row])):
                    digest = blake2b(told, digest_size=8).digest()
                    found[row] = int.from_bytes(digest, "little")
        return end

    for done in in_threads(some, range(0, len(positions), _TOLD), 8):
        progress(done)
    return found

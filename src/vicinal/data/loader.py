"""Index lists to batches: in the plan's order, the same for any number of workers."""

import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import connection, spawn
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from vicinal.data.augmentation import Crops, cut_resized, cut_squares, to_device
from vicinal.data.draws import uniform
from vicinal.data.records import QUERY, Batch, Decoded, FeatureArray, Records
from vicinal.data.transforms import (
    FeatureTransform,
    ImageTransform,
    TextTransform,
    TrainingTransform,
)
from vicinal.errors import ConfigError, DataError, VicinalError

Plan = Iterable[Sequence[int]]
Corrupt = Literal["raise", "replace", "drop"]  # what is done about rows that cannot be read
CPU = torch.device("cpu")
_SAFE_PATH = "PYTHONSAFEPATH"
_FORMATS = ("Bmp", "Gif", "Jpeg", "Ppm", "Png")  # that Pillow looks for first
_PRELOADED = (
    "vicinal.data.resident",
    "vicinal.data.shards",
    *(f"PIL.{name}ImagePlugin" for name in _FORMATS),
)
T = TypeVar("T")


class Loader:
    """Batches of records, augmented by numbers that depend on (seed, epoch, index) alone.

    The processes that read image files stay from epoch to epoch. They send the pixels of crops as
    bytes; normalization follows on the device. Images that are already decoded (see
    ``resident``) are taken from where they lie; for a GPU they are cut there, resized crops to one
    gray level as on the host (see ``augmentation``).

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
        self._on_device = decoded if cuts_there(device) else None
        there = None if self._on_device is None else device
        reader = _Reader(records, transform, seed, corrupt, decoded, there)
        source = records.source
        ahead = decoded is None and not source.in_memory and source.kind == "images"
        self._read = (
            Processes(reader, min(workers, os.cpu_count() or 1) if ahead else 0)
            if self._on_device is None
            else partial(in_threads, reader)
        )

    def batches(self, plan: Plan, epoch: int = 0) -> Iterator[Batch]:
        """Yield one batch per index list of the plan, on the device."""
        for read in self._read((epoch, indices) for indices in plan):
            yield self._finished(read.batch.to(self.device), read.crops)

    def _finished(self, batch: Batch, crops: Crops | None) -> Batch:
        """Turn pixels of 0..255 into the network's inputs."""
        transform = self.transform
        if isinstance(transform, FeatureTransform | TextTransform):
            return batch
        cut = batch.inputs
        on_device = self._on_device
        if on_device and crops and isinstance(transform, ImageTransform):
            resize = cut_resized if transform.crop == "resized" else cut_squares
            images = cut
            rows = torch.arange(len(cut), device=self.device)
            if cut.ndim == 1:  # places among the images that lie on the device
                images = on_device.pixels
                rows = cut
            boxes, mirrored = (to_device(part, self.device) for part in crops)
            cut = resize(images, rows, Crops(boxes, mirrored), transform.size)
        gpu = self.device.type == "cuda"
        layout = torch.channels_last if gpu else torch.contiguous_format
        return replace(batch, inputs=transform.finish(cut.contiguous(memory_format=layout)))


def cuts_there(device: torch.device) -> bool:
    """Whether decoded images are cut on the device. On a CPU Pillow is faster: it reads the few
    pixels of a box, a matrix product all."""
    return device.type == "cuda"


def _decoded(records: Records, transform: TrainingTransform) -> Decoded | None:
    """Return decoded images by the rows of records; None where some are not there as this transform
    prepares them."""
    source, positions = records.source.origin(np.arange(len(records)))
    found = source.decoded
    if found is None or not isinstance(transform, ImageTransform):
        return None
    slots = found.slots[positions]
    alike = transform.preparation == found.preparation
    if not alike or (slots < 0).any() or transform.size > min(found.pixels.shape[1:3]):
        return None
    unreadable = {
        row: found.unreadable[position]
        for row, position in enumerate(positions.tolist())
        if position in found.unreadable
    }
    return replace(found, slots=slots, unreadable=unreadable)


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


def _tensor_columns(records: Records, rows: Int[np.ndarray, "n"]) -> dict[str, Tensor]:
    """Return the further columns of some rows as tensors, decimal numbers as float32."""
    return {
        name: torch.as_tensor(
            column[rows], dtype=torch.float32 if column.dtype.kind == "f" else None
        )
        for name, column in records.columns.items()
    }


class _Read(NamedTuple):
    """A batch on the host, its images still pixels of 0..255, and the crops where the device cuts
    them."""

    batch: Batch
    crops: Crops | None = None


@dataclass(frozen=True)
class _Reader:
    """Makes the batch of an epoch's index list; may be sent to another process.

    With ``cut_on``, a device that cuts, inputs are places among the decoded images there, or
    decoded images for it.
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

    def __call__(self, item: tuple[int, Sequence[int]]) -> _Read:
        epoch, indices = item
        records = self.records
        skipped = list[int]()
        rows = np.asarray(indices, dtype=np.int64)
        asks = np.zeros(len(rows), dtype=bool)
        if records.captions is not None:
            asks = records.columns["role"][rows] == QUERY
        told = [records.source.name(row) for row in rows[asks].tolist()]
        shown, inputs, crops = self._inputs(rows[~asks], epoch, skipped)
        if self.corrupt == "drop":
            there = ~np.isin(rows, skipped)
            rows = rows[there]
            asks = asks[there]
        rows[~asks] = shown
        labels = torch.from_numpy(records.labels[rows].astype(np.int64))
        columns = _tensor_columns(records, rows)
        batch = Batch(inputs, labels, torch.from_numpy(rows), columns, tuple(skipped))
        return _Read(replace(batch, texts=TextTransform().batch(told)) if told else batch, crops)

    def _inputs(
        self, rows: Int[np.ndarray, "n"], epoch: int, skipped: list[int]
    ) -> tuple[Int[np.ndarray, "n"], Tensor, Crops | None]:
        """Return the rows that could be read, what a network takes of them, and the crops of
        images."""
        records = self.records
        transform = self.transform
        if isinstance(transform, FeatureTransform):
            return rows, transform.batch(_features(records, rows)), None
        if isinstance(transform, TextTransform):
            texts = [records.source.read(row) for row in rows.tolist()]
            return rows, transform.batch(texts), None
        found = self._readable(rows.tolist(), skipped)
        rows = np.array([row for row, _ in found], np.int64)
        draws = uniform(self.seed, epoch, rows, transform.draws)
        decoded = self.decoded
        if decoded is None or self.cut_on is None or not isinstance(transform, ImageTransform):
            return rows, transform.cut_drawn([image for _, image in found], draws), None
        pixels = decoded.pixels
        slots = torch.from_numpy(decoded.slots[rows])
        sizes = np.tile(pixels.shape[1:3], (len(rows), 1))
        there = pixels.device.type == self.cut_on.type
        inputs = slots if there else pixels[slots].pin_memory()
        return rows, inputs, transform.crops(sizes, draws)

    def _readable(self, wanted: Sequence[int], skipped: list[int]) -> list[tuple[int, Any]]:
        """Return the rows that make a batch with their prepared images; unreadable ones go to
        ``skipped``.

        One is replaced by the next readable one of its class; by one of the batch, which would then
        be there twice, only if there is no other.
        """
        found = []
        used = set(wanted)
        for row in wanted:
            try:
                found.append((row, self._prepared(row)))
            except DataError:
                if self.corrupt == "raise":
                    raise
                skipped.append(row)
                if self.corrupt == "replace":
                    found.append(self._replacement(row, used))
                    used.add(found[-1][0])
        return found

    def _replacement(self, row: int, used: set[int]) -> tuple[int, Any]:
        records = self.records
        members = np.flatnonzero(records.labels == records.labels[row])
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
        """Return a row's prepared image, None for one that the device cuts; a text cannot take the
        place of one that is not readable."""
        records = self.records
        decoded = self.decoded
        if decoded is not None:
            if row in decoded.unreadable:
                raise DataError(decoded.unreadable[row])
            return decoded.image(row) if self.cut_on is None else None
        if records.captions is not None and records.columns["role"][row] == QUERY:
            raise DataError(f"{records.source.name(row)!r:.60} is a text.")
        image = records.source.read(row)
        return self.transform.prepare(image, records.source.name(row))  # type: ignore[union-attr]


def _features(records: Records, rows: Int[np.ndarray, "n"]) -> np.ndarray:
    source, positions = records.source.origin(rows)
    if isinstance(source, FeatureArray):  # indexed once per batch; no Python per row
        return np.asarray(source.features[positions])
    return np.stack([source.read(int(position)) for position in positions])


class Processes(Generic[T]):
    """Make items in other processes, which stay for the next items; in this one where ``workers``
    is 0, or where ``make`` cannot travel."""

    def __init__(self, make: Callable[[Any], T], workers: int) -> None:
        self._make = make
        self._items = _Items()
        self._workers = workers if workers and travels(make) else 0
        self._loader: DataLoader[T | VicinalError] | None = None

    def __call__(self, items: Iterable[Any]) -> Iterator[T]:
        """Yield what is made of each item, in their order."""
        if self._workers == 0:
            yield from map(self._make, items)
            return
        if self._loader is None:
            self._loader = self._started()
        self._items.items = items
        for outcome in self._loader:
            if isinstance(outcome, VicinalError):
                raise outcome
            yield outcome

    def _started(self) -> "DataLoader[T | VicinalError]":
        start_early()
        return DataLoader(
            _Outcomes(self._make),
            sampler=self._items,
            batch_size=None,
            num_workers=self._workers,
            persistent_workers=True,
            multiprocessing_context=_Context(),
            worker_init_fn=_end_with_parent,
            # its own: the global generator's state belongs to the training loop
            generator=torch.Generator(),
        )


def in_threads(make: Callable[[Any], T], items: Iterable[Any], threads: int = 4) -> Iterator[T]:
    """Yield what is made of each item, in their order, a few of them ahead."""
    waiting = deque[Future[T]]()
    with ThreadPoolExecutor(threads) as pool:
        for item in items:
            waiting.append(pool.submit(make, item))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def travels(value: object) -> bool:
    """Return whether another process can have ``value``: a lambda cannot be sent, and a class of a
    script, a notebook or a REPL is only in this process."""
    try:
        return b"__main__" not in bytes(ForkingPickler.dumps(value))
    except Exception:  # an object of the user's own raises anything
        return False


def _end_with_parent(number: int) -> None:
    """End this process as soon as the one that started it is gone, however that ended.

    The pipe between them closes then. Torch's workers look for a new parent instead, but theirs is
    the fork server, which stays while it has children.
    """
    parent = multiprocessing.parent_process()

    def watch() -> None:
        connection.wait([parent.sentinel] if parent else [])
        os._exit(1)

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

        _BASE.set_forkserver_preload([__name__, *_PRELOADED])
        before = os.environ.get(_SAFE_PATH)
        os.environ[_SAFE_PATH] = "1"  # nothing is imported from the current folder
        try:
            forkserver.ensure_running()
        finally:
            os.environ.pop(_SAFE_PATH)
            os.environ.update({} if before is None else {_SAFE_PATH: before})


class _Items:
    """A sampler whose items are set before each use."""

    items: Iterable[Any] = ()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)


class _Outcomes(Dataset[Any]):
    """Results, and errors as values: torch would rewrap a raised one and bury its text in a
    traceback."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self.make = make

    def __getitem__(self, item: Any) -> Any:
        try:
            return self.make(item)
        except VicinalError as error:
            return error

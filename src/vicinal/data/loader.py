"""Index lists to batches: in the plan's order, the same for any number of workers."""

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing import connection, spawn
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from vicinal.data.augmentation import Crops
from vicinal.data.draws import uniform
from vicinal.data.records import QUERY, Batch, FeatureArray, Records
from vicinal.data.transforms import (
    FeatureTransform,
    ImageTransform,
    TextTransform,
    TrainingTransform,
)
from vicinal.errors import ConfigError, DataError

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
    bytes; colors and normalization follow on the device.

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
        self.transform, self.device = transform, device
        ahead = not records.source.in_memory and records.source.kind == "images"
        reader = _Reader(records, transform, seed, corrupt)
        self._read = Processes(reader, min(workers, os.cpu_count() or 1) if ahead else 0)
        self._normalization = (
            transform.normalization(device) if isinstance(transform, ImageTransform) else None
        )

    def batches(self, plan: Plan, epoch: int = 0) -> Iterator[Batch]:
        """Yield one batch per index list of the plan, on the device."""
        for read in self._read((epoch, indices) for indices in plan):
            yield self._finished(read)

    def _finished(self, read: "_Read") -> Batch:
        batch, transform = read.batch.to(self.device), self.transform
        if not isinstance(transform, ImageTransform):
            return batch
        cut = batch.inputs if self.device.type == "cuda" else batch.inputs.contiguous()
        crops = None if read.crops is None else read.crops.to(self.device)
        return replace(batch, inputs=transform.finish(cut, crops, self._normalization))


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
    return loader.batches(in_order(len(records), batch_size))


def in_order(count: int, batch_size: int) -> Plan:
    """Return the index lists of rows 0 to ``count`` - 1."""
    if batch_size < 1:
        raise ConfigError(f"`batch_size` must be at least 1, got {batch_size}.")
    return [range(first, min(first + batch_size, count)) for first in range(0, count, batch_size)]


def checked_rows(records: Records, indices: Sequence[int]) -> Int[np.ndarray, "n"]:
    rows = np.asarray(indices, dtype=np.int64)
    if len(rows) and not 0 <= rows.min() <= rows.max() < len(records):
        asked = (
            f"a batch asks for rows {rows.min()} to {rows.max()} of {records.name}, which has "
            f"{len(records)}"
        )
        raise ConfigError(f"{asked}. Plan batches on the records that are loaded.")
    return rows


def readable_rows(
    records: Records,
    wanted: Sequence[int],
    read: Callable[[int], T],
    corrupt: Corrupt,
    skipped: list[int],
) -> Iterator[tuple[int, T]]:
    """Yield the rows that make a batch with what ``read`` returns; rows that raise a DataError go
    to ``skipped``.

    An unreadable row is replaced by the next readable one of its class; by one of the batch, which
    would then be there twice, only if there is no other.
    """
    used = set(wanted)
    for row in wanted:
        try:
            found = row, read(row)
        except DataError:
            if corrupt == "raise":
                raise
            skipped.append(row)
            if corrupt == "drop":
                continue
            found = _replacement(records, row, used, read)
            used.add(found[0])
        yield found


def _replacement(
    records: Records, row: int, used: set[int], read: Callable[[int], T]
) -> tuple[int, T]:
    members = np.flatnonzero(records.labels == records.labels[row])
    others = np.roll(members, -np.searchsorted(members, row))[1:].tolist()
    for other in sorted(others, key=used.__contains__):
        try:
            return other, read(other)
        except DataError:
            continue
    name, known = records.source.name(row), records.classes[records.labels[row]]
    fault = (
        f"{name} cannot be read, and no other image of its class {known!r} can take its place "
        f"({len(others)} tried)"
    )
    raise DataError(
        f"{fault}. Restore the files or remove the class; `vicinal data check` lists all such "
        "files."
    )


def tensor_columns(records: Records, rows: Int[np.ndarray, "n"]) -> dict[str, Tensor]:
    """Return the further columns of some rows as tensors, decimal numbers as float32."""
    columns = {name: torch.from_numpy(column[rows]) for name, column in records.columns.items()}
    return {
        name: column.float() if column.is_floating_point() else column
        for name, column in columns.items()
    }


class _Read(NamedTuple):
    """A batch on the host, its images still pixels of 0..255, and the crops where ``finish`` needs
    them."""

    batch: Batch
    crops: Crops | None = None


@dataclass(frozen=True)
class _Reader:
    """Makes the batch of an epoch's index list; may be sent to another process."""

    records: Records
    transform: TrainingTransform
    seed: int
    corrupt: Corrupt

    def __post_init__(self) -> None:
        kind = self.records.source.kind
        if kind != self.transform.kind:
            use = {
                "images": "ImageTransform",
                "features": "FeatureTransform",
                "text": "TextTransform",
            }[kind]
            mine = type(self.transform).__name__
            raise ConfigError(
                f"{self.records.name} holds {kind}, which {mine} does not take. Use {use}."
            )

    def __call__(self, item: tuple[int, Sequence[int]]) -> _Read:
        epoch, indices = item
        records, transform, skipped = self.records, self.transform, list[int]()
        crops: Crops | None = None
        rows, told = checked_rows(records, indices), list[str]()
        asks = np.zeros(len(rows), dtype=bool)
        if records.captions is not None:
            asks = records.columns["role"][rows] == QUERY
            told = [records.source.name(row) for row in rows[asks].tolist()]
        shown = rows[~asks]
        if isinstance(transform, FeatureTransform):
            inputs = transform.batch(_features(records, shown))
        elif isinstance(transform, TextTransform):
            inputs = transform.batch([records.source.read(row) for row in shown.tolist()])
        else:
            prepared: list[tuple[int, Any]] = [
                (row, transform.prepare(image, records.source.name(row)))
                for row, image in readable_rows(
                    records, shown.tolist(), self._read, self.corrupt, skipped
                )
            ]
            shown = np.array([row for row, _ in prepared], np.int64)
            images = [image for _, image in prepared]
            draws = uniform(self.seed, epoch, shown, transform.draws) if transform.draws else None
            if isinstance(transform, ImageTransform):
                inputs, crops = transform.cut_drawn(images, draws)
            else:
                inputs = transform.assemble(images, draws)
        if told:
            there = ~np.isin(rows, skipped if self.corrupt == "drop" else ())
            rows, asks = rows[there], asks[there]
            rows[~asks] = shown
        else:
            rows = shown
        labels = torch.from_numpy(records.labels[rows].astype(np.int64))
        batch = Batch(
            inputs, labels, torch.from_numpy(rows), tensor_columns(records, rows), tuple(skipped)
        )
        return _Read(replace(batch, texts=TextTransform().batch(told)) if told else batch, crops)

    def _read(self, row: int) -> Any:
        """Read a row; a text cannot take the place of a picture that is not readable."""
        if self.records.captions is not None and self.records.columns["role"][row] == QUERY:
            raise DataError(f"{self.records.source.name(row)!r:.60} is a text.")
        return self.records.source.read(row)


def _features(records: Records, rows: Int[np.ndarray, "n"]) -> np.ndarray:
    source, positions = records.source.origin(rows)
    if isinstance(source, FeatureArray):  # indexed once per batch; no Python per row
        return np.asarray(source.features[positions])
    return np.stack([source.read(int(position)) for position in positions])


class Processes(Generic[T]):
    """Make items in other processes, which stay for the next items; in this one where ``workers``
    is 0, or where ``make`` cannot travel."""

    def __init__(self, make: Callable[[Any], T], workers: int) -> None:
        self._make, self._items = make, _Items()
        self._workers = workers if workers and travels(make) else 0
        self._loader: DataLoader[T | DataError] | None = None

    def __call__(self, items: Iterable[Any]) -> Iterator[T]:
        """Yield what is made of each item, in their order."""
        if self._workers == 0:
            yield from map(self._make, items)
            return
        if self._loader is None:
            self._loader = self._started()
        self._items.items = items
        for outcome in self._loader:
            if isinstance(outcome, DataError):
                raise outcome
            yield outcome

    def _started(self) -> "DataLoader[T | DataError]":
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


def travels(value: object) -> bool:
    """Return whether another process can have ``value``: a lambda cannot be sent, and a class of a
    script, a notebook or a REPL is only in this process."""
    try:
        return b"__main__" not in bytes(ForkingPickler.dumps(value))
    except Exception:  # whatever an object of the user's own raises
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
        except DataError as error:
            return error

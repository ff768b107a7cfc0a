"""Index lists to batches: in the plan's order, the same for any number of workers."""

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from vicinal.data.draws import uniform
from vicinal.data.records import QUERY, Batch, FeatureArray, Records
from vicinal.data.transforms import FeatureTransform, TextTransform, TrainingTransform
from vicinal.errors import ConfigError, DataError

Plan = Iterable[Sequence[int]]
Corrupt = Literal["raise", "replace", "drop"]  # what is done about rows that cannot be read
T = TypeVar("T")


def load(
    records: Records,
    plan: Plan,
    transform: TrainingTransform,
    *,
    seed: int,
    epoch: int,
    workers: int = 0,
    skip_corrupt: bool = False,
) -> Iterator[Batch]:
    """Yield one batch per index list of the plan, augmented by numbers that depend on (seed, epoch, index) alone.

    Args:
        records: what the indices count in.
        plan: the index lists of an epoch.
        transform: of images or of features, as the records are.
        seed: of the augmentation.
        epoch: likewise.
        workers: processes that read image files ahead; no more are started than there are processors. Data in memory
            need none.
        skip_corrupt: replace an unreadable image by another one of its class and name it in ``Batch.skipped``;
            otherwise it is a DataError that names the file.
    """
    return _batches(_Reader(records, transform, seed, epoch, "replace" if skip_corrupt else "raise"), plan, workers)


def load_all(
    records: Records, transform: TrainingTransform, batch_size: int = 256, workers: int = 0, skip_corrupt: bool = False
) -> Iterator[Batch]:
    """Yield all records in their order, not augmented.

    With ``skip_corrupt``, unreadable rows are left out and named in ``Batch.skipped``; a batch may then be empty.
    """
    plan = in_order(len(records), batch_size)
    return _batches(_Reader(records, transform.evaluation(), 0, 0, "drop" if skip_corrupt else "raise"), plan, workers)


def in_order(count: int, batch_size: int) -> Plan:
    """Return the index lists of rows 0 to ``count`` - 1."""
    if batch_size < 1:
        raise ConfigError(f"`batch_size` must be at least 1, got {batch_size}.")
    return [range(first, min(first + batch_size, count)) for first in range(0, count, batch_size)]


def checked_rows(records: Records, indices: Sequence[int]) -> Int[np.ndarray, "n"]:
    rows = np.asarray(indices, dtype=np.int64)
    if len(rows) and not 0 <= rows.min() <= rows.max() < len(records):
        asked = f"a batch asks for rows {rows.min()} to {rows.max()} of {records.name}, which has {len(records)}"
        raise ConfigError(f"{asked}. Plan batches on the records that are loaded.")
    return rows


def readable_rows(
    records: Records, wanted: Sequence[int], read: Callable[[int], T], corrupt: Corrupt, skipped: list[int]
) -> Iterator[tuple[int, T]]:
    """Yield the rows that make a batch with what ``read`` returns; rows that raise a DataError go to ``skipped``.

    An unreadable row is replaced by the next readable one of its class; by one of the batch, which would then be there
    twice, only if there is no other.
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


def _replacement(records: Records, row: int, used: set[int], read: Callable[[int], T]) -> tuple[int, T]:
    members = np.flatnonzero(records.labels == records.labels[row])
    others = np.roll(members, -np.searchsorted(members, row))[1:].tolist()
    for other in sorted(others, key=used.__contains__):
        try:
            return other, read(other)
        except DataError:
            continue
    name, known = records.source.name(row), records.classes[records.labels[row]]
    fault = f"{name} cannot be read, and no other image of its class {known!r} can take its place ({len(others)} tried)"
    raise DataError(f"{fault}. Restore the files or remove the class; `vicinal data check` lists all such files.")


def tensor_columns(records: Records, rows: Int[np.ndarray, "n"]) -> dict[str, Tensor]:
    """Return the further columns of some rows as tensors, decimal numbers as float32."""
    columns = {name: torch.from_numpy(column[rows]) for name, column in records.columns.items()}
    return {name: column.float() if column.is_floating_point() else column for name, column in columns.items()}


@dataclass(frozen=True)
class _Reader:
    """Makes the batch of an index list; may be sent to another process."""

    records: Records
    transform: TrainingTransform
    seed: int
    epoch: int
    corrupt: Corrupt

    def __post_init__(self) -> None:
        kind = self.records.source.kind
        if kind != self.transform.kind:
            use = {"images": "ImageTransform", "features": "FeatureTransform", "text": "TextTransform"}[kind]
            mine = type(self.transform).__name__
            raise ConfigError(f"{self.records.name} holds {kind}, which {mine} does not take. Use {use}.")

    def __call__(self, indices: Sequence[int]) -> Batch:
        records, transform, skipped = self.records, self.transform, list[int]()
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
                for row, image in readable_rows(records, shown.tolist(), self._read, self.corrupt, skipped)
            ]
            shown = np.array([row for row, _ in prepared], np.int64)
            draws = uniform(self.seed, self.epoch, shown, transform.draws) if transform.draws else None
            inputs = transform.assemble([image for _, image in prepared], draws)
        if told:
            there = ~np.isin(rows, skipped if self.corrupt == "drop" else ())
            rows, asks = rows[there], asks[there]
            rows[~asks] = shown
        else:
            rows = shown
        labels = torch.from_numpy(records.labels[rows].astype(np.int64))
        batch = Batch(inputs, labels, torch.from_numpy(rows), tensor_columns(records, rows), tuple(skipped))
        return replace(batch, texts=TextTransform().batch(told)) if told else batch

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


def _batches(reader: _Reader, plan: Plan, workers: int) -> Iterator[Batch]:
    ahead = not reader.records.source.in_memory and reader.records.source.kind == "images"
    return in_processes(reader, plan, min(workers, os.cpu_count() or 1) if ahead else 0)


def in_processes(make: Callable[[Any], T], items: Iterable[Any], workers: int) -> Iterator[T]:
    """Yield ``make(item)`` in the order of the items, made by other processes; by this one where ``workers`` is 0."""
    if workers == 0:
        yield from map(make, items)
        return
    # A process that has started threads (torch has) must not fork itself: the child may hang on a lock that a
    # thread held. The fork server is a clean process, which imports torch once and then forks quickly.
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload([__name__])
    outcomes: DataLoader[T | DataError] = DataLoader(
        _Outcomes(make),
        sampler=items,
        batch_size=None,
        num_workers=workers,
        multiprocessing_context=context,
        generator=torch.Generator(),  # its own: the global generator's state belongs to the training loop
    )
    for outcome in outcomes:
        if isinstance(outcome, DataError):
            raise outcome
        yield outcome


class _Outcomes(Dataset[Any]):
    """Results, and errors as values: torch would rewrap a raised one and bury its text in a traceback."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self.make = make

    def __getitem__(self, item: Any) -> Any:
        try:
            return self.make(item)
        except DataError as error:
            return error

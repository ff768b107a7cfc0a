"""Index lists to batches: in the plan's order, the same for any number of workers."""

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from vicinal.data.draws import uniform
from vicinal.data.records import Batch, FeatureArray, Records
from vicinal.data.transforms import FeatureTransform, ImageTransform, OwnTransform, TrainingTransform
from vicinal.errors import ConfigError, DataError

Plan = Iterable[Sequence[int]]
Reader = Callable[[Sequence[int]], Batch]


def load(
    records: Records,
    plan: Plan,
    transform: TrainingTransform,
    *,
    seed: int,
    epoch: int,
    workers: int = 0,
    skip_corrupt: bool = False,
    start: int = 0,
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
        start: how many batches to leave out, unread: a resumed run goes on in mid-epoch.
    """
    reader = _reader(records, transform, seed=seed, epoch=epoch, corrupt="replace" if skip_corrupt else "refuse")
    return _batches(reader, islice(plan, start, None), workers)


def load_all(
    records: Records,
    transform: TrainingTransform,
    *,
    batch_size: int = 256,
    workers: int = 0,
    skip_corrupt: bool = False,
) -> Iterator[Batch]:
    """Yield all records in their order, not augmented.

    With ``skip_corrupt``, unreadable rows are left out and named in ``Batch.skipped``; a batch may then be empty.
    """
    if batch_size < 1:
        raise ConfigError(f"batches hold at least 1 row, but batch_size = {batch_size} came.")
    reader = _reader(records, transform.evaluation(), seed=0, epoch=0, corrupt="drop" if skip_corrupt else "refuse")
    plan = (range(first, min(first + batch_size, len(records))) for first in range(0, len(records), batch_size))
    return _batches(reader, plan, workers)


def _reader(
    records: Records,
    transform: TrainingTransform,
    *,
    seed: int,
    epoch: int,
    corrupt: Literal["refuse", "replace", "drop"],
) -> Reader:
    if records.source.kind == "images" and isinstance(transform, (ImageTransform, OwnTransform)):
        return _ImageReader(records, transform, seed, epoch, corrupt)
    if records.source.kind == "features" and isinstance(transform, FeatureTransform):
        return _FeatureReader(records, transform)
    raise ConfigError(
        f"{records.name} holds {records.source.kind}, which {type(transform).__name__} does not take. "
        f"Use {'ImageTransform' if records.source.kind == 'images' else 'FeatureTransform'}."
    )


def _batches(reader: Reader, plan: Plan, workers: int) -> Iterator[Batch]:
    if workers < 0:
        raise ConfigError(f"`workers` counts processes, but {workers} came. 0 reads in the training process.")
    if workers == 0 or not isinstance(reader, _ImageReader) or reader.records.source.in_memory:
        return map(reader, plan)
    return _ahead(reader, plan, min(workers, os.cpu_count() or 1))


def _ahead(reader: Reader, plan: Plan, workers: int) -> Iterator[Batch]:
    """The same batches in the same order, made by other processes."""
    # A process that has started threads (torch has) must not fork itself: the child may hang on a lock that a
    # thread held. The fork server is a clean process, which imports torch once and then forks quickly.
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload([__name__])
    loader: DataLoader[Batch | DataError] = DataLoader(
        _Outcomes(reader),
        sampler=plan,  # to torch, one "sample" is a whole index list
        batch_size=None,
        collate_fn=_unchanged,
        num_workers=workers,
        multiprocessing_context=context,
        generator=torch.Generator(),  # its own: the global generator's state belongs to the training loop
    )
    for outcome in loader:
        if isinstance(outcome, DataError):
            raise outcome
        yield outcome


class _Outcomes(Dataset[Batch | DataError]):
    """Batches, and refusals as values: torch would rewrap a raised one and bury its text in a traceback."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    def __getitem__(self, indices: Sequence[int]) -> Batch | DataError:
        try:
            return self.reader(indices)
        except DataError as error:
            return error


def _unchanged(outcome: Any) -> Any:
    return outcome


@dataclass(frozen=True)
class _FeatureReader:
    """Indexes the array once per batch; no Python per row."""

    records: Records
    transform: FeatureTransform

    def __call__(self, indices: Sequence[int]) -> Batch:
        rows = _checked(indices, self.records)
        source, positions = self.records.source.origin(rows)
        if isinstance(source, FeatureArray):
            features = source.features[positions]
        else:
            features = np.stack([source.read(int(position)) for position in positions])
        return _batch(self.records, rows, self.transform.batch(features))


@dataclass(frozen=True)
class _ImageReader:
    records: Records
    transform: ImageTransform | OwnTransform
    seed: int
    epoch: int
    corrupt: Literal["refuse", "replace", "drop"]

    def __call__(self, indices: Sequence[int]) -> Batch:
        wanted = _checked(indices, self.records).tolist()
        rows, prepared, skipped = list[int](), list[Any](), list[int]()
        for row in wanted:
            try:
                used, image = row, self.records.source.read(row)
            except DataError:
                if self.corrupt == "refuse":
                    raise
                skipped.append(row)
                if self.corrupt == "drop":
                    continue
                used, image = self._replacement(row, {*wanted, *rows})
            rows.append(used)
            prepared.append(self._prepared(used, image))
        draws = uniform(self.seed, self.epoch, rows, self.transform.draws) if self.transform.draws else None
        return _batch(self.records, np.array(rows, np.int64), self.transform.assemble(prepared, draws), tuple(skipped))

    def _prepared(self, row: int, image: Image.Image) -> Any:
        try:
            return self.transform.prepare(image)
        except DataError as error:
            raise DataError(f"{self.records.source.name(row)}: {error}") from error

    def _replacement(self, row: int, batch: set[int]) -> tuple[int, Image.Image]:
        """The next readable row of the same class; one of the batch (which would then be there twice) only in need."""
        members = np.flatnonzero(self.records.labels == self.records.labels[row])
        others = np.roll(members, -np.searchsorted(members, row))[1:].tolist()
        for other in sorted(others, key=batch.__contains__):
            try:
                return other, self.records.source.read(other)
            except DataError:
                continue
        raise DataError(
            f"{self.records.source.name(row)} cannot be read, and no other image of its class "
            f"{self.records.classes[self.records.labels[row]]!r} can take its place ({len(others)} tried). "
            f"Restore the files or remove the class; `vicinal data check` lists all such files."
        )


def _checked(indices: Sequence[int], records: Records) -> np.ndarray:
    rows = np.asarray(indices, dtype=np.int64)
    if len(rows) and not 0 <= rows.min() <= rows.max() < len(records):
        raise ConfigError(
            f"a batch asks for rows {rows.min()} to {rows.max()} of {records.name}, which has {len(records)}. "
            f"Plan batches on the records that are loaded."
        )
    return rows


def _batch(records: Records, rows: np.ndarray, inputs: Tensor, skipped: tuple[int, ...] = ()) -> Batch:
    extras = {name: torch.from_numpy(column[rows]) for name, column in records.columns.items()}
    return Batch(
        inputs=inputs,
        labels=torch.from_numpy(records.labels[rows].astype(np.int64)),
        indices=torch.from_numpy(rows),
        extras={name: column.float() if column.is_floating_point() else column for name, column in extras.items()},
        skipped=skipped,
    )

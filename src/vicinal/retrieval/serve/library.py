"""What is served: a run, its collection, its model as a function of one picture, its map; and the
threads for it.

Searches that wait at the same time share one pass over the vectors. An exact search reads every
vector once, and that
reading is most of its time: eight queries in one pass cost little more than one. So a search that
finds another one going on waits for its end, with whoever else has come meanwhile.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, wraps
from pathlib import Path
from threading import Lock
from typing import ParamSpec, TypeVar

import numpy as np
from PIL import Image

from vicinal.data.records import Kind
from vicinal.errors import ConfigError, DataError
from vicinal.retrieval.annotations import Annotations
from vicinal.retrieval.calibration import NAME, Threshold, distance_threshold
from vicinal.retrieval.collection import CollectionDirectory, Match, Snapshot
from vicinal.retrieval.map import CollectionMap, collection_map
from vicinal.retrieval.model import EmbeddingModel, load_asking
from vicinal.retrieval.serve.guard import busy
from vicinal.run_directory import RunDirectory

Given = ParamSpec("Given")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Library:
    """All that requests are answered from.

    Attributes:
        run: what was trained.
        collection: what is searched; a request takes one snapshot of it.
        kind: what the run embeds.
        embed: the embedding [d] of one decoded picture; None where the run embeds features or
            texts.
        reader: embeds texts; None where the run has no text encoder.
        layout: the map of a snapshot; slow the first time, kept beside the generation.
        threshold: beyond which a neighbor is no match, as calibrated on the run's validation
            classes; or None.
    """

    run: RunDirectory
    collection: CollectionDirectory
    kind: Kind
    embed: Callable[[Image.Image], np.ndarray] | None
    layout: Callable[[Snapshot], CollectionMap]
    threshold: Threshold | None = None
    reader: EmbeddingModel | None = None

    @cached_property
    def annotations(self) -> Annotations:
        return Annotations(self.collection.path)

    def snapshot(self) -> Snapshot:
        """Return the newest generation with the labels that were given here in place of the data's.

        A journal that cannot be read changes nothing here; asked for annotations, the server says
        what is wrong.
        """
        indexed = self.collection.snapshot()
        with suppress(DataError, OSError):
            return indexed.relabeled(self.annotations.read(indexed).labels)
        return indexed


def open_library(
    run: Path,
    *,
    collection: Path | None = None,
    device: str = "auto",
    rate: float | None = None,
    images: Sequence[str] = (),
    engine: str | None = None,
) -> Library:
    """Open a run with its collection and model; nothing from the run is executed.

    Args:
        rate: of false matches, at which to calibrate the threshold for "no match"; by default a run
            that was calibrated before shows that of `0.001`, and another none.
        images: folders of pictures to show besides those of the run's own data.
        engine: address of the engine to ask in the place of the collection's own vectors.
    """
    directory = RunDirectory.open(run)
    found = CollectionDirectory.of(directory, collection, images=images, engine=engine)
    model, reader = load_asking(run, device=device)

    def embed(image: Image.Image) -> np.ndarray:
        row: np.ndarray = model.embed(image)[0]
        return row

    if found.snapshot().dim != model.dim:
        held = f"the collection {found.path} holds vectors of {found.snapshot().dim}"
        advice = "Index with this run, or serve the run that it was indexed with."
        raise ConfigError(f"{run} embeds into {model.dim} dimensions, but {held}. {advice}")
    threshold = None
    if rate is not None or directory.arrays(NAME) is not None:
        threshold = distance_threshold(
            directory,
            rate=rate,
            device=model.device,
            snapshot=found.snapshot(),
        )
    embeds = embed if model.kind == "images" else None
    return Library(directory, found, model.kind, embeds, collection_map, threshold, reader)


class Workers:
    """Threads for one kind of work, off the event loop, with a bounded queue before them.

    Args:
        threads: how many work at a time.
        waiting: how many more may wait.
    """

    def __init__(self, *, threads: int, waiting: int) -> None:
        self.threads, self.waiting = threads, waiting
        self._pool = ThreadPoolExecutor(threads)
        self._taken, self._lock = 0, Lock()

    def route(self, work: Callable[Given, Result]) -> Callable[Given, Awaitable[Result]]:
        """Make a route of a function that these threads run; a 503 at once where the queue is
        full."""

        @wraps(work)
        async def route(*args: Given.args, **kwargs: Given.kwargs) -> Result:
            return await asyncio.wrap_future(self.submit(lambda: work(*args, **kwargs)))

        return route

    def submit(self, work: Callable[[], Result]) -> "Future[Result]":
        with self._lock:
            if self._taken >= self.threads + self.waiting:
                asked = "the server works on a few requests at a time."
                raise busy(asked, f"{self.waiting} of this kind wait.")
            self._taken += 1
        future = self._pool.submit(work)
        # Not in a `finally` of whoever awaits: a client that leaves ends the waiting, but not the
        # work.
        future.add_done_callback(self._done)
        return future

    def _done(self, _: object) -> None:
        with self._lock:
            self._taken -= 1

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True)
class _Waiting:
    vector: np.ndarray
    k: int
    without: int | None
    found: Future[list[Match]] = field(default_factory=Future)


class Together:
    """One pass at a time, each for all searches alike that have come before it began."""

    def __init__(self) -> None:
        self._turn, self._door = Lock(), Lock()
        # By what must be equal to share a pass: snapshot and conditions.
        self._waiting: dict[tuple[Snapshot, tuple[tuple[str, str], ...]], list[_Waiting]] = {}

    def search(
        self,
        snapshot: Snapshot,
        vector: np.ndarray,
        k: int,
        *,
        where: Mapping[str, str],
        without: int | None = None,
    ) -> list[Match]:
        """Find the ``k`` nearest of one vector, as ``snapshot.search`` does; called from as many
        threads as may wait.

        Args:
            without: id of the item that the vector belongs to, which is not to be found.
        """
        mine, alike = _Waiting(vector, k, without), (snapshot, tuple(sorted(where.items())))
        with self._door:
            self._waiting.setdefault(alike, []).append(mine)
        with self._turn:
            if not mine.found.done():
                with self._door:
                    all_alike = self._waiting.pop(alike)
                _pass(snapshot, all_alike, where)
        return mine.found.result()


def _pass(snapshot: Snapshot, waiting: list[_Waiting], where: Mapping[str, str]) -> None:
    most = max(
        one.k + (one.without is not None) for one in waiting
    )  # one more, for the item itself
    try:
        vectors = np.stack([one.vector for one in waiting]).astype(np.float32)
        rows = snapshot.search(vectors, most, where=where or None)
    except (
        Exception
    ) as error:  # theirs alike: they share the conditions, and each length was checked before
        for one in waiting:
            one.found.set_exception(error)
        return
    for one, row in zip(waiting, rows, strict=True):
        one.found.set_result([match for match in row if match.item.id != one.without][: one.k])

"""Work off the event loop: a few threads, a bounded queue before them, and a 503 for whoever comes after.

Searches that wait at the same time share one pass over the vectors. An exact search reads every vector once, and that
reading is most of its time: eight queries in one pass cost little more than one. So a search that finds another one
going on waits for its end, with whoever else has come meanwhile.
"""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock
from typing import TypeVar

import numpy as np

from vicinal.retrieval.collection import Match, Snapshot
from vicinal.retrieval.serve.errors import overloaded

Result = TypeVar("Result")
Alike = tuple[int, tuple[tuple[str, str], ...]]  # generation and conditions: what must be equal to share a pass


class Workers:
    """Threads for one kind of work.

    Args:
        name: of the threads.
        threads: how many work at a time.
        waiting: how many more may wait.
    """

    def __init__(self, name: str, *, threads: int, waiting: int) -> None:
        self.threads, self.waiting = threads, waiting
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._taken, self._lock = 0, Lock()

    async def run(self, work: Callable[[], Result]) -> Result:
        """The result of ``work``; a 503 at once where the queue is full."""
        return await asyncio.wrap_future(self.submit(work))

    def submit(self, work: Callable[[], Result]) -> "Future[Result]":
        with self._lock:
            if self._taken >= self.threads + self.waiting:
                raise overloaded(self.waiting)
            self._taken += 1
        future = self._pool.submit(work)
        # Not in a `finally` of whoever awaits: a client that leaves ends the waiting, but not the work.
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
        self._waiting: dict[Alike, list[_Waiting]] = {}

    def search(
        self, snapshot: Snapshot, vector: np.ndarray, k: int, *, where: Mapping[str, str], without: int | None = None
    ) -> list[Match]:
        """Find the ``k`` nearest of one vector, as ``snapshot.search`` does; called from as many threads as may wait.

        Args:
            without: id of the item that the vector belongs to, which is not to be found.
        """
        mine, alike = _Waiting(vector, k, without), (snapshot.generation, tuple(sorted(where.items())))
        with self._door:
            self._waiting.setdefault(alike, []).append(mine)
        with self._turn:
            if not mine.found.done():
                with self._door:
                    all_alike = self._waiting.pop(alike)
                _pass(snapshot, all_alike, where)
        return mine.found.result()


def _pass(snapshot: Snapshot, waiting: list[_Waiting], where: Mapping[str, str]) -> None:
    most = max(one.k + (one.without is not None) for one in waiting)  # one more, for the item itself
    try:
        vectors = np.stack([one.vector for one in waiting]).astype(np.float32)
        rows = snapshot.search(vectors, most, where=where or None)
    except Exception as error:  # theirs alike: they share the conditions, and each length was checked before
        for one in waiting:
            one.found.set_exception(error)
        return
    for one, row in zip(waiting, rows, strict=True):
        one.found.set_result([match for match in row if match.item.id != one.without][: one.k])

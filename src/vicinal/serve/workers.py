"""Work off the event loop: a few threads, a bounded queue before them, and a 503 for whoever comes after."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import TypeVar

from vicinal.serve.refusals import overloaded

Result = TypeVar("Result")


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
        """The result of ``work``, or a refusal at once where the queue is full."""
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

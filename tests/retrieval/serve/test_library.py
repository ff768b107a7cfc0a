"""A few at a time, some waiting, the rest rejected; and room again once work is done."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import numpy as np
import pytest

from vicinal.errors import DataError
from vicinal.retrieval.serve.guard import RequestError
from vicinal.retrieval.serve.library import Together, Workers


def test_who_does_not_fit_is_rejected_and_room_comes_back():
    async def scene():
        workers, go = Workers(threads=1, waiting=1), Event()
        held = [asyncio.create_task(workers.route(lambda: go.wait(5))()) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(RequestError) as caught:
            await workers.route(lambda: None)()
        assert caught.value.status_code == 503 and caught.value.headers["Retry-After"] == "1"
        go.set()
        await asyncio.gather(*held)
        assert await workers.route(lambda: 7)() == 7
        workers.close()

    asyncio.run(scene())


def test_a_client_that_leaves_frees_its_place_only_when_its_work_is_done():
    async def scene():
        workers, go = Workers(threads=1, waiting=0), Event()
        left = asyncio.create_task(workers.route(lambda: go.wait(5))())
        await asyncio.sleep(0.05)
        left.cancel()
        await asyncio.sleep(0)
        with pytest.raises(RequestError):
            await workers.route(lambda: None)()
        go.set()
        for _ in range(100):
            await asyncio.sleep(0.01)
            try:
                assert await workers.route(lambda: 7)() == 7
                break
            except RequestError:
                continue
        else:
            raise AssertionError("the place was never freed")
        workers.close()

    asyncio.run(scene())


def test_a_failure_reaches_who_asked_and_frees_its_place():
    async def scene():
        workers = Workers(threads=1, waiting=0)
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                await workers.route(lambda: 1 / 0)()
            await asyncio.sleep(0.01)
        workers.close()

    asyncio.run(scene())


class Watched:
    """A snapshot whose first pass waits until the others have come."""

    def __init__(self, snapshot):
        self.snapshot, self.generation = snapshot, snapshot.generation
        self.started, self.go, self.passes = Event(), Event(), []

    def search(self, vectors, k, *, where=None):
        self.passes.append(len(vectors))
        self.started.set()
        self.go.wait(5)
        return self.snapshot.search(vectors, k, where=where)


@pytest.fixture
def watched(library):
    return Watched(library.collection.snapshot())


def ids(matches):
    return [match.item.id for match in matches]


def test_searches_that_wait_share_a_pass_and_find_what_each_finds_alone(watched):
    together, snapshot = Together(), watched.snapshot
    asked = [(id, 1 + id % 5, id if id % 2 else None) for id in range(12)]
    with ThreadPoolExecutor(12) as pool:
        futures = [
            pool.submit(together.search, watched, snapshot.vector(id), k, where={}, without=without)
            for id, k, without in asked
        ]
        watched.started.wait(5)
        while sum(len(waiting) for waiting in together._waiting.values()) < 11:
            pass
        watched.go.set()
        found = [future.result(5) for future in futures]
    assert watched.passes == [1, 11]
    for (id, k, without), matches in zip(asked, found, strict=True):
        exclude = () if without is None else (without,)
        alone = snapshot.search(snapshot.vector(id)[None], k, exclude=exclude)[0]
        assert ids(matches) == ids(alone) and len(matches) == k
        np.testing.assert_allclose(
            [m.distance for m in matches], [m.distance for m in alone], atol=1e-6
        )


def test_other_conditions_make_another_pass(watched):
    together, snapshot = Together(), watched.snapshot
    watched.go.set()
    for label in ("disc", "square"):
        found = together.search(watched, snapshot.vector(0), 40, where={"label": label}, without=0)
        assert {match.item.label for match in found} == {label} and 0 not in ids(found)
    assert watched.passes == [1, 1] and not together._waiting


def test_a_failure_reaches_all_who_shared_and_nobody_after(watched):
    together = Together()
    watched.go.set()
    with pytest.raises(DataError, match="nobody"):
        together.search(watched, watched.snapshot.vector(0), 3, where={"nobody": "1"})
    assert len(together.search(watched, watched.snapshot.vector(0), 3, where={})) == 3

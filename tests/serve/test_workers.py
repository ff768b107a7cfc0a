"""A few at a time, some waiting, the rest refused; and room again once work is done."""

import asyncio
from threading import Event

import pytest

from vicinal.serve.refusals import Refusal
from vicinal.serve.workers import Workers


def test_who_does_not_fit_is_refused_and_room_comes_back():
    async def scene():
        workers, go = Workers("test", threads=1, waiting=1), Event()
        held = [asyncio.create_task(workers.run(lambda: go.wait(5))) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Refusal) as caught:
            await workers.run(lambda: None)
        assert caught.value.status == 503 and caught.value.headers["Retry-After"] == "1"
        go.set()
        await asyncio.gather(*held)
        assert await workers.run(lambda: 7) == 7
        workers.close()

    asyncio.run(scene())


def test_a_client_that_leaves_frees_its_place_only_when_its_work_is_done():
    async def scene():
        workers, go = Workers("test", threads=1, waiting=0), Event()
        left = asyncio.create_task(workers.run(lambda: go.wait(5)))
        await asyncio.sleep(0.05)
        left.cancel()
        await asyncio.sleep(0)
        with pytest.raises(Refusal):
            await workers.run(lambda: None)
        go.set()
        for _ in range(100):
            await asyncio.sleep(0.01)
            try:
                assert await workers.run(lambda: 7) == 7
                break
            except Refusal:
                continue
        else:
            raise AssertionError("the place was never freed")
        workers.close()

    asyncio.run(scene())


def test_a_failure_reaches_who_asked_and_frees_its_place():
    async def scene():
        workers = Workers("test", threads=1, waiting=0)
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                await workers.run(lambda: 1 / 0)
            await asyncio.sleep(0.01)
        workers.close()

    asyncio.run(scene())

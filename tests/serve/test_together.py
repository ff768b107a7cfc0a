"""Shared passes give each search what it would have found alone, and are fewer than the searches."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import numpy as np
import pytest

from vicinal.errors import DataError
from vicinal.serve.together import Together


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
        np.testing.assert_allclose([m.distance for m in matches], [m.distance for m in alone], atol=1e-6)


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

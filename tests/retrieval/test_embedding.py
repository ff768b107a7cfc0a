"""Embedding on Ray: the same vectors as in one process, and the same word on what cannot be
read."""

import numpy as np
import pytest

from vicinal.errors import ConfigError
from vicinal.retrieval.collection import CollectionDirectory
from vicinal.retrieval.indexing import Request, index


def test_at_least_one_worker_is_needed(image_run, photographs, listener):
    with pytest.raises(ConfigError, match="at least 1 worker; got 0"):
        index(image_run, Request([str(photographs)], ray=0), listener)


@pytest.mark.slow(26)
# One of the workers would be idle.
@pytest.mark.filterwarnings("error:The minimum number of concurrent actors")
@pytest.mark.filterwarnings("default")  # Ray's own, which are not ours to mend
def test_two_workers_give_the_vectors_of_the_plain_path(
    image_run, photographs, listener, tmp_path, monkeypatch
):
    pytest.importorskip("ray.data")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    (photographs / "a" / "broken.png").write_bytes(b"no image")
    found = []
    for ray in (None, 2):
        request = Request([str(photographs)], batch_size=4, skip_corrupt=True, ray=ray)
        done = index(image_run, request, listener, collection=tmp_path / f"{ray}")
        assert done.embedded == 12 and len(done.unreadable) == 1
        found.append(CollectionDirectory.open(tmp_path / f"{ray}").snapshot())
    one, other = found
    assert one.items() == other.items() and np.allclose(one.vectors(), other.vectors(), atol=1e-6)

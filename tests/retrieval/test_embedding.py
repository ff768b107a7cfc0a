"""Embedding beyond one process: the same vectors, whoever writes them, and the same word on what
cannot be read."""

import sys
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import fsspec
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from tests.apart import in_two

from vicinal.cli.main import run as main
from vicinal.data import open_path, records_at
from vicinal.errors import ConfigError, DataError
from vicinal.evaluation import embedding
from vicinal.evaluation.embedding import Job, embed
from vicinal.evaluation.encoder import Encoder
from vicinal.evaluation.measure import measure
from vicinal.retrieval.collection import CollectionDirectory
from vicinal.retrieval.indexing import index

CPU = torch.device("cpu")


def quiet(*_):
    return nullcontext(SimpleNamespace(advance=lambda done, facts="": None))


def written(_, run, data, out, ray=None):
    """Write shards; return how many embeddings there are and what could not be read."""
    if ray is None:
        embedding._ROWS = 4, 4
    count, unread = embed(Job(Path(run), data, Path(out), skip_corrupt=True), CPU, ray, quiet)
    return {"count": count, "unread": unread}


@pytest.fixture
def embedded(image_run, photographs):
    """What the run's model makes of the photographs in memory; one of them is broken."""
    (photographs / "a" / "broken.png").write_bytes(b"no image")
    return Encoder.load(image_run).embed(records_at(str(photographs), image_run), skip_corrupt=True)


def equal(folder, embedded):
    """Hold a folder of embeddings against these."""
    records = open_path(folder).load()
    kept = embedded.records
    names = [kept.source.name(row) for row in range(len(kept))]
    assert_allclose(records.source.features, embedded.vectors, atol=1e-6)
    assert records.source.names == names and records.labels.tolist() == kept.labels.tolist()
    assert records.classes == kept.classes and (records.splits == "test").all()


def test_an_interrupted_embedding_goes_on(
    image_run, photographs, listener, embedded, tmp_path, monkeypatch
):
    monkeypatch.setattr(embedding, "_ROWS", (4, 4))
    job = Job(image_run.path, str(photographs), tmp_path / "out", skip_corrupt=True)
    listener.stop_after = 8
    with pytest.raises(KeyboardInterrupt):
        embed(job, CPU, None, listener.following)
    with pytest.raises(DataError, match=r"lacks 2 of 4 shards, such as part-00002\.parquet"):
        open_path(job.folder).load()
    before = {file: file.stat().st_mtime_ns for file in job.folder.glob("*.parquet")}
    listener.stop_after = None
    assert embed(job, CPU, None, listener.following) == (12, [])
    assert listener.titles[-1] == ("embedding", 8, 0)
    assert before == {file: file.stat().st_mtime_ns for file in before}
    equal(job.folder, embedded)
    (photographs / "b" / "new.png").write_bytes((photographs / "a" / "00.png").read_bytes())
    with pytest.raises(ConfigError, match="holds embeddings of other rows"):
        embed(job, CPU, None, listener.following)
    with pytest.raises(ConfigError, match="holds files"):
        embed(replace(job, folder=photographs), CPU, None, listener.following)


def test_a_run_takes_its_own_embeddings_as_they_are(
    image_run, photographs, listener, embedded, tmp_path
):
    written(0, image_run.path, str(photographs), tmp_path / "out")
    records = open_path(tmp_path / "out").load()
    found = Encoder.load(image_run).embed(records)
    assert np.array_equal(found.vectors, records.source.features)
    assert found.metric == embedded.metric
    index(image_run, [str(tmp_path / "out")], console=listener)
    snapshot = CollectionDirectory.open(image_run.path / "collection").snapshot()
    assert_array_equal(snapshot.vectors, found.vectors)
    assert [item.label for item in snapshot.items] == [name[0] for name in records.source.names]
    another = Encoder.load(image_run)
    torch.nn.init.ones_(next(another.embedder.parameters()))
    another.save_weights(image_run)
    with pytest.raises(DataError, match="embeds images"):
        index(image_run, [str(tmp_path / "out")], console=listener)


def test_embeddings_in_a_bucket_go_on_and_every_command_takes_them(
    image_run, photographs, bucket, embedded, monkeypatch, capsys, tmp_path
):
    def call(*words):
        monkeypatch.setattr(sys, "argv", ["vicinal", *words])
        capsys.readouterr()
        with suppress(SystemExit):
            main()
        out, error = capsys.readouterr()
        return out or error

    monkeypatch.setattr(embedding, "_ROWS", (4, 4))
    url = f"{bucket}/embedded"
    run = str(image_run.path)
    words = "embed", run, str(photographs), "--out", url, "--skip-corrupt"
    stopped = iter([None, KeyboardInterrupt])
    write = embedding.write_shard

    def interrupted(*shard):
        write(*shard)
        if error := next(stopped, None):
            raise error

    with monkeypatch.context() as patch:
        patch.setattr(embedding, "write_shard", interrupted)
        call(*words)
    client = fsspec.filesystem("s3")
    client.invalidate_cache()
    assert len(client.glob(f"{url}/part-*.parquet")) == 2
    assert f"12 embeddings: {url}" in call(*words)
    equal(url, embedded)

    scores = [
        measure(each, recalls=(1,), clustering=True)
        for each in (embedded, Encoder.load(image_run).embed(open_path(url).load()))
    ]
    assert scores[0] == scores[1]
    assert "12 items" in call("index", run, url)
    collection = CollectionDirectory.open(image_run.path / "collection").snapshot()
    assert_allclose(collection.vectors, embedded.vectors, atol=1e-6)
    for words in (
        ("dedupe", run, url, "--embeddings", "--distance", "0.5"),
        ("cluster", run, url, "--groups", "2"),
        ("clean", run, url),
        ("suggest", run, url, "--k", "3"),
    ):
        assert ".csv" in call(*words), words


@pytest.mark.slow
def test_two_processes_write_the_shards_of_one(image_run, photographs, embedded, tmp_path):
    words = str(image_run.path), str(photographs), str(tmp_path / "out")
    for found in in_two(written, tmp_path, *words):
        assert found == {"count": 12, "unread": ["a/broken.png"]}
    equal(tmp_path / "out", embedded)


def test_at_least_one_worker_is_needed(image_run, photographs, listener):
    with pytest.raises(ConfigError, match="at least 1 worker; got 0"):
        index(image_run, [str(photographs)], ray=0, console=listener)


@pytest.mark.slow(26)
# One of the workers would be idle.
@pytest.mark.filterwarnings("error:The minimum number of concurrent actors")
@pytest.mark.filterwarnings("default")  # Ray's own, which are not ours to mend
def test_two_workers_give_the_vectors_of_the_plain_path(
    image_run, photographs, listener, draw, tmp_path, monkeypatch
):
    pytest.importorskip("ray.data")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    for number in range(300):  # more than a shard
        draw(photographs / "e" / f"{number}.png", 100 + number)
    (photographs / "a" / "broken.png").write_bytes(b"no image")
    records = records_at(str(photographs), image_run)
    embedded = Encoder.load(image_run).embed(records, skip_corrupt=True)
    with embedding.ray_cluster():
        settings = {"batch_size": 100, "skip_corrupt": True, "ray": 2, "console": listener}
        done = index(image_run, [str(photographs)], **settings)
        found = written(0, image_run.path, str(photographs), tmp_path / "out", ray=2)
    assert done.embedded == 312 and len(done.unreadable) == 1
    assert found == {"count": 312, "unread": ["a/broken.png"]}
    equal(tmp_path / "out", embedded)
    snapshot = CollectionDirectory.open(image_run.path / "collection").snapshot()
    assert_allclose(snapshot.vectors, embedded.vectors, atol=1e-6)

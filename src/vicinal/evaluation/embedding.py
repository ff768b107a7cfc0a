"""Embedding beyond one process and beyond memory: a folder of shards, each written whole, so that a
command that was killed goes on.

Processes, or workers of a Ray cluster, read the data themselves and write the shards that are
missing; nothing passes through the first process but their numbers.
"""

import json
import logging
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from vicinal import parallel
from vicinal.data import records_at
from vicinal.data.loader import Loader
from vicinal.data.records import Progress, Records
from vicinal.data.table import MANIFEST, embedding_count, pyarrow_module, shard_path, write_shard
from vicinal.errors import ConfigError, VicinalError, package
from vicinal.evaluation.encoder import Encoder
from vicinal.files import read_object, write_arrays, write_json
from vicinal.models.embedder import Role
from vicinal.remote import laid_out, sent
from vicinal.run_directory import RunDirectory, model_fingerprint

_SHARDS = 64  # at least, of a large set: for as many processes
_ROWS = 256, 16_384  # of a shard, at least and at most
_ATTEMPTS = 3  # at what processes do together, where one is lost
T = TypeVar("T")


@dataclass(frozen=True)
class Job:
    """What is embedded, by which model, and where to.

    Attributes:
        run: whose model embeds.
        data: path of the data.
        folder: to write, or the mirror of a URL.
        role: network of a model with several; None for that of each row.
        batch_size: rows at a time.
        workers: processes that read images ahead.
        skip_corrupt: leave out what cannot be read.
    """

    run: Path
    data: str
    folder: Path
    role: Role | None = None
    batch_size: int = 256
    workers: int = 0
    skip_corrupt: bool = False

    def encoder(self, device: torch.device) -> Encoder:
        encoder = Encoder.load(RunDirectory.open(self.run), device)
        return encoder if self.role is None else encoder.stream(self.role)

    def begin(self, encoder: Encoder, records: Records) -> list[int]:
        """Say in the folder what it will hold, and return the shards that are missing; an error
        where it holds anything else."""
        pyarrow_module()
        model = model_fingerprint(RunDirectory.open(self.run))
        about: dict[str, Any] = {
            "rows": len(records),
            "shards": -(-len(records) // _shard_rows(len(records))),
            "dim": encoder.embedder.embedding_dim,
            "model": model if self.role is None else f"{model}, {self.role}",
            "data": records.fingerprint(),
        }
        manifest = laid_out(self.folder) / MANIFEST
        held = read_object(manifest) if manifest.is_file() else None
        if held != about and self.folder.exists() and (held or any(self.folder.iterdir())):
            changed = [name for name in about if held and held.get(name) != about[name]]
            raise ConfigError(
                f"{self.folder} holds {'embeddings of other ' + changed[0] if held else 'files'}. "
                "Name a new folder with --out."
            )
        if held is None:
            write_json(manifest, about)
            sent(manifest)
            laid_out(self.folder)
        shards = range(about["shards"])
        return [n for n in shards if not shard_path(self.folder, n).is_file()]

    def write(
        self, encoder: Encoder, records: Records, shards: list[int], progress: Progress
    ) -> list[str]:
        """Embed some shards; return the names of what could not be read."""
        encoder = encoder.taking(records.source, records.name)
        corrupt: Any = "drop" if self.skip_corrupt else "raise"
        loader = Loader(
            records,
            encoder.preprocessing.evaluation(),
            workers=self.workers,
            corrupt=corrupt,
            device=encoder.device,
        )
        size = _shard_rows(len(records))
        plans = []
        for number in shards:
            rows = range(len(records))[number * size : (number + 1) * size]
            starts = range(0, len(rows), self.batch_size)
            plans.append([rows[start : start + self.batch_size] for start in starts])
        batches = loader.batches(batch for plan in plans for batch in plan)
        unread = list[str]()
        done = 0
        for number, plan in zip(shards, plans, strict=True):
            vectors, kept, skipped = encoder.forward(islice(batches, len(plan)))
            if vectors is None:
                vectors = torch.empty(0, encoder.embedder.embedding_dim)
            part = records.take(np.array(kept, np.int64))
            write_shard(shard_path(self.folder, number), part, vectors.numpy())
            unread += [records.source.name(row) for row in skipped]
            done += sum(map(len, plan))
            progress(done)
        return unread


def _shard_rows(count: int) -> int:
    """Return the rows of a shard."""
    least, most = _ROWS
    return min(most, max(least, -(-count // _SHARDS)))


def embed(job: Job, device: torch.device, ray: int | None, follow: Any) -> tuple[int, list[str]]:
    """Write the embeddings that are missing, or all to one ``.npz``; return how many there are
    then, and the names of the records that could not be read now.

    Args:
        device: where to embed.
        ray: workers of the Ray cluster at ``RAY_ADDRESS``, or here, in the place of this process.
        follow: ``training.console.Console.following``.
    """
    if job.folder.suffix.lower() in (".csv", ".tsv", ".parquet", ".npy"):
        raise ConfigError(
            f"--out {job.folder.name} is of no kind that embeddings are written to. Let the name "
            "end in .npz, or name a folder."
        )
    # Of a cluster the workers have the GPUs.
    encoder = job.encoder(device if ray is None else torch.device("cpu"))
    records = records_at(job.data, RunDirectory.open(job.run))
    if job.folder.suffix.lower() == ".npz":
        if ray is not None:
            raise ConfigError(f"--ray writes a folder of shards, got --out {job.folder}. Name one.")
        with follow(len(records), 0, "embedding") as follower:
            embedded = encoder.embed(
                records,
                batch_size=job.batch_size,
                workers=job.workers,
                skip_corrupt=job.skip_corrupt,
                progress=follower.advance,
            )
        kept = embedded.records
        arrays = {
            "embeddings": embedded.vectors.numpy(),
            "labels": kept.labels,
            "classes": np.array(kept.classes),
            "names": np.array(kept.names()),
        }
        if kept.every is not None:
            arrays["labels"] = np.array([";".join(names) for names in kept.class_names()])
            del arrays["classes"]
        if parallel.first():
            write_arrays(job.folder, arrays)
        return len(kept), [*embedded.skipped]
    todo = parallel.from_first(lambda: job.begin(encoder, records))
    mine = parallel.part(todo)
    size = _shard_rows(len(records))
    with follow(len(mine) * size, 0, "embedding") as follower:
        if ray is None:
            unread = job.write(encoder, records, mine, follower.advance)
        else:
            unread = []
            blocks = [np.array([number]) for number in mine]
            for done, batch in enumerate(on_ray(_Worker, (job,), blocks, 1, ray), 1):
                unread += json.loads(batch["unread"][0])
                follower.advance(done * size)
    names = [name for names in parallel.from_all(unread) for name in names]
    return parallel.from_first(lambda: embedding_count(job.folder)), names


class _Worker:
    """One process of the cluster, with the model in memory."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._encoder = job.encoder(parallel.pick_device("auto"))
        self._records = records_at(job.data, RunDirectory.open(job.run))
        job.begin(self._encoder, self._records)  # an error where the data differ here

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        shards = batch["data"].tolist()
        unread = self._job.write(self._encoder, self._records, shards, lambda done: None)
        return {"unread": np.array([json.dumps(unread)])}


def on_ray(
    worker: type,
    settings: tuple[Any, ...],
    blocks: Sequence[np.ndarray],
    batch_size: int,
    workers: int,
) -> Iterator[dict[str, Any]]:
    """Give blocks of numbers to workers of the cluster at ``RAY_ADDRESS``, or of this machine, and
    yield what they make of each batch.

    Args:
        worker: class of the workers, which take a batch ``{"data": numbers}``.
        settings: arguments of its constructor.
    """
    if workers < 1:
        raise ConfigError(f"--ray needs at least 1 worker; got {workers}.")
    if not blocks:
        return
    with ray_cluster() as ray:
        made = ray.data.from_numpy(blocks).map_batches(
            worker,
            fn_constructor_args=settings,
            batch_size=batch_size,
            concurrency=workers,
            num_gpus=int(ray.cluster_resources().get("GPU", 0) > 0),
        )
        yield from made.iter_batches(batch_size=batch_size, batch_format="numpy")


def ranks_on_ray(count: int, task: Callable[[], T]) -> T:
    """Do a task in ``count`` processes of the cluster that are joined as by ``torchrun``; return
    what the first makes of it. Where one is lost, they begin again."""
    if count < 1:
        raise ConfigError(f"--ray needs at least 1 worker; got {count}.")
    with ray_cluster() as ray:
        gpus = int(ray.cluster_resources().get("GPU", 0) > 0)
        attempts = _ATTEMPTS
        while True:
            ranks = [ray.remote(num_gpus=gpus)(_Rank).remote() for _ in range(count)]
            try:
                host, port = ray.get(ranks[0].address.remote())
                places = enumerate(ranks)
                left = [it.work.remote(rank, count, host, port, task) for rank, it in places]
                first = left[0]
                while left:  # who fails, fails alone: the others would wait for it
                    (done,), left = ray.wait(left)
                    if isinstance(found := ray.get(done), VicinalError):
                        raise found
                return ray.get(first)
            except ray.exceptions.ActorDiedError:
                attempts -= 1
                if not attempts:
                    raise
            finally:
                for each in ranks:
                    ray.kill(each)


class _Rank:
    """One process of several that are joined."""

    def address(self) -> tuple[str, int]:
        from ray.util import get_node_ip_address

        with socket.socket() as free:
            free.bind(("", 0))
            return str(get_node_ip_address()), free.getsockname()[1]  # type: ignore[no-untyped-call]

    def work(self, rank: int, count: int, host: str, port: int, task: Callable[[], T]) -> Any:
        names = {"RANK": rank, "WORLD_SIZE": count, "MASTER_ADDR": host, "MASTER_PORT": port}
        os.environ.update({name: str(value) for name, value in names.items()})
        try:
            with parallel.joined():
                return task()
        except VicinalError as error:
            return error


@contextmanager
def ray_cluster() -> Iterator[Any]:
    """Ray, connected, with its Data; what was started here is stopped at the end."""
    ray = package("ray", "ray")
    package("ray.data", "ray")
    ours = not ray.is_initialized()
    if ours:
        ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.WARNING)
    context = ray.data.DataContext.get_current()
    shown = context.enable_progress_bars
    context.enable_progress_bars = False  # we have our own
    try:
        yield ray
    finally:
        context.enable_progress_bars = shown
        if ours:
            ray.shutdown()

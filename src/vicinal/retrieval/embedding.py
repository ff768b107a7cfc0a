"""Embedding what is indexed: in this process, or on many machines by Ray Data.

Ray's workers each hold the model and read the images themselves, so what is indexed has to lie where all of them can
reach it. Vectors come back to the one process that writes the collection, and are those of the plain path up to the
rounding of float32.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vicinal.data.loader import load_all
from vicinal.data.records import Records, Taken
from vicinal.errors import ConfigError
from vicinal.evaluation.encoder import Encoder
from vicinal.retrieval.listing import Listing
from vicinal.run_directory import RunDirectory

Batches = Iterator[tuple[list[int], np.ndarray, list[int]]]  # places embedded, their vectors, places left unread


def embed_rows(encoder: Encoder, listing: Listing, rows: np.ndarray, *, batch_size: int, workers: int) -> Batches:
    """Embed some entries of a listing; for each batch the places among ``rows``, their vectors, and those unread."""
    count = len(rows)
    if not count:
        return
    source, labels = Taken(listing.source, rows), np.zeros(count, np.int64)
    records = Records(listing.place.path, source, labels, ("",), np.full(count, "test"))
    for batch in load_all(records, encoder.preprocessing, batch_size=batch_size, workers=workers, skip_corrupt=True):
        vectors = np.empty((0, encoder.embedder.embedding_dim), np.float32)
        if len(batch.indices):
            with torch.inference_mode():  # entered for each batch: a generator must not leave its caller in it
                vectors = encoder.embedder(batch.to(encoder.device).inputs).float().cpu().numpy()
        yield batch.indices.tolist(), vectors, list(batch.skipped)


def embed_rows_on_ray(
    run: RunDirectory, listing: Listing, rows: np.ndarray, *, batch_size: int, workers: int
) -> Batches:
    """Embed as ``embed_rows`` does, by ``workers`` workers of the cluster at ``RAY_ADDRESS``, or of this machine."""
    if workers < 1:
        raise ConfigError(f"--ray needs at least 1 worker; got {workers}.")
    if not len(rows):
        return
    with _cluster() as data:
        # A block for each batch, or one worker would get all; made here, for tasks that make them would wait for a
        # processor while the workers hold every one.
        batches = [np.arange(first, min(first + batch_size, len(rows))) for first in range(0, len(rows), batch_size)]
        embedded = data.from_numpy(batches).map_batches(
            _Worker,
            fn_constructor_args=(str(run.path.absolute()), listing, rows, batch_size),
            batch_size=batch_size,
            concurrency=workers,
            num_gpus=1 if torch.cuda.is_available() else 0,
        )
        for batch in embedded.iter_batches(batch_size=batch_size, batch_format="numpy"):
            read = batch["read"].astype(bool)
            vectors = np.asarray(batch["vector"], np.float32)[read]
            yield batch["place"][read].tolist(), vectors, batch["place"][~read].tolist()


class _Worker:
    """One process of the cluster, with the model in memory."""

    def __init__(self, run: str, listing: Listing, rows: np.ndarray, batch_size: int) -> None:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._encoder = Encoder.load(RunDirectory.open(Path(run)), device).stream("gallery")
        self._listing, self._rows, self._batch_size = listing, rows, batch_size

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        asked, size = batch["data"], self._batch_size
        dim = self._encoder.embedder.embedding_dim
        vectors, read = np.zeros((len(asked), dim), np.float32), np.zeros(len(asked), np.uint8)
        for kept, found, _ in embed_rows(self._encoder, self._listing, self._rows[asked], batch_size=size, workers=0):
            vectors[kept], read[kept] = found, 1
        return {"place": asked, "vector": vectors, "read": read}


@contextmanager
def _cluster() -> Iterator[Any]:
    """Ray Data, connected; what was started here is stopped at the end."""
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise ConfigError("embedding on several machines needs Ray: `pip install 'vicinal[ray]'`.") from error
    ours = not ray.is_initialized()
    if ours:
        ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.WARNING)
    context = ray.data.DataContext.get_current()
    shown, context.enable_progress_bars = context.enable_progress_bars, False  # we have our own
    try:
        yield ray.data
    finally:
        context.enable_progress_bars = shown
        if ours:
            ray.shutdown()

"""Vectors of listed things, batch by batch, in this process."""

from collections.abc import Iterator

import numpy as np
import torch

from vicinal.data.loader import load_all
from vicinal.data.records import Records, Taken
from vicinal.evaluation.encoder import Encoder
from vicinal.search.listing import Listing

Batches = Iterator[tuple[list[int], np.ndarray, list[int]]]  # places embedded, their vectors, places left unread


def embed_rows(encoder: Encoder, listing: Listing, rows: np.ndarray, *, batch_size: int, workers: int) -> Batches:
    """Embed some entries of a listing; for each batch the places among ``rows``, their vectors, and those unread."""
    if not len(rows):
        return
    records = Records(
        name=listing.place.path,
        source=Taken(listing.source, rows),
        labels=np.zeros(len(rows), np.int64),
        classes=("",),
        splits=np.full(len(rows), "test"),
    )
    for batch in load_all(records, encoder.preprocessing, batch_size=batch_size, workers=workers, skip_corrupt=True):
        kept, unread = batch.indices.tolist(), list(batch.skipped)
        if not kept:
            yield [], np.empty((0, encoder.embedder.dim or encoder.embedder.width), np.float32), unread
            continue
        with torch.inference_mode():  # entered for each batch: a generator must not leave its caller in it
            vectors = encoder.embedder(batch.to(encoder.device).inputs).float().cpu().numpy()
        yield kept, vectors, unread

"""Batches of vectors, and what could not be read."""

import numpy as np
import torch

from vicinal.evaluation.encoder import Encoder
from vicinal.search.embedding import embed_rows
from vicinal.search.listing import list_place


def test_places_vectors_and_unread_belong_together(image_run, photographs, tmp_path):
    (photographs / "b" / "01.png").write_bytes(b"no image")
    listing, encoder = list_place(str(photographs), tmp_path), Encoder.load(image_run)
    rows = np.array([3, 0, 7, 5])  # row 3 is b/01.png
    batches = list(embed_rows(encoder, listing, rows, batch_size=1, workers=0))
    assert [(kept, unread) for kept, _, unread in batches] == [([], [0]), ([1], []), ([2], []), ([3], [])]
    assert batches[0][1].shape == (0, 6)
    whole = next(embed_rows(encoder, listing, rows[1:], batch_size=8, workers=0))[1]
    assert np.allclose(np.concatenate([vectors for _, vectors, _ in batches]), whole, atol=1e-6)


def test_no_rows_need_no_batch(image_run, photographs, tmp_path):
    listing = list_place(str(photographs), tmp_path)
    assert not list(embed_rows(Encoder.load(image_run), listing, np.empty(0, np.int64), batch_size=8, workers=0))


def test_the_caller_stays_out_of_inference_mode(image_run, photographs, tmp_path):
    listing = list_place(str(photographs), tmp_path)
    for _ in embed_rows(Encoder.load(image_run), listing, np.arange(4), batch_size=2, workers=0):
        assert not torch.is_inference_mode_enabled()

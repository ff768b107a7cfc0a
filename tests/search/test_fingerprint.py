"""Vectors of two models are never compared."""

import pytest
import torch

from vicinal.errors import RunError
from vicinal.evaluation.encoder import Encoder
from vicinal.search.fingerprint import model_fingerprint, require_same_model


def test_weights_and_preprocessing_both_count(image_run):
    first = model_fingerprint(image_run)
    require_same_model(image_run, {"model": first})
    text = image_run.model_path.read_text()
    image_run.model_path.write_text(text.replace('"size": 16', '"size": 12'))
    assert model_fingerprint(image_run) != first
    image_run.model_path.write_text(text)
    encoder = Encoder.load(image_run)
    with torch.no_grad():
        encoder.embedder.head.weight.add_(1)
    encoder.save_weights(image_run)
    with pytest.raises(RunError, match="another model"):
        require_same_model(image_run, {"model": first})


def test_a_collection_that_does_not_say_is_believed(image_run):
    require_same_model(image_run, {})

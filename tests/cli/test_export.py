"""``vicinal export``: three files, or a error without a traceback."""

import json

import pytest
import torch

from vicinal.data import FeatureTransform
from vicinal.evaluation.encoder import Encoder
from vicinal.models import Embedder, Identity
from vicinal.run_directory import RunDirectory


@pytest.fixture
def run(tmp_path):
    run = RunDirectory.create(tmp_path / "run")
    run.write_info({"vicinal": "0", "name": "run", "config": {}, "data": {}})
    encoder = Encoder(Embedder(Identity(4), 3).eval(), FeatureTransform(), torch.device("cpu"))
    encoder.save_description(run)
    encoder.save_weights(run)
    return run


@pytest.mark.slow
def test_a_model_is_exported_and_the_difference_told(run, vicinal, tmp_path):
    pytest.importorskip("onnxruntime")
    done = vicinal("export", "run", "--to", "out")
    assert done.returncode == 0, done.stderr
    assert (
        "onnxruntime gives torch's embeddings to" in done.stdout
        and "[torch.onnx]" not in done.stdout
    )
    assert (tmp_path / "out" / "model.onnx").is_file()


def test_weights_alone_go_into_the_run(run, vicinal):
    done = vicinal("export", "run", "--no-onnx")
    assert done.returncode == 0 and "onnxruntime" not in done.stdout
    assert (
        json.loads((run.path / "export" / "preprocessing.json").read_text())["kind"] == "features"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "not a run"),
        (["run", "--to", "run"], "would replace model.safetensors"),
        (["run", "--role", "querry"], "did you mean 'query'"),
    ],
)
def test_a_error_is_one_message_not_a_traceback(words, message, run, vicinal):
    done = vicinal("export", *words, "--no-onnx")
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr

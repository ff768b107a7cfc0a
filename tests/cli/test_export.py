"""``vicinal export``: three files, or a error without a traceback."""

import pytest
from tests.runs import drawn_run

from vicinal.data import FeatureTransform
from vicinal.models import Embedder, Identity


@pytest.fixture
def run(tmp_path):
    return drawn_run(tmp_path / "run", Embedder(Identity(4), 3), FeatureTransform())


@pytest.mark.slow
def test_a_model_is_exported_and_the_difference_told(run, tmp_path, works):
    pytest.importorskip("onnxruntime")
    done = works("export run --to out")
    assert (
        "onnxruntime gives torch's embeddings to" in done.stdout
        and "[torch.onnx]" not in done.stdout
    )
    assert (tmp_path / "out" / "model.onnx").is_file()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "--to", "run"], "would replace model.safetensors"),
        (["run", "--role", "querry"], "did you mean 'query'"),
    ],
)
def test_a_error_is_one_message_not_a_traceback(words, message, run, rejected):
    assert message in rejected("export", *words, "--no-onnx")

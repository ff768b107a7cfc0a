"""The Python in docs/export.md runs as printed, beside a run and two photographs."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import vicinal
from vicinal.data import ImageTransform
from vicinal.evaluation.encoder import Encoder
from vicinal.models import Embedder, SmallConvNet
from vicinal.run_directory import RunDirectory
from vicinal.search.exporting import export_run

DOCUMENT = Path(__file__).parents[2] / "docs" / "export.md"


@pytest.fixture
def beside(tmp_path, monkeypatch):
    run = RunDirectory.create(tmp_path / "runs" / "birds")
    run.write_info({"vicinal": "0", "name": "birds", "recipe": {}, "data": {}})
    transform = ImageTransform(size=16, resize=18, mean=(0.4, 0.5, 0.6), std=(0.2,))
    encoder = Encoder(Embedder(SmallConvNet(3, (4,)), 8).eval(), transform, torch.device("cpu"))
    encoder.save_description(run)
    encoder.save_weights(run)
    (tmp_path / "photos").mkdir()
    rng = np.random.default_rng(0)
    for name in ("wren", "robin"):
        pixels = rng.integers(0, 256, (30, 41, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "photos" / f"{name}.png")
    monkeypatch.chdir(tmp_path)
    return run


def test_the_python_in_the_document_runs(beside, capsys):
    pytest.importorskip("onnxruntime")
    export_run(beside)
    in_python, in_scikit_learn, elsewhere = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.S)
    exec(compile(in_python, DOCUMENT, "exec"), {})  # noqa: S102 - our own text
    exec(compile(in_scikit_learn, DOCUMENT, "exec"), {})  # noqa: S102
    assert "['wren']" in capsys.readouterr().out
    names = {}
    exec(compile(elsewhere, DOCUMENT, "exec"), names)  # noqa: S102
    expected = vicinal.load("runs/birds").embed("photos/wren.png")
    np.testing.assert_allclose(names["embeddings"], expected, atol=1e-5)

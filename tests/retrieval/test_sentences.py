"""An exported folder gives sentence-transformers and transformers the embeddings of the run."""

import json

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from PIL import Image
from tests.encoders import SENTENCES, SIDE, as_sentences, saved
from tests.runs import drawn_run

import vicinal
from vicinal.data import ImageTransform
from vicinal.data.transforms import TextTransform
from vicinal.errors import ConfigError, RunError
from vicinal.models import Embedder, ImageEncoder, SmallConvNet, TextEncoder, load_pretrained
from vicinal.retrieval.sentences import export_sentences

transformers = pytest.importorskip("transformers")
sentences = pytest.importorskip("sentence_transformers")

PICTURES = [
    Image.fromarray(np.random.default_rng(row).integers(0, 256, (50, 50, 3), np.uint8))
    for row in range(3)
]


def exported(tmp_path, kind, network, **settings):
    saved(tmp_path / "net", kind)
    encoder = network(f"hf:{tmp_path / 'net'}", **settings.pop("encoder", {}))
    load_pretrained(encoder, "public")
    shown = encoder.preprocessing
    transform = TextTransform()
    if network is ImageEncoder:
        framing = {"size": SIDE, "resize": shown.resize, "fit": shown.fit}
        colors = {"mean": shown.mean, "std": shown.std, "interpolation": shown.interpolation}
        transform = ImageTransform(**framing, **colors)
    embedder = Embedder(encoder, **settings)
    for name, update in embedder.named_parameters():
        if "lora_B" in name:  # which is 0 at the start
            torch.nn.init.normal_(update)
    run = drawn_run(tmp_path / "run", embedder, transform)
    return run, export_sentences(run, tmp_path / "out", license="mit")


@pytest.mark.parametrize(
    ("kind", "network", "settings"),
    [
        ("Bert", TextEncoder, {"dim": 5}),
        ("Bert", TextEncoder, {"dim": 5, "hidden": 7, "normalize": False}),
        ("Bert", TextEncoder, {"dim": 5, "lora": 2}),
        ("CLIP", TextEncoder, {"lora": 2}),
        ("ViT", ImageEncoder, {"dim": 5, "lora": 2}),
        ("ViT", ImageEncoder, {"dim": 5, "pooling": "token", "encoder": {"pooled": False}}),
        ("Dinov2", ImageEncoder, {"lora": 2}),
        ("ConvNext", ImageEncoder, {"dim": 5}),
        ("CLIP", ImageEncoder, {"dim": 5, "lora": 2}),
        ("Siglip", ImageEncoder, {"normalize": False, "lora": 2}),
    ],
)
def test_the_libraries_give_the_embeddings_of_the_run(kind, network, settings, tmp_path):
    run, _ = exported(tmp_path, kind, network, **settings)
    inputs = SENTENCES if network is TextEncoder else PICTURES
    expected = vicinal.load(run.path).embed(inputs)
    opened = sentences.SentenceTransformer(str(tmp_path / "out"), device="cpu")
    assert_allclose(opened.encode(inputs), expected, rtol=0, atol=1e-5)
    again = network(f"st:{tmp_path / 'out'}")  # and so does vicinal
    load_pretrained(again, "public")
    last = Embedder(again.eval(), normalize=settings.get("normalize", True)).eval()
    encoder = vicinal.load(run.path)._encoder
    other = drawn_run(tmp_path / "again", last, encoder.preprocessing)
    assert_allclose(vicinal.load(other.path).embed(inputs), expected, rtol=0, atol=1e-5)
    alone = transformers.AutoModel.from_pretrained(tmp_path / "out").state_dict()
    kept = encoder.embedder.merged().backbone.network.state_dict()
    assert kept.keys() <= alone.keys()
    assert all(torch.equal(alone[name], value) for name, value in kept.items())
    card = (tmp_path / "out" / "README.md").read_text()
    assert 'license: "mit"' in card and "SentenceTransformer(" in card
    assert str(tmp_path) not in card + (tmp_path / "out" / "config.json").read_text()


def test_what_the_libraries_cannot_open_is_rejected(tmp_path):
    run = drawn_run(tmp_path / "small", Embedder(SmallConvNet(3, (4,)), 2), ImageTransform(size=8))
    with pytest.raises(ConfigError, match="cannot open the SmallConvNet"):
        export_sentences(run)
    with pytest.raises(ConfigError, match=r"cannot open the TextEncoder .*SigLIP"):
        exported(tmp_path / "siglip", "Siglip", TextEncoder)
    with pytest.raises(ConfigError, match="no BatchNorm1d in a head"):
        exported(tmp_path / "norm", "Bert", TextEncoder, dim=3, head_norm=True)
    assert not list((tmp_path / "norm").glob("out*")) + list((tmp_path / "norm").glob(".*"))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("precious")
    with pytest.raises(RunError, match="holds files already"):
        export_sentences(run, tmp_path / "out")


def test_a_prompt_and_the_length_of_texts_stay(tmp_path):
    saved(tmp_path / "net", "Bert")
    as_sentences(tmp_path / "net", {"Pooling": {"pooling_mode": "lasttoken"}})
    asked = {"prompts": {"query": "blue bird "}, "default_prompt_name": "query"}
    (tmp_path / "net" / "config_sentence_transformers.json").write_text(json.dumps(asked))
    (tmp_path / "net" / "sentence_bert_config.json").write_text('{"max_seq_length": 9}')
    encoder = TextEncoder(f"st:{tmp_path / 'net'}")
    run = drawn_run(tmp_path / "run", Embedder(encoder, 3), TextTransform())
    export_sentences(run, tmp_path / "out")
    opened = sentences.SentenceTransformer(str(tmp_path / "out"), device="cpu")
    expected = vicinal.load(run.path).embed(SENTENCES)
    assert_allclose(opened.encode(SENTENCES), expected, rtol=0, atol=1e-5)

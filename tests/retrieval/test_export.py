"""An exported folder serves a program that has Pillow, numpy and onnxruntime, and nothing of
ours."""

import copy
import json
import os
import re
import shutil
import socket
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image
from safetensors.torch import load_file
from tests.runs import drawn_run

import vicinal
from vicinal.cli.main import app
from vicinal.data import FeatureTransform, Glyphs, ImageTransform
from vicinal.data.loader import load_all
from vicinal.errors import ConfigError, RunError
from vicinal.evaluation.measure import evaluate
from vicinal.models import (
    BNInception,
    EfficientNetLite,
    Embedder,
    Identity,
    ResNet,
    SmallConvNet,
    TwoStreamEmbedder,
)
from vicinal.retrieval import export as exporting
from vicinal.retrieval.asking import GRAPHS, open_graph, prepared
from vicinal.retrieval.export import export_run, to_onnx
from vicinal.retrieval.indexing import index
from vicinal.retrieval.library import open_library

onnxruntime = pytest.importorskip("onnxruntime")


def made(path, embedder, transform):
    run = drawn_run(path, embedder, transform)
    run.write_info(run.info | {"command": "train /home/me", "data": {"name": "my birds"}})
    return run


def answer(model, inputs):
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return session.run(["embeddings"], {"inputs": inputs})[0]


def embedded_elsewhere(folder, paths):
    words = json.loads((folder / "preprocessing.json").read_text())
    assert (words["input"]["name"], words["output"]["name"]) == ("inputs", "embeddings")
    inputs = np.stack([prepared(Image.open(path), words["steps"]) for path in paths])
    return answer(folder / "model.onnx", inputs)


@pytest.fixture
def photos(tmp_path):
    rng = np.random.default_rng(0)
    paths = [tmp_path / name for name in ("wren.png", "robin.png")]
    for place, path in enumerate(paths):
        pixels = rng.integers(0, 256, (70 + place, 90 - 9 * place, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path)
    return paths


def test_a_program_without_vicinal_gets_the_same_embeddings(tmp_path, photos, capsys):
    transform = ImageTransform(
        size=16, resize=20, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4), order="BGR"
    )
    run = made(tmp_path / "run", Embedder(SmallConvNet(3, (4, 8)), 6), transform)
    exported = export_run(run)
    assert exported.difference is not None and exported.difference <= 1e-5
    names = "model.safetensors config.json model.onnx README.md preprocessing.json"
    assert [path.name for path in exported.files] == names.split()
    assert capsys.readouterr() == ("", "")  # the exporter talks unless it is told not to
    rows = vicinal.load(run.path).embed(photos)
    assert_allclose(embedded_elsewhere(run.path / "export", photos), rows, atol=1e-5)


@pytest.mark.slow(20)
def test_further_graphs_are_measured_beside_torch_and_searched_by(tmp_path, listener, capsys):
    pytest.importorskip("openvino")
    torch.manual_seed(0)
    data = Glyphs(per_class=2, size=16)
    transform = ImageTransform(size=16, resize=16, channels=1, mean=(0.5,), std=(0.3,))
    run = drawn_run(tmp_path / "run", Embedder(SmallConvNet(1, (8, 16)), 6), transform, data)
    also = {"float16": 0.01, "int8": 0.2, "openvino": 1e-5}
    exported = export_run(run, also=[*also])
    assert capsys.readouterr() == ("", "")
    folder = run.path / "export"
    records = data.load().part("test")
    inputs = np.concatenate([batch.inputs for batch in load_all(records, transform)])
    exact = answer(folder / "model.onnx", inputs)
    sizes = [(folder / GRAPHS[kind][0]).stat().st_size for kind in ("onnx", "float16")]
    assert sizes[0] > sizes[1]
    assert [*exported.scores] == ["torch", *(GRAPHS[kind][0] for kind in also)]
    card = (folder / "README.md").read_text()
    for kind, far in also.items():
        name = GRAPHS[kind][0]
        rows = open_graph(folder / name)(inputs)
        assert rows.dtype == np.float32 and 0 < np.abs(rows - exact).max() < far
        own = evaluate(rows, records.labels, recalls=(1,), clustering=False)
        scores = exported.scores[name]
        assert own["map@r"] == pytest.approx(scores["map@r"], abs=1e-3)
        found = f"| {name} | {100 * scores['recall@1']:.1f} | {100 * scores['map@r']:.1f} |"
        assert found in card and str(tmp_path) not in str((folder / name).read_bytes())
    index(run, console=listener)
    image = records.source.read(0)
    image.save(tmp_path / "glyph.png")
    for kind in GRAPHS:
        rows = open_graph(folder / GRAPHS[kind][0])(inputs[:1])
        served = open_library(run.path, graph=kind).model.embed([image])
        # A pixel's last digit may lead into another of 256 steps.
        assert_allclose(served, rows, atol=0.05 if kind == "int8" else 1e-4)
        words = ["search", str(run.path), str(tmp_path / "glyph.png"), "--graph", kind]
        app([*words, "--k", "1"], standalone_mode=False)
        assert records.source.name(0) in capsys.readouterr().out
    (folder / "model.int8.onnx").write_bytes(b"another")
    with pytest.raises(ConfigError, match=r"no int8 graph .* `vicinal export .* --also int8`"):
        open_library(run.path, graph="int8")
    export_run(run, onnx=False)
    assert not any((folder / name).exists() for names in GRAPHS.values() for name in names)


@pytest.fixture
def features_run(tmp_path):
    return made(tmp_path / "run", Embedder(Identity(8), 4), FeatureTransform(normalize=True))


def test_feature_runs_are_exported_and_the_json_is_whole(features_run, tmp_path):
    folder = tmp_path / "new" / "place"
    export_run(features_run, folder)
    words = json.loads((folder / "preprocessing.json").read_text())
    assert (words["format"], words["kind"]) == (1, "features")
    assert words["output"]["metric"] == "euclidean" and "/home/me" not in str(words)
    assert words["run"]["name"] == "run"
    rows = np.random.default_rng(1).normal(size=(3, 8)).astype(np.float32)
    assert [step["step"] for step in words["steps"]] == ["unit_length"]
    inputs = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    expected = vicinal.load(features_run.path).embed(rows)
    assert_allclose(answer(folder / "model.onnx", inputs), expected, atol=1e-5)


def test_weights_alone_need_no_package_and_leave_no_older_onnx(features_run, monkeypatch):
    folder = features_run.path / "export"
    export_run(features_run, onnx=False)
    (folder / "model.onnx").write_bytes(b"of older weights")
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    exported = export_run(features_run, onnx=False)
    assert exported.difference is None and not (folder / "model.onnx").exists()
    kept = json.loads((folder / "preprocessing.json").read_text())["files"]
    assert {*kept} == {"model.safetensors", "config.json", "README.md"}


def test_of_two_streams_one_is_exported(tmp_path):
    gallery = Embedder(Identity(8), 4)
    two = TwoStreamEmbedder(Embedder(Identity(8), 4), gallery)
    run = made(tmp_path / "run", two, FeatureTransform())
    export_run(run, onnx=False, role="gallery")
    folder = run.path / "export" / "gallery"
    torch.testing.assert_close(load_file(folder / "model.safetensors"), dict(gallery.state_dict()))
    assert json.loads((folder / "preprocessing.json").read_text())["run"]["role"] == "gallery"
    with pytest.raises(ConfigError, match="--role"):
        export_run(run, onnx=False)


def test_a_killed_export_is_not_taken_for_whole_and_goes_on(features_run, tmp_path, monkeypatch):
    """Killed before each of its files, with and without an older export in the folder."""
    from vicinal import files

    folder = tmp_path / "hub"
    written = list[str]()

    def killed(path, target, replace=os.replace):
        if len(written) == fatal:
            raise KeyboardInterrupt
        written.append(Path(target).name)
        replace(path, target)

    for older in (False, True):
        for fatal in range(5):
            shutil.rmtree(folder, ignore_errors=True)
            if older:
                export_run(features_run, folder, onnx=False)
            written.clear()
            with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
                patch.setattr(files.os, "replace", killed)
                export_run(features_run, folder, onnx=False)
            assert len(written) == fatal
            if fatal or not older:
                with pytest.raises(RunError):
                    vicinal.load(folder)
            export_run(features_run, folder, onnx=False)
            vicinal.load(folder)


def test_nothing_is_written_where_onnx_is_rejected(features_run, monkeypatch):
    monkeypatch.setattr(exporting, "TOLERANCE", -1)
    with pytest.raises(ConfigError, match="they differ"):
        export_run(features_run)
    assert not (features_run.path / "export").exists()


@pytest.mark.slow(25)
@pytest.mark.parametrize("kind", [EfficientNetLite, partial(ResNet, 18), BNInception])
def test_photographs_through_published_networks(kind, tmp_path, photos, rng):
    embedder = settled(kind(), rng, dim=32)
    shown = embedder.backbone.preprocessing
    transform = ImageTransform(
        size=96, resize=108, mean=shown.mean, std=shown.std, order=shown.channels, scale=shown.scale
    )
    run = made(tmp_path / "run", embedder, transform)
    export_run(run)
    rows = vicinal.load(run.path).embed(photos)
    assert_allclose(embedded_elsewhere(run.path / "export", photos), rows, atol=1e-5)


@pytest.fixture
def finished(tmp_path):
    """A run on images with results, notes that name a path, and settings that hold one."""
    transform = ImageTransform(size=16, resize=20, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))
    run = made(tmp_path / "run", Embedder(SmallConvNet(3, (4, 8)), 6), transform)
    slots = {"model": {"name": "small", "dim": 6, "weights": "/home/me/x"}, "loss": "triplet"}
    data = {
        "name": 'birds: "mine"',
        "counts": {"train": {"records": 40, "classes": 4}},
        "notes": ["1 picture left out", "unreadable: /home/me/a.jpg", r"C:\Users\me"],
    }
    config = {"preset": "images", "title": "triplet on birds", "slots": slots}
    began = [{"source": "start.safetensors", "license": "unknown"}]
    run.write_info(run.info | {"config": config, "data": data, "pretrained": began})
    scores = {"untrained": 0.25, "trained": 0.875}
    rows = [{"name": name, "metrics": {"recall@1": value}} for name, value in scores.items()]
    selected = {"step": 7, "by": "validation recall@1", "value": 0.9}
    found = {"split": "test", "records": 30, "classes": 3, "skipped": 0, "notes": []}
    run.write_results(found | {"rows": rows, "selected": selected})
    return run


def test_the_card_has_what_was_measured_and_nothing_of_the_machine(finished, tmp_path):
    yaml = pytest.importorskip("yaml")
    export_run(finished, tmp_path / "hub", onnx=False, license="cc-by-4.0")
    text = (tmp_path / "hub" / "README.md").read_text()
    front = yaml.safe_load(text.split("---\n")[1])
    assert front["library_name"] == "vicinal" and front["license"] == "cc-by-4.0"
    assert front["pipeline_tag"] == "image-feature-extraction" and "onnx" not in front["tags"]
    (result,) = front["model-index"][0]["results"]
    assert result["dataset"] == {"name": 'birds: "mine"', "type": 'birds: "mine"', "split": "test"}
    assert result["metrics"] == [{"type": "recall@1", "value": 0.875}]
    assert "| Recall@1 | 25.0 | 87.5 | +62.5 |" in text and "| train | 40 | 4 |" in text
    assert "| loss | `triplet` |" in text and "| model | `small dim=6` |" in text
    assert "step 7, by validation" in text and "published under `cc-by-4.0`" in text
    assert "`start.safetensors`, license `unknown`." in text
    assert "1 picture left out" in text and "/home/me" not in text and "Users" not in text


def test_a_card_states_what_is_not_known(features_run):
    export_run(features_run, onnx=False)
    text = (features_run.path / "export" / "README.md").read_text()
    assert 'license: "unknown"' in text and "do not assume one" in text
    assert "Nothing was measured" in text and "model-index" not in text


def test_an_exported_folder_embeds_bit_for_bit_like_its_run(
    finished, tmp_path, photos, monkeypatch
):
    export_run(finished, tmp_path / "hub", onnx=False)
    expected = vicinal.load(finished.path).embed(photos)
    shutil.rmtree(finished.path)
    monkeypatch.setattr(socket, "socket", lambda *_, **__: pytest.fail("no network is needed"))
    monkeypatch.setattr("pickle.Unpickler", lambda *_: pytest.fail("nothing is unpickled"))
    snapshot = tmp_path / "snapshot"  # as a cache of downloads has it: each file a link
    snapshot.mkdir()
    for path in (tmp_path / "hub").iterdir():
        (snapshot / path.name).symlink_to(path)
    for folder in (tmp_path / "hub", snapshot):
        assert_array_equal(vicinal.load(folder).embed(photos), expected)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "preprocessing.json"])
def test_an_export_that_is_not_whole_is_rejected(name, features_run, tmp_path):
    folder = tmp_path / "hub"
    export_run(features_run, folder, onnx=False)
    if name != "preprocessing.json":  # which names the others
        with (folder / name).open("ab") as file:
            file.write(b" ")
        with pytest.raises(RunError, match=rf"hub/{name} is not the file"):
            vicinal.load(folder)
    (folder / name).unlink()
    with pytest.raises(RunError):
        vicinal.load(folder)


DOCUMENT = Path(__file__).parents[2] / "docs" / "howto" / "export.md"


@pytest.mark.slow(5)
def test_the_python_in_the_document_runs(tmp_path, photos, monkeypatch, capsys):
    transform = ImageTransform(size=16, resize=18, mean=(0.4, 0.5, 0.6), std=(0.2,))
    run = drawn_run(tmp_path / "runs" / "birds", Embedder(SmallConvNet(3, (4,)), 8), transform)
    (tmp_path / "photos").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    export_run(run)
    in_python, in_scikit_learn, exported, elsewhere = re.findall(
        r"```python\n(.*?)```", DOCUMENT.read_text(), re.S
    )
    exec(compile(in_python + exported, DOCUMENT, "exec"), {})  # noqa: S102 - our own text
    exec(compile(in_scikit_learn, DOCUMENT, "exec"), {})  # noqa: S102
    assert "['wren']" in capsys.readouterr().out
    names = {}
    exec(compile(elsewhere, DOCUMENT, "exec"), names)  # noqa: S102
    expected = vicinal.load("runs/birds").embed("photos/wren.png")
    assert_allclose(names["embeddings"], expected, atol=1e-5)


def settled(backbone, rng, dim=6, **settings):
    """An embedder whose norms are not those of a fresh one, where a lost shift would not show."""
    embedder = Embedder(backbone, dim, **settings)
    for name, value in embedder.named_buffers():
        if name.endswith("running_mean"):
            value.copy_(torch.randn(value.shape, generator=rng) * 0.1)
        elif name.endswith("running_var"):
            value.copy_(torch.rand(value.shape, generator=rng) + 0.5)
    return embedder.eval()


@pytest.fixture(scope="module")
def small_model():
    rng = torch.Generator().manual_seed(0)
    embedder = settled(SmallConvNet(1, (4, 8)), rng, pooling="both")
    return embedder, to_onnx(embedder, torch.randn(8, 1, 12, 12, generator=rng))


def test_any_batch_is_answered_and_the_machine_does_not_travel(small_model, rng):
    embedder, model = small_model
    inputs = torch.randn(17, 1, 12, 12, generator=rng)  # of which nothing was compared
    with torch.inference_mode():
        assert_allclose(answer(model[0], inputs.numpy()), embedder(inputs).numpy(), atol=1e-5)
    assert not any(trace in model[0] for trace in (b".py", b"site-packages", sys.prefix.encode()))


@pytest.fixture(scope="module")
def long_model():
    """Of features, not normalized: embeddings of length 10,000."""
    rng = torch.Generator().manual_seed(0)
    embedder = settled(Identity(8), rng, normalize=False)
    with torch.no_grad():
        embedder.head.weight *= 1e4
    return embedder, to_onnx(embedder, torch.randn(8, 8, generator=rng))


@pytest.mark.parametrize(
    ("change", "seen"),
    [(1.0, r"\d\.\de-0\d, .* at batch sizes 1, 2, 5, 8"), (torch.nan, "nan")],
)
def test_a_model_that_answers_otherwise_is_rejected_with_the_numbers(
    change, seen, long_model, monkeypatch, rng
):
    embedder = copy.deepcopy(long_model[0])
    model = long_model[1]
    with torch.no_grad():
        embedder.head.weight[0] += change
    monkeypatch.setattr(exporting, "_traced", lambda *_: model[0])
    with pytest.raises(ConfigError, match=f"to 1e-05, but in onnxruntime .* differ by {seen}"):
        to_onnx(embedder, torch.randn(8, 8, generator=rng))


def test_a_network_that_cannot_be_traced_is_rejected_by_its_name(rng):
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

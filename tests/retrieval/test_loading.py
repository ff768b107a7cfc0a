"""What a search loads: the network and the collection, none of what trained the network, and torch
only where it must."""

import json
import subprocess
import sys

import numpy as np
import pytest

from vicinal.errors import ConfigError
from vicinal.retrieval.asking import ExportedModel
from vicinal.retrieval.collection import CollectionDirectory
from vicinal.retrieval.export import export_run

MOST = 60  # modules of vicinal
CODE = """
import sys
from vicinal.cli.main import run
try: run()
except SystemExit as end: assert not end.code, end.code
assert "torch._dynamo" not in sys.modules, "the compiler takes two seconds to import"
loaded = [name for name in sys.modules if name.split(".")[0] in ("vicinal", "torch")]
print("loaded", *loaded, file=sys.stderr)
"""


def search(run, *words):
    """Return the answer of a new process, and the modules it loaded."""
    words = [sys.executable, "-c", CODE, "search", run.path, *words, "--format", "json"]
    done = subprocess.run([*map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr.split("loaded ")[1].split()


def test_a_search_by_picture_loads_neither_losses_nor_training(indexed, photographs):
    found, loaded = search(indexed, photographs / "a" / "00.png")
    assert found["matches"][0]["path"] == "a/00.png"
    loaded = [name for name in loaded if not name.startswith("torch")]
    assert len(loaded) <= MOST, f"{len(loaded)} modules"
    trained_by = {"losses", "miners", "samplers", "methods", "training", "config", "bench"}
    assert not {name.split(".")[1] for name in loaded if "." in name} & trained_by


def test_a_search_with_an_export_gives_the_answer_of_torch_without_importing_it(
    indexed, photographs
):
    pytest.importorskip("onnxruntime")
    pictures = photographs / "a" / "00.png", photographs / "b" / "05.png"
    expected, loaded = search(indexed, *pictures, "--where", "label=c")
    assert "torch" in loaded
    export_run(indexed)
    found, loaded = search(indexed, *pictures, "--where", "label=c")
    assert "torch" not in loaded
    for one, other in zip(found["matches"], expected["matches"], strict=True):
        assert one["path"] == other["path"]
        assert one["distance"] == pytest.approx(other["distance"], abs=1e-5)
    document = indexed.path / "export" / "preprocessing.json"
    whole = document.read_text()
    for text in ("{}", None):
        document.unlink() if text is None else document.write_text(text)
        with pytest.raises(ConfigError, match="holds no onnx graph"):
            ExportedModel.of(indexed)
    document.write_text(whole)
    assert ExportedModel.of(indexed).kind == "images"
    with indexed.weights_path.open("ab") as weights:
        weights.write(b" ")  # another model than the exported one
    with pytest.raises(ConfigError, match="holds no onnx graph of the present weights"):
        ExportedModel.of(indexed)


def test_a_search_by_item_imports_no_torch(indexed):
    found, loaded = search(indexed, "--id", "3", "--k", "5")
    assert "torch" not in loaded
    snapshot = CollectionDirectory.of(indexed).snapshot()
    [near] = snapshot.search(snapshot.vector(3)[None], 5, exclude=[3])
    assert [match["id"] for match in found["matches"]] == [match.item.id for match in near]
    distances = [match["distance"] for match in found["matches"]]
    np.testing.assert_allclose(distances, [match.distance for match in near], rtol=1e-6)

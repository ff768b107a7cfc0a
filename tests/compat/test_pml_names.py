"""The table of the package's names in the documentation: none is missing, and what is named here is
there."""

import importlib
import inspect
import re
from pathlib import Path
from runpy import run_path

import pytest

import vicinal.distances
import vicinal.evaluation
import vicinal.linear
import vicinal.losses
import vicinal.methods
import vicinal.miners
import vicinal.samplers
from vicinal import data

pytest.importorskip("pytorch_metric_learning")
PEER = run_path(str(Path(__file__).parents[2] / "docs/generate.py"))["PEER"]
OURS = (
    *(
        vicinal.losses,
        vicinal.miners,
        vicinal.samplers,
        vicinal.distances,
        vicinal.evaluation,
        vicinal.linear,
    ),
    *(vicinal.methods, data),
)


@pytest.mark.parametrize("module", PEER)
def test_every_public_name_of_the_installed_package_is_listed(module):
    package = importlib.import_module(f"pytorch_metric_learning.{module}")
    names = {
        name
        for name, each in vars(package).items()
        if inspect.isclass(each) and each.__module__.startswith(package.__name__)
    }
    assert set(PEER[module]) == names


def test_every_module_of_the_installed_package_with_public_names_is_listed():
    root = Path(importlib.import_module("pytorch_metric_learning").__file__).parent
    packages = {path.parent.name for path in root.glob("*/__init__.py")} - {"utils"}
    assert packages == {module for module in PEER if not module.startswith("utils.")}


def test_what_is_named_as_ours_is_there():
    for names in PEER.values():
        for ours in names.values():
            for called in re.findall(r"`([A-Za-z0-9_.]+)[(`]", ours):
                last = called.rpartition(".")[2]
                commands = called.startswith(("method=", "vicinal ", "Run", "blocks"))
                exists = any(hasattr(package, last) for package in OURS) or hasattr(vicinal, last)
                assert commands or exists or last in ("reduction", "torchrun"), called

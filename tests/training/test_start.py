"""How a head begins: as principal components where a recipe asks for them, once, also across a resume."""

import shutil

import pytest
import torch

from vicinal.models import Embedder
from vicinal.training.experiment import prepare
from vicinal.training.overrides import apply
from vicinal.training.recipe import find_recipe
from vicinal.training.run import resume, start


def recipe_of(tiny, *overrides):
    file, data = tiny
    return apply(find_recipe(file), [data, *overrides])


def test_a_random_head_is_left_alone(tiny, console):
    experiment = prepare(recipe_of(tiny))
    before = experiment.method.embedder.head.weight.detach().clone()
    experiment.start_head(console)
    assert torch.equal(before, experiment.method.embedder.head.weight)


def test_a_principal_head_keeps_what_the_features_tell(tiny, console):
    experiment = prepare(recipe_of(tiny, "start.head=principal", "start.length=2"))
    experiment.start_head(console)
    embedder = experiment.method.embedder
    embedder.normalize = False
    found = experiment.embed(experiment.encoder, experiment.train).vectors
    assert found.norm(dim=1).mean().item() == pytest.approx(2, rel=1e-4)
    variances = found.var(dim=0)
    assert torch.equal(variances, variances.sort(descending=True).values)


def test_a_discriminant_head_starts_from_features_and_labels(tiny, console):
    heads = []
    for head in ("principal", "discriminant"):
        experiment = prepare(recipe_of(tiny, f"start.head={head}"))
        experiment.start_head(console)
        heads.append(experiment.method.embedder.head.weight.detach().clone())
    assert heads[0].shape == heads[1].shape and not torch.allclose(*heads)


def test_a_run_killed_before_its_first_checkpoint_starts_with_the_same_head(tiny, tmp_path, console):
    recipe = recipe_of(tiny, "start.head=principal", "epochs=1")
    first = start(tiny[0], recipe, tmp_path / "run", command="test", console=console)
    before = first.metrics_path.read_bytes()
    shutil.rmtree(first.checkpoints_path)
    second = resume(first.path, recipe=tiny[0], console=console)
    assert second.metrics_path.read_bytes() == before


@pytest.mark.parametrize(("asked", "recorded"), [("auto", True), ("off", False)])
def test_whether_steps_may_be_recorded_reaches_the_network(tiny, tmp_path, console, monkeypatch, asked, recorded):
    told = []
    monkeypatch.setattr(Embedder, "accelerate", lambda self, precision, **how: told.append(how["recorded"]))
    recipe = recipe_of(tiny, f"record={asked}", "epochs=1")
    start(tiny[0], recipe, tmp_path / "run", command="test", console=console)
    assert told == [recorded]

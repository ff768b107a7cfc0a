"""Presets that stand for a published experiment resolve to its numbers."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.methods.build import build
from torch.testing import assert_close

from vicinal.config import compose, from_words, preset, presets
from vicinal.data import Glyphs
from vicinal.documentation import explanation
from vicinal.losses import NPairLoss, ProxyLoss
from vicinal.methods.ala.assessment import scoring_of
from vicinal.samplers import NPairSampler
from vicinal.training.experiment import prepare

AUTHORS = "hdml-npair-cub-authors"
BASELINE = ("method=plain", "optimizer.weight_decay=1e-3")
LABELS = np.arange(100).repeat(2)  # as many classes as CUB trains on


def sizes_of(kind):
    return {"classes": 100, "dim": 512} if issubclass(kind, ProxyLoss) else {}


def stated(name, *words):
    return compose({"preset": name}, from_words(words))


def test_the_baseline_of_the_authors_setting_has_its_penalty_on_weights():
    """wd/2 |w|² within J_m, or in the gradient of Adam: the same of every parameter but the bias of
    the head."""
    config = stated(AUTHORS)
    baseline = stated(AUTHORS, *BASELINE)
    changed = {slot for slot, value in config.slots().items() if value != baseline.slots()[slot]}
    assert changed == {"method", "optimizer"}
    embedder = replace(config.model, weights="none", freeze_norm=True).build()
    sampler = NPairSampler(LABELS, classes=2, seed=0)
    loss = NPairLoss(blocks=True)
    method = build(config.method, embedder, loss, sampler, config.optimizer, labels=LABELS, steps=1)
    method.weight_penalty().backward()
    optimizer, _ = baseline.optimizer.build(embedder, steps=1)
    decay = {
        parameter: group["weight_decay"]
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    for name, parameter in embedder.named_parameters():
        if name != "head.1.bias":
            ours = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            assert_close(ours, decay.get(parameter, 0.0) * parameter.detach(), msg=name)
    assert decay[embedder.head[1].weight] == pytest.approx(1e-3)


PAPERS = [name for name in presets() if "differs" in preset(name)]


@pytest.mark.parametrize("name", PAPERS)
def test_each_value_of_a_papers_preset_says_where_it_stands(name):
    text = explanation(name).text
    assert "\ndiffers = " in text
    for each in text.split("\n# preset "):
        values = each.partition("\n[")[2].splitlines()
        assert values and all(" # " in line for line in values if " = " in line)


DANML = {"transform.size": 224, "transform.crop": "random", "transform.mirror": True}
DANML |= {"model.dim": 512, "model.normalize": True, "optimizer.name": "adam"}
LOOP = {"transform.size": 227, "model.dim": 512, "optimizer.learning_rate": 1e-4}
LOOP |= {"optimizer.weight_decay": 5e-4, "optimizer.factor": 0.5, "training.batch_size": 128}
LOOP |= {"optimizer.milestones": [100 * 32 // 128 * epoch for epoch in (10, 20, 40, 80)]}
LOOP |= {"method.form": "authors", "sampler.per_class": 32}
OF_DANML = {"loss.gamma1": 2.0, "loss.gamma2": 30.0, "loss.lambda1": 0.55, "loss.lambda2": 0.57}
PROXY_ANCHOR = {"model": "resnet50", "model.pooling": "both", "model.freeze_norm": True}
PROXY_ANCHOR |= {"loss.margin": 0.1, "loss.alpha": 32.0, "training.batch_size": 120}
PROXY_ANCHOR |= {"optimizer.learning_rate": 1e-4, "optimizer.weight_decay": 1e-4}
CROPS = {"transform.resize": 256, "transform.fit": "squash", "transform.size": 227}
CROPS |= {"transform.crop": "random", "transform.mirror": True, "model.dim": 512}
CROPS |= {"optimizer.learning_rate": 1e-4, "optimizer.head_factor": 10.0}
ALA = CROPS | {"optimizer.name": "sgd", "optimizer.momentum": 0.0, "optimizer.weight_decay": 0.0}
ALA |= {"method.rate": 4e-4, "method.updates": 3, "method.assessor": "lstm"}
ALA |= {"method.form": "paper"}
# What the papers and their authors' files state, typed once more.
PRINTED = {
    "hdml-npair-cub": CROPS
    | {"model.weights": "imagenet", "loss.similarity": "distance", "loss.l2": 0.0}
    | {"method.alpha": 90.0, "method.beta": 1e4, "method.label_factor": 0.5}
    | {"method.generator_rate": 1e-3, "method.classifier_rate": 1e-3}
    | {"method.window": -(-5864 // 128), "training.batch_size": 128},  # an epoch of Section 4.1
    AUTHORS: {"transform.fit": "squash", "transform.size": 227, "model.dim": 256}
    | {"model.head_norm": True, "model.start": "glorot", "loss.similarity": "dot"}
    | {"loss.l2": 1.5e-2, "optimizer.name": "adam", "optimizer.learning_rate": 6e-5}
    | {"optimizer.head_factor": 1.0, "optimizer.schedule": "constant", "method.alpha": 90.0}
    | {"method.beta": 5e3, "method.weight_decay": 1e-3, "method.window": 64}
    | {"method.generator_rate": 1e-2, "method.classifier_rate": 1e-3}
    | {"training.batch_size": 128, "training.steps": 8000},
    "hdml-triplet-cub": {"loss": "triplet", "loss.margin": 1.0, "loss.squared": False}
    | {"loss.normalize": False, "loss.reduction": "mean", "method.alpha": 7.0}
    | {"method.window": -(-5864 // 120), "training.batch_size": 120},
    "hdml-triplet-cub-authors": {"loss": "triplet", "loss.margin": 1.0, "loss.squared": True}
    | {"loss.normalize": False, "loss.reduction": "sum", "method.alpha": 7.0}
    | {"training.batch_size": 120},
    "hdml-npair-cars": {"method.window": -(-8054 // 128), "training.steps": 12000}
    | {"method.alpha": 90.0, "method.beta": 1e4, "model.dim": 512},
    "hdml-npair-cars-authors": {"model.dim": 128, "loss.l2": 3e-3, "method.beta": 1e4}
    | {"method.weight_decay": 5e-3, "optimizer.learning_rate": 7e-5, "optimizer.factor": 0.5}
    | {"optimizer.milestones": [5632, 6848]},
    "ala-triplet-cub": ALA | {"loss": "triplet"},
    "ala-contrastive-cub": ALA | {"loss": "contrastive"},
    "ala-margin-cub": ALA | {"loss": "margin"},
    "danml-cub": DANML
    | {"loss.alpha": 2.0, "loss.beta": 30.0, "loss.lambda1": 0.55, "loss.lambda2": 0.55 + 0.02}
    | {"loss.outer": "logistic", "loss.epsilon": 0.1, "sampler.per_class": 5},
    "lifted+": DANML | OF_DANML | {"loss": "improved_lifted_structure", "sampler.per_class": 5},
    "npair+": DANML | {"loss": "improved_n_pair", "loss.similarity": "dot", "sampler": "pairs"},
    "proxynca+": DANML | {"loss": "improved_proxy_nca", "sampler.per_class": 5},
    "htl-cub": {"loss.margin": 0.2, "method.beta": 0.1, "method.form": "paper"},
    "loop-hphn-cub": LOOP | {"loss": "hphn", "loss.margin": 1e-5},
    "loop-triplet-cub": LOOP | {"loss": "triplet", "loss.squared": False, "loss.margin": 1e-5},
    "loop-lifted-cub": LOOP | {"loss": "lifted_structure", "loss.form": "min"},
    "loop-ms-cub": LOOP | {"loss.alpha": 2.0, "loss.beta": 50.0, "loss.base": 0.4},
    "her-pairs": {"loss.margin": 0.15, "loss.scale": 5.0, "loss.epsilon": 0.1}
    | {"loss.detach_weights": False, "method.lambda1": 1.0, "method.lambda2": 0.5}
    | {"method.form": "authors", "optimizer.learning_rate": 5e-5, "optimizer.momentum": 0.9}
    | {"optimizer.weight_decay": 5e-4, "training.batch_size": 2 * 12, "training.epochs": 100},
    "facenet": {"loss.margin": 0.2, "loss.squared": True, "model.dim": 128, "model.weights": "none"}
    | {"sampler.per_class": 40, "training.batch_size": 1800, "optimizer.learning_rate": 0.05},
    "in-defense": {"loss.soft": True, "loss.squared": False, "model.dim": 128}
    | {"sampler.classes": 18, "sampler.per_class": 4, "optimizer.learning_rate": 3e-4}
    | {"training.steps": 25000},
    "proxy-anchor-cub": PROXY_ANCHOR
    | {"optimizer.frozen": 5 * (5864 // 120), "training.steps": 60 * (5864 // 120)}
    | {"optimizer.milestones": [epoch * (5864 // 120) for epoch in range(5, 60, 5)]},
    "idml-cub": {"method.gamma": 4.0, "method.tau": 5.0, "optimizer.learning_rate": 6e-4},
    "idml-cars": {"optimizer.learning_rate": 2.5e-4, "training.steps": 60 * (8054 // 120)}
    | {"optimizer.milestones": [epoch * (8054 // 120) for epoch in range(10, 60, 10)]},
    "metrix-cub": {"method.mix": "features", "method.weight": 0.4, "method.alpha": 2.0}
    | {"training.batch_size": 100, "training.steps": 100 * (5864 // 100)}
    | {"optimizer.milestones": [epoch * (5864 // 100) for epoch in range(10, 100, 10)]},
    "metrix-cars": {"method": "metrix", "training.steps": 60 * (8054 // 100)}
    | {"optimizer.milestones": [epoch * (8054 // 100) for epoch in range(5, 60, 5)]},
    "proxy-synthesis-cars": {"method.alpha": 0.4, "method.mu": 1.0, "loss.temperature": 1 / 23}
    | {"model": "bn_inception", "optimizer.learning_rate": 1e-4, "optimizer.factor": 0.1}
    | {"optimizer.milestones": [49 * 63], "training.steps": 130 * 63, "training.batch_size": 128},
    "gca-hng-cub": {"model": "resnet50", "loss.l2": 3e-3, "method.alpha": 5.0, "method.beta": 20.0}
    | {
        "method.soft_weight": 20.0,
        "method.cosine_weight": 20.0,
        "method.diversity_weight": 60 / 100,
    }
    | {"method.heads": 4, "sampler.classes": 27, "sampler.per_class": 3}
    | {"optimizer.frozen": 2 * (5864 // 81), "training.steps": 100 * (5864 // 81)}
    | {"optimizer.milestones": [epoch * (5864 // 81) for epoch in range(10, 100, 10)]},
    "gca-hng-cars": {"optimizer.frozen": 2 * (8054 // 81), "training.steps": 200 * (8054 // 81)}
    | {"optimizer.milestones": [epoch * (8054 // 81) for epoch in range(10, 200, 10)]},
    "see-cub": {"method.expansions": 8, "method.weight": 0.2, "method.share": 0.4, "model.dim": 128}
    | {"optimizer.learning_rate": 1e-5, "training.batch_size": 2 * 90}
    | {"optimizer.frozen": 5864 // 180, "training.steps": 100 * (5864 // 180)},
    "proxy-anchor-cars": PROXY_ANCHOR
    | {"optimizer.frozen": 5 * (8054 // 120), "training.steps": 60 * (8054 // 120)}
    | {"optimizer.milestones": [epoch * (8054 // 120) for epoch in range(10, 60, 10)]},
}


@pytest.mark.parametrize("name", PRINTED)
def test_a_papers_preset_has_its_values_and_can_be_composed(name):
    layer = preset(name)
    for key, value in PRINTED[name].items():
        slot, _, setting = key.partition(".")
        found = layer[slot][setting or "name"]
        assert found == (pytest.approx(value) if isinstance(value, float) else value), key
    if layer["model"]["name"].startswith("timm:"):
        pytest.importorskip("timm")
    data = {} if "data" in layer else {"data": Glyphs()}  # of a user
    config = compose({"preset": name, **data})
    config.loss.kind(**config.loss.arguments, **sizes_of(config.loss.kind))


@pytest.mark.slow(10)
@pytest.mark.parametrize("name", PAPERS)
def test_a_papers_preset_takes_a_step(name):
    if preset(name)["model"]["name"].startswith("timm:"):
        pytest.importorskip("timm")
    small = ("model.weights=none", "transform.size=32", "transform.resize=32", "training.steps=1")
    experiment = prepare(stated(name, "data=glyphs", *small))
    batches = experiment.batches(experiment.plan(0)[:1], epoch=0, start=0)
    assert experiment.method(next(batches)).scalars["loss"].isfinite()


def test_every_papers_preset_is_held_against_its_paper():
    assert {*PRINTED} == {*PAPERS}


def test_forms_of_hdml_are_those_of_the_paper_and_of_its_authors():
    """Zheng et al. 2019, Eqs. (9) and (12); FLAGS.py and main_npair.py of wzzheng/HDML."""
    config = stated("hdml-npair-cub")
    paper = config.method.chosen()
    assert (config.transform.prepared_side, config.sampler.name) == (256, "pairs")
    assert (paper.reconstruction, paper.reconstruction_factor) == ("sum", 1)
    assert (paper.label_average, paper.generator_norm, paper.weight_decay) == ("sum", False, 0)
    authors = stated(AUTHORS).method.chosen()
    assert (authors.reconstruction_factor, authors.label_factor) == (1 - 0.5, 0.5 * 1e4)
    assert authors.generator_norm and authors.twice
    triplets = stated("hdml-triplet-cub-authors").method
    assert triplets.chosen(pairs=False).label_average == "rows"


def test_ala_is_that_of_the_paper():
    """Zheng, Lu and Zhou 2020, Section 3.4 and Algorithm 1."""
    config = stated("ala-triplet-cub")
    assert not config.method.compares_weights
    episodes = config.sampler.kind(LABELS, seed=0, **config.sampler.arguments)
    assert (episodes.training_rows, episodes.batch_size - episodes.training_rows) == (100, 20)


def test_a_far_triplet_costs_ala_nothing():
    """Eq. (4) is of distances, neither squared nor on the unit sphere."""
    config = stated("ala-triplet-cub")
    scoring = scoring_of(config.loss.kind(**config.loss.arguments), config.method.units)
    z = torch.tensor([[0.0, 0.0], [9.0, 9.0], [0.1, 0.0], [9.0, 9.1]])
    losses = scoring(z, torch.tensor([0, 1, 0, 1])).losses
    assert_close(losses, torch.zeros(2))


def test_a_preset_over_another_changes_what_it_names(monkeypatch, tmp_path):
    (tmp_path / "b.toml").write_text('preset = "glyphs"\ntitle = "B"\nloss = "triplet"\n')
    known = {**presets(), "b": tmp_path / "b.toml"}
    monkeypatch.setattr("vicinal.config.presets", lambda: known)
    layer = preset("b")
    assert layer["title"] == "B" and layer["cost"] == preset("glyphs")["cost"]
    assert layer["loss"] == {"name": "triplet"} and layer["data"] == {"name": "glyphs"}

"""Presets that stand for a published experiment resolve to its numbers."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.methods.build import build

from vicinal.config import compose, from_words, presets
from vicinal.documentation import explanation
from vicinal.losses import NPairLoss
from vicinal.samplers import NPairSampler

BASELINE = ("method=plain", "optimizer.weight_decay=1e-3")
LABELS = np.arange(100).repeat(2)  # as many classes as CUB trains on


def paper(*words):
    return compose({"preset": "cub_paper"}, from_words(words))


def test_cub_paper_is_the_setting_of_hdmls_authors():
    config = paper()
    model, transform, optimizer = config.model, config.transform, config.optimizer
    assert (model.head_norm, model.start, model.dim, model.pooling) == (
        True,
        "glorot",
        512,
        "average",
    )
    assert (transform.size, transform.canvas, transform.fit, transform.crop) == (
        227,
        256,
        "shorter",
        "random",
    )
    assert (
        transform.mirror and config.loss.name == "n_pair" and config.loss.arguments["l2"] == 1.5e-2
    )
    assert (optimizer.name, optimizer.learning_rate, optimizer.schedule) == (
        "adam",
        6e-5,
        "constant",
    )
    assert (optimizer.weight_decay, optimizer.head_factor) == (0, 1)
    assert (config.method.window, config.method.generator_rate, config.method.repeated) == (
        64,
        1e-2,
        True,
    )
    scale = config.method.preset()
    assert (scale.alpha, scale.beta, scale.weight_decay, scale.generator_norm) == (
        90,
        5e3,
        1e-3,
        True,
    )
    assert (config.training.steps, config.training.batch_size, config.sampler.name) == (
        8000,
        128,
        "pairs",
    )
    assert NPairSampler.fitted(LABELS, batch_size=config.training.batch_size, seed=0).classes == 64


def test_the_baseline_of_cub_paper_has_its_penalty_on_weights():
    """wd/2 |w|² within J_m, or in the gradient of Adam: the same of every parameter but the bias of
    the head."""
    config, baseline = paper(), paper(*BASELINE)
    changed = {slot for slot, value in config.slots().items() if value != baseline.slots()[slot]}
    assert changed == {"method", "optimizer"}
    embedder = replace(config.model, weights="none", freeze_norm=True).build()
    sampler, loss = NPairSampler(LABELS, classes=2, seed=0), NPairLoss(blocks=True)
    method = build(config.method, embedder, loss, sampler, config.optimizer, labels=LABELS, steps=1)
    method._weight_penalty().backward()
    optimizer, _ = baseline.optimizer.build(embedder, steps=1)
    decay = {
        parameter: group["weight_decay"]
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    for name, parameter in embedder.named_parameters():
        if name != "head.1.bias":
            ours = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            torch.testing.assert_close(
                ours, decay.get(parameter, 0.0) * parameter.detach(), msg=name
            )
    assert decay[embedder.head[1].weight] == pytest.approx(1e-3)


@pytest.mark.parametrize("name", [name for name in presets() if "-" in name])
def test_each_value_of_a_papers_preset_says_where_it_stands(name):
    found = explanation(name)
    assert all(source for _, _, source in found.settings)
    assert "differs: EfficientNet-Lite0" in found.text


def test_hdml_over_n_pair_is_that_of_the_paper():
    """Zheng et al. 2019, Section 4.2, Eqs. (9), (12) and (13), typed once more."""
    config = compose({"preset": "hdml-npair-cub"})
    transform, optimizer, method = config.transform, config.optimizer, config.method
    assert (transform.resize, transform.fit, transform.prepared_side) == (256, "squash", 256)
    assert (transform.size, transform.crop, transform.mirror) == (227, "random", True)
    assert (config.model.dim, config.model.weights, config.model.head_norm) == (
        512,
        "imagenet",
        False,
    )
    assert (optimizer.learning_rate, optimizer.head_factor) == (1e-4, 10)
    assert (method.generator_rate, method.classifier_rate) == (1e-3, 1e-3)
    assert (config.training.batch_size, config.sampler.name) == (128, "pairs")
    values = method.preset()
    assert (values.alpha, values.beta, values.label_factor) == (90, 1e4, 0.5)
    assert (values.reconstruction, values.reconstruction_factor) == ("sum", 1)
    assert (values.label_average, values.generator_norm, values.weight_decay) == ("sum", False, 0)
    assert method.window == -(-5864 // 128)  # an epoch of Section 4.1
    loss = config.loss.kind(**config.loss.arguments, blocks=True)
    z, labels = torch.randn(6, 4), torch.arange(3).repeat(2)
    apart = (z[:3, None] - z[None, 3:]).norm(dim=2)
    terms = (apart.diagonal()[:, None] - apart).exp()[~torch.eye(3, dtype=torch.bool)]
    torch.testing.assert_close(loss(z, labels), (1 + terms.view(3, 2).sum(dim=1)).log().mean())


def test_hdml_over_n_pair_is_that_of_its_authors():
    """FLAGS.py and main_npair.py of wzzheng/HDML for cub200."""
    config = compose({"preset": "hdml-npair-cub-authors"})
    method, optimizer = config.method, config.optimizer
    assert (config.transform.fit, config.transform.size, config.model.dim) == ("squash", 227, 256)
    assert (config.model.head_norm, config.model.start) == (True, "glorot")
    assert (config.loss.arguments["similarity"], config.loss.arguments["l2"]) == ("dot", 1.5e-2)
    assert (optimizer.name, optimizer.learning_rate, optimizer.head_factor) == ("adam", 6e-5, 1)
    assert (method.generator_rate, method.classifier_rate, method.window) == (1e-2, 1e-3, 64)
    values = method.preset()
    assert (values.alpha, values.beta, values.weight_decay) == (90, 5e3, 1e-3)
    assert (values.reconstruction_factor, values.label_factor) == (1 - 0.5, 0.5 * 1e4)
    assert values.generator_norm and method.repeated
    assert (config.training.batch_size, config.training.steps) == (128, 8000)
    halvings = [step for step in (5632, 6848) if step % 46 == 0]
    assert optimizer.schedule == "constant" and not halvings

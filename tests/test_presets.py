"""Presets that stand for a published experiment resolve to its numbers."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.methods.build import build

from vicinal.config import compose, from_words
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

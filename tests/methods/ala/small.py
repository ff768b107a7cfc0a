"""A small network for ALA, the episodes that it learns from, and the method over both."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.methods.build import build
from torch import nn

from vicinal.data.records import Batch
from vicinal.losses import TripletLoss
from vicinal.methods.ala import ALA
from vicinal.methods.ala.assessment import LSTMAssessor
from vicinal.methods.optimizer import OptimizerConfig
from vicinal.models import Embedder
from vicinal.samplers import EpisodeSampler

TRAINING = 5
VALIDATION = 3
WIDTH = 6
DIM = 4
RATES = (0.1, 0.5)  # of backbone and head
DESCENT = {"name": "sgd", "momentum": 0.0, "weight_decay": 0.0, "schedule": "constant"}
LABELS = np.arange(10).repeat(4)


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.width = WIDTH
        self.layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.Tanh())

    def forward(self, inputs):
        return self.layers(inputs)


def episodes():
    return EpisodeSampler(LABELS, training_classes=TRAINING, validation_classes=VALIDATION, seed=0)


@pytest.fixture
def sampler():
    return episodes()


@pytest.fixture
def batch(sampler, rng):
    rows = torch.tensor(sampler.epoch(0)[0])
    centers = torch.randn(10, WIDTH, generator=rng)
    labels = torch.as_tensor(sampler.labels)[rows]
    inputs = centers[labels] + torch.randn(len(rows), WIDTH, generator=rng)
    return Batch(inputs, labels, rows, largest_class=2)


def make(sampler, settings=None, assessor=None, *, loss=None, backbone=Backbone, **optimizer):
    """ALA, ready to train, with an assessor of 8 units unless it is given one."""
    torch.manual_seed(0)
    config = OptimizerConfig(
        learning_rate=RATES[0], head_factor=RATES[1] / RATES[0], **(DESCENT | optimizer)
    )
    method = replace(settings or ALA(relative=False))
    if method.assessor == "lstm":
        method.build_assessor = lambda inputs, sequences: (
            assessor or LSTMAssessor(inputs, hidden=8, scaled=True)
        )
    return build(
        method,
        Embedder(backbone(), DIM),
        loss or TripletLoss(margin=1.0),
        sampler,
        config,
        labels=sampler.labels,
        steps=12,
        check=False,
    )

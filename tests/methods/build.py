"""Build methods for tests from the fewest parts."""

from types import SimpleNamespace

import numpy as np
import torch

from vicinal.methods.method import Parts
from vicinal.methods.optimizer import OptimizerConfig
from vicinal.models import Embedder, Identity

DESCENT = OptimizerConfig(
    "sgd", learning_rate=0.1, momentum=0.0, weight_decay=0.0, schedule="constant"
)


class OneBatch:
    """An epoch of one batch: rows 0, 1, ..."""

    note = None

    def __init__(self, rows):
        self.rows = rows

    def epoch(self, number):
        return [list(range(self.rows))]

    def __len__(self):
        return 1


def build(
    method,
    embedder,
    loss,
    sampler,
    optimizer=None,
    *,
    labels=(0, 1),
    steps=100,
    seed=0,
    train=None,
    check=True,
):
    """Return ``method`` ready to train; ``check=False`` leaves out the check of loss and
    sampler."""
    parts = Parts(
        embedder=embedder,
        loss=loss,
        sampler=sampler,
        optimizer=OptimizerConfig(schedule="constant") if optimizer is None else optimizer,
        train=train or SimpleNamespace(labels=np.asarray(labels)),
        steps=steps,
        seed=seed,
    )
    if check:
        return method.build(parts)
    method.setup(parts)
    return method


def on_vectors(method, loss, inputs, dim, *, rows=6, normalize=True, **options):
    """Return ``method`` ready to train a linear map of vectors, an epoch one batch, by descent."""
    torch.manual_seed(0)
    embedder = Embedder(Identity(inputs), dim, normalize=normalize)
    return build(method, embedder, loss, OneBatch(rows), DESCENT, **options).train()

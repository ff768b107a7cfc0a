"""Build methods for tests from the fewest parts."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import torch
from tests.reading import load

from vicinal.arguments import parameters
from vicinal.data.records import FeatureArray, Records
from vicinal.data.transforms import FeatureTransform
from vicinal.evaluation.encoder import Encoder
from vicinal.losses import LOSSES
from vicinal.methods.method import Parts
from vicinal.methods.optimizer import OptimizerConfig
from vicinal.models import Embedder, Identity
from vicinal.samplers import SAMPLERS

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


# -- runs on records of vectors


def some_records():
    """Classes 1, 3, ..., 23: the others are held out."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(1, 25, 2), 6)
    features = rng.normal(size=(25, 12))[labels] + 0.5 * rng.normal(size=(len(labels), 12))
    source = FeatureArray(features.astype(np.float32), [str(row) for row in range(len(labels))])
    return Records(
        "r", source, labels, tuple(map(str, range(25))), np.array(["train"] * len(labels))
    )


def parts_of(method, loss, train, sampler=None):
    kind = LOSSES[loss]
    known = tuple(np.unique(train.labels).tolist())
    sampler = sampler or method.sampler_for(kind)
    torch.manual_seed(0)
    embedder = Embedder(Identity(12), 8)
    given = {
        "classes": len(known),
        "dim": 8,
        "known": known,
        "seed": 0,
        "blocks": kind.layout == sampler,
    }
    taken = {name: value for name, value in given.items() if name in parameters(kind)}
    batches = SAMPLERS[sampler](train.labels, batch_size=24, seed=0)
    optimizer = OptimizerConfig(learning_rate=1e-3)
    return Parts(embedder, kind(**taken), batches, optimizer, train, steps=6, seed=0)


def ready(method, loss, train, sampler=None, **parts):
    """Build a method; one that plans by embeddings gets them."""
    built = method.build(replace(parts_of(method, loss, train, sampler), **parts))
    encoder = Encoder(built.embedder, FeatureTransform(), torch.device("cpu"))
    built.embed_records = lambda: encoder.embed(train)
    return built


def steps(method, train, epoch, plan):
    batches = load(train, plan, FeatureTransform(), seed=0, epoch=epoch)
    results = [method(batch) for batch in batches]
    scalars = [{**result.scalars, **method.diagnostics(result)} for result in results]
    return [{name: float(value) for name, value in found.items()} for found in scalars]

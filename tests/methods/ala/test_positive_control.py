"""DML-ALA where it must help: half of the training classes teach the wrong thing, and the
validation classes do not.

A good class shares its object and has random backgrounds; a bad class, as from a source that names
pictures by their background, is the other way round. So the gradients of bad triplets point against
those of validation triplets and the gradients of good ones along them: by Eqs. (10) to (12) bad
triplets are to weigh less. The assessor recognizes them by a mark of their source.
"""

import numpy as np
import pytest
import torch
from tests.methods.build import DESCENT, build

from vicinal.data.records import Batch
from vicinal.losses import TripletLoss
from vicinal.methods.ala import ALA
from vicinal.methods.ala.assessment import Assessment, Assessor
from vicinal.models import Embedder, Identity
from vicinal.samplers import EpisodeSampler

# Classes, in this order: to train on, to validate on, to test on.
BAD, GOOD, CLEAN, TEST = 30, 30, 40, 40
SAMPLES = 20  # of a class; features of the object and of the background
WIDTH = 8
MARK = 2.0
WITHIN = 0.35
STEPS = 120


class CleanValidation(EpisodeSampler):
    """Train on bad and good classes, validate on those that are known to be good."""

    def plan(self, rng, batches):
        chances = rng.random((batches, BAD + GOOD)), rng.random((batches, CLEAN))
        training, validation = (chance.argsort(axis=1) for chance in chances)
        chosen = (
            training[:, : self.training_classes],
            BAD + GOOD + validation[:, : self.validation_classes],
        )
        pairs = [self.members.deal_rows(rng, classes, per_class=2) for classes in chosen]
        return np.concatenate(
            [block.swapaxes(1, 2).reshape(batches, -1) for block in pairs], axis=1
        )


class Oracle(Assessor):
    """Knows which triplets have a bad anchor and positive."""

    bad: torch.Tensor

    def assess(self, tuples):
        return Assessment(torch.where(self.bad, 1e-3, 1.0))


def planted(seed):
    """Samples of all classes, and their labels."""
    rng = np.random.default_rng(seed)
    labels = np.arange(BAD + GOOD + CLEAN + TEST).repeat(SAMPLES)
    centers = rng.normal(size=(labels[-1] + 1, WIDTH))[labels]
    alike = centers + WITHIN * rng.normal(size=centers.shape)
    other = (1 + WITHIN**2) ** 0.5 * rng.normal(size=centers.shape)  # as widely spread, of no class
    bad = (labels < BAD)[:, None]
    parts = [np.where(bad, other, alike), np.where(bad, alike, other), np.where(bad, MARK, -MARK)]
    return torch.tensor(np.concatenate(parts, axis=1), dtype=torch.float32), torch.as_tensor(labels)


def recall_at_1(embedder, inputs, labels):
    with torch.no_grad():
        unit = torch.nn.functional.normalize(embedder.embed(embedder.features(inputs)))
    nearest = (unit @ unit.T).fill_diagonal_(-1).argmax(dim=1)
    return 100 * float((labels[nearest] == labels).double().mean())


def trained(settings, seed, assessor=None):
    """Recall@1 on new classes, and the weights of bad and of good triplets in the last half of
    training."""
    inputs, labels = planted(seed)
    seen = labels < BAD + GOOD + CLEAN
    torch.manual_seed(seed)
    embedder = Embedder(Identity(inputs.shape[1]), 16)
    sampler = CleanValidation(
        labels[seen].numpy(),
        training_classes=20,
        validation_classes=CLEAN,
        seed=seed,
        batches=STEPS,
    )
    loss = TripletLoss(margin=1.0, squared=True, normalize=True)
    method = build(
        settings, embedder, loss, sampler, DESCENT, labels=sampler.labels, steps=STEPS, seed=seed
    )
    method.weigh = assessor or method.weigh
    said = []
    method.weigh.register_forward_hook(lambda *called: said.append(called[-1].weights.detach()))
    embedder.train()
    weights = []
    for rows in torch.tensor(method.batches(0)):
        bad = labels[rows[: sampler.training_classes]] < BAD
        if assessor:
            assessor.bad = bad
        method(Batch(inputs[rows], labels[rows], rows, largest_class=2))
        weights.append([float(said[-1][of].mean()) for of in (bad, ~bad)])
    return recall_at_1(embedder, inputs[~seen], labels[~seen]), np.mean(
        weights[STEPS // 2 :], axis=0
    )


@pytest.mark.slow(7)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_ala_gains_half_of_what_an_oracle_gains_where_bad_classes_are_planted(seed):
    constant, _ = trained(ALA(assessor="constant"), seed)
    oracle, _ = trained(ALA(assessor="constant"), seed, Oracle())
    learned, (bad, good) = trained(ALA(), seed)
    assert oracle - constant >= 3
    assert learned - constant >= (oracle - constant) / 2
    assert bad < good / 2  # by what it is meant to learn, not by luck

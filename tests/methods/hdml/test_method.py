"""HDML: three updates from one forward pass, none of which reaches what is another's; scales,
windows and resume."""

import math
from dataclasses import replace

import pytest
import torch
from tests.methods.build import OneBatch, build
from torch.testing import assert_close

from vicinal.data.records import Batch
from vicinal.losses import MarginLoss, NPairLoss, TripletLoss
from vicinal.losses.loss import Terms
from vicinal.methods.hdml import HDML
from vicinal.methods.hdml.method import WindowedMean
from vicinal.methods.optimizer import OptimizerConfig
from vicinal.methods.plain import Plain
from vicinal.models import Embedder, SmallConvNet
from vicinal.training.checkpoint import load_checkpoint, save_checkpoint

PAIRS = torch.tensor([0, 1, 2, 0, 1, 2])
TRIPLETS = torch.tensor([0, 1, 0, 1, 2, 3])
PK = torch.tensor([0, 0, 1, 1, 2, 2])
OPTIMIZER = OptimizerConfig(learning_rate=1e-2, schedule="constant", weight_decay=0.0)


def n_pair(form):
    """The paper prints distances, Eq. (13); the authors' code has inner products and holds lengths
    down."""
    return NPairLoss(
        "distance" if form == "paper" else "dot",
        l2=0.0 if form == "paper" else 1.5e-2,
        blocks=True,
    )


def batch_of(labels, seed=0):
    rng = torch.Generator().manual_seed(seed)
    return Batch(
        torch.randn(len(labels), 1, 8, 8, generator=rng), labels, torch.arange(len(labels))
    )


def make(loss, *, rate=1e-2, **settings):
    torch.manual_seed(0)
    embedder = Embedder(SmallConvNet(channels=1, widths=(4, 8)), 5)
    optimizer = replace(OPTIMIZER, learning_rate=rate)
    return build(
        HDML(**settings), embedder, loss, OneBatch(6), optimizer, labels=range(6), steps=50
    )


def take_step(method, batch):
    return {name: float(value) for name, value in method(batch).scalars.items()}


def trained(method, labels, steps):
    return [take_step(method, batch_of(labels, seed)) for seed in range(steps)]


def weights(module):
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])


# -- gradients -------------------------------------------------------------------------------------


def gradients(method, labels, only):
    """The gradient that each part of the network gets when one of the three losses is the only
    one."""
    scale = {"real": 0.0, "synthetic": 0.0, "generator": 0.0, "classifier": 0.0} | {only: 1.0}
    core = method.loss.core
    own = method.classifier.own_loss
    calls = []

    def scored(comparisons):
        calls.append(None)
        sums, counts = core(comparisons)
        return Terms(sums * scale[("real", "synthetic")[len(calls) - 1]], counts)

    method.loss.core = scored
    method.factor = lambda *given: torch.tensor(0.5)
    method.classifier.own_loss = lambda *given: own(*given) * scale["classifier"]
    if only != "generator":
        method.values = replace(method.values, label_factor=0.0, reconstruction_factor=0.0)
    method(batch_of(labels))
    del method.loss.core  # the loss serves other methods, too
    parts = {
        "backbone": method.embedder.backbone,
        "head": method.embedder.head,
        "generator": method.generator,
        "classifier": method.classifier,
    }
    return {
        name: sum(float(p.grad.abs().sum()) for p in part.parameters() if p.grad is not None) > 0
        for name, part in parts.items()
    }


@pytest.mark.parametrize(
    ("loss", "labels"),
    [(NPairLoss(blocks=True), PAIRS), (TripletLoss(9.0, blocks=True), TRIPLETS), (NPairLoss(), PK)],
)
def test_each_loss_reaches_its_own_parameters_and_no_others(loss, labels):
    nothing = {"backbone": False, "head": False, "generator": False, "classifier": False}
    reached = {
        "real": nothing | {"backbone": True, "head": True},
        "synthetic": nothing | {"backbone": True, "head": True},
        "generator": nothing | {"generator": True},
        "classifier": nothing | {"classifier": True},
    }
    for only, expected in reached.items():
        assert gradients(make(loss, alpha=1.0), labels, only) == expected, only


def test_the_penalty_on_weights_adds_to_what_the_network_gets_of_the_tuples():
    with_penalty, without = (
        make(NPairLoss(blocks=True), alpha=1.0, weight_decay=decay) for decay in (0.3, 0.0)
    )
    held = [parameter.detach().clone() for parameter in with_penalty.embedder.parameters()]
    for method in (with_penalty, without):
        method(batch_of(PAIRS))  # in the first window w = 1
    decaying = {id(parameter) for parameter in with_penalty._decaying}
    pairs = zip(
        held, with_penalty.embedder.parameters(), without.embedder.parameters(), strict=True
    )
    for before, mine, theirs in pairs:
        assert_close(mine.grad - theirs.grad, 0.3 * before * (id(mine) in decaying))


# -- weights and windows ---------------------------------------------------------------------------


def test_without_beta_hdml_is_the_plain_method():
    method = make(NPairLoss(blocks=True), beta=0.0, alpha=1.0, window=1)
    embedder = make(NPairLoss(blocks=True)).embedder
    plain = build(Plain(), embedder, NPairLoss(blocks=True), OneBatch(6), OPTIMIZER)
    for number in range(4):
        found, expected = (m(batch_of(PAIRS, number)).scalars for m in (method, plain))
        assert_close(found["loss"], expected["loss"])
        assert found["hardness/w"] == 1
    assert_close(weights(method.embedder), weights(embedder))


def test_before_the_first_window_the_authors_start_is_one_million():
    line = trained(make(n_pair("authors"), form="authors"), PAIRS, 1)[0]
    assert line["hardness/lambda"] == pytest.approx(math.exp(-90 / 1e6))
    assert line["hardness/w"] == pytest.approx(math.exp(-1e4 / 1e6))


def test_lambda_and_w_follow_the_windows():
    method = make(n_pair("paper"), form="paper", alpha=3.0, beta=2.0, window=2)
    lines = trained(method, PAIRS, 3)
    average = (lines[0]["real_loss"] + lines[1]["real_loss"]) / 2
    generator = sum(line["generator/J_recon"] + line["generator/J_soft"] for line in lines[:2]) / 2
    assert lines[2]["hardness/lambda"] == pytest.approx(math.exp(-3 / average), rel=1e-5)
    assert lines[2]["hardness/w"] == pytest.approx(math.exp(-2 / generator), rel=1e-5)


def test_the_authors_average_is_weighted_and_has_the_decay_inside():
    method = make(n_pair("authors"), form="authors", window=1, weight_decay=0.1)
    decayed = [
        m for m in method.embedder.modules() if isinstance(m, (torch.nn.Linear, torch.nn.Conv2d))
    ]
    squares = sum(
        float(p.detach().square().sum()) for m in decayed for p in m.parameters(recurse=False)
    )
    batch = batch_of(PAIRS)
    with torch.no_grad():
        alone = float(
            method.loss(method.embedder.embed(method.embedder.features(batch.inputs)), PAIRS)
        )
    line = take_step(method, batch)
    assert line["real_loss"] == pytest.approx(alone + 0.05 * squares, rel=1e-5)
    assert float(method.average_loss.last) == pytest.approx(
        line["hardness/w"] * line["real_loss"], rel=1e-5
    )


def test_the_relative_preset_does_not_depend_on_the_scale_of_the_loss():
    """A loss twenty times as large (a sum over its terms instead of their mean) gives the same
    λ."""
    factors = []
    for reduction in ("mean", "sum"):
        method = make(
            TripletLoss(9.0, blocks=True, reduction=reduction), rate=1e-9, window=1, alpha=0.5
        )
        factors.append([line["hardness/lambda"] for line in trained(method, TRIPLETS, 4)])
    assert factors[0] == pytest.approx(factors[1], rel=1e-5)
    assert factors[0][0] == 1 and factors[0][1] == pytest.approx(math.exp(-0.5))


# -- state, export, processes, report --------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"form": "authors"}], ids=str)
def test_a_restored_method_goes_on_bit_for_bit(settings, tmp_path):
    method = make(NPairLoss(blocks=True), window=3, **settings)
    trained(method, PAIRS, 4)  # in the middle of a window
    path = save_checkpoint(tmp_path, 4, {"method": method.training_state()})
    again = make(NPairLoss(blocks=True), window=3, **settings)
    again.load_training_state(load_checkpoint(path)["method"])
    for number in range(4, 8):
        first, second = (m(batch_of(PAIRS, number)).scalars for m in (method, again))
        assert all(torch.equal(first[name], second[name]) for name in first)
    assert torch.equal(weights(method.embedder), weights(again.embedder))


@pytest.mark.parametrize(
    ("loss", "alpha"), [(TripletLoss(), 7.0), (MarginLoss(), 7.0), (NPairLoss(), 90.0)]
)
def test_triplets_in_no_blocks_have_it_too(loss, alpha):
    assert make(loss, form="paper").values.alpha == alpha


def test_windows_do_not_overlap_and_the_first_stays_the_measure():
    mean = WindowedMean(2)
    for value in (2.0, 4.0, 1.0, 2.0, 100.0):
        mean.add(torch.tensor(value))
    assert mean.last == 1.5 and mean.relative() == 0.5

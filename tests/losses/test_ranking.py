"""Losses that rank against the printed sums, one query and one positive at a time, and against
exact measures."""

import math
import resource

import pytest
import torch
from tests.apart import alone
from torch.autograd import gradcheck

import vicinal.losses.loss
from vicinal.errors import ConfigError
from vicinal.losses import LOSSES, FastAPLoss, PNPLoss, RecallAtKLoss, ROADMAPLoss, SmoothAPLoss

LABELS = {
    "two each": [0, 0, 1, 1],
    "uneven": [0, 1, 1, 2, 2, 2, 2, 3],
    "one class": [0, 0, 0],
    "none alike": [0, 1, 2],
}


def sigmoid(t):
    return 1 / (1 + math.exp(-t)) if t > -700 else 0.0


def fast_ap(loss, positive, negative):
    width, bins = 4 / loss.bins, range(loss.bins + 1)
    near, far = (
        [sum(max(0, 1 - abs(2 - 2 * s - j * width) / width) for s in kind) for j in bins]
        for kind in (positive, negative)
    )
    total = 0.0
    for j in bins:
        everyone = sum(near[: j + 1]) + sum(far[: j + 1])
        total += near[j] * sum(near[: j + 1]) / everyone if everyone else 0
    return 1 - total / len(positive)


def smooth_ap(loss, positive, negative):
    positive = [*positive, 1.0] if loss.anchor else positive
    precision = 0.0
    for p, s in enumerate(positive):
        among = 1 + sum(
            sigmoid((t - s) / loss.temperature) for j, t in enumerate(positive) if j != p
        )
        precision += among / (among + sum(sigmoid((t - s) / loss.temperature) for t in negative))
    return 1 - precision / len(positive)


def roadmap(loss, positive, negative):
    def bound(t):
        if t <= 0:
            return sigmoid(t / loss.temperature)
        if t <= loss.width:
            return sigmoid(t / loss.temperature) + 0.5
        return loss.slope * (t - loss.width) + sigmoid(loss.width / loss.temperature) + 0.5

    precision = 0.0
    for p, s in enumerate(positive):
        among = 1 + sum(t >= s for j, t in enumerate(positive) if j != p)
        precision += among / (among + sum(bound(t - s) for t in negative))
    calibration = sum(max(0, loss.positive_margin - s) for s in positive) / len(positive)
    calibration += sum(max(0, t - loss.negative_margin) for t in negative) / max(1, len(negative))
    return (1 - loss.calibration) * (1 - precision / len(positive)) + loss.calibration * calibration


def recall_at_k(loss, positive, negative):
    values = []
    for k in loss.ks:
        found = 0.0
        for p, s in enumerate(positive):
            others = [t for j, t in enumerate(positive) if j != p] + negative
            rank = 1 + sum(sigmoid((t - s) / loss.temperature) for t in others)
            found += sigmoid((k - rank) / loss.rank_temperature)
        values.append(min(k, found) / min(k, len(positive)))
    return 1 - sum(values) / len(values)


def pnp(loss, positive, negative):
    positive = [*positive, 1.0] if loss.anchor else positive
    penalty = {
        "O": lambda r: r,
        "Ds": lambda r: math.log(1 + r),
        "Dq": lambda r: 1 - 1 / (1 + r) ** loss.alpha,
        "Iu": lambda r: (1 + r) * math.log(1 + r),
        "Ib": lambda r: (loss.b * r - math.log(1 + loss.b * r)) / loss.b**2,
    }[loss.variant]
    before = [sum(sigmoid((t - s) / loss.temperature) for t in negative) for s in positive]
    return sum(map(penalty, before)) / len(positive)


def by_hand(formula, loss, embeddings, labels):
    unit, values = [row / row.norm() for row in embeddings], []
    for i, label in enumerate(labels):
        positive = [
            float(unit[i] @ unit[k]) for k in range(len(labels)) if k != i and labels[k] == label
        ]
        negative = [float(unit[i] @ unit[k]) for k in range(len(labels)) if labels[k] != label]
        if positive:
            values.append(formula(loss, positive, negative))
    return sum(values) / max(1, len(values))


CASES = [
    (fast_ap, FastAPLoss()),
    (fast_ap, FastAPLoss(7)),
    (smooth_ap, SmoothAPLoss(0.05)),
    (smooth_ap, SmoothAPLoss(anchor=True)),
    (roadmap, ROADMAPLoss()),
    (roadmap, ROADMAPLoss(0.0, temperature=0.1, slope=3.0, width=0.3)),
    (recall_at_k, RecallAtKLoss()),
    (recall_at_k, RecallAtKLoss((1, 3), temperature=0.1, rank_temperature=0.3)),
    *((pnp, PNPLoss(variant, 0.05, alpha=1.5, b=3.0)) for variant in ("O", "Ds", "Dq", "Iu", "Ib")),
    (pnp, PNPLoss(anchor=True)),
]


@pytest.fixture
def embeddings(rng):
    return lambda n, dim=3: torch.randn(n, dim, generator=rng, dtype=torch.float64)


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize(
    ("formula", "loss"), CASES, ids=lambda value: repr(value) if hasattr(value, "core") else ""
)
def test_equals_the_printed_formula(labels, formula, loss, embeddings):
    given = embeddings(len(labels))
    assert loss(given, torch.tensor(labels)).item() == pytest.approx(
        by_hand(formula, loss, given, labels), abs=1e-12
    )


@pytest.mark.parametrize(
    ("loss", "peer"),
    [
        (FastAPLoss(), ("FastAPLoss", {})),
        (SmoothAPLoss(anchor=True), ("SmoothAPLoss", {})),
        *(
            (PNPLoss(v, anchor=True), ("PNPLoss", {"variant": v}))
            for v in ("O", "Ds", "Dq", "Iu", "Ib")
        ),
    ],
    ids=lambda value: repr(value) if hasattr(value, "core") else "",
)
def test_equals_the_peer_in_value_and_gradient(loss, peer, embeddings):
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    given, labels = (
        embeddings(16, 8).requires_grad_(),
        torch.arange(16) // 4,
    )  # as many classes as rows of a class
    values = loss(given, labels), getattr(losses, peer[0])(**peer[1])(given, labels)
    torch.testing.assert_close(values[0].float(), values[1].float(), rtol=1e-6, atol=1e-6)
    gradients = [torch.autograd.grad(value, given)[0] for value in values]
    torch.testing.assert_close(*gradients, rtol=1e-6, atol=1e-5)


def test_sharp_steps_give_exact_average_precision_and_recall(embeddings):
    given, labels = embeddings(40, 4), torch.arange(40) // 5
    unit = torch.nn.functional.normalize(given, dim=1)
    ranked = (unit @ unit.T).fill_diagonal_(-torch.inf).argsort(dim=1, descending=True)[:, :-1]
    hits = (labels[ranked] == labels[:, None]).double()
    places = torch.arange(1, 40)
    precision = ((hits.cumsum(dim=1) / places) * hits).sum(dim=1) / hits.sum(dim=1)
    torch.testing.assert_close(SmoothAPLoss(1e-7)(given, labels), 1 - precision.mean())
    recall = torch.stack([(hits[:, :k].sum(dim=1) / min(k, 4)).mean() for k in (1, 2, 8)]).mean()
    sharp = RecallAtKLoss((1, 2, 8), temperature=1e-7, rank_temperature=1e-3)
    # A positive of rank k is half inside: ranks are whole numbers, so the cut is put between them.
    inside = [
        (hits[:, :k].sum(dim=1) - hits[:, k - 1] / 2).clamp(max=k) / min(k, 4) for k in (1, 2, 8)
    ]
    torch.testing.assert_close(sharp(given, labels), 1 - torch.stack(inside).mean())
    assert recall >= 1 - sharp(given, labels)


def test_sup_ap_bounds_average_precision_from_above(embeddings):
    given, labels = embeddings(40, 4), torch.arange(40) // 5
    exact = SmoothAPLoss(1e-7, reduction="none")(given, labels)
    assert (ROADMAPLoss(0.0, reduction="none")(given, labels) >= exact - 1e-12).all()


def test_a_perfect_ranking_costs_nothing():
    corners = torch.eye(4, dtype=torch.float64).repeat_interleave(3, dim=0)
    labels = torch.arange(12) // 3
    for loss in (FastAPLoss(), SmoothAPLoss(), ROADMAPLoss(), PNPLoss()):
        assert loss(corners, labels).item() == pytest.approx(0, abs=1e-12)


def test_a_large_batch_that_keeps_nothing_has_the_same_gradient(embeddings, monkeypatch):
    given, labels = embeddings(20, 4).requires_grad_(), torch.arange(20) // 5
    for loss in (SmoothAPLoss(), ROADMAPLoss(), RecallAtKLoss(), PNPLoss()):
        expected = torch.autograd.grad(loss(given, labels), given)[0]
        with monkeypatch.context() as patched:
            patched.setattr(vicinal.losses.loss, "BLOCK", 1)
            torch.testing.assert_close(torch.autograd.grad(loss(given, labels), given)[0], expected)


def test_gradient_matches_finite_differences_with_many_positives(embeddings):
    given, labels = embeddings(12).requires_grad_(), torch.arange(12) // 4
    for loss in (
        FastAPLoss(),
        SmoothAPLoss(0.1),
        ROADMAPLoss(temperature=0.1),
        RecallAtKLoss(temperature=0.1),
    ):
        assert gradcheck(lambda rows, loss=loss: loss(rows, labels), (given,))


def test_no_k_is_rejected():
    with pytest.raises(ConfigError, match="at least one k"):
        RecallAtKLoss(())


def peak(name):
    """MiB that a loss takes at its most, forward and backward, beyond what the process held before
    it."""
    given = torch.randn(8192, 32, generator=torch.Generator().manual_seed(0)).requires_grad_()
    loss, labels = LOSSES[name](), torch.arange(8192) // 4
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    loss(given, labels).backward()
    assert given.grad.isfinite().all()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024


@pytest.mark.slow(20)
@pytest.mark.parametrize("name", ["fast_ap", "smooth_ap", "roadmap", "recall_at_k", "pnp"])
def test_a_batch_of_8192_fits_where_its_cube_would_not(name):
    """8192 x 3 x 8188 comparisons would be 0.8 GiB for each step of a formula; the similarities are
    256 MiB."""
    assert alone(peak, name) < 3072

"""HDML, LoOp, ALA and HTL over losses with proxies: what they are with the dial off, and the limits
in which they are the papers'."""

import numpy as np
import pytest
import torch
from tests.arcs import similarity
from tests.methods.build import ready, some_records, steps
from torch.autograd import grad, gradcheck
from torch.nn.functional import normalize
from torch.testing import assert_close

from vicinal.losses import (
    LOSSES,
    NormalizedSoftmaxLoss,
    NPairLoss,
    P2SGradLoss,
    ProxyAnchorLoss,
    ProxyLoss,
    ProxyNCALoss,
    SoftTripleLoss,
)
from vicinal.methods import HDML, HTL, LoOp, Plain
from vicinal.methods.ala.assessment import ProxyScoring
from vicinal.methods.ala.meta_gradient import slopes
from vicinal.methods.hdml.synthesis import Roles, Synthesis
from vicinal.methods.loop import ExpandedNegatives, OptimalNegatives

NAMES = [
    name
    for name, kind in LOSSES.items()
    if issubclass(kind, ProxyLoss) and kind.samples_beside_proxies
]
ON_SPHERE = [LOSSES[name] for name in NAMES if name != "instance"]
KINDS = [NormalizedSoftmaxLoss, ProxyAnchorLoss, SoftTripleLoss]  # sample, proxy, center

LABELS = torch.tensor([1, 3, 1, 7, 3, 7, 1, 1])  # of class 5 is no sample
KNOWN = (1, 3, 5, 7)


@pytest.fixture
def rows(rng):
    return torch.randn(8, 4, generator=rng, dtype=torch.float64)


def make(kind, **options):
    return kind(4, 4, known=KNOWN, **options).double()


def leaves(loss, rows):
    return rows.clone().requires_grad_(), *loss.parameters()


@pytest.mark.parametrize("name", ["normalized_softmax", "proxy_anchor", "soft_triple"])
@pytest.mark.parametrize("method", [HDML(beta=0.0, hidden=8), LoOp(wait=9), HTL("ours"), HTL()])
def test_with_the_dial_off_a_run_is_that_of_the_loss_alone(method, name):
    train = some_records()
    ours, plain = (ready(kind, name, train, "classes") for kind in (method, Plain()))
    for each in (ours, plain):  # HTL's margins begin with the second epoch
        torch.manual_seed(1)
        steps(each, train, 0, each.batches(0)[:2])
    for found, expected in ((ours.embedder, plain.embedder), (ours.loss, plain.loss)):
        pairs = zip(found.parameters(), expected.parameters(), strict=True)
        assert all(torch.equal(*pair) for pair in pairs)


# -- HDML ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ON_SPHERE)
@pytest.mark.parametrize("hardest", [None, 2])
def test_a_perfect_generator_of_unmoved_negatives_gives_the_loss_itself(kind, hardest, rows):
    loss = make(kind)
    synthesis = Synthesis(loss, torch.nn.Identity(), hardest=hardest)
    made = synthesis(rows, LABELS, torch.tensor(1.0), torch.nn.Identity())
    found = loss.core(made.comparisons).sums.sum()
    assert_close(found, loss.core(loss.comparisons(rows, LABELS)).sums.sum())
    assert made.regenerated.shape == rows.shape


def test_proxies_that_are_the_positives_of_pairs_are_pulled_as_the_paper_pulls_them(rng):
    anchors, positives = torch.randn(2, 5, 4, generator=rng, dtype=torch.float64)
    both = torch.cat([anchors, positives])
    labels = torch.arange(5).repeat(2)
    lambda_ = torch.tensor(0.4)
    paper = Roles.of(NPairLoss(blocks=True), 10).pulled(both, labels, lambda_)
    ours = Roles.of(NormalizedSoftmaxLoss(5, 4), 5).pulled(both, labels, lambda_)
    assert_close(ours, paper)


@pytest.mark.parametrize("kind", KINDS)
def test_synthesis_has_the_gradient_of_finite_differences(kind, rows):
    loss = make(kind)
    synthesis = Synthesis(loss, torch.nn.Linear(4, 4).double())

    def value(z, _):
        return loss.core(synthesis(z, LABELS, torch.tensor(0.3), torch.tanh).comparisons).sums.sum()

    assert gradcheck(value, leaves(loss, rows), fast_mode=True)


# -- LoOp ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ON_SPHERE)
@pytest.mark.parametrize("anchors", ["samples", "pairs", "grid"])
def test_samples_on_their_proxies_leave_the_loss_as_it_is(kind, anchors):
    loss = make(kind)
    between = (
        ExpandedNegatives(loss) if anchors == "grid" else OptimalNegatives(loss, anchors=anchors)
    )
    places = torch.searchsorted(torch.tensor(KNOWN), LABELS)
    rows = loss.proxies.detach().flatten(1)[places][:, :4]
    assert_close(between(rows, LABELS), loss(rows, LABELS))


@pytest.mark.parametrize("kind", [ProxyNCALoss, ProxyAnchorLoss])
@pytest.mark.parametrize("anchors", ["samples", "pairs"])
def test_a_class_is_as_near_as_the_nearest_of_its_arcs(kind, anchors, rows):
    loss = make(kind).requires_grad_(requires_grad=False)
    made = OptimalNegatives(loss, anchors=anchors, overlap="arcs").comparisons(rows, LABELS)
    unit, proxies = (normalize(x, dim=1) for x in (rows, loss.proxies))
    squared = True if kind is ProxyNCALoss else None
    nearest = max if loss.proxies_first else min
    places = [KNOWN.index(label) for label in LABELS.tolist()]
    for i, own in enumerate(places):
        for z in set(range(4)) - {own}:
            sample = (unit[i : i + 1], proxies[own : own + 1])
            point = (proxies[z : z + 1], proxies[z : z + 1])
            arcs = [(unit[k : k + 1], proxies[z : z + 1]) for k, y in enumerate(places) if y == z]
            if anchors == "samples" and loss.proxies_first:
                values = [similarity(*point, *sample, squared)]
            else:
                anchor = sample if anchors == "pairs" else (unit[i : i + 1], unit[i : i + 1])
                values = [similarity(*anchor, *other, squared) for other in (*arcs, point)]
            found = made.negative[z, i] if loss.proxies_first else made.negative[i, z]
            assert found.item() == pytest.approx(nearest(float(value) for value in values))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("anchors", ["samples", "pairs"])
def test_arcs_have_the_gradient_of_finite_differences(kind, anchors, rows):
    loss = make(kind)
    between = OptimalNegatives(loss, anchors=anchors)
    assert gradcheck(lambda z, _: between(z, LABELS), leaves(loss, rows), fast_mode=True)


# -- ALA -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_equal_weights_give_the_gradient_of_the_loss_itself(name, rows):
    loss = make(LOSSES[name])
    given = leaves(loss, rows)
    scored = ProxyScoring(loss)(given[0], LABELS)
    whole = loss(given[0], LABELS)
    assert_close(scored.losses.sum() / len(rows), whole)
    found, expected = (grad(v, given) for v in (scored.losses.sum() / len(rows), whole))
    assert_close(found, expected)
    assert scored.losses.shape == scored.hardness.shape == scored.members.shape[:2]


def test_a_pair_of_a_sum_over_pairs_is_the_papers_tuple(rows):
    loss = make(P2SGradLoss, reduction="sum")
    given = leaves(loss, rows)
    pair = ProxyScoring(loss)(given[0], LABELS).losses[2, 1] / len(rows)
    term = torch.nn.functional.cosine_similarity(given[0][2], loss.proxies[1], dim=0).square() / 2
    for found, expected in zip(*(grad(v, given) for v in (pair, term)), strict=True):
        assert_close(found, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_slopes_are_those_of_finite_differences(kind, rows, rng):
    """Of Σ_T L(T), whose derivative is that of the loss."""
    loss = make(kind)
    along = torch.randn(rows.shape, generator=rng, dtype=torch.float64)
    found = slopes(ProxyScoring(loss), rows, along, LABELS).sum() / len(rows)
    step = 1e-6 * along
    difference = (loss(rows + step, LABELS) - loss(rows - step, LABELS)) / 2e-6
    assert_close(found, difference, rtol=1e-5, atol=1e-8)


# -- HTL -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["proxy_nca", "proxy_anchor", "cosface"])
def test_margins_of_classes_come_on_top_of_the_losss_own(name, rows):
    train = some_records()
    method = ready(HTL(beta=0.7), name, train)
    method.batches(1)
    tree, loss = method.tree, method.loss.double()
    margins = tree.thresholds[tree.levels().long()] - tree.spreads[:, None]
    apart = ~torch.eye(len(margins), dtype=torch.bool)
    margins = margins - margins[apart].mean()  # β falls out
    labels = torch.from_numpy(np.unique(train.labels))[[0, 3, 0, 11]]
    rows = torch.cat([rows[:4], rows[4:]], dim=1)
    places = torch.searchsorted(loss.proxy_labels, labels)
    c = loss.comparisons(rows, labels)
    if loss.proxies_first:
        expected = c.negative + margins[:, places] / 2
    else:
        shift = margins[places]
        expected = c.negative + shift / 2 if name == "cosface" else c.negative - shift
    core, seen = loss.core, []
    loss.core = lambda found: (seen.append(found.negative), core(found))[1]
    method.over_proxies(rows, labels)
    assert_close(seen[0], expected, check_dtype=False)


def test_embedding_expansion_without_points_compares_the_ends_of_pairs(rows):
    loss = make(ProxyAnchorLoss)
    found = ExpandedNegatives(loss, points=0).comparisons(rows, LABELS).negative
    ends = loss.distance(torch.cat([rows, loss.proxies]))
    of = torch.cat([LABELS, loss.proxy_labels])
    for i, own in enumerate(LABELS.tolist()):
        mine = torch.tensor([i, 8 + KNOWN.index(own)])
        for z, label in enumerate(KNOWN):
            if label != own:
                assert_close(found[z, i], ends[mine][:, of == label].max())

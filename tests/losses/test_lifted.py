"""LiftedStructureLoss against its three printed forms, written out one pair at a time."""

import inspect
import math
from dataclasses import replace

import pytest
import torch
from torch.autograd import gradcheck

from vicinal.errors import ConfigError
from vicinal.geometry import log_exp_mean
from vicinal.losses import Comparisons, LiftedStructureLoss
from vicinal.tuples import Triplets

LABELS = {
    "two each": [0, 0, 1, 1],
    "uneven": [0, 1, 1, 2, 2, 2, 3],
    "one class": [0, 0, 0],
    "none alike": [0, 1, 2],
}
FORMS = ["original", "min", "smooth"]


def by_hand(loss, embeddings, labels):
    """The forms as printed: no masks, no batching, no log-sum-exp trick."""
    n = range(len(labels))

    def distance(i, j):
        first, second = embeddings[i], embeddings[j]
        if loss.similarity == "cosine":
            return -float(first @ second / first.norm() / second.norm())
        if loss.normalize:
            first, second = first / first.norm(), second / second.norm()
        return math.dist(first.tolist(), second.tolist()) ** (2 if loss.squared else 1)

    terms = []
    for i in n:
        positives = [j for j in n if j != i and labels[j] == labels[i]]
        negatives = [k for k in n if labels[k] != labels[i]]
        if not negatives or not positives:
            continue
        if loss.form == "smooth":
            pull = math.log(sum(math.exp(distance(i, j)) for j in positives))
            push = math.log(sum(math.exp(-distance(i, k)) for k in negatives))
            terms.append(max(0.0, pull + push + loss.margin))
            continue
        for j in positives:
            around = [distance(a, k) for a in (i, j) for k in negatives]
            if loss.form == "min":
                terms.append(max(0.0, distance(i, j) + loss.margin - min(around)))
            else:
                crowd = math.log(sum(math.exp(loss.margin - d) for d in around))
                terms.append(max(0.0, distance(i, j) + crowd) ** 2 / 2)
    return sum(terms) / max(1, len(terms))


@pytest.fixture
def embeddings(rng):
    return lambda n, dim=3: torch.randn(n, dim, generator=rng, dtype=torch.float64)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize(
    "options", [{}, {"squared": True}, {"normalize": False}, {"similarity": "cosine"}]
)
def test_equals_the_printed_form(form, labels, options, embeddings):
    for margin in (1.0, -1.5):
        given, loss = embeddings(len(labels)), LiftedStructureLoss(margin, form=form, **options)
        assert loss(given, torch.tensor(labels)).item() == pytest.approx(
            by_hand(loss, given, labels)
        )


@pytest.mark.parametrize("form", FORMS)
def test_gradient_matches_finite_differences(form, embeddings):
    labels = torch.tensor([0, 0, 0, 1, 1, 2])
    loss = LiftedStructureLoss(form=form)
    assert gradcheck(lambda e: loss(e, labels), (embeddings(6).requires_grad_(),))


@pytest.mark.parametrize(
    ("form", "name"),
    [("original", "LiftedStructureLoss"), ("smooth", "GeneralizedLiftedStructureLoss")],
)
def test_equals_the_peer_in_value_and_gradient(form, name, embeddings):
    peer = getattr(pytest.importorskip("pytorch_metric_learning.losses"), name)()
    given, labels = embeddings(40, 8).requires_grad_(), torch.arange(40) // 4
    values = LiftedStructureLoss(form=form)(given, labels), peer(given, labels)
    torch.testing.assert_close(*values)
    torch.testing.assert_close(*(torch.autograd.grad(value, given)[0] for value in values))


def test_collapse():
    """All distances 0: the logarithm of the number of negatives of both members, or the margin."""
    given, labels = torch.ones(8, 3), torch.arange(8) // 2
    values = {form: LiftedStructureLoss(0.7, form=form)(given, labels).item() for form in FORMS}
    assert values["original"] == pytest.approx((0.7 + math.log(12)) ** 2 / 2)
    assert values["min"] == pytest.approx(0.7)
    assert values["smooth"] == pytest.approx(0.7 + math.log(6))


def test_the_original_bounds_the_square_of_the_min_form(embeddings):
    """log Σ exp is at least the maximum."""
    given, labels = embeddings(12), torch.arange(12) // 3
    soft, hard = (
        LiftedStructureLoss(form=form, reduction="none")(given, labels)
        for form in ("original", "min")
    )
    assert (
        soft >= hard.square() / 2
    ).all()  # each the mean over an anchor's pairs: that of squares is the greater


def test_the_smooth_form_is_the_log_exp_means_of_anml_less_the_counts(embeddings):
    """γ1 = -1 and γ2 = 1 of Eq. (19), sums in place of means; far dials give max D_p - min D_n."""
    given, labels = embeddings(12), torch.arange(12) // 3
    loss = LiftedStructureLoss(form="smooth", similarity="cosine", reduction="none")
    c = loss.comparisons(given, labels)
    means = log_exp_mean(c.positive, c.keep_positive, -1.0) - log_exp_mean(
        c.negative, c.keep_negative, 1.0
    )
    torch.testing.assert_close(
        loss(given, labels), (means + math.log(2) + math.log(9) + 1.0).relu()
    )
    sharp = replace(c, positive=1e4 * c.positive, negative=1e4 * c.negative)
    far = LiftedStructureLoss(0.0, form="smooth").core(sharp).sums / 1e4
    hardest = c.positive.amax(dim=1) - c.negative.masked_fill(~c.keep_negative, torch.inf).amin(
        dim=1
    )
    torch.testing.assert_close(far, hardest.relu(), atol=1e-3, rtol=0)


def test_both_members_of_a_pair_cost_the_same(embeddings):
    """The pair (i, j) is the pair (j, i)."""
    for form in ("original", "min"):
        each = LiftedStructureLoss(form=form, reduction="none")(embeddings(8), torch.arange(8) // 2)
        torch.testing.assert_close(each[::2], each[1::2])


def test_a_positives_own_negatives_are_found_among_reference_rows(embeddings):
    """A memory, of which the anchor's positive p has a nearer negative than the anchor itself."""
    memory = torch.tensor([[1.0], [1.5], [9.0]])
    loss = LiftedStructureLoss(0.0, form="min", normalize=False)
    value = loss(torch.tensor([[0.0]]), torch.tensor([0]), memory, torch.tensor([0, 1, 2]))
    assert value.item() == pytest.approx(1.0 - 0.5)


def test_an_explicit_triplet_is_seen_from_both_ends():
    given, triplet = torch.tensor([[0.0], [3.0], [4.0]]), Triplets(*torch.tensor([[0], [1], [2]]))
    for form, expected in (
        ("min", 3.0 - 1.0),
        ("original", (3 + math.log(math.exp(-4) + math.exp(-1))) ** 2 / 2),
    ):
        value = LiftedStructureLoss(0.0, form=form, normalize=False).on_triplets(given, triplet)
        assert value.item() == pytest.approx(expected)


def test_arc_distances_of_pairs_enter_the_core_as_rows_without_partner():
    """LoOp: a row is a positive pair (i, j), its negatives are the distances d_ijkl of its arc to
    other arcs."""
    pair, arcs = torch.tensor([[0.9], [0.2]]), torch.tensor([[0.5, 0.2], [0.8, 0.7]])
    rows = Comparisons(pair, torch.ones_like(pair).bool(), arcs, torch.ones_like(arcs).bool())
    torch.testing.assert_close(
        LiftedStructureLoss(0.1, form="min").core(rows).sums, torch.tensor([0.8, 0.0])
    )
    soft = (pair.squeeze(1) + 0.1 + (-arcs).logsumexp(dim=1)).relu().square() / 2
    torch.testing.assert_close(LiftedStructureLoss(0.1).core(rows).sums, soft)


def test_synthetic_negatives_of_each_anchor_are_those_of_its_partner_too(embeddings, rng):
    given, labels, loss = embeddings(4), torch.tensor([0, 0, 1, 1]), LiftedStructureLoss()
    synthetic = torch.randn(4, 5, 3, generator=rng, dtype=torch.float64)
    negative = loss.distance(given, synthetic)
    c = replace(
        loss.comparisons(given, labels),
        negative=negative,
        keep_negative=torch.ones_like(negative).bool(),
    )
    crowd = torch.cat([-negative, -negative[[1, 0, 3, 2]]], dim=1).logsumexp(dim=1)
    expected = (c.positive.squeeze(1) + crowd + 1.0).relu().square() / 2
    torch.testing.assert_close(loss.core(c).sums, expected)


@pytest.mark.parametrize("form", FORMS)
def test_an_anchor_that_lacks_one_kind_does_not_count_in_the_mean(form):
    there, missing = (
        torch.tensor([[True], [True], [False]]),
        torch.tensor([[True], [False], [True]]),
    )
    numbers = torch.full((3, 1), 0.5)
    terms = LiftedStructureLoss(form=form).core(Comparisons(numbers, there, numbers, missing))
    assert (
        terms.counts.tolist() == [1, 0, 0]
        and terms.sums[1:].tolist() == [0, 0]
        and terms.sums[0] > 0
    )


@pytest.mark.parametrize("form", FORMS)
def test_weights(form, embeddings, rng):
    """A negative's weight multiplies its exponential (of the min form: its pair), a positive's its
    pair."""
    loss, labels = LiftedStructureLoss(form=form), torch.arange(8) // 2
    c = loss.comparisons(embeddings(8), labels)
    weights = torch.rand(c.positive.shape, generator=rng, dtype=torch.float64)
    weighted = loss.core(
        replace(c, positive_weights=weights, negative_weights=torch.full_like(c.negative, 2.0))
    ).sums
    if form == "min":
        torch.testing.assert_close(weighted, 2 * weights.squeeze(1) * loss.core(c).sums)
        return
    twice = replace(c, negative=c.negative.repeat(1, 2), keep_negative=c.keep_negative.repeat(1, 2))
    if form == "smooth":
        twice = replace(twice, positive=c.positive + weights.log())
        torch.testing.assert_close(weighted, loss.core(twice).sums)
    else:
        torch.testing.assert_close(weighted, weights.squeeze(1) * loss.core(twice).sums)


def test_stays_finite_where_a_plain_exponential_overflows(embeddings):
    for form in FORMS:
        given = (1e4 * embeddings(8)).float().requires_grad_()
        loss = LiftedStructureLoss(form=form, normalize=False)(given, torch.arange(8) // 2)
        assert loss.isfinite() and torch.autograd.grad(loss, given)[0].isfinite().all()


def test_unknown_names_are_rejected_with_the_nearest_one():
    for option, wrong, near in (("form", "smoth", "smooth"), ("similarity", "cosinus", "cosine")):
        with pytest.raises(ConfigError, match=f"did you mean '{near}'"):
            inspect.unwrap(LiftedStructureLoss.__init__)(LiftedStructureLoss(), **{option: wrong})

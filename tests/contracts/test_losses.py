"""What every loss must do. The suite walks the package: a new file is covered before its author
writes a test.

Each loss is tried as it comes and with each of its switches turned: every value of a ``Literal``,
both of a ``bool``, None where it may be None.
"""

import copy
import inspect
import re
import types
import typing
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.walk import LargestTensor, kinds
from torch.autograd import grad, gradcheck, gradgradcheck
from torch.testing import assert_close

import vicinal.losses
from vicinal.arguments import build, describe
from vicinal.documentation import arguments_of
from vicinal.errors import ConfigError, DataError
from vicinal.losses import CircleLoss, Loss, ProxyLoss, TripletLoss, reduce
from vicinal.losses import loss as base
from vicinal.tuples import Triplets

# What a loss may ask for without a default, by the name of the argument; batches here have up to 12
# classes in 3 dimensions.
ARGUMENTS = {"classes": 12, "dim": 3, "class_boundaries": 12}
ANCHORED_ON_PROXIES = {"ProxyAnchorLoss"}  # one value for each class, not for each row
ALSO_ON_PROXIES = {"PotentialFieldLoss"}  # one value for each row and then for each proxy
WEIGHTS_ALIKE = {"ClusteringLoss", "RankedListLoss"}  # with a dial at 0
POOLED = {
    "IntraPairVarianceLoss",
    "ThresholdConsistentMarginLoss",
}  # means over all anchors stand in the formula
OF_FOURTH_DEGREE = {
    "VICRegLoss"
}  # squares of covariances: of rows of length 1000 a gradient leaves float16


def switched(kind):
    """Arguments that turn one switch each."""
    hints = typing.get_type_hints(kind.__init__)
    for name, parameter in inspect.signature(kind).parameters.items():
        hint = hints[name]
        if name in ("reduction", "divided") or (
            name in ("squared", "normalize") and kind is not TripletLoss
        ):
            continue  # what a distance does takes no other path in another loss
        values = ()
        if typing.get_origin(hint) is typing.Literal:
            values = typing.get_args(hint)
        elif hint is bool:
            values = (False, True)
        elif typing.get_origin(hint) in (typing.Union, types.UnionType):
            maybe = type(None) in typing.get_args(hint)
            values = (None, *([ARGUMENTS[name]] if name in ARGUMENTS else [])) if maybe else ()
        yield from ({name: value} for value in values if value != parameter.default)


def required(kind):
    missing = [n for n, p in inspect.signature(kind).parameters.items() if p.default is p.empty]
    unknown = [name for name in missing if name not in ARGUMENTS]
    assert not unknown, (
        f"{kind.__name__} asks for {unknown}: give defaults, or name values in ARGUMENTS"
    )
    return {name: ARGUMENTS[name] for name in missing}


KINDS = kinds(vicinal.losses, Loss)
CASES = [(kind, {**required(kind), **extra}) for kind in KINDS for extra in ({}, *switched(kind))]
DEFAULTS = [
    (kind, arguments)
    for kind, arguments in CASES
    if arguments == required(kind) or "blocks" in arguments
]


def name_of(case):
    kind, arguments = case
    return kind.__name__ + "".join(f"-{name}={value}" for name, value in arguments.items())


@pytest.fixture(params=CASES, ids=name_of)
def make(request):
    kind, arguments = request.param
    return lambda **more: kind(**{**arguments, **more})


@pytest.fixture
def loss(make):
    return make()


# What does not depend on the formula takes no other path with a switch turned.
each_kind = pytest.mark.parametrize("make", DEFAULTS, ids=name_of, indirect=True)


# Blocks [a; p; n] of disjoint triplets, pairs of classes 0 to 5, and halves with pairs among them:
# fits any layout.
LABELS = torch.tensor([0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 4, 5])


@pytest.fixture
def embeddings(rng):
    return torch.randn(12, 3, generator=rng, dtype=torch.float64)


def gradient_of(loss, embeddings, labels, *reference):
    embeddings = embeddings.detach().clone().requires_grad_()
    value = loss(embeddings, labels, *reference)
    (gradient,) = grad(value.sum(), embeddings)
    return value.detach(), gradient


def with_state_of(loss, other):
    """The same learnt parameters, where a loss has any."""
    loss.load_state_dict(other.state_dict())
    return loss


def test_the_loss_that_the_guide_shows_is_the_one_that_is_there():
    root = Path(__file__).parents[2]
    page = (root / "docs/howto/adding_a_loss.md").read_text(encoding="utf-8")
    # The second is a recipe, see test_readme.py.
    code, _ = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    assert code == (root / "src/vicinal/losses/contrastive.py").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_is_exported_and_documents_its_paper_and_its_arguments(kind):
    assert kind in vicinal.losses.LOSSES.values() and kind.__name__ in vicinal.losses.__all__
    assert getattr(vicinal.losses, kind.__name__) is kind
    assert re.search(r"(19|20)\d\d", inspect.getmodule(kind).__doc__), "its file names no year"
    summary, _, rest = kind.__doc__.partition("\n")
    assert re.search(r"\(.*(19|20)\d\d\): ", summary), f"line 1 names no paper: {summary}"
    shared = ProxyLoss.__doc__ if issubclass(kind, ProxyLoss) else ""  # told once
    own, of_all = (
        re.findall(r"^        (\w+): ", text.partition("    Args:\n")[2], flags=re.MULTILINE)
        for text in (rest, shared)
    )
    assert len(set(own)) == len(own)
    assert {*own, *of_all} == {*inspect.signature(kind).parameters} <= {*arguments_of(kind)}


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.__name__ not in WEIGHTS_ALIKE])
def test_temperatures_and_scales_are_above_0(kind):
    for name in {"temperature", "gamma", "gamma1", "gamma2", "scale"} & {*kind.__annotations__}:
        with pytest.raises(ConfigError, match=rf"{name} must be above 0, got 0"):
            inspect.unwrap(kind.__init__)(kind(**required(kind)), **required(kind), **{name: 0.0})


def test_reductions_follow_torch(make, embeddings):
    mean, total, each = (make(reduction=how) for how in ("mean", "sum", "none"))
    with_state_of(total, mean), with_state_of(each, mean)
    sums, counts = mean.core(mean.comparisons(embeddings, LABELS))
    values = each(embeddings, LABELS)
    assert mean(embeddings, LABELS).shape == total(embeddings, LABELS).shape == ()
    assert values.shape == sums.shape and (
        getattr(mean, "blocks", False)
        or type(mean).__name__ in ALSO_ON_PROXIES
        or len(values) == len(LABELS)
    )
    assert_close(total(embeddings, LABELS), sums.sum())
    assert_close(mean(embeddings, LABELS), (values * counts).sum() / counts.sum())
    assert mean(embeddings, LABELS) > 0


@each_kind
def test_a_row_of_nan_is_heard(loss, embeddings):
    """Were it mined away as a row that asks nothing, a network that has diverged would look as if
    it had learnt all."""
    embeddings[9] = torch.nan
    assert loss(embeddings, LABELS).isnan()


@each_kind
def test_order_of_rows_does_not_matter(make, embeddings):
    each = make(reduction="none")
    values = each(embeddings, LABELS)
    rows = min(len(values), len(LABELS))
    blocks = len(LABELS) // rows  # rows of one tuple move together
    within = torch.randperm(rows, generator=torch.Generator().manual_seed(1))
    order = torch.cat([within + block * rows for block in range(blocks)])
    moved = torch.cat([values[within], values[rows:]])
    expected = values if type(each).__name__ in ANCHORED_ON_PROXIES else moved
    assert_close(each(embeddings[order], LABELS[order]), expected)


@each_kind
def test_length_does_not_matter_on_the_unit_sphere(loss, embeddings):
    if not loss.distance.normalize:
        pytest.skip("sees lengths")
    longer = embeddings * torch.arange(1, 13)[:, None]
    assert_close(loss(longer, LABELS), loss(embeddings, LABELS))


def test_gradient_matches_finite_differences_in_both_modes(loss, embeddings):
    if getattr(loss, "detach_weights", False):
        pytest.skip("weights that pass no gradient: with `detach_weights=False` they do")
    embeddings.requires_grad_()
    assert gradcheck(
        lambda e: loss(e, LABELS), (embeddings,), check_forward_ad=True, fast_mode=True
    )
    assert gradgradcheck(lambda e: loss(e, LABELS), (embeddings,), fast_mode=True)
    assert gradient_of(loss, embeddings, LABELS)[1].abs().sum() > 0


@pytest.mark.parametrize("kind", [k for k in KINDS if "detach_weights" in k.__annotations__])
def test_weights_without_a_gradient_are_constants_of_the_same_value(kind, embeddings):
    """With ``detach_weights=False`` the gradient is that of finite differences, see above."""
    held, learnt = (
        gradient_of(kind(detach_weights=detach), embeddings, LABELS) for detach in (True, False)
    )
    assert_close(held[0], learnt[0])
    assert held[1].any() and not torch.allclose(held[1], learnt[1])


def test_gradient_reaches_its_parameters(loss, embeddings):
    parameters = dict(loss.double().named_parameters())
    if not parameters:
        pytest.skip("learns nothing of its own")

    def value(*given):
        named = dict(zip(parameters, given, strict=True))
        return torch.func.functional_call(loss, named, (embeddings, LABELS))

    given = [parameter.detach().clone().requires_grad_() for parameter in parameters.values()]
    assert gradcheck(value, given, fast_mode=True)
    assert all(gradient.any() for gradient in grad(value(*given), given))


@each_kind
def test_a_large_batch_keeps_only_its_inputs_and_gives_the_same(loss, embeddings, monkeypatch):
    expected = gradient_of(loss, embeddings, LABELS)
    monkeypatch.setattr(base, "BLOCK", 0)
    assert_close(gradient_of(loss, embeddings, LABELS), expected)


@each_kind
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(loss, embeddings, dtype):
    # Squares of the latter overflow float16.
    for scale in (1,) if type(loss).__name__ in OF_FOURTH_DEGREE else (1, 1000):
        coarse = (scale * embeddings).to(dtype)
        value, gradient = gradient_of(loss, coarse, LABELS)
        exact, exact_gradient = gradient_of(loss, coarse.float(), LABELS)
        assert value.dtype == torch.float32 and gradient.dtype == dtype
        assert torch.equal(value, exact)
        assert torch.equal(gradient, exact_gradient.to(dtype))
        assert value.isfinite() and gradient.isfinite().all()


@each_kind
@pytest.mark.parametrize("length", [1e20, 1e-20])
def test_rows_whose_squares_leave_float32_cost_what_they_cost_in_float64(make, embeddings, length):
    rows = (length * embeddings).float()
    takes = "normalize" in inspect.signature(type(make())).parameters
    for loss in (make(), *([make(normalize=False)] if takes else [])):
        value, gradient = gradient_of(loss, rows, LABELS)
        assert_close(value, loss(rows.double(), LABELS).float())
        assert not value.isnan() and not gradient.isnan().any()


@each_kind
def test_autocast_changes_nothing(loss, embeddings):
    embeddings = embeddings.float()
    expected = loss(embeddings, LABELS)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(loss(embeddings, LABELS), expected)


DEGENERATE = {
    "one class": lambda e, y: (e, y * 0),
    "no two of a class": lambda e, y: (e, torch.arange(len(y))),
    "all embeddings equal": lambda e, y: (e * 0 + 1, y),
    "all embeddings 0": lambda e, y: (e * 0, y),
    "a duplicate": lambda e, y: (e[[0, 1, 2, 3, 0, 1, 1, 3, 4, 5, 4, 5]], y),
    "one triplet": lambda e, y: (e[:6], y[[0, 0, 0, 0, 1, 2]]),
    "tiny": lambda e, y: (e * 1e-30, y),
    "huge": lambda e, y: (e * 1e6, y),
    "no rows": lambda e, y: (e[:0], y[:0]),
}


def test_degenerate_batches_have_a_finite_value_and_gradient(make, embeddings):
    for reduction in ("mean", "none"):
        for state, degenerate in DEGENERATE.items():
            value, gradient = gradient_of(
                make(reduction=reduction), *degenerate(embeddings.float(), LABELS)
            )
            assert value.isfinite().all() and gradient.isfinite().all(), state


def test_a_batch_without_terms_costs_0_and_passes_gradient_0(loss, embeddings):
    c = loss.comparisons(embeddings.requires_grad_(), LABELS)
    empty = replace(
        c,
        keep_positive=c.keep_positive & False,
        keep_negative=c.keep_negative & False,
        penalty=None,
    )
    value = reduce(loss.core(empty), "sum")
    assert value == 0
    assert grad(value, embeddings)[0].eq(0).all()


@each_kind
def test_reference_rows_count_as_if_they_stood_in_the_batch(make, embeddings):
    """A memory or the other processes: the anchors' values are those of one large batch."""
    each = make(reduction="none")
    if getattr(each, "blocks", False) or not each.takes_reference:
        pytest.skip("the batch is not all rows against all")
    few = [] if type(each).__name__ in POOLED else [torch.tensor([2, 7, 9])]
    for own in (torch.arange(12), *few):  # an anchor's value may depend on the other anchors
        found = each(embeddings[own], LABELS[own], embeddings, LABELS, own)
        assert_close(found, each(embeddings, LABELS)[own])


@each_kind
def test_a_loss_that_compares_with_no_rows_rejects_a_reference(loss, embeddings):
    if loss.takes_reference:
        pytest.skip("takes one")
    with pytest.raises(ConfigError, match="`reference` rows have no meaning"):
        loss(embeddings, LABELS, embeddings, LABELS)


@each_kind
def test_a_gallery_has_no_own_rows(make, embeddings):
    if not make().takes_reference:
        pytest.skip("rejects one")
    each = make(reduction="none")
    (anchors, gallery) = embeddings.chunk(2)
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    gallery_labels = torch.tensor([0, 1, 2, 0, 1, 2])
    value, gradient = gradient_of(each, anchors, labels, gallery, gallery_labels)
    assert value.shape == (6,) and value.isfinite().all() and gradient.isfinite().all()
    if type(each).__name__ not in POOLED:
        alone = each(anchors[:1], labels[:1], gallery, gallery_labels)
        assert_close(alone, value[:1], msg="an anchor's value is its own")
    assert gradient_of(each, anchors, labels, gallery[:0], gallery_labels[:0])[1].isfinite().all()


@each_kind
def test_no_tensor_is_larger_than_a_few_matrices_of_pairs(loss, rng):
    n = 210  # more than the proxies of 12 classes with 15 each
    labels = torch.arange(n) // 70  # so that n x n x (K - 1) would be 69 matrices
    embeddings = torch.randn(n, 3, generator=rng, requires_grad=True)
    with LargestTensor() as largest:
        loss(embeddings, labels).backward()
    assert n <= largest.numbers <= 4 * n * n


def test_what_is_not_kept_has_no_influence(loss, embeddings):
    c = loss.comparisons(embeddings, LABELS)
    rubbish = replace(
        c,
        positive=c.positive.masked_fill(~c.keep_positive, 1e9),
        negative=c.negative.masked_fill(~c.keep_negative, -1e9),
    )
    for found, expected in zip(loss.core(rubbish), loss.core(c), strict=True):
        assert_close(found, expected)


def test_explicit_triplets_give_one_value_each(make, embeddings):
    each = make(reduction="none")
    triplets = Triplets(*torch.tensor([[0, 4, 1], [4, 0, 5], [1, 2, 8]]))
    if not each.takes_reference:
        with pytest.raises(ConfigError, match="no meaning"):
            each.on_triplets(embeddings, triplets)
        return
    values = each.on_triplets(embeddings, triplets)
    assert values.shape == (3,) and values.isfinite().all()
    assert each.on_triplets(embeddings, triplets, LABELS).isfinite().all()


def test_keeps_its_arguments_and_is_rebuilt_from_its_description(loss):
    again = build(describe(loss), {kind.__name__: kind for kind in KINDS})
    assert describe(again) == describe(loss)
    assert all(f"{name}=" in repr(loss) for name in inspect.signature(type(loss)).parameters)


def test_mismatched_input_is_rejected_with_both_shapes(embeddings):
    loss = TripletLoss()
    # Without the shape checks of the tests, which would come first.
    forward = inspect.unwrap(Loss.forward)
    with pytest.raises(DataError, match=r"\[12, 3\] and \[11\]"):
        forward(loss, embeddings, LABELS[:-1])
    with pytest.raises(DataError, match="got `reference` alone"):
        forward(loss, embeddings, LABELS, embeddings)
    with pytest.raises(DataError, match=r"\[m 3\] with labels \[m\], got \[12, 2\] and \[12\]"):
        forward(loss, embeddings, LABELS, embeddings[:, :2], LABELS)
    with pytest.raises(DataError, match="got no `reference`"):
        forward(loss, embeddings, LABELS, None, None, LABELS)
    with pytest.raises(DataError, match=r"each of 12 anchors, got \[2\]"):
        forward(loss, embeddings, LABELS, embeddings, LABELS, LABELS[:2])


@pytest.mark.gpu
def test_the_device_agrees_with_the_host(loss, embeddings):
    # An exponent of gamma x similarity (circle loss) carries the last bit of the similarity on as
    # gamma of them.
    sharpness = loss.gamma if isinstance(loss, CircleLoss) else None
    for dtype in (torch.float64, torch.float32):
        on_host = gradient_of(loss, embeddings.to(dtype), LABELS)
        on_device = gradient_of(
            copy.deepcopy(loss).cuda(), embeddings.to(dtype).cuda(), LABELS.cuda()
        )
        bound = None if sharpness is None else sharpness * torch.finfo(dtype).eps
        assert_close(tuple(part.cpu() for part in on_device), on_host, rtol=bound, atol=bound)

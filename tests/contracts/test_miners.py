"""What every miner must do. The suite walks the package: a new file is covered before its author
writes a test.

A miner is a function of embeddings and labels that gives triplets or pairs; each is tried with
every rule it knows.
"""

import inspect
import typing

import pytest
import torch
from tests.listed import triplets
from tests.walk import LargestTensor, defined
from torch.utils._pytree import tree_leaves

import vicinal.miners
from vicinal.errors import DataError
from vicinal.miners import MINERS, MinedPairs
from vicinal.tuples import Triplets


def is_miner(each):
    if not inspect.isfunction(each) or each.__name__.startswith("_"):
        return False
    mines = typing.get_type_hints(each).get("return") in (Triplets, MinedPairs)
    return mines and "embeddings" in inspect.signature(each).parameters


def switched(kind):
    hints = typing.get_type_hints(kind)
    for name, parameter in inspect.signature(kind).parameters.items():
        if typing.get_origin(hints[name]) is typing.Literal:
            yield from (
                {name: value}
                for value in typing.get_args(hints[name])
                if value != parameter.default
            )
        elif hints[name] is bool:
            yield {name: not parameter.default}


KINDS = [each for each in defined(vicinal.miners) if is_miner(each)]
CASES = [(kind, extra) for kind in KINDS for extra in ({}, *switched(kind))]


@pytest.fixture(
    params=CASES,
    ids=lambda case: case[0].__name__ + "".join(f"-{k}={v}" for k, v in case[1].items()),
)
def mine(request):
    kind, extra = request.param

    def run(embeddings, labels, check_shapes=True, **more):
        if "generator" in inspect.signature(kind).parameters:
            more = {"generator": torch.Generator().manual_seed(3), **more}
        return (kind if check_shapes else inspect.unwrap(kind))(embeddings, labels, **extra, **more)

    run.draws = (
        "generator" in inspect.signature(kind).parameters
        and extra.get("rule", "random") == "random"
    )
    return run


LABELS = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 2, 2, 3])


@pytest.fixture
def embeddings(rng):
    return torch.randn(11, 3, generator=rng)


def as_set(found):
    if isinstance(found, MinedPairs):
        sides = (zip(*(part.tolist() for part in pairs), strict=True) for pairs in found)
        return {(kind, *pair) for kind, pairs in enumerate(sides) for pair in pairs}
    return set(zip(*(part.tolist() for part in found), strict=True))


def columns(found):
    return tree_leaves(tuple(found))


def test_all_miners_are_found_and_exported():
    assert {kind.__name__: kind for kind in KINDS} == MINERS
    assert all(getattr(vicinal.miners, name) is kind for name, kind in MINERS.items())
    assert {*MINERS} < {*vicinal.miners.__all__}


def test_what_is_mined_fits_the_labels_and_comes_once(mine, embeddings):
    found = mine(embeddings, LABELS)
    rows = as_set(found)
    assert rows and all(column.dtype == torch.long and len(column) for column in columns(found))
    if isinstance(found, MinedPairs):
        assert all((LABELS[a] == LABELS[b]) == (kind == 0) and a != b for kind, a, b in rows)
        assert len(rows) == sum(len(pairs.anchor) for pairs in found)
    else:
        assert rows <= as_set(triplets(LABELS)) and len(rows) == len(found.anchor)


def test_equal_seeds_give_equal_tuples_and_inputs_stay_as_they_are(mine, embeddings):
    before = embeddings.clone()
    first = mine(embeddings.requires_grad_(), LABELS)
    again = mine(embeddings, LABELS)
    assert all(torch.equal(a, b) for a, b in zip(columns(first), columns(again), strict=True))
    assert torch.equal(embeddings, before) and not any(
        column.requires_grad for column in columns(first)
    )


def test_order_of_rows_does_not_matter(mine, embeddings):
    if mine.draws:
        pytest.skip("draws row by row")
    order = torch.randperm(11, generator=torch.Generator().manual_seed(1))
    plain = mine(embeddings, LABELS)
    moved = mine(embeddings[order], LABELS[order])
    back = type(moved)(
        *(type(p)(*(order[c] for c in p)) if isinstance(p, tuple) else order[p] for p in moved)
    )
    assert as_set(back) == as_set(plain)


DEGENERATE = {
    "one class": lambda e, y: (e, y * 0),
    "no two of a class": lambda e, y: (e, torch.arange(len(y))),
    "one row": lambda e, y: (e[:1], y[:1]),
    "no rows": lambda e, y: (e[:0], y[:0]),
}


@pytest.mark.parametrize("state", DEGENERATE)
def test_where_there_is_nothing_to_choose_nothing_is_chosen(mine, embeddings, state):
    rows, labels = DEGENERATE[state](embeddings, LABELS)
    found = mine(rows, labels)
    assert all(column.dtype == torch.long for column in columns(found))
    assert as_set(found) == set()


def test_any_integer_is_a_label_and_any_float_an_embedding(mine, embeddings):
    expected = as_set(mine(embeddings.half().float(), LABELS))
    assert as_set(mine(embeddings.half(), LABELS)) == expected
    for dtype in (torch.uint8, torch.int16, torch.int32):
        assert as_set(mine(embeddings.half().float(), LABELS.to(dtype))) == expected


def test_the_batch_is_its_own_reference(mine, embeddings):
    themselves = {"reference": embeddings, "reference_labels": LABELS, "own": torch.arange(11)}
    assert as_set(mine(embeddings, LABELS, **themselves)) == as_set(mine(embeddings, LABELS))


def test_reference_rows_are_numbered_among_themselves(mine, embeddings):
    own = torch.tensor([9, 4])
    found = mine(
        embeddings[own], LABELS[own], reference=embeddings, reference_labels=LABELS, own=own
    )
    back = type(found)(
        *(
            type(p)(own[p[0]], *p[1:]) if isinstance(p, tuple) else (own[p] if i == 0 else p)
            for i, p in enumerate(found)
        )
    )
    everything = as_set(mine(embeddings, LABELS))
    rows = as_set(back)
    if mine.draws:
        assert rows <= as_set(triplets(LABELS))
    else:
        anchor = 1 if isinstance(found, MinedPairs) else 0
        assert rows == {row for row in everything if row[anchor] in own.tolist()}


def test_no_tensor_is_larger_than_a_few_matrices_of_pairs(mine, rng):
    n = 60
    with LargestTensor() as largest:
        found = mine(torch.randn(n, 3, generator=rng), torch.arange(n) // 20)
    # The list itself has its length.
    assert n <= largest.numbers <= max(4 * n * n, 2 * len(columns(found)[0]))


def test_mismatched_input_is_rejected_with_both_shapes(mine, embeddings):
    with pytest.raises(DataError, match=r"\[11, 3\] and \[10\]"):
        mine(embeddings, LABELS[:-1], check_shapes=False)
    with pytest.raises(DataError, match="got `reference` alone"):
        mine(embeddings, LABELS, reference=embeddings)


@pytest.mark.gpu
def test_the_device_agrees_with_the_host(mine, embeddings):
    assert as_set(mine(embeddings.double().cuda(), LABELS.cuda())) == as_set(
        mine(embeddings.double(), LABELS)
    )


def test_a_misspelt_setting_is_no_reference(mine):
    with pytest.raises(TypeError, match="refrence"):
        mine(torch.rand(6, 3), torch.arange(6) // 2, refrence=torch.rand(6, 3))

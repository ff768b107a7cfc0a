"""What every sampler must do. The suite walks the package: a new file is covered before its author
writes a test."""

import inspect

import numpy as np
import pytest
import torch
from tests.walk import kinds
from torch.utils.data import DataLoader, TensorDataset

import vicinal.samplers
from vicinal.errors import ConfigError
from vicinal.samplers import BatchSampler

# What a sampler may ask for, by the name of the argument; the labels here have 9 classes of 2 to 9
# samples.
ARGUMENTS = {
    "classes": 3,
    "per_class": 2,
    "triplets": 2,
    "training_classes": 3,
    "validation_classes": 2,
    "seed": 5,
}
ARGUMENTS |= {"anchors": 1, "neighborhood": 3}
LABELS = np.random.default_rng(0).permutation(
    np.repeat(np.arange(9) * 10 - 7, [2, 3, 4, 5, 5, 6, 7, 8, 9])
)


@pytest.fixture(params=kinds(vicinal.samplers, BatchSampler), ids=lambda kind: kind.__name__)
def kind(request):
    return request.param


@pytest.fixture
def make(kind):
    asked = inspect.signature(kind).parameters
    missing = [
        n for n, p in asked.items() if p.default is p.empty and n not in ("labels", *ARGUMENTS)
    ]
    assert not missing, (
        f"{kind.__name__} asks for {missing}: give defaults, or name values in ARGUMENTS"
    )
    given = {name: value for name, value in ARGUMENTS.items() if name in asked}
    return lambda labels=LABELS, **more: kind(labels, **{**given, **more})


def test_is_exported(kind):
    assert (
        getattr(vicinal.samplers, kind.__name__, None) is kind
        and kind.__name__ in vicinal.samplers.__all__
    )


def test_an_epoch_is_a_function_of_seed_and_number_alone(make):
    sampler = make()
    third = sampler.epoch(3)
    sampler.epoch(0), sampler.set_epoch(9), list(sampler)
    assert sampler.epoch(3) == third == make().epoch(3)
    assert sampler.epoch(4) != third != make(seed=6).epoch(3)
    assert make(seed=-1).epoch(0) != make(seed=1).epoch(0)


def test_batches_are_of_one_size_and_repeat_no_row(make):
    sampler = make()
    for epoch in range(20):
        batches = sampler.epoch(epoch)
        assert len(batches) == len(sampler)
        for batch in batches:
            assert len(batch) == sampler.batch_size
            assert len(set(batch)) == len(batch)
            assert all(type(row) is int and 0 <= row < len(LABELS) for row in batch)


def test_an_epoch_is_as_long_as_the_data_fills_once_or_as_asked(make):
    assert len(make()) == len(LABELS) // make().batch_size
    assert len(make(batches=17).epoch(0)) == len(make(batches=17)) == 17


def test_every_row_comes_up(make):
    sampler = make()
    shown = [{row for batch in sampler.epoch(epoch) for row in batch} for epoch in range(40)]
    assert set().union(*shown) == set(range(len(LABELS)))


def test_drives_a_torch_loader(make):
    sampler = make()
    data = TensorDataset(torch.arange(len(LABELS)))
    loader = DataLoader(data, batch_sampler=sampler)
    sampler.set_epoch(2)
    assert [rows.tolist() for (rows,) in loader] == sampler.epoch(2)
    assert len(loader) == len(sampler)


def test_each_pass_of_a_loader_is_the_next_epoch(make):
    """A loop that never calls ``set_epoch`` must not see the same batches for ever."""
    sampler = make()
    assert [list(sampler) for _ in range(3)] == [sampler.epoch(number) for number in range(3)]
    sampler.set_epoch(1)
    assert list(sampler) == sampler.epoch(1)


def test_too_few_classes_are_rejected_with_the_numbers(make):
    with pytest.raises(ConfigError, match=r"but only 1 of the 3 classes here have that many"):
        make([0, 0, 1, 2])
    with pytest.raises(ConfigError, match=r"batches must be at least 1 and at most 1e6, got 0"):
        make(batches=0)


def test_classes_with_too_few_samples_are_left_out_and_said(make):
    assert make().note is None
    sampler = make(np.concatenate([LABELS, [1000, 1001]]))
    assert (
        sampler.note
        == "2 of 11 classes have fewer than 2 samples and are left out of training batches."
    )
    assert not {len(LABELS), len(LABELS) + 1} & {row for batch in sampler.epoch(0) for row in batch}

"""Windowed means: complete windows only, NaN skipped, no graph kept."""

import pytest
import torch

from vicinal.methods.hdml.method import WindowedMean


def test_a_window_speaks_when_it_is_complete():
    mean = WindowedMean(64, initial=1e6)
    for value in range(63):
        mean.add(torch.tensor(float(value)))
        assert mean.last == 1e6 and mean.relative() == torch.inf
    mean.add(torch.tensor(63.0))
    assert mean.last == pytest.approx(31.5) and mean.relative() == 1


def test_windows_do_not_overlap_and_the_first_stays_the_measure():
    mean = WindowedMean(2, initial=1e6)
    for value in (2.0, 4.0, 1.0, 2.0, 100.0):
        mean.add(torch.tensor(value))
    assert mean.last == 1.5 and mean.relative() == 0.5


def test_values_that_are_no_numbers_are_skipped():
    mean = WindowedMean(3, initial=1e6)
    for value in (1.0, torch.nan, 3.0):
        mean.add(torch.tensor(value))
    assert mean.last == 2
    for _ in range(3):
        mean.add(torch.tensor(torch.nan))
    assert mean.last == 2, "a window of nothing changes nothing"

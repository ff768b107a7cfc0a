"""Windowed means: complete windows only."""

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

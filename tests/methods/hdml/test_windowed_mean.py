"""Windowed means: complete windows only."""

import torch

from vicinal.methods.hdml.method import WindowedMean


def test_windows_do_not_overlap_and_the_first_stays_the_measure():
    mean = WindowedMean(2, initial=1e6)
    for value in (2.0, 4.0, 1.0, 2.0, 100.0):
        mean.add(torch.tensor(value))
    assert mean.last == 1.5 and mean.relative() == 0.5

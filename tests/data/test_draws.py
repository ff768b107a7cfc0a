"""Uniform numbers as a pure function of (seed, epoch, index)."""

import numpy as np
from numpy.testing import assert_array_equal

from vicinal.data.draws import uniform


def test_neighboring_streams_are_not_correlated():
    drawn = uniform(0, 0, np.arange(5000), 4)
    others = {
        "next index": uniform(0, 0, np.arange(1, 5001), 4),
        "next epoch": uniform(0, 1, np.arange(5000), 4),
        "next seed": uniform(1, 0, np.arange(5000), 4),
        "next number": np.roll(drawn, 1, axis=1),
    }
    for name, other in others.items():
        assert abs(np.corrcoef(drawn.ravel(), other.ravel())[0, 1]) < 5 / np.sqrt(drawn.size), name


def test_a_row_does_not_depend_on_the_batch_around_it():
    rows = np.array([3, 999_999_999_999, 17, 3])
    drawn = uniform(5, 2, rows, 6)
    for row, index in enumerate(rows):
        assert_array_equal(drawn[row], uniform(5, 2, [int(index)], 6)[0])
    # Asking for more changes nothing.
    assert_array_equal(uniform(5, 2, rows, 2), drawn[:, :2])


def test_values_stay_the_same_from_version_to_version():
    np.testing.assert_allclose(
        uniform(0, 0, [0, 1], 2),
        [[0.7682768830978309, 0.5392618014680707], [0.1296456182997474, 0.049920065672091285]],
        rtol=0,
        atol=1e-15,
    )

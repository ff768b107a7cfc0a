"""PNCA: an alpha at which there is nothing to learn says so."""

import warnings

import pytest

from vicinal.linear import PNCA


def test_an_alpha_too_small_to_learn_anything_warns(wine):
    with pytest.warns(UserWarning, match="nothing can be learnt.*Raise alpha, or set normalize=True"):
        PNCA(alpha=2.0**-8).fit(*wine)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PNCA(alpha=2.0**-8, normalize=True).fit(*wine)

"""LANML: one optimum however it is reached, several clusters or one, and what it says of a metric
that vanished."""

import tracemalloc
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.exceptions import ConvergenceWarning

from vicinal.linear import LANML, PAPER_GRIDS


def test_a_regularizer_that_leaves_no_metric_warns(wine):
    with pytest.warns(UserWarning, match="the optimum is M = 0.*Lower regularization"):
        LANML(regularization=1e6).fit(*wine)


def test_the_papers_grids_have_the_papers_sizes():
    sizes = {
        name: int(np.prod([len(values) for values in grid.values()]))
        for name, grid in PAPER_GRIDS.items()
    }
    assert sizes == {"lanml-": 8 * 21 * 21, "lanml+": 8 * 21 * 21, "pnca": 19, "gmml": 9}
    assert (
        PAPER_GRIDS["lanml-"]["gamma1"][0] == -(2**-5) and PAPER_GRIDS["lanml+"]["gamma2"][-1] == 32
    )


def test_the_coordinates_of_the_solver_do_not_change_the_optimum(draw):
    """With n_components = d the same problem is solved on a factor, in the samples' own
    coordinates."""
    labels = np.repeat([0, 1], 40)
    samples = (draw.standard_normal((80, 3)) + labels[:, None]) * [1.0, 5.0, 0.2]
    settings = {"regularization": 5.0, "max_iter": 5000}
    convex = LANML(tol=1e-10, **settings).fit(samples, labels)
    factor = LANML(tol=1e-14, n_components=3, **settings).fit(samples, labels)
    assert convex.objective_ == pytest.approx(factor.objective_, rel=1e-5)
    metric = convex.get_mahalanobis_matrix()
    assert_allclose(metric, factor.get_mahalanobis_matrix(), atol=0.02 * np.abs(metric).max())


@pytest.mark.parametrize("gamma1", [-1.0, 1.0])
@pytest.mark.parametrize("margin", [1e-4, 1e4])
def test_a_tolerance_is_in_margins_so_that_a_small_one_is_not_taken_for_convergence(
    draw, gamma1, margin
):
    """(γ1, γ2, m, M) is the problem (γ1 m, γ2 m, 1, M / m) times m, and is solved as well."""
    labels = np.repeat([0, 1], 40)
    samples = draw.standard_normal((80, 3)) + labels[:, None]
    plain = LANML(gamma1, 8.0).fit(samples, labels)
    scaled = LANML(gamma1 / margin, 8.0 / margin, margin=margin).fit(samples, labels)
    # LANML⁺ starts from I/√N, whatever the margin: elsewhere, so that it ends elsewhere, too.
    assert scaled.objective_ / margin == pytest.approx(
        plain.objective_, rel=1e-9 if gamma1 < 0 else 0.1
    )
    if gamma1 < 0:
        metric = plain.get_mahalanobis_matrix()
        assert_allclose(scaled.get_mahalanobis_matrix() / margin, metric, rtol=1e-6, atol=1e-9)


def test_with_positive_gamma1_it_starts_from_the_papers_metric(draw):
    """Where all is well from the start, it is also the end: M = I/√N."""
    labels = np.repeat([0, 1], 8)
    samples = draw.standard_normal((16, 3)) / 10 + 9 * labels[:, None]
    for margin in (1.0, 0.01):
        fitted = LANML(gamma1=1.0, regularization=0.0, margin=margin).fit(samples, labels)
        assert_allclose(fitted.get_mahalanobis_matrix(), np.eye(3) / 4, atol=1e-12)


def two_clusters(draw, apart):
    """Class 0 in two clusters at ±apart on the first axis, class 1 between them; the second axis is
    noise."""
    centers = np.array([[-apart, 0], [apart, 0], [0, 0], [0, 0]])
    samples = np.repeat(centers, 25, axis=0) + draw.standard_normal((100, 2)) * [0.6, 1.0]
    return samples, np.repeat([0, 0, 1, 1], 25)


def test_positive_gamma1_allows_several_clusters_in_a_class_and_negative_does_not(draw):
    """Proposition 5. All of the class is similar: γ1 < 0 must shrink the axis on which its clusters
    lie apart."""
    X, y = two_clusters(draw, 4.0)
    several = LANML(gamma1=1.0, gamma2=1.0).fit(X, y).get_mahalanobis_matrix()
    with warnings.catch_warnings():
        # Drawing class 0 together leaves hardly any metric: M = 0 may be its optimum.
        warnings.simplefilter("ignore")
        one = LANML(gamma1=-1.0, gamma2=1.0, n_similar=None).fit(X, y).get_mahalanobis_matrix()
    assert several[0, 0] > 5 * several[1, 1]
    assert one[0, 0] < 0.1 * several[0, 0]
    offset = np.array([8.0, 0.0])  # from one cluster of class 0 to the other
    assert offset @ several @ offset > 1 > offset @ one @ offset


def test_memory_stays_far_below_the_matrix_of_all_pairs(draw):
    """2,500 samples have 6.25 million pairs, 50 MB of float64."""
    samples = draw.standard_normal((2500, 4))
    labels = draw.integers(0, 3, 2500)
    tracemalloc.start()
    with pytest.warns(ConvergenceWarning):
        LANML(max_iter=1).fit(samples, labels)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30e6

"""Distances between arcs against a grid of points on both, and where naive code divides by zero."""

import pytest
import torch
from tests.arcs import distances as arc_distances
from tests.arcs import similarity as arc_similarity
from torch.autograd import grad, gradcheck
from torch.nn.functional import normalize
from torch.testing import assert_close

import vicinal.geometry.arcs
from vicinal.errors import ConfigError
from vicinal.geometry import arcs_among

STEPS = 201


def points_on(start, end):
    """Points of one arc, evenly spread, the ends among them."""
    angle = torch.atan2((start - end).norm() * (start + end).norm() / 2, start @ end)
    share = torch.linspace(0, 1, STEPS, dtype=start.dtype)[:, None]
    if angle < 1e-9:
        return normalize((1 - share) * start + share * end, dim=1)
    return (torch.sin((1 - share) * angle) * start + torch.sin(share * angle) * end) / torch.sin(
        angle
    )


def on_a_grid(starts, ends, other_starts, other_ends):
    others = [points_on(*pair) for pair in zip(other_starts, other_ends, strict=True)]
    rows = [points_on(*pair) for pair in zip(starts, ends, strict=True)]
    return torch.tensor(
        [[torch.cdist(x, y).min() for y in others] for x in rows], dtype=starts.dtype
    )


@pytest.fixture
def arcs(rng):
    """``arcs(p, dim, spread)``: starts and ends about common centers; a large spread makes long
    arcs."""

    def make(p, dim, spread):
        draw = lambda: torch.randn(p, dim, generator=rng, dtype=torch.float64)  # noqa: E731
        center = draw()
        return tuple(normalize(center + spread * draw(), dim=1) for _ in range(2))

    return make


@pytest.mark.parametrize("spread", [0.02, 0.5, 5.0])
@pytest.mark.parametrize("dim", [2, 3, 4, 16, 512])
def test_equals_brute_force_within_the_error_of_its_grid(arcs, dim, spread):
    x = arcs(6, dim, spread)
    y = arcs(7, dim, spread)
    found = arc_distances(3 * x[0], 0.1 * x[1], *y)  # lengths do not count
    grid = on_a_grid(*x, *y)
    angles = sum(torch.acos((a * b).sum(dim=1)).max() for a, b in (x, y))
    assert (found <= grid + 1e-12).all(), "never worse than any point of the grid"
    # Half a step on each arc is all that the grid can miss: the distance moves no faster than its
    # points.
    assert (found >= grid - angles / (STEPS - 1) / 2 - 1e-12).all()


@pytest.mark.parametrize("degrees", [1e-6, 30.0, 90 - 1e-6, 90.0, 100.0, 150.0, 174.0])
def test_nearest_points_far_from_the_ends_of_long_arcs_are_exact(degrees):
    """An arc of 175° on a circle, and one across it that passes above the point at an angle from
    its start."""
    whole, angle = torch.deg2rad(torch.tensor([175.0, degrees], dtype=torch.float64))
    circle = lambda a: torch.stack([a.cos(), a.sin(), 0 * a, 0 * a])  # noqa: E731
    above = circle(angle) + torch.tensor([0, 0, 0.5, 0])
    across = torch.tensor([0, 0, 0, 1.0])
    x = torch.stack([circle(0 * whole), circle(whole)])
    y = normalize(torch.stack([above - across, above + across]), dim=1)
    best = arc_similarity(*x[:, None], *y[:, None])
    assert_close(best.item(), 1.25**-0.5, rtol=0, atol=1e-12)


@pytest.mark.parametrize("points", [False, True])
@pytest.mark.parametrize("squared", [None, False, True])
def test_arcs_among_rows_are_arcs_between_their_ends(rng, points, squared):
    rows = torch.randn(7, 4, generator=rng, dtype=torch.float64, requires_grad=True)
    # 6 is a point.
    first, second = (
        torch.tensor([0, 1, 2, 0, 5, 6, 3]),
        torch.tensor([1, 2, 3, 6, 4, 6, 0]),
    )
    found = arcs_among(rows, first, second, points=points, squared=squared)
    arcs = rows[first], rows[second]
    compared = (rows, rows) if points else arcs
    expected = arc_similarity(*compared, *arcs, squared=squared)
    assert_close(found, expected, rtol=0, atol=1e-12 if squared is not False else 1e-7)
    # What meets has no gradient of its own.
    apart = expected < 1 - 1e-9 if squared is None else expected > 1e-4
    weights = torch.rand(found.shape, generator=rng, dtype=torch.float64) * apart
    gradients = [grad((weights * values).sum(), rows)[0] for values in (found, expected)]
    assert_close(*gradients, rtol=0, atol=1e-10)


def test_crossing_arcs_have_distance_0_and_a_finite_gradient():
    east, north, up = torch.eye(3, dtype=torch.float64).split(1)
    ends = [
        v.clone().requires_grad_()
        for v in (east, north, up + 0.5 * (east + north), 0.5 * (east + north) - up)
    ]
    for squared in (False, True):
        distance = arc_distances(*ends, squared=squared)
        assert distance.item() == 0
        assert all(g.eq(0).all() for g in grad(distance.sum(), ends))


@pytest.mark.parametrize("size", [0.0, 1e-12, 1e-6, 3e-5])
def test_nearly_opposite_ends_count_as_ends_only_and_have_a_bounded_gradient(rng, size):
    """Which way an arc between them goes is rounding; its gradient would be 1 / sine."""
    x, away, y1, y2 = (
        normalize(torch.randn(40, 3, generator=rng, dtype=torch.float64), dim=1) for _ in range(4)
    )
    ends = [part.requires_grad_() for part in (x, (size * away - x).detach(), y1, y2)]
    found = arc_distances(*ends)
    to_ends = [arc_distances(end, end, y1, y2) for end in ends[:2]]
    assert_close(found, torch.minimum(*to_ends), rtol=0, atol=1e-12)
    gradients = [grad(found[i].sum(), ends, retain_graph=True) for i in range(3)]
    assert max(float(part.norm(dim=1).max()) for each in gradients for part in each) <= 40 * 1.001


def test_gradient_is_that_of_finite_differences(arcs):
    for dim, spread in ((3, 0.5), (4, 1.0), (16, 1.0)):
        ends = [part.requires_grad_() for part in (*arcs(3, dim, spread), *arcs(4, dim, spread))]
        assert gradcheck(arc_distances, ends, fast_mode=True) and gradcheck(
            arc_similarity, ends, fast_mode=True
        )
        apart = ~torch.eye(3, dtype=torch.bool)  # an arc's distance to itself is 0
        assert gradcheck(
            lambda a, b, apart=apart: arc_distances(a, b, a, b)[apart], ends[:2], fast_mode=True
        )


def test_a_second_derivative_is_rejected_rather_than_wrong(arcs):
    ends = [part.requires_grad_() for part in arcs(2, 3, 0.5)]
    with pytest.raises(ConfigError, match="create_graph"):
        grad(arc_similarity(*ends, *ends).sum(), ends, create_graph=True)


def test_blocks_change_nothing(arcs, monkeypatch):
    x = arcs(7, 4, 1.0)
    y = arcs(5, 4, 1.0)
    whole = arc_distances(*x, *y)
    monkeypatch.setattr(vicinal.geometry.arcs, "BLOCK", 10)
    assert torch.equal(arc_distances(*x, *y), whole)
    assert arc_distances(*(part[:0] for part in x), *y).shape == (0, 5)
    assert arc_distances(*x, *(part[:0] for part in y)).shape == (7, 0)


def adversarial(p, dim, rng, dtype):
    """Arcs where something vanishes: points, near points, opposite ends, planes and lines in
    common, zero rows."""
    basis = torch.eye(dim, dtype=dtype)
    # Zero: what a dead network gives.
    signed = torch.cat([basis, -basis, torch.zeros(1, dim, dtype=dtype)])
    pick = lambda: signed[torch.randint(len(signed), (p,), generator=rng)]  # noqa: E731
    noise = lambda: torch.randn(p, dim, generator=rng, dtype=dtype)  # noqa: E731
    size = 10.0 ** torch.randint(-20, 1, (p, 1), generator=rng).to(dtype)
    start = torch.where(torch.rand(p, 1, generator=rng) < 0.5, pick(), noise())
    near = start + size * noise()
    opposite = size * noise() - start
    choices = torch.stack([start, -start, near, opposite, pick(), noise(), 1e-30 * pick()])
    which = torch.randint(len(choices), (p,), generator=rng)
    return start, choices[which, torch.arange(p)]


def test_a_million_random_and_adversarial_pairs_of_arcs_are_finite(rng):
    seen = 0
    for dtype in (torch.float32, torch.float64):
        for dim in (1, 2, 3, 4, 64):
            x, y = (adversarial(330, dim, rng, dtype) for _ in range(2))
            ends = [part.requires_grad_() for part in (*x, *y)]
            distances = arc_distances(*ends)
            gradients = grad(distances.sum(), ends)
            assert (
                distances.isfinite().all()
                and (distances >= 0).all()
                and (distances <= 2 + 1e-6).all()
            )
            assert all(gradient.isfinite().all() for gradient in gradients)
            seen += distances.numel()
    assert seen > 10**6

"""Distortions of drawn characters: certain for a seed, each doing what its name says."""

import numpy as np
import pytest

from vicinal.data.distortion import Distortion, distorted

STILL = Distortion(angle=0.0, scale=0.0, shear=0.0, shift=0.0, elastic=0.0, stroke=0.0, noise=0.0)
COUNT = 200


@pytest.fixture(scope="module")
def bar():
    """An upright bar, 24 of 48 pixels high and 8 wide."""
    drawing = np.zeros((1, 48, 48), dtype=np.uint8)
    drawing[0, 12:36, 20:28] = 255
    return drawing


def render(drawing, seed=0, **amounts):
    settings = {**vars(STILL), **amounts}
    return distorted(drawing, np.zeros(COUNT, dtype=np.int64), 32, seed, Distortion(**settings)).astype(float)


def moments(images):
    """Centre (row, column) and spread along both axes of each image."""
    weight = images / images.sum(axis=(1, 2), keepdims=True)
    axis = np.arange(32) + 0.5
    centre = np.stack([(weight.sum(axis=2) * axis).sum(axis=1), (weight.sum(axis=1) * axis).sum(axis=1)], axis=1)
    rows, columns = axis[:, None] - centre[:, 0, None, None], axis - centre[:, 1, None, None]
    return (
        centre,
        (weight * rows**2).sum((1, 2)),
        (weight * columns**2).sum((1, 2)),
        (weight * rows * columns).sum((1, 2)),
    )


def test_without_distortion_the_drawing_is_only_scaled(bar):
    images = render(bar)
    centre, down, across, skew = moments(images)
    np.testing.assert_allclose(centre, 16, atol=0.02)
    np.testing.assert_allclose(down / across, 3**2, rtol=0.35)  # softening the edges widens the bar
    np.testing.assert_allclose(skew, 0, atol=0.01)


def test_shift_moves_by_up_to_its_share_of_the_side(bar):
    centre = moments(render(bar, shift=0.1))[0]
    assert np.abs(centre - 16).max() == pytest.approx(3.2, abs=0.2)
    assert abs(centre.mean() - 16) < 0.5


def test_rotation_and_shear_tilt_to_both_sides(bar):
    for amounts in ({"angle": 20.0}, {"shear": 0.3}):
        centre, _, _, skew = moments(render(bar, **amounts))
        assert skew.min() < -3 and skew.max() > 3, amounts
        np.testing.assert_allclose(centre, 16, atol=0.3)


def test_rotation_turns_by_its_angle(bar):
    """The main axis of the bar, from the second moments: tan 2θ = 2 skew / (down - across)."""
    _, down, across, skew = moments(render(bar, angle=20.0))
    angles = np.rad2deg(np.arctan2(2 * skew, down - across) / 2)
    assert np.abs(angles).max() == pytest.approx(20, abs=1.5)
    assert np.abs(angles.mean()) < 3


def test_scale_changes_the_extent_by_its_factor(bar):
    _, down, _, _ = moments(render(bar, scale=0.5))
    assert np.sqrt(down.max() / down.min()) == pytest.approx(2.0, abs=0.2)  # from 2^-0.5 to 2^0.5


def test_stroke_makes_thinner_and_thicker(bar):
    ink = (render(bar, stroke=0.2) > 100).sum(axis=(1, 2))
    assert ink.max() > 1.15 * ink.min()


def test_elastic_bends_without_a_common_shift(bar):
    images = render(bar, elastic=0.06)
    assert images.std(axis=0).max() > 30
    assert np.abs(moments(images)[0].mean(axis=0) - 16).max() < 0.4


def test_noise_has_up_to_the_deviation_asked_for(bar):
    corner = render(bar, noise=0.1)[:, :8, :8].std(axis=(1, 2)) / 255
    assert 0.04 < corner.max() < 0.1  # the half of it below black is cut off


def test_an_image_depends_on_its_seed_and_place_alone(bar):
    drawings = np.concatenate([bar, bar.transpose(0, 2, 1)])
    chosen = np.arange(700) % 2
    whole = distorted(drawings, chosen, 32, 3, Distortion())
    np.testing.assert_array_equal(distorted(drawings, chosen[:9], 32, 3, Distortion()), whole[:9])
    np.testing.assert_array_equal(distorted(drawings, chosen, 32, 3, Distortion()), whole)
    assert (distorted(drawings, chosen, 32, 4, Distortion()) != whole).any(axis=(1, 2)).all()
    assert len(np.unique(whole.reshape(700, -1), axis=0)) == 700

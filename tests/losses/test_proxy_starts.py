"""Proxies that start at class means, and what a run says of them."""

import pytest
import torch
from torch.testing import assert_close

from vicinal.losses import (
    LOSSES,
    MultiSimilarityLoss,
    NestedLoss,
    NormalizedSoftmaxLoss,
    ProxyAnchorLoss,
    ProxyLoss,
)
from vicinal.losses.proxies import crowding, start_at_means, wants_means

LABELS = torch.tensor([3, 5, 3, 8, 3, 3, 8])
WITH_PROXIES = [name for name, kind in LOSSES.items() if issubclass(kind, ProxyLoss)]


def unit(x):
    return x / x.norm(dim=-1, keepdim=True)


@pytest.mark.parametrize("name", WITH_PROXIES)
@pytest.mark.parametrize("centers", [1, 2])
def test_proxies_turn_to_class_means_and_keep_their_lengths(name, centers, rng):
    rows = torch.randn(7, 4, generator=rng)
    loss = LOSSES[name](4, 4, known=(3, 5, 6, 8), centers=centers)
    with torch.no_grad():
        loss.proxies.mul_(2)
    before = loss.proxies.detach().clone().view(4, centers, 4)
    loss.start_at_means(rows, LABELS)
    found = loss.proxies.detach().view(4, centers, 4)
    assert_close(found.norm(dim=-1), torch.full((4, centers), 2.0))
    assert torch.equal(found[2], before[2])  # of 6 there is no row
    rows = unit(rows) if loss.distance.normalize else rows
    assert_close(found[1], 2 * unit(rows[1]).expand(centers, 4))
    if centers == 1:
        for place, label in ((0, 3), (3, 8)):
            mean = rows[label == LABELS].mean(dim=0)
            assert_close(found[place, 0], 2 * unit(mean))
    assert loss(rows, LABELS).mean().isfinite()


def test_several_proxies_start_at_the_parts_of_a_class():
    corners = torch.tensor([[1.0, 0.1], [0.1, 1.0]])
    rows = corners.repeat_interleave(3, dim=0)[[0, 3, 1, 4, 2, 5]]
    loss = NormalizedSoftmaxLoss(2, 2, centers=2)
    loss.start_at_means(rows, torch.zeros(6, dtype=torch.int64))
    found = loss.proxies.detach()[0]
    assert_close(found[found[:, 0].argsort(descending=True)], unit(corners))


def test_each_size_of_a_nested_loss_starts_by_its_numbers(rng):
    rows = torch.randn(7, 4, generator=rng)
    sizes = [2, 4]
    parts = [ProxyAnchorLoss(3, size, known=(3, 5, 8)) for size in sizes]
    start_at_means(NestedLoss(parts, sizes), rows, LABELS)
    for part, size in zip(parts, sizes, strict=True):
        assert_close(part.proxies[1].detach(), unit(rows[1, :size]))


@pytest.mark.parametrize(
    ("start", "usual", "wanted"),
    [(None, False, False), (None, True, True), ("means", False, True), ("random", True, False)],
)
def test_who_wants_means(start, usual, wanted):
    assert wants_means(ProxyAnchorLoss(3, 4, start=start), usual) == wanted
    assert not wants_means(MultiSimilarityLoss(), usual=True)


def test_a_note_names_the_nearest_and_the_crowded():
    names = ["crow", "raven", "owl", "swan", "duck"]
    loss = NormalizedSoftmaxLoss(4, 2, known=(0, 1, 2, 4))
    angles = torch.tensor([0.0, 0.1, 1.0, 3.0])
    with torch.no_grad():
        loss.proxies.copy_(torch.stack([angles.cos(), angles.sin()], dim=1))
    (note,) = crowding(loss, names)
    assert (
        "nearest proxies are crow and raven (1.00), raven and owl (0.62), crow and owl (0.54)"
        in note
    )
    # The mean cosine to the three others.
    means = [float((a - angles).cos().sum() - 1) / 3 for a in angles]
    assert means[2] == max(means) and f"are owl ({means[2]:.2f}), raven ({means[1]:.2f})" in note
    assert crowding(MultiSimilarityLoss(), names) == []
    assert crowding(ProxyAnchorLoss(2, 4), names) == []

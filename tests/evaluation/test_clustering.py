"""Clustering scores against scikit-learn; k-means on clear clusters and its edge cases."""

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_mutual_info_score, normalized_mutual_info_score
from sklearn.metrics.cluster import pair_confusion_matrix

from vicinal.errors import ConfigError, DataError
from vicinal.evaluation import clustering as module
from vicinal.evaluation.clustering import (
    cluster,
    clustering_scores,
    kmeans,
    kmeans_runs,
)


def draw(rng, n, classes, clusters, agreement):
    labels = torch.randint(classes, (n,), generator=rng)
    agree = torch.rand(n, generator=rng) < agreement
    return labels, torch.where(agree, labels, torch.randint(clusters, (n,), generator=rng))


@pytest.mark.parametrize("n", [2, 7, 60, 400])
@pytest.mark.parametrize(
    ("classes", "clusters"), [(5, 5), (3, 40), (40, 3), (1, 4), (4, 1), (1, 1)]
)
@pytest.mark.parametrize("agreement", [0.0, 0.6])
def test_equals_scikit_learn(rng, n, classes, clusters, agreement):
    labels, assignments = draw(rng, n, classes, clusters, agreement)
    scores = clustering_scores(labels, assignments)
    assert scores["nmi"] == pytest.approx(
        normalized_mutual_info_score(labels, assignments), abs=1e-9
    )
    assert scores["ami"] == pytest.approx(adjusted_mutual_info_score(labels, assignments), abs=1e-9)
    pairs = pair_confusion_matrix(labels, assignments)
    errors = pairs[0, 1] + pairs[1, 0]
    f1 = 2 * pairs[1, 1] / (2 * pairs[1, 1] + errors) if pairs[1, 1] + errors else 1.0
    assert scores["f1"] == pytest.approx(f1, abs=1e-12)


@pytest.mark.parametrize("labels", [[0, 0, 0], [0, 1, 2], [0, 0, 1, 1, 2]])
def test_identical_partitions_score_one_whatever_their_names(labels):
    labels = torch.tensor(labels)
    assert clustering_scores(labels, 9 - labels) == {"nmi": 1.0, "ami": 1.0, "f1": 1.0}


def test_the_size_of_stanford_online_products_takes_no_dense_table(rng):
    labels, assignments = draw(rng, 60_502, 11_316, 11_316, 0.5)
    scores = clustering_scores(labels, assignments)
    assert scores["nmi"] == pytest.approx(
        normalized_mutual_info_score(labels, assignments), abs=1e-9
    )
    assert 0.3 < scores["ami"] < 0.4


def test_no_rows_are_rejected():
    with pytest.raises(DataError, match="at least one row"):
        clustering_scores(torch.empty(0, dtype=torch.long), torch.empty(0, dtype=torch.long))


def blobs(rng, clusters=12, each=15, dim=6, spread=0.05):
    labels = torch.arange(clusters).repeat_interleave(each)
    return torch.randn(clusters, dim, generator=rng)[labels] + spread * torch.randn(
        len(labels), dim, generator=rng
    ), labels


def test_equal_seeds_give_equal_assignments_and_others_differ(rng):
    rows = torch.randn(300, 8, generator=rng)
    first = kmeans(rows, 30, seed=3, restarts=2)
    assert torch.equal(first, kmeans(rows, 30, seed=3, restarts=2))
    assert not torch.equal(first, kmeans(rows, 30, seed=4, restarts=2))


def test_no_row_is_nearer_to_the_mean_of_another_cluster(rng):
    rows = torch.randn(200, 3, generator=rng)
    assigned = kmeans(rows, 5, seed=0, restarts=1, iterations=500)
    means = torch.stack([rows[assigned == c].mean(dim=0) for c in range(5)])
    assert torch.equal(torch.cdist(rows, means).argmin(dim=1), assigned)


@pytest.mark.parametrize("chunk_bytes", [1, 1000])
def test_the_answer_does_not_depend_on_the_chunks(rng, chunk_bytes, monkeypatch):
    rows, _ = blobs(rng, spread=0.5)
    whole = kmeans(rows, 12, seed=0, restarts=1)
    monkeypatch.setattr(module, "_CHUNK_BYTES", chunk_bytes)
    assert torch.equal(whole, kmeans(rows, 12, seed=0, restarts=1))


def test_several_seeds_per_round_are_different_rows(rng, monkeypatch):
    monkeypatch.setattr(module, "_ROUNDS", 4)
    monkeypatch.setattr(module, "_SHARED_ROUNDS", 4)
    rows = torch.randn(100, 3, generator=rng)
    seeds = module._seeds(rows, rows.square().sum(dim=1), 30, rng)
    assert len(seeds.unique()) == 30
    equal = torch.ones(100, 3)
    rounded_up = equal.square().sum(dim=1) * (1 + 1e-6)  # as if no row were quite at its own place
    assert len(module._seeds(equal, rounded_up, 60, rng).unique()) == 60
    rows, labels = blobs(rng)
    assert clustering_scores(labels, kmeans(rows, 12, seed=0))["nmi"] > 0.9


def test_fewer_different_rows_than_clusters_leave_clusters_empty():
    rows = torch.tensor([[0.0, 1.0]] * 6 + [[5.0, 5.0]] * 4)
    assigned = kmeans(rows, 4, seed=0)
    assert len(assigned[:6].unique()) == 1
    assert len(assigned[6:].unique()) == 1
    assert assigned[0] != assigned[9]


def test_what_cannot_be_clustered_is_rejected():
    rows = torch.ones(3, 2)
    with pytest.raises(ConfigError, match="1 to 3 clusters, got 4"):
        kmeans(rows, 4, seed=0)
    with pytest.raises(DataError, match="rows 1"):
        kmeans(torch.tensor([[1.0], [torch.nan]]), 1, seed=0)


@pytest.mark.gpu
def test_a_gpu_repeats_itself(rng):
    rows = torch.randn(5000, 32, generator=rng).cuda()
    assert torch.equal(kmeans(rows, 200, seed=0, restarts=2), kmeans(rows, 200, seed=0, restarts=2))


def test_scores_are_means_over_all_runs_with_their_spread(rng):
    labels = torch.arange(10).repeat_interleave(8)
    rows = torch.randn(10, 4, generator=rng)[labels] + torch.randn(80, 4, generator=rng)
    runs = kmeans_runs(rows, 10, seed=3, restarts=4)
    scores, spread = cluster(rows, labels, seed=3, restarts=4)
    for name in ("nmi", "ami", "f1"):
        each = [clustering_scores(labels, one)[name] for one in runs]
        assert len(set(each)) > 1 and scores[name] == pytest.approx(np.mean(each), abs=1e-9)
        assert spread[name] == pytest.approx(np.std(each, ddof=1), abs=1e-9)
    assert cluster(rows, labels, seed=3, restarts=1) == (
        clustering_scores(labels, kmeans_runs(rows, 10, seed=3, restarts=1)[0]),
        {},
    )


@pytest.mark.parametrize("length", [1e-25, 1e20])
def test_clusters_do_not_depend_on_the_unit_of_length(rng, length):
    rows = torch.randn(40, 4, generator=rng)
    assert torch.equal(kmeans(rows * length, 5, seed=0), kmeans(rows, 5, seed=0))

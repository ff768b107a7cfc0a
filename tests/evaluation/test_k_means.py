"""k-means, both engines: right on clear clusters, the same for a seed, defined where clusters run empty."""

import importlib.util

import pytest
import torch

from vicinal.errors import ConfigError, DataError
from vicinal.evaluation import k_means as module
from vicinal.evaluation.clustering import clustering_scores
from vicinal.evaluation.k_means import kmeans

ENGINES = [
    "torch",
    pytest.param("faiss", marks=pytest.mark.skipif(not importlib.util.find_spec("faiss"), reason="no faiss")),
]


def blobs(rng, clusters=12, each=15, dim=6, spread=0.05):
    labels = torch.arange(clusters).repeat_interleave(each)
    return torch.randn(clusters, dim, generator=rng)[labels] + spread * torch.randn(
        len(labels), dim, generator=rng
    ), labels


def cost(rows, assigned):
    """Sum of squared distances to the means of the clusters."""
    return sum(float((rows[assigned == c] - rows[assigned == c].mean(dim=0)).square().sum()) for c in assigned.unique())


@pytest.mark.parametrize("engine", ENGINES)
def test_clear_clusters_are_found(rng, engine):
    rows, labels = blobs(rng)
    assigned = kmeans(rows, 12, seed=0, engine=engine)
    assert assigned.dtype == torch.long
    assert clustering_scores(labels, assigned) == {"nmi": 1.0, "ami": 1.0, "f1": 1.0}


@pytest.mark.parametrize("engine", ENGINES)
def test_equal_seeds_give_equal_assignments_and_others_differ(rng, engine):
    rows = torch.randn(300, 8, generator=rng)
    first = kmeans(rows, 30, seed=3, restarts=2, engine=engine)
    assert torch.equal(first, kmeans(rows, 30, seed=3, restarts=2, engine=engine))
    assert not torch.equal(first, kmeans(rows, 30, seed=4, restarts=2, engine=engine))


def test_no_row_is_nearer_to_the_mean_of_another_cluster(rng):
    rows = torch.randn(200, 3, generator=rng)
    assigned = kmeans(rows, 5, seed=0, restarts=1, iterations=500, engine="torch")
    means = torch.stack([rows[assigned == c].mean(dim=0) for c in range(5)])
    assert torch.equal(torch.cdist(rows, means).argmin(dim=1), assigned)


def test_more_restarts_never_cost_more(rng):
    rows = torch.randn(300, 4, generator=rng)
    costs = [cost(rows, kmeans(rows, 20, seed=0, restarts=restarts, engine="torch")) for restarts in (1, 4, 8)]
    assert costs == sorted(costs, reverse=True)


@pytest.mark.parametrize("chunk_bytes", [1, 1000])
def test_the_answer_does_not_depend_on_the_chunks(rng, chunk_bytes, monkeypatch):
    rows, _ = blobs(rng, spread=0.5)
    whole = kmeans(rows, 12, seed=0, restarts=1, engine="torch")
    monkeypatch.setattr(module, "_CHUNK_BYTES", chunk_bytes)
    assert torch.equal(whole, kmeans(rows, 12, seed=0, restarts=1, engine="torch"))


def test_several_seeds_per_round_are_different_rows(rng, monkeypatch):
    monkeypatch.setattr(module, "_ROUNDS", 4)
    rows = torch.randn(100, 3, generator=rng)
    seeds = module._seeds(rows, rows.square().sum(dim=1), 30, rng)
    assert len(seeds.unique()) == 30
    equal = torch.ones(100, 3)
    rounded_up = equal.square().sum(dim=1) * (1 + 1e-6)  # as if no row were quite at its own place
    assert len(module._seeds(equal, rounded_up, 60, rng).unique()) == 60
    rows, labels = blobs(rng)
    assert clustering_scores(labels, kmeans(rows, 12, seed=0, engine="torch"))["nmi"] > 0.9


@pytest.mark.parametrize("engine", ENGINES)
def test_fewer_different_rows_than_clusters_leave_clusters_empty(engine):
    rows = torch.tensor([[0.0, 1.0]] * 6 + [[5.0, 5.0]] * 4)
    assigned = kmeans(rows, 4, seed=0, engine=engine)
    assert len(assigned[:6].unique()) == 1
    assert len(assigned[6:].unique()) == 1
    assert assigned[0] != assigned[9]


def test_an_empty_cluster_moves_to_the_row_farthest_from_its_centre():
    rows = torch.tensor([[0.0], [1.0], [9.0], [20.0]])
    spread = torch.tensor([1.0, 0.0, 64.0, 0.0])
    centres = module._centres(rows, torch.tensor([0, 0, 0, 2]), spread, clusters=3)
    assert centres.flatten().tolist() == pytest.approx([10 / 3, 9.0, 20.0])


@pytest.mark.parametrize("engine", ENGINES)
def test_as_many_clusters_as_rows_and_one_cluster(rng, engine):
    rows = torch.randn(9, 2, generator=rng)
    assert kmeans(rows, 9, seed=0, engine=engine).tolist() == list(range(9))
    assert kmeans(rows, 1, seed=0, engine=engine).tolist() == [0] * 9


def test_without_faiss_our_own_engine_serves(rng, monkeypatch):
    rows = torch.randn(50, 3, generator=rng)
    own = kmeans(rows, 5, seed=0, engine="torch")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert torch.equal(kmeans(rows, 5, seed=0), own)
    with pytest.raises(ConfigError, match="not installed"):
        kmeans(rows, 5, seed=0, engine="faiss")


def test_what_cannot_be_clustered_is_refused():
    rows = torch.ones(3, 2)
    with pytest.raises(ConfigError, match="1 to 3 clusters, not 4"):
        kmeans(rows, 4, seed=0)
    with pytest.raises(ConfigError, match="at least 1, not 0 and 30"):
        kmeans(rows, 2, seed=0, restarts=0)
    with pytest.raises(DataError, match="rows 1"):
        kmeans(torch.tensor([[1.0], [torch.nan]]), 1, seed=0)


@pytest.mark.gpu
def test_a_gpu_repeats_itself(rng):
    rows = torch.randn(5000, 32, generator=rng).cuda()
    assert torch.equal(kmeans(rows, 200, seed=0, restarts=2), kmeans(rows, 200, seed=0, restarts=2))

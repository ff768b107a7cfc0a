"""Clustering scores against scikit-learn and against pairs counted one by one."""

import itertools

import pytest
import torch
from sklearn.metrics import adjusted_mutual_info_score, normalized_mutual_info_score

from vicinal.errors import DataError
from vicinal.evaluation.clustering import Contingency, clustering_scores, expected_information


def f1_by_hand(labels, assignments):
    """Precision and recall of "same cluster" for "same class", over all pairs of rows."""
    true = found = both = 0
    for i, j in itertools.combinations(range(len(labels)), 2):
        one_class, one_cluster = labels[i] == labels[j], assignments[i] == assignments[j]
        true, found, both = true + one_class, found + one_cluster, both + (one_class and one_cluster)
    if true + found == 0:
        return 1.0  # no pairs on either side: the same single rows
    if both == 0:
        return 0.0
    precision, recall = both / found, both / true
    return 2 * precision * recall / (precision + recall)


def draw(rng, n, classes, clusters, agreement):
    labels = torch.randint(classes, (n,), generator=rng)
    agree = torch.rand(n, generator=rng) < agreement
    return labels, torch.where(agree, labels, torch.randint(clusters, (n,), generator=rng))


@pytest.mark.parametrize("n", [2, 7, 60, 400])
@pytest.mark.parametrize(("classes", "clusters"), [(5, 5), (3, 40), (40, 3), (1, 4), (4, 1), (1, 1)])
@pytest.mark.parametrize("agreement", [0.0, 0.6])
def test_equals_scikit_learn_and_counted_pairs(rng, n, classes, clusters, agreement):
    labels, assignments = draw(rng, n, classes, clusters, agreement)
    scores = clustering_scores(labels, assignments)
    assert scores["nmi"] == pytest.approx(normalized_mutual_info_score(labels, assignments), abs=1e-9)
    assert scores["ami"] == pytest.approx(adjusted_mutual_info_score(labels, assignments), abs=1e-9)
    if n < 100:
        assert scores["f1"] == pytest.approx(f1_by_hand(labels.tolist(), assignments.tolist()), abs=1e-12)


def test_parts_so_large_that_they_must_overlap():
    labels, assignments = torch.tensor([0] * 9 + [1]), torch.tensor([0] * 7 + [1, 2, 2])
    assert clustering_scores(labels, assignments)["ami"] == pytest.approx(
        adjusted_mutual_info_score(labels, assignments), abs=1e-12
    )


@pytest.mark.parametrize("labels", [[0, 0, 0], [0, 1, 2], [0, 0, 1, 1, 2]])
def test_identical_partitions_score_one_whatever_their_names(labels):
    labels = torch.tensor(labels)
    assert clustering_scores(labels, 9 - labels) == {"nmi": 1.0, "ami": 1.0, "f1": 1.0}


def test_single_rows_against_classes_score_no_pair():
    scores = clustering_scores(torch.tensor([0, 0, 1, 1]), torch.arange(4))
    assert scores["f1"] == 0.0
    assert scores["nmi"] == pytest.approx(2 / 3)
    assert scores["ami"] == pytest.approx(0, abs=1e-12)


def test_expected_information_is_the_mean_over_shuffles(rng):
    labels, assignments = draw(rng, 30, 4, 3, 0.5)
    counts = Contingency.of(labels, assignments)
    shuffled = [Contingency.of(labels[torch.randperm(30, generator=rng)], assignments) for _ in range(400)]
    information = [
        float((c.together / 30 * (30 * c.together / (c.of_class * c.of_cluster)).log()).sum()) for c in shuffled
    ]
    assert expected_information(counts) == pytest.approx(sum(information) / 400, abs=0.02)


def test_the_size_of_stanford_online_products_takes_no_dense_table(rng):
    labels, assignments = draw(rng, 60_502, 11_316, 11_316, 0.5)
    scores = clustering_scores(labels, assignments)
    assert scores["nmi"] == pytest.approx(normalized_mutual_info_score(labels, assignments), abs=1e-9)
    assert 0.3 < scores["ami"] < 0.4


def test_no_rows_are_refused():
    with pytest.raises(DataError, match="at least one row"):
        clustering_scores(torch.empty(0, dtype=torch.long), torch.empty(0, dtype=torch.long))

"""Scores of arrays and of records: one search, the parts' own scores, errors at the border,
roles."""

import numpy as np
import pytest
import torch
from tests.apart import in_two

from vicinal.data.records import FeatureArray, Records
from vicinal.errors import ConfigError, DataError
from vicinal.evaluation import clustering, evaluate, kmeans, verification_scores
from vicinal.evaluation.clustering import cluster
from vicinal.evaluation.encoder import Embedded
from vicinal.evaluation.measure import _checked, measure
from vicinal.evaluation.neighbors import neighbors
from vicinal.evaluation.retrieval import query_scores


@pytest.fixture
def labeled(rng):
    labels = torch.arange(8).repeat_interleave(6)
    return torch.randn(8, 5, generator=rng)[labels] + 0.7 * torch.randn(
        48, 5, generator=rng
    ), labels


def test_scores_are_those_of_the_parts(labeled):
    rows, labels = labeled
    names = ["recall@1", "recall@8", "map@r", "r_precision"]
    expected = query_scores([neighbors(rows, 8)], labels, metrics=names).means()
    means, spread = cluster(rows, labels, seed=5, restarts=3)
    found = evaluate(rows, labels, recalls=(1, 8), seed=5)
    assert found == pytest.approx(expected | means, abs=1e-14)
    assert found.spread == spread and list(spread) == ["nmi", "ami", "f1"]
    assert list(found) == [*names, *spread]
    assert not evaluate(rows, labels, restarts=1).spread


@pytest.mark.parametrize(("size", "k"), [(24, 1), (99, 1), (100, 2), (250, 3)])
def test_the_first_per_cent_of_a_gallery_is_a_hundredth_rounded_down_and_one_more(size, k, rng):
    rows = torch.randn(40, 3, generator=rng)
    gallery = torch.randn(size, 3, generator=rng)
    labels = torch.arange(40) % 4
    gallery_labels = torch.arange(size) % 4
    sought = {"gallery": gallery, "gallery_labels": gallery_labels, "clustering": False}
    found = evaluate(rows, labels, recalls=(1, 5), top_percent=True, **sought)
    assert list(found)[:3] == ["recall@1", "recall@5", "recall@1%"]
    assert found.pop("recall@1%") == evaluate(rows, labels, recalls=(k,), **sought)[f"recall@{k}"]
    assert found == evaluate(rows, labels, recalls=(1, 5), **sought)


@pytest.mark.parametrize("apart", [False, True])
def test_recall_far_down_the_ranking_is_that_of_the_whole_ranking(rng, apart):
    rows = torch.randn(300, 3, generator=rng)
    labels = torch.arange(300) // 2 % 140
    labels[7] = 999  # alone
    sought = {"gallery": rows[100:], "gallery_labels": labels[100:]} if apart else {}
    asked = slice(0, 100 if apart else 300)
    names = ["recall@1", "recall@150", "recall@250", "map@r"]
    found = evaluate(rows[asked], labels[asked], **sought, metrics=names)
    whole = evaluate(rows[asked], labels[asked], **sought, metrics=[*names, "map"])
    assert [found[name] for name in names] == [whole[name] for name in names]
    assert found["recall@1"] < found["recall@150"] < found["recall@250"]
    assert torch.equal(found.queries.rows, whole.queries.rows)


def scored(_=0):
    """Scores of 301 rows, by row and in the mean, of whoever is there together."""
    clustering._CHUNK_BYTES = 2**14  # several blocks of rows
    rng = torch.Generator().manual_seed(0)
    rows = torch.randn(301, 3, generator=rng)
    labels = torch.arange(301) // 2 % 140
    found = []
    for gallery in ({}, {"gallery": rows[1:], "gallery_labels": labels[1:]}):
        for metric, asked in (("euclidean", slice(None)), ("cosine", slice(0, 1))):
            how = {"metric": metric, "recalls": (1, 250), "together": True, **gallery}
            if gallery or len(rows[asked]) > 1:
                scores = evaluate(rows[asked], labels[asked], **how)
                table = {name: torch.from_numpy(c) for name, c in scores.per_query.items()}
                found.append([dict(scores), scores.spread, table])
    return found


@pytest.mark.slow
def test_two_processes_score_to_the_last_digit_as_one(tmp_path):
    for both in in_two(scored, tmp_path):
        torch.testing.assert_close(both, scored(), rtol=0, atol=0)


def test_normalized_rows_and_cosine_rank_alike(labeled):
    rows, labels = labeled
    unit = evaluate(torch.nn.functional.normalize(rows, dim=1), labels)
    assert evaluate(3 * rows, labels, normalize=True) == unit
    assert evaluate(rows, labels, metric="cosine") == pytest.approx(unit)
    assert evaluate(rows, labels) != unit


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions_are_computed_from_their_values(labeled, dtype):
    rows, labels = labeled
    rows = rows.to(dtype)
    assert evaluate(rows, labels) == pytest.approx(evaluate(rows.float(), labels))
    close = rows[:1] + rows * 0.01  # directions that half precision would mix up
    assert evaluate(close, labels, normalize=True) == pytest.approx(
        evaluate(close.float(), labels, normalize=True)
    )


def test_arrays_are_taken_as_tensors_are(labeled):
    rows, labels = labeled
    array = rows.numpy()
    numbers = labels.numpy()
    assert evaluate(array, numbers) == evaluate(rows, labels)
    fixed = array[::-1]
    fixed.setflags(write=False)
    found = evaluate(fixed, numbers[::-1].astype(np.uint16), gallery=array, gallery_labels=numbers)
    assert found == pytest.approx(
        evaluate(rows.flip(0), labels.flip(0), gallery=rows, gallery_labels=labels)
    )
    with pytest.raises(DataError, match=r"got <U1 .*Number the classes, with numpy\.unique"):
        evaluate(array, np.full(len(array), "a"))


def test_labels_that_do_not_fit_are_rejected(labeled):
    rows, labels = labeled
    with pytest.raises(DataError, match=r"labels must be integers, got torch\.float32"):
        evaluate(rows, labels.float())
    with pytest.raises(DataError, match="48 rows of embeddings and 47 labels"):
        _checked(rows, labels[1:], "embeddings", None, None)
    with pytest.raises(ConfigError, match="Pass both or neither"):
        evaluate(rows, labels, gallery=rows)


@pytest.mark.gpu
def test_a_gpu_gives_the_same_retrieval(labeled):
    rows, labels = labeled
    here, there = (
        evaluate(rows, labels, clustering=False, device=device) for device in ("cpu", "cuda")
    )
    assert here == pytest.approx(there, abs=1e-12)
    assert 0 <= evaluate(rows, labels, device="cuda")["nmi"] <= 1


def embedded(role, rng):
    labels = np.arange(12) % 3
    columns = {} if role is None else {"role": np.array(role)}
    vectors = torch.randn(12, 4, generator=rng)
    source = FeatureArray(vectors.numpy(), [str(row) for row in range(12)])
    records = Records("set", source, labels, ("a", "b", "c"), np.full(12, "test"), columns)
    return Embedded(vectors, records, ())


def test_without_roles_each_row_is_sought_among_the_others(rng):
    rows = embedded(None, rng)
    expected = evaluate(rows.vectors, rows.labels, recalls=(2,))
    found = measure(rows, recalls=(2,), clustering=True)
    assert found == expected and found.spread == expected.spread
    assert "recall@1" in found.queries.scores


def test_queries_are_sought_in_the_gallery(rng):
    rows = embedded([1] * 6 + [2] * 6, rng)
    sought = {"gallery": rows.vectors[6:], "gallery_labels": rows.labels[6:]}
    how = {"recalls": (1,), "clustering": False}
    expected = evaluate(rows.vectors[:6], rows.labels[:6], **sought, top_percent=True, **how)
    assert measure(rows, **how) == expected


@pytest.mark.parametrize(("queries", "clustered"), [(6, True), (5, False), (3, False)])
def test_queries_are_clustered_only_where_two_of_a_class_could_be_together(queries, clustered, rng):
    """Three classes: of three queries each would be a cluster of its own, and NMI 1 of any
    network."""
    found = measure(
        embedded([1] * queries + [2] * (12 - queries), rng), recalls=(1,), clustering=True
    )
    assert ("nmi" in found) == ("f1" in found) == clustered and "recall@1%" in found


def test_mixed_roles_are_rejected(rng):
    with pytest.raises(DataError, match="mixes rows"):
        measure(embedded([0] * 6 + [2] * 6, rng), recalls=(1,), clustering=False, seed=0)


# -- other scores, tables, comparisons and sizes ---------------------------------------------------

LINE = np.array([[0.0], [1.0], [2.1], [3.3], [10.0]])
CLASSES = np.array([0, 1, 0, 0, 2])  # the last one is alone


def test_named_scores_of_five_points_on_a_line():
    names = [
        "precision@1",
        "precision@2",
        "cmc@2",
        "recall@2",
        "map",
        "mrr",
        "r_precision",
        "tar@far=0.2",
        "eer",
    ]
    found = evaluate(LINE, CLASSES, metrics=names)
    assert list(found) == names
    # Rankings, right ones starred: 0 -> 1 2* 3* 4; 1 -> 0 2 3 4 (nothing to find); 2 -> 1 3* 0* 4
    # (1.1 before 1.2); 3 -> 2* 1 0* 4; 4 -> 3 2 1 0 (nothing to find).
    assert found["precision@1"] == pytest.approx(1 / 3)
    assert found["precision@2"] == pytest.approx((0.5 + 0.5 + 0.5) / 3)
    assert found["cmc@2"] == found["recall@2"] == pytest.approx(1)
    assert found["map"] == pytest.approx(
        ((1 / 2 + 2 / 3) / 2 + (1 / 2 + 2 / 3) / 2 + (1 + 2 / 3) / 2) / 3
    )
    assert found["mrr"] == pytest.approx((1 / 2 + 1 / 2 + 1) / 3)
    assert found["r_precision"] == pytest.approx((1 / 2 + 1 / 2 + 1 / 2) / 3)
    # Same pairs are 2.1, 1.2, 3.3 apart, different ones 1, 1.1, 2.3, 6.7, 7.9, 9, 10: one of seven
    # may be accepted.
    assert found["tar@far=0.2"] == 0.0
    pairs = torch.tensor([2.1, 1.2, 3.3, 1.0, 1.1, 2.3, 6.7, 7.9, 9.0, 10.0])
    assert found["eer"] == pytest.approx(
        verification_scores(pairs, torch.arange(10) < 3, fars=[0.2])["eer"]
    )


def test_tables_by_query_and_by_class():
    found = evaluate(LINE, CLASSES, metrics=["precision@1", "map"])
    assert found.per_query["query"].tolist() == [0, 2, 3] and found.per_query["label"].tolist() == [
        0,
        0,
        0,
    ]
    assert found.per_query["precision@1"].tolist() == [0, 0, 1]
    assert found.per_class["label"].tolist() == [0] and found.per_class["queries"].tolist() == [3]
    assert found.per_class["map"][0] == pytest.approx(found["map"])
    assert [*evaluate(LINE, CLASSES, metrics=["eer"]).per_query] == ["query", "label"]


def test_a_comparison_of_labels_of_ones_own(labeled):
    rows, labels = labeled
    names = ["recall@1", "map@r", "map", "r_precision", "tar@far=0.1", "eer"]
    coarse = evaluate(rows, labels // 2, metrics=names)
    assert evaluate(
        rows, labels, metrics=names, same=lambda a, b: a // 2 == b // 2
    ) == pytest.approx(coarse)
    with pytest.raises(ConfigError, match="clusters are compared with classes"):
        evaluate(rows, labels, metrics=["nmi"], same=torch.eq)


def test_rows_that_share_one_of_several_labels_belong_together(labeled):
    rows, labels = labeled
    several = torch.nn.functional.one_hot(labels, 9)
    several[::3, 8] = 1
    names = ["recall@1", "map@r", "map", "r_precision", "tar@far=0.1", "eer"]
    halves = {"gallery": rows[1::2], "gallery_labels": several[1::2]}
    for asked, sought in ((slice(0, None, 2), halves), (slice(None), {})):
        given = rows[asked], several[asked]
        found = evaluate(*given, metrics=names, **sought)
        shares = evaluate(
            *given, metrics=names, same=lambda a, b: (a * b).sum(dim=-1) > 0, **sought
        )
        assert found == pytest.approx(shares) and shares.per_class == {}
    table = found.per_class
    assert table["label"].tolist() == [*range(9)] and table["queries"].tolist() == [6] * 8 + [16]
    each = found.per_query["recall@1"]
    assert table["recall@1"][8] == pytest.approx(each[::3].mean())
    with pytest.raises(ConfigError, match="not with several labels"):
        evaluate(rows, several, metrics=["nmi"])


@pytest.mark.parametrize("name", ["recall", "precision@x"])
def test_unknown_scores_are_named(labeled, name):
    with pytest.raises(ConfigError, match="unknown retrieval score"):
        evaluate(*labeled, metrics=[name])


@pytest.mark.parametrize("separate", [False, True])
def test_agrees_with_pytorch_metric_learning(labeled, separate):
    calculators = pytest.importorskip("pytorch_metric_learning.utils.accuracy_calculator")
    from pytorch_metric_learning.distances import LpDistance
    from pytorch_metric_learning.utils.inference import CustomKNN

    ours = {
        "precision_at_1": "precision@1",
        "r_precision": "r_precision",
        "mean_average_precision_at_r": "map@r",
        "mean_average_precision": "map",
        "mean_reciprocal_rank": "mrr",
        "NMI": "nmi",
        "AMI": "ami",
    }
    rows, labels = labeled
    clusters = kmeans(rows[::2] if separate else rows, 8, seed=0, restarts=1)
    theirs = calculators.AccuracyCalculator(
        include=tuple(ours),
        k=24 if separate else 47,
        knn_func=CustomKNN(LpDistance(normalize_embeddings=False)),
        kmeans_func=lambda x, n: clusters,
    )
    asked = (rows[::2], labels[::2]) if separate else (rows, labels)
    sought = {"gallery": rows[1::2], "gallery_labels": labels[1::2]} if separate else {}
    found = evaluate(*asked, **sought, metrics=list(ours.values()), seed=0, restarts=1)
    expected = theirs.get_accuracy(*asked, *sought.values())
    assert {name: found[ours[name]] for name in ours} == pytest.approx(
        {name: expected[name] for name in ours}
    )


def test_a_collapsed_embedding_is_scored_not_rejected():
    scores = evaluate(torch.ones(60, 3), torch.arange(60) // 2)
    # Ties go to row 0, or row 1 for row 0: right for rows 0 and 1.
    assert scores["recall@1"] == pytest.approx(1 / 30)
    assert scores["ami"] == 0.0

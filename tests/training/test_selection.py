import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from vicinal.data.records import ImageArray, Records
from vicinal.errors import ConfigError
from vicinal.evaluation.encoder import Embedded
from vicinal.training.experiment import Judge, Verdict
from vicinal.training.finish import _significance, _warnings

# Two classes on a line, two rows of one on either side of the other's.
ROWS = [(0.0, 0), (1.0, 0), (1.4, 1), (11.0, 1)]


def records(**columns):
    splits = np.array(["validation"] * len(ROWS))
    labels = np.array([label for _, label in ROWS])
    source = ImageArray(np.zeros((len(ROWS), 2, 2, 1), np.uint8), [str(x) for x, _ in ROWS])
    return Records("line", source, labels, tuple("ab"), splits, columns)


class Names:
    """An encoder that takes names for places."""

    def embed(self, asked):
        vectors = torch.tensor([[float(asked.source.name(row))] for row in range(len(asked))])
        return Embedded(vectors, asked, (), "euclidean")


def judge(by="map@r", **columns):
    return Judge(records(**columns), by, {})


def test_a_verdict_has_the_score_of_each_class():
    verdict, scores = judge()(Names())
    assert verdict == Verdict((1.0, 1.0), (2, 2))
    assert verdict.score == scores["map@r"] == scores["recall@1"] == 0.5


def test_any_score_of_retrieval_selects_and_others_are_rejected():
    verdict, scores = judge("precision@1")(Names())
    assert verdict.score == scores["precision@1"] == scores["recall@1"]
    with pytest.raises(ConfigError, match="retrieval score 'accuracy'"):
        judge("accuracy")


def test_a_function_of_the_users_own_selects_by_a_score_for_each_row():
    verdict, scores = judge(lambda embeddings, labels: embeddings[:, 0] + labels)(Names())
    assert verdict.sums == pytest.approx((1.0, 14.4)) and verdict.queries == (2, 2)
    assert scores["<lambda>"] == pytest.approx(verdict.score) and scores["recall@1"] == 0.5
    with pytest.raises(ConfigError, match="a finite score for each of 4 rows"):
        judge(lambda embeddings, labels: embeddings.mean())(Names())


def test_queries_are_sought_in_a_gallery_of_their_own():
    verdict, _ = judge(role=np.array([1, 2, 1, 2]))(Names())
    assert verdict.queries == (1, 1)


def test_the_standard_error_is_that_of_classes_drawn_anew():
    even = Verdict((5.0, 10.0, 15.0), (20, 20, 20))
    assert even.score == 0.5
    assert math.isclose(even.error, np.std([0.25, 0.5, 0.75], ddof=1) / math.sqrt(3))
    assert Verdict((3.0,), (4,)).error == 0


def test_a_verdict_says_by_how_much_it_is_above_another():
    low = Verdict((1.0, 2.0, 3.0, 4.0), (10, 10, 10, 10))
    high = Verdict((3.0, 4.0, 5.0, 6.0), (10, 10, 10, 10))
    gain = high.above(low)
    assert math.isclose(gain.mean, 0.2) and gain.low > 0
    assert not low.above(low).significant


@pytest.mark.parametrize(
    ("low", "said"), [(0.01, "step 9 is significantly above"), (-0.01, "9 is not significantly")]
)
def test_a_run_says_whether_its_step_is_significantly_above_the_start(low, said):
    above = {"the start": {"mean": 0.03, "low": low, "high": 0.05}}
    (line,) = _significance({"step": 9, "by": "validation map@r", "above": above})
    assert said in line and "MAP@R +3.0" in line


@pytest.mark.parametrize(
    ("name", "begins", "took", "selected", "said"),
    [
        ("small", 20, False, (20, 0.5), ("begins after step 20: it is the loss alone", "below")),
        ("small", 20, False, (21, 0.5), ("a lower optimizer.learning_rate, or keep that head",)),
        ("ngrams", 0, False, (100, None), ("an encoder that knows English",)),
        ("small", 0, True, (100, None), ("a lower optimizer.learning_rate, or keep that run.",)),
        ("small", 0, False, (0, 0.9), ("the start is kept", "a smaller model.dim, or keep that")),
    ],
)
def test_a_run_says_what_went_wrong_and_what_to_try(name, begins, took, selected, said):
    experiment = SimpleNamespace(
        steps=100,
        method=SimpleNamespace(acts_from=begins, embedder=SimpleNamespace(took_head=took)),
        config=SimpleNamespace(model=SimpleNamespace(name=name, text=None)),
    )
    scores = {"untrained": 0.3, "head start": 0.8, "trained": 0.7}
    rows = [{"name": row, "metrics": {"recall@1": score}} for row, score in scores.items()]
    step, value = selected
    found = _warnings(experiment, {"selected": {"step": step, "value": value}, "rows": rows})
    assert len(found) == len(said) and all(map(str.__contains__, found, said))

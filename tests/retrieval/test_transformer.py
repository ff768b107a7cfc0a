"""A run's model in scikit-learn's pipelines: cloned, stored and searched over at the cost of a
path."""

import joblib
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils.validation import check_is_fitted
from tests.runs import drawn_run

import vicinal
from vicinal.data import FeatureTransform
from vicinal.errors import RunError
from vicinal.models import Embedder, Identity
from vicinal.retrieval.transformer import EmbeddingTransformer


@pytest.fixture
def run(tmp_path):
    return drawn_run(tmp_path / "run", Embedder(Identity(8), 4), FeatureTransform()).path


@pytest.fixture
def labeled():
    """Four classes of ten vectors that are easy to tell apart."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 10)
    return (4 * rng.normal(size=(4, 8))[labels] + 0.1 * rng.normal(size=(40, 8))).astype(
        np.float32
    ), labels


def test_it_gives_the_embeddings_of_the_run(run, labeled):
    features, _ = labeled
    assert_array_equal(
        EmbeddingTransformer(run).fit_transform(features), vicinal.load(run).embed(features)
    )
    names = EmbeddingTransformer(run).get_feature_names_out().tolist()
    assert len(names) == 4 and names[3] == "embedding3"


def test_it_is_a_step_before_a_neighbor_classifier(run, labeled):
    features, labels = labeled
    classify = make_pipeline(EmbeddingTransformer(run), KNeighborsClassifier(3)).fit(
        features[::2], labels[::2]
    )
    assert classify.score(features[1::2], labels[1::2]) == 1.0
    search = GridSearchCV(classify, {"kneighborsclassifier__n_neighbors": [1, 3]}, cv=2).fit(
        features, labels
    )
    assert search.best_score_ == 1.0


def test_what_is_stored_is_the_path_and_another_is_loaded_when_it_is_named(run, labeled, tmp_path):
    features, _ = labeled
    step = EmbeddingTransformer(str(run))
    rows = step.transform(features)
    assert clone(step).get_params() == step.get_params()
    check_is_fitted(step)
    joblib.dump(step, tmp_path / "step.joblib")
    assert (tmp_path / "step.joblib").stat().st_size < 500 + len(str(run))
    assert_array_equal(joblib.load(tmp_path / "step.joblib").transform(features), rows)
    with pytest.raises(RunError, match="not a run"):
        step.set_params(run=tmp_path / "nowhere").transform(features)

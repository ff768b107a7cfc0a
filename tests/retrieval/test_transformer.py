"""A run's model in scikit-learn's pipelines: cloned, stored and searched over at the cost of a
path."""

import joblib
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
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


features = np.random.default_rng(0).normal(size=(40, 8))


def test_it_gives_the_embeddings_of_the_run_in_a_pipeline(run):
    step = make_pipeline(EmbeddingTransformer(run))
    assert_array_equal(step.fit_transform(features), vicinal.load(run).embed(features))
    names = step.get_feature_names_out().tolist()
    assert len(names) == 4 and names[3] == "embedding3"


def test_what_is_stored_is_the_path_and_another_is_loaded_when_it_is_named(run, tmp_path):
    step = EmbeddingTransformer(str(run))
    rows = step.transform(features)
    assert clone(step).get_params() == step.get_params()
    check_is_fitted(step)
    joblib.dump(step, tmp_path / "step.joblib")
    assert (tmp_path / "step.joblib").stat().st_size < 500 + len(str(run))
    assert_array_equal(joblib.load(tmp_path / "step.joblib").transform(features), rows)
    with pytest.raises(RunError, match="not a run"):
        step.set_params(run=tmp_path / "nowhere").transform(features)

"""A run's model as a step of a scikit-learn pipeline."""

from functools import lru_cache
from os import PathLike
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin

from vicinal.models.embedder import Role
from vicinal.retrieval.items import Vectors
from vicinal.retrieval.model import EmbeddingModel, load

_loaded = lru_cache(4)(load)


class EmbeddingTransformer(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Images or feature vectors to embeddings of a trained run; there is nothing left to fit.

    It keeps the run's path, not the model, so it is cloned, sent to other processes and stored by
    joblib at the cost of that path; the model is loaded when the first inputs come.

    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from sklearn.pipeline import make_pipeline
    >>> classify = make_pipeline(EmbeddingTransformer("runs/birds"), KNeighborsClassifier())

    Args:
        run: the run's folder.
        batch_size: inputs at a time.
        device: as ``vicinal.load`` takes it.
        role: as ``vicinal.load`` takes it.
    """

    def __init__(
        self,
        run: str | PathLike[str],
        *,
        batch_size: int = 64,
        device: str = "auto",
        role: Role | None = None,
    ) -> None:
        self.run = run
        self.batch_size = batch_size
        self.device = device
        self.role = role

    def fit(self, X: Any, y: Any = None) -> Self:
        """Load the model, so that a run that cannot be read raises here; X and y are ignored."""
        self._model()
        return self

    def transform(self, X: Any) -> Vectors:
        """Embed what ``vicinal.load(run).embed`` takes."""
        return self._model().embed(X, batch_size=self.batch_size)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        names = [f"embedding{place}" for place in range(self._model().dim)]
        return np.array(names, dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.no_validation = True  # paths and pictures are no tables
        return tags

    def _model(self) -> EmbeddingModel:
        return _loaded(str(self.run), device=self.device, role=self.role)

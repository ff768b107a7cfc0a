"""Scores of embeddings: retrieval, clustering, re-identification, verification."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vicinal.evaluation.clustering import clustering_scores, kmeans
    from vicinal.evaluation.compact import compact_scores
    from vicinal.evaluation.measure import Scores, evaluate
    from vicinal.evaluation.reranking import rerank
    from vicinal.evaluation.retrieval import (
        CARS_RECALLS,
        CUB_RECALLS,
        INSHOP_RECALLS,
        SOP_RECALLS,
        reidentify,
    )
    from vicinal.evaluation.verification import verification_scores, verify

__all__ = [
    "CARS_RECALLS",
    "CUB_RECALLS",
    "INSHOP_RECALLS",
    "SOP_RECALLS",
    "Scores",
    "clustering_scores",
    "compact_scores",
    "evaluate",
    "kmeans",
    "reidentify",
    "rerank",
    "verification_scores",
    "verify",
]

_MODULES = {
    "Scores": "measure",
    "clustering_scores": "clustering",
    "compact_scores": "compact",
    "evaluate": "measure",
    "kmeans": "clustering",
    "rerank": "reranking",
    "verification_scores": "verification",
    "verify": "verification",
}


def __getattr__(name: str) -> Any:
    """Import a score when it is first used (PEP 562): a search needs the encoder and the neighbors
    alone."""
    if name not in __all__:
        raise AttributeError(f"module 'vicinal.evaluation' has no attribute {name!r}")
    return getattr(import_module(f"vicinal.evaluation.{_MODULES.get(name, 'retrieval')}"), name)

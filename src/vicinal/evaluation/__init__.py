"""Scores of embeddings: retrieval, clustering, re-identification, verification."""

from vicinal.evaluation.clustering import clustering_scores, kmeans
from vicinal.evaluation.compact import compact_scores, rerank
from vicinal.evaluation.measure import Scores, evaluate
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

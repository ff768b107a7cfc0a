"""Scores of embeddings: retrieval, clustering, re-identification, verification, diagnostics."""

from vicinal.evaluation.clustering import clustering_scores, kmeans
from vicinal.evaluation.measure import evaluate
from vicinal.evaluation.reidentification import reidentify
from vicinal.evaluation.retrieval import CARS_RECALLS, CUB_RECALLS, INSHOP_RECALLS, SOP_RECALLS, retrieval_scores
from vicinal.evaluation.verification import verification_scores, verify

__all__ = [
    "CARS_RECALLS",
    "CUB_RECALLS",
    "INSHOP_RECALLS",
    "SOP_RECALLS",
    "clustering_scores",
    "evaluate",
    "kmeans",
    "reidentify",
    "retrieval_scores",
    "verification_scores",
    "verify",
]

"""What an embedding is worth: retrieval, clustering, re-identification, verification, diagnostics."""

from vicinal.evaluation.clustering import clustering_scores
from vicinal.evaluation.k_means import kmeans
from vicinal.evaluation.protocol import evaluate
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

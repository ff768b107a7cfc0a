"""Learning which tuples matter: assessors, what they assess, and the gradient that teaches them."""

from vicinal.assessment.assessing import ALAConfig
from vicinal.assessment.assessor import (
    Assessment,
    Assessor,
    ConstantAssessor,
    LSTMAssessor,
    MLPAssessor,
    RandomAssessor,
)
from vicinal.assessment.meta_gradient import Route
from vicinal.assessment.metric import Metric, Unroll
from vicinal.assessment.scoring import AnchorScoring, EpisodeLoss, PairScoring, Scored, Scoring, TripletScoring

__all__ = [
    "ALAConfig",
    "AnchorScoring",
    "Assessment",
    "Assessor",
    "ConstantAssessor",
    "EpisodeLoss",
    "LSTMAssessor",
    "MLPAssessor",
    "Metric",
    "PairScoring",
    "RandomAssessor",
    "Route",
    "Scored",
    "Scoring",
    "TripletScoring",
    "Unroll",
]

"""DML-ALA: Deep Metric Learning via Adaptive Learnable Assessment (Zheng, Lu and Zhou, CVPR 2020).

| paper | here |
|---|---|
| Eq. (8), the sequence-aware assessor w = A(T, h; φ) | `assessor.LSTMAssessor`; controls beside it |
| the tuples of an episode and their losses | `scoring.TripletScoring`, `PairScoring`, `AnchorScoring` |
| Eq. (10), the virtual step θ' | `metric.Metric`, `method.ALA.validate` |
| Eqs. (11), (12), the assessor's gradient and update | `meta_gradient`, `method.ALA.teach` |
| Eq. (13), the metric's update | `method.ALA.step` |
| Sect. 4.3, Figure 4, analysis of the weights | `figures.WeightAnalysis` |
"""

from vicinal.methods.ala.assessor import (
    Assessment,
    Assessor,
    ConstantAssessor,
    LSTMAssessor,
    MLPAssessor,
    RandomAssessor,
)
from vicinal.methods.ala.meta_gradient import Route
from vicinal.methods.ala.method import ALA
from vicinal.methods.ala.metric import Metric, Unroll
from vicinal.methods.ala.scoring import AnchorScoring, EpisodeLoss, PairScoring, Scored, Scoring, TripletScoring

__all__ = [
    "ALA",
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

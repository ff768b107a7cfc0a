"""DML-ALA: Deep Metric Learning via Adaptive Learnable Assessment (Zheng, Lu and Zhou, CVPR 2020).

| paper | here |
|---|---|
| Eq. (8), the sequence-aware assessor w = A(T, h; φ) | `assessment.LSTMAssessor`; controls beside
it |
| the tuples of an episode and their losses | `assessment.TripletScoring`, `PairScoring` |
| Eq. (10), the virtual step θ' | `meta_gradient.Metric`, `method.ALA.validate` |
| Eqs. (11), (12), the assessor's gradient and update | `meta_gradient.slopes`, `method.ALA.teach` |
| Eq. (13), the metric's update | `method.ALA.step` |
| Sect. 4.3, Figure 4, analysis of the weights | `method.WeightAnalysis` |
"""

from vicinal.methods.ala.method import ALA

__all__ = ["ALA"]

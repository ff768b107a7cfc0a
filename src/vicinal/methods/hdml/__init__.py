"""HDML: Hardness-Aware Deep Metric Learning (Zheng, Chen, Lu and Zhou, CVPR 2019).

| paper | here |
|---|---|
| Eqs. (4)-(7), hardness-aware augmentor | `synthesis.harder`; λ: `method.interpolation_factor` |
| Eq. (8), the generator, and its classifier | `synthesis.Generator`, `FeatureClassifier` |
| Eq. (9), J_gen = J_recon + λ J_soft | `reconstruction_cost`, `FeatureClassifier.label_costs` |
| T(ẑ) → T(ỹ) → T(z̃) of a whole batch | `synthesis.Synthesis` |
| Eqs. (10), (11), the three updates | `method.HDML.step` |
"""

from vicinal.methods.hdml.method import HDML

__all__ = ["HDML"]

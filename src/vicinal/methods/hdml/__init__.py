"""HDML: Hardness-Aware Deep Metric Learning (Zheng, Chen, Lu and Zhou, CVPR 2019).

| paper | here |
|---|---|
| Eqs. (4)-(7), the hardness-aware augmentor | `augmentor.harder`, `harder_on_arc` (ours), λ by `interpolation_factor` |
| Eq. (8), the generator, and its label-preserving classifier | `generator.Generator`, `FeatureClassifier` |
| Eq. (9), J_gen = J_recon + λ J_soft | `generator.reconstruction_cost`, `FeatureClassifier.label_term` |
| T(ẑ) → T(ỹ) → T(z̃) of a whole batch | `synthesis.Synthesis` |
| Eqs. (10), (11), the three updates | `method.HDML.step` |
"""

from vicinal.methods.hdml.augmentor import (
    angles,
    farther,
    harder,
    harder_on_arc,
    interpolation_factor,
    reference_distances,
)
from vicinal.methods.hdml.generator import FeatureClassifier, Generator, LabelTerm, reconstruction_cost
from vicinal.methods.hdml.method import HDML, PRESETS, Preset, WindowedMean
from vicinal.methods.hdml.synthesis import Roles, Synthesis, Synthetics

__all__ = [
    "HDML",
    "PRESETS",
    "FeatureClassifier",
    "Generator",
    "LabelTerm",
    "Preset",
    "Roles",
    "Synthesis",
    "Synthetics",
    "WindowedMean",
    "angles",
    "farther",
    "harder",
    "harder_on_arc",
    "interpolation_factor",
    "reconstruction_cost",
    "reference_distances",
]

"""Synthesis of harder tuples: augmentor, generator, and how they reach any loss through its core."""

from vicinal.synthesis.augmentor import (
    angles,
    farther,
    harder,
    harder_on_arc,
    interpolation_factor,
    reference_distances,
)
from vicinal.synthesis.embedding_expansion import EmbeddingExpansion
from vicinal.synthesis.generator import FeatureClassifier, Generator, LabelTerm, reconstruction_cost
from vicinal.synthesis.hardness import PRESETS, HDMLConfig, Preset
from vicinal.synthesis.optimal_negatives import OptimalNegatives
from vicinal.synthesis.published import published_n_pair, published_triplet
from vicinal.synthesis.roles import Roles
from vicinal.synthesis.synthesis import Synthesis, Synthetics

__all__ = [
    "PRESETS",
    "EmbeddingExpansion",
    "FeatureClassifier",
    "Generator",
    "HDMLConfig",
    "LabelTerm",
    "OptimalNegatives",
    "Preset",
    "Roles",
    "Synthesis",
    "Synthetics",
    "angles",
    "farther",
    "harder",
    "harder_on_arc",
    "interpolation_factor",
    "published_n_pair",
    "published_triplet",
    "reconstruction_cost",
    "reference_distances",
]

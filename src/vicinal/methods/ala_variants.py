"""DML-ALA beside its twin and its controls: the same network, loss and episodes, another assessor or none."""

from typing import Literal

import numpy as np

from vicinal.assessment.assessing import Assessing
from vicinal.assessment.assessor import Assessor, ConstantAssessor, LSTMAssessor, MLPAssessor, RandomAssessor
from vicinal.assessment.scoring import EpisodeLoss, Scoring, TripletScoring
from vicinal.losses.triplet import TripletLoss
from vicinal.methods.ala import ALA
from vicinal.methods.hdml_ala import HDMLALA
from vicinal.methods.optimisation import Optimisation
from vicinal.methods.plain import Plain
from vicinal.models.embedder import Embedder
from vicinal.sampling.episodes import EpisodeSampler
from vicinal.synthesis.hardness import Hardness

Variant = Literal["ala", "plain", "constant", "random", "mlp"]
TripletVariant = Literal["ala", "plain", "constant", "random", "mlp", "hdml", "hdml_ala"]


def build_variant(
    variant: Variant,
    embedder: Embedder,
    scoring: Scoring,
    sampler: EpisodeSampler,
    optimisation: Optimisation,
    assessing: Assessing,
    *,
    epochs: int,
    mean: float,
    spread: float,
    seed: int,
) -> ALA | Plain:
    """One of the methods that are compared; with one seed all see the same episodes and start from the same embedder.

    Args:
        variant: ``"ala"``: the paper's assessor. ``"plain"``: no assessor, all samples of both subsets, as the paper's
            baselines train. Controls on the training subset alone: ``"constant"``: one weight, ALA's mean;
            ``"random"``: weights with ALA's mean and spread that know nothing; ``"mlp"``: an assessor without memory.
        embedder: drawn before the assessor, so that a seed gives all variants the same.
        scoring: the tuples and their loss.
        sampler: episodes.
        optimisation: of the embedder.
        assessing: how assessors learn.
        epochs: of training, for the schedule.
        mean: weight of ``"constant"`` and ``"random"``.
        spread: standard deviation of ``"random"``.
        seed: of ``"random"``.
    """
    if variant == "plain":
        loss = EpisodeLoss(scoring, training_rows=sampler.training_rows, over=assessing.over)
        return Plain.optimised(embedder, loss, sampler, optimisation, epochs=epochs)
    inputs = scoring.seen * (embedder.dim or embedder.width)
    assessor: Assessor
    match variant:
        case "ala":
            assessor = LSTMAssessor(inputs)
        case "mlp":
            assessor = MLPAssessor(inputs)
        case "constant":
            assessor = ConstantAssessor(mean)
        case "random":
            assessor = RandomAssessor(mean, spread, seed=seed)
    return ALA.optimised(embedder, scoring, assessor, sampler, optimisation, assessing, epochs=epochs)


def build_triplet_variant(
    variant: TripletVariant,
    embedder: Embedder,
    loss: TripletLoss,
    sampler: EpisodeSampler,
    optimisation: Optimisation,
    assessing: Assessing,
    hdml: Hardness,
    *,
    labels: np.ndarray,
    epochs: int,
    mean: float,
    spread: float,
    seed: int,
) -> ALA | Plain | HDMLALA:
    """As ``build_variant``, and over triplets ``"hdml_ala"``, which weighs HDML's synthetic tuples as well.

    ``"hdml"`` is the same with weight 1 for every tuple: HDML on ALA's training subset. ``loss`` has ``blocks``.
    """
    if variant != "hdml" and variant != "hdml_ala":
        return build_variant(
            variant,
            embedder,
            TripletScoring(loss),
            sampler,
            optimisation,
            assessing,
            epochs=epochs,
            mean=mean,
            spread=spread,
            seed=seed,
        )
    width = 3 * (embedder.dim or embedder.width)
    assessor = ConstantAssessor(1.0) if variant == "hdml" else LSTMAssessor(width)
    return HDMLALA.optimised(
        embedder, loss, assessor, sampler, optimisation, assessing, hdml, labels=labels, epochs=epochs
    )

"""HDML + ALA: an assessor over real and synthetic tuples (Zheng et al., CVPR 2019 and CVPR 2020)."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.optim import Optimizer

from vicinal.assessment.assessing import ALAConfig
from vicinal.assessment.assessor import Assessor
from vicinal.assessment.scoring import Head, Over, Scored, Scoring, TripletScoring, hardness
from vicinal.data.records import Batch
from vicinal.errors import ConfigError
from vicinal.exhibits import Exhibit
from vicinal.losses.triplet import TripletLoss
from vicinal.methods.ala import ALA, ALATraining
from vicinal.methods.hdml import HDML, HDMLTraining
from vicinal.methods.hdml import READINGS as HDML_READINGS
from vicinal.methods.method import Parts
from vicinal.methods.optimizer import OptimizerConfig
from vicinal.methods.windows import WindowedMean
from vicinal.models.embedder import Embedder
from vicinal.parallel import average_gradients
from vicinal.sampling.episodes import EpisodeSampler, episode_triplets
from vicinal.synthesis.augmentor import interpolation_factor
from vicinal.synthesis.generator import LabelTerm, reconstruction_cost
from vicinal.synthesis.hardness import HDMLConfig
from vicinal.synthesis.synthesis import Synthesis
from vicinal.tuples import Triplets


class _Tuples:
    """The triplets of a subset beside the same triplets with their negatives moved, through the generator."""

    def __init__(self, synthesis: Synthesis, embeddings: Tensor, labels: Tensor, pull: Tensor, head: Head) -> None:
        rows = torch.cat(episode_triplets(len(embeddings), embeddings.device))
        real, self.labels = embeddings[rows], labels[rows]
        roles = synthesis.roles(real, self.labels)
        count = len(rows) // 3
        moved = synthesis.mover(real, self.labels, pull, roles)(slice(0, count)).squeeze(dim=1)
        self.rows, self.count = rows, count
        self.features, self.embeddings = synthesis.regenerate(torch.cat([real, moved]), head)

    @property
    def triplets(self) -> Triplets:
        """Anchors and positives unaltered, negatives moved; all of them regenerated."""
        places = torch.arange(4 * self.count, device=self.rows.device).view(4, -1)
        return Triplets(places[0], places[1], places[3])


class RegeneratedScoring(Scoring):
    """Real triplets, then the same ones regenerated with harder negatives; the generator is a constant here.

        J_metric = w J_m + (1 - w) J_syn                                         Zheng et al. 2019, Eq. (11)

    so a real tuple's loss carries w, a synthetic one's 1 - w. ``pull`` = 1 - λ and ``share`` = w are set before a step.
    """

    def __init__(self, synthesis: Synthesis, loss: TripletLoss, *, over: Over) -> None:
        super().__init__(loss)
        self.inner, self.synthesis = TripletScoring(loss), synthesis
        self.generator = synthesis.generator  # registered, so that its buffers are copied where they must not move
        self.scale = 2.0 if over == "mean" else 1.0  # the mean over 2 T tuples is half of the two means
        self.pull, self.share = torch.zeros(()), torch.ones(())

    def rows(self, count: int) -> Integer[Tensor, "t m"]:
        """Of the real triplets, which come first; regenerated ones show no record."""
        return self.inner.rows(count)

    @property
    def real(self) -> Scoring:
        return self.inner

    def forward(self, embeddings: Float[Tensor, "n d"], labels: Integer[Tensor, "n"], head: Head) -> Scored:
        real: Scored = self.inner(embeddings, labels, head)
        found = _Tuples(self.synthesis, embeddings, labels, self.pull, head)
        compared = self.loss.triplet_comparisons(found.embeddings, found.triplets)
        members = found.embeddings[torch.stack(found.triplets, dim=1)]
        losses = (self.share * real.losses, (1 - self.share) * self.loss.core(compared).sums)
        return Scored(
            self.scale * torch.cat(losses),
            torch.cat([real.members, members]),
            torch.cat([real.hardness, hardness(self.comparable(members))]),
        )


@dataclass(frozen=True)
class HDMLALA:
    """HDML + ALA (Zheng et al. 2019 and 2020): an assessor weighs real and synthetic triplets alike.

    Attributes:
        hdml: settings of HDML; synthetic triplets are regenerated, so ``members`` and ``generate`` stay as they are.
        ala: settings of ALA. ``assessor="constant"`` with weight 1 is HDML on ALA's training subset.
    """

    hdml: HDML = HDML()
    ala: ALA = ALA()

    default_loss: ClassVar[str] = "triplet"

    def sampler_for(self, loss: type[nn.Module]) -> str:
        return "episodes"

    def check(self, loss: nn.Module, sampler: object) -> None:
        self.ala.check(loss, sampler)
        if getattr(loss, "layout", None) != "triplets" or self.ala.units != "triplets":
            raise ConfigError(
                f"HDML + ALA synthesizes one negative for each triplet, got {type(loss).__name__} and "
                f"units={self.ala.units}. Set loss=triplet and method.ala.units=triplets."
            )
        _check_regenerated(self.hdml)

    def build(self, parts: Parts) -> "HDMLALATraining":
        self.check(parts.loss, parts.sampler)
        loss = copy.copy(parts.loss)
        loss.blocks = True  # type: ignore[assignment]  # the form in which HDML synthesizes triplets
        assessor = self.ala.build_assessor(3 * (parts.embedder.dim or parts.embedder.width), parts.seed)
        return HDMLALATraining.from_config(
            parts.embedder,
            loss,  # type: ignore[arg-type]
            assessor,
            parts.sampler,
            parts.optimizer,
            self.ala,
            self.hdml,
            labels=parts.train.labels,
            steps=parts.steps,
        )


def _check_regenerated(settings: HDMLConfig) -> None:
    if settings.members == "real" or not settings.generate:
        raise ConfigError(
            f"HDML + ALA scores regenerated triplets, got members={settings.members} and generate="
            f"{settings.generate}. Set members=regenerated and generate=true."
        )


@dataclass
class HDMLALATraining:
    """ALA's episode and bilevel step over both kinds of tuples; HDML's generator and classifier learn beside it.

    The papers say that the two combine and do not say how. Here the assessor sees the real tuples of an episode, then
    the synthetic ones, in one sequence; the derivative that teaches it runs over both vectors of losses; the generator
    stands still in the virtual step and is passed through; the validation subset consists of real tuples alone.
    """

    ala: ALATraining
    scoring: RegeneratedScoring
    hdml: HDMLTraining

    @classmethod
    def from_config(
        cls,
        embedder: Embedder,
        loss: TripletLoss,
        assessor: Assessor,
        sampler: EpisodeSampler,
        config: OptimizerConfig,
        assessing: ALAConfig,
        settings: HDMLConfig,
        *,
        labels: np.ndarray,
        steps: int,
    ) -> "HDMLALATraining":
        """With all optimisers; ``loss`` has ``blocks``, the form in which HDML synthesises triplets."""
        _check_regenerated(settings)
        if not loss.blocks:
            raise ConfigError(
                "HDML + ALA synthesizes one negative for each triplet, got a loss with blocks=False. "
                "Use TripletLoss(blocks=True)."
            )
        hdml = HDMLTraining.from_config(embedder, loss, sampler, config, settings, labels=labels, steps=steps)
        scoring = RegeneratedScoring(hdml.synthesis, loss, over=assessing.over)
        ala = ALATraining(embedder, scoring, assessor, sampler, hdml.optimizer, assessing, hdml.schedule)
        return cls(ala, scoring, hdml)

    @property
    def embedder(self) -> Embedder:
        return self.ala.embedder

    @property
    def notes(self) -> tuple[str, ...]:
        return self.ala.notes

    @property
    def readings(self) -> Mapping[str, str]:
        return {"hdml": HDML_READINGS["hardness"], "generator": HDML_READINGS["generator"], **self.ala.readings}

    def to(self, device: torch.device) -> None:
        self.hdml.to(device)
        self.ala.to(device)
        self.scoring.pull, self.scoring.share = self.scoring.pull.to(device), self.scoring.share.to(device)

    def batches(self, epoch: int) -> Sequence[Sequence[int]]:
        return self.ala.batches(epoch)

    def step(self, batch: Batch) -> dict[str, Tensor]:
        """One bilevel step of the metric, one step of generator and classifier from the same pass."""
        factor = self._exponential(self.hdml.preset.alpha, self.hdml.average_loss)
        share = self._exponential(self.hdml.preset.beta, self.hdml.generator_loss)
        if self.hdml.settings.real_share is not None:
            share = torch.full_like(share, self.hdml.settings.real_share)
        self.scoring.pull.copy_(1 - factor)  # in place: a recorded step reads them there
        self.scoring.share.copy_(share)
        scalars = self.ala.step(batch)
        return scalars | {"hdml/lambda": factor, "hdml/w": share} | self._generate()

    def exhibits(self) -> Sequence[Exhibit]:
        return self.ala.exhibits()

    def collapsed_loss(self, batch: Batch) -> float:
        return self.ala.collapsed_loss(batch)

    def state_dict(self) -> dict[str, Any]:
        return {name: part.state_dict() for name, part in self._parts().items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, part in self._parts().items():
            part.load_state_dict(state[name])

    def _exponential(self, exponent: float, mean: WindowedMean) -> Float[Tensor, ""]:
        """λ of Eq. (7) or w of Eq. (11)."""
        relative = self.hdml.settings.scale == "relative"
        return interpolation_factor(exponent, mean.relative() if relative else mean.last)

    def _generate(self) -> dict[str, Tensor]:
        """One step of generator and classifier on the pass that the metric learnt from, all of it constant."""
        hdml, seen = self.hdml, self.ala.seen
        own, _ = hdml.classifier.own_loss(seen.features, seen.labels)
        found = _Tuples(hdml.synthesis, seen.embeddings, seen.labels, self.scoring.pull, hdml.embedder.embed)
        three = 3 * found.count
        real_features = seen.features[found.rows]
        recon = reconstruction_cost(real_features, found.features[:three], hdml.preset.reconstruction)
        recon = hdml.preset.reconstruction_factor * recon
        label = hdml.preset.label_factor * self._label_cost(found)
        hdml.generator_loss.add(recon + label)
        hdml.average_loss.add(self.scoring.inner(seen.embeddings, seen.labels, hdml.embedder.embed).losses.mean())
        _learn(hdml.auxiliary, own + recon + label)
        return {"generator/J_recon": recon.detach(), "generator/J_soft": label.detach()}

    def _label_cost(self, found: _Tuples) -> Float[Tensor, ""]:
        """J_soft over the rows of the regenerated tuples: anchors, positives, moved negatives."""
        rows = torch.cat(found.triplets)
        labels = torch.cat([found.labels, found.labels[2 * found.count :]])[rows]
        term: LabelTerm = self.hdml.classifier.label_term(found.features[rows], labels)
        return term.cost if self.hdml.preset.label_average == "sum" else term.mean()

    def _parts(self) -> dict[str, Any]:
        hdml = self.hdml
        return {
            "ala": self.ala,
            "classifier": hdml.classifier,
            "auxiliary": hdml.auxiliary,
            "average_loss": hdml.average_loss,
            "generator_loss": hdml.generator_loss,
        }


def _learn(optimizer: Optimizer, loss: Float[Tensor, ""]) -> None:
    """One step in the optimiser's own parameters; nothing reaches any other's ``grad``."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters, allow_unused=True), strict=True):
        parameter.grad = gradient
    average_gradients(parameters)
    optimizer.step()

"""HDML + ALA: an assessor over real and synthetic tuples (Zheng et al., CVPR 2019 and CVPR
2020)."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from vicinal.data.records import Batch
from vicinal.errors import ConfigError
from vicinal.figures import Figure
from vicinal.losses.loss import Loss
from vicinal.methods.ala.assessment import Head, Scored, Scoring, TripletScoring
from vicinal.methods.ala.method import ALA
from vicinal.methods.hdml.generator import reconstruction_cost
from vicinal.methods.hdml.method import HDML
from vicinal.methods.hdml.synthesis import Synthesis
from vicinal.methods.method import Method, Parts, StepResult
from vicinal.samplers.episodes import episode_triplets
from vicinal.tuples import Embeddings, SingleLabels, Triplets


class _Tuples:
    """The triplets of a subset beside the same triplets with their negatives moved, through the
    generator."""

    def __init__(
        self, synthesis: Synthesis, embeddings: Tensor, labels: Tensor, lambda_: Tensor, head: Head
    ) -> None:
        rows = torch.cat(episode_triplets(len(embeddings), embeddings.device))
        real = embeddings[rows]
        self.labels = labels[rows]
        roles = synthesis.roles(real, self.labels)
        pulled = roles.pulled(real, self.labels, lambda_).squeeze(dim=1)
        self.rows = rows
        self.count = len(rows) // 3
        self.features = synthesis.generator(torch.cat([real, pulled]))
        self.embeddings = head(self.features)

    @property
    def triplets(self) -> Triplets:
        """Anchors and positives unaltered, negatives moved; all of them regenerated."""
        places = torch.arange(4 * self.count, device=self.rows.device).view(4, -1)
        return Triplets(places[0], places[1], places[3])


class RegeneratedScoring(Scoring):
    """Real triplets, then the same ones regenerated with harder negatives; the generator is a
    constant here.

        J_metric = w J_m + (1 - w) J_syn                                 Zheng et al. 2019, Eq. (11)

    so a real tuple's loss carries w, a synthetic one's 1 - w. ``lambda_`` = λ and ``share`` = w are
    set before a step.
    """

    lambda_: Tensor
    share: Tensor

    def __init__(self, synthesis: Synthesis, loss: Loss, *, averages: bool) -> None:
        super().__init__(loss)
        self.inner = TripletScoring(loss)
        self.synthesis = synthesis
        self.generator = synthesis.generator  # registered: its buffers must not move
        self.scale = 2.0 if averages else 1.0  # the mean over 2 T tuples is half of the two means
        self.register_buffer("lambda_", torch.ones(()), persistent=False)  # set before each step
        self.register_buffer("share", torch.ones(()), persistent=False)

    def rows(self, count: int) -> Integer[Tensor, "t m"]:
        """Of the real triplets, which come first; regenerated ones show no record."""
        return self.inner.rows(count)

    @property
    def real(self) -> Scoring:
        return self.inner

    def forward(self, embeddings: Embeddings, labels: SingleLabels, head: Head) -> Scored:
        real: Scored = self.inner(embeddings, labels, head)
        found = _Tuples(self.synthesis, embeddings, labels, self.lambda_, head)
        compared = self.loss.triplet_comparisons(found.embeddings, found.triplets)
        members = found.embeddings[torch.stack(found.triplets, dim=1)]
        losses = (self.share * real.losses, (1 - self.share) * self.loss.core(compared).sums)
        return Scored(
            self.scale * torch.cat(losses),
            torch.cat([real.members, members]),
            torch.cat([real.hardness, self.hardness(members)]),
        )


@dataclass(eq=False)
class HDMLALA(Method):
    """HDML + ALA (Zheng et al. 2019 and 2020): an assessor weighs real and synthetic triplets
    alike.

    The papers say that the two combine and do not say how. Here the assessor sees the real tuples
    of an episode, then the synthetic ones, in one sequence; the derivative that teaches it runs
    over both vectors of losses; the generator stands still in the virtual step and is passed
    through; the validation subset consists of real tuples alone.

    Attributes:
        hdml: settings of HDML.
        ala: settings of ALA. ``assessor="constant"`` with weight 1 is HDML on ALA's training
            subset.
    """

    hdml: HDML = field(default_factory=HDML)
    ala: ALA = field(default_factory=lambda: ALA())

    default_loss: ClassVar[str] = "triplet"
    layouts: ClassVar[tuple[str, ...]] = ("episodes",)
    chunkable: ClassVar[bool] = False
    title: ClassVar[str] = "HDML + ALA"

    @property
    def form(self) -> str:  # type: ignore[override]
        return f"HDML {self.hdml.form}, ALA {self.ala.form}"

    def check(self, loss: nn.Module, sampler: object) -> None:
        super().check(loss, sampler)
        self.ala.check(loss, sampler)
        if getattr(loss, "layout", None) != "triplets" or self.ala.units != "triplets":
            raise ConfigError(
                f"HDML + ALA synthesizes one negative for each triplet, got {type(loss).__name__} "
                "and "
                f"units={self.ala.units}. Set loss=triplet and method.ala.units=triplets."
            )

    def setup(self, parts: Parts) -> None:
        loss = copy.copy(parts.loss)
        loss.blocks = True  # type: ignore[assignment]
        weigh = self.ala.build_assessor(3 * parts.embedder.embedding_dim)
        super().setup(replace(parts, loss=loss))
        self.hdml, self.ala = replace(self.hdml), replace(self.ala)
        for method in (self.hdml, self.ala):
            method.share(self)
        self.hdml.setup_generator(parts)
        scoring = RegeneratedScoring(self.hdml.synthesis, loss, averages=self.ala.averages)  # type: ignore[arg-type]
        self.ala.setup_assessment(scoring, weigh)
        self.optimizers |= self.hdml.optimizers | self.ala.optimizers

    def batches(self, epoch: int) -> Sequence[Sequence[int]]:
        return self.ala.batches(epoch)

    def step(self, batch: Batch) -> StepResult:
        """Take one bilevel step of the metric, and one step of generator and classifier from the
        same pass."""
        lambda_ = self.hdml.lambda_()
        w = self.hdml.real_weight()
        scoring: RegeneratedScoring = self.ala.scoring  # type: ignore[assignment]
        scoring.lambda_.copy_(lambda_)
        scoring.share.copy_(w)
        result = self.ala.step(batch)
        scalars = {
            **result.scalars,
            "hdml/lambda": lambda_,
            "hdml/w": w,
            **self._generate(result, scoring),
        }
        return result._replace(scalars=scalars)

    def _generate(self, result: StepResult, scoring: RegeneratedScoring) -> dict[str, Tensor]:
        """Train generator and classifier on the pass that the metric learnt from, all of it
        constant."""
        hdml = self.hdml
        features = self.ala.features
        own, _ = hdml.classifier.own_loss(features, result.labels)
        found = _Tuples(
            hdml.synthesis, result.embeddings, result.labels, scoring.lambda_, self.embedder.embed
        )
        regenerated = found.features[: 3 * found.count]
        recon = reconstruction_cost(features[found.rows], regenerated, hdml.values.reconstruction)
        recon = hdml.values.reconstruction_factor * recon
        label = hdml.values.label_factor * self._label_cost(found)
        hdml.generator_loss.add(recon + label)
        real: Scored = scoring.inner(result.embeddings, result.labels, self.embedder.embed)
        hdml.average_loss.add(real.losses.mean())
        self.differentiate(own + recon + label, hdml.generator_optimizer)
        self.optimize(hdml.generator_optimizer)
        return {"generator/J_recon": recon.detach(), "generator/J_soft": label.detach()}

    def _label_cost(self, found: _Tuples) -> Float[Tensor, ""]:
        """J_soft over the rows of the regenerated tuples: anchors, positives, moved negatives."""
        rows = torch.cat(found.triplets)
        labels = torch.cat([found.labels, found.labels[2 * found.count :]])[rows]
        costs, _ = self.hdml.classifier.label_costs(found.features[rows], labels)
        return costs.sum() if self.hdml.values.label_average == "sum" else costs.mean()

    def advance(self, batch: Batch) -> None:
        self.ala.advance(batch)

    @property
    def capturable(self) -> bool:
        return self.ala.capturable

    @property
    def notes(self) -> tuple[str, ...]:
        return self.ala.notes

    @property
    def captions(self) -> Mapping[str, str]:
        hdml = self.hdml.captions
        return {"hdml": hdml["hardness"], "generator": hdml["generator"], **self.ala.captions}

    def collapsed_loss(self, batch: Batch) -> float:
        return self.ala.collapsed_loss(batch)

    def figures(self, batch: Batch) -> Sequence[Figure]:
        return self.ala.figures(batch)

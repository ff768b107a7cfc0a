"""How an episode teaches an assessor: a step is tried, unseen classes judge it (Zheng et al., CVPR 2020)."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from vicinal.assessment.assessing import ALAConfig
from vicinal.assessment.assessor import Assessor
from vicinal.assessment.meta_gradient import (
    Route,
    embedding_tangents,
    gradient,
    lacks_forward_mode,
    norm,
    slopes,
    slopes_by_double_backward,
)
from vicinal.assessment.metric import Metric
from vicinal.assessment.scoring import Scored, Scoring, add_up
from vicinal.parallel import average_gradients, gather, processes
from vicinal.sampling.episodes import EpisodeSampler


class Pass(NamedTuple):
    """The training subset on its way through the network: one pass serves the virtual and the real update."""

    inputs: Tensor
    features: Float[Tensor, "n c"]
    embeddings: Float[Tensor, "n d"]
    labels: Integer[Tensor, "n"]
    scored: Scored


class Teaching:
    """Zheng et al. 2020, Eqs. (10) to (12): K updates of the assessor by what a virtual step does to a validation loss.

    Nothing but the assessor changes; its state does not, either. ``inputs`` and ``labels`` are those of a whole
    episode, the training rows first; of several processes each holds its part of them.

    Attributes:
        optimizer: the assessor's; None where it has nothing to learn.
        route: how slopes are found now; ``"double_backward"`` from the first operator on that has no forward mode.
    """

    def __init__(
        self, metric: Metric, scoring: Scoring, assessor: Assessor, sampler: EpisodeSampler, settings: ALAConfig
    ) -> None:
        self.metric, self.scoring, self.assessor = metric, scoring, assessor
        self.sampler, self.settings = sampler, settings
        self.optimizer = settings.build_optimizer(assessor)
        self.route: Route = settings.route

    @property
    def note(self) -> str | None:
        """Whether derivatives came by another way than the one asked for."""
        if self.route == self.settings.route:
            return None
        return "an operator of the network or the loss has no forward mode: meta-gradients came by double backward."

    def training_pass(self, inputs: Tensor, labels: Tensor) -> Pass:
        """The training subset through the real network; of several processes each passes its part of both subsets."""
        rows = self.sampler.training_rows
        inputs, labels = (x[:rows] if processes() == 1 else x for x in (inputs, labels))
        features, labels = gather(self.metric.features(inputs), labels)
        features, labels = features[:rows], labels[:rows]
        embeddings = self.metric.embedder.embed(features)
        scored = self.scoring(embeddings, labels, self.metric.embedder.embed)
        return Pass(inputs, features, embeddings, labels, scored)

    def teach(self, inputs: Tensor, labels: Tensor, training: Pass) -> dict[str, Tensor]:
        """Update the assessor K times; returns what the first virtual step was like."""
        if self.optimizer is None:
            return {}
        scored, settings = training.scored, self.settings
        told: dict[str, Tensor] = {}
        along: Tensor | None = None
        for _ in range(settings.updates):
            assessed = self.assessor(scored.members)
            if along is None or settings.recompute:
                objective = add_up(settings.factors(assessed.weights.detach()) * scored.losses, settings.over)
                steps = self.metric.scaled(_averaged(gradient(objective, self.metric.leaves)))
                validation, direction = self.validate(inputs, labels, steps)
                along = self.slopes(direction, training)
                told = told or self._told(steps, validation, scored)
            # ∂L_va/∂w_T = -slope, so the gradient of this in φ is that of Eq. (11).
            meta = -add_up(along * settings.factors(assessed.weights), settings.over)
            self.optimizer.zero_grad(set_to_none=True)
            meta.backward()  # type: ignore[no-untyped-call]
            average_gradients(self.assessor.parameters())
            self.optimizer.step()
        return told

    def validate(self, inputs: Tensor, labels: Tensor, steps: list[Tensor]) -> tuple[Float[Tensor, ""], list[Tensor]]:
        """The mean loss of validation tuples at θ' = θ - steps, unweighted, and u = α ∇L_va(θ')."""
        rows = self.sampler.training_rows
        inputs, labels = (x[rows:] if processes() == 1 else x for x in (inputs, labels))
        if self.settings.unroll == "head":
            inputs = self.metric.frozen_features(inputs)
        tried = {name: value.requires_grad_() for name, value in self.metric.moved(steps).items()}
        embeddings, labels = gather(self.metric.embed(tried, inputs), labels)
        last = slice(rows - self.sampler.batch_size, None)
        scored: Scored = self.scoring.real(embeddings[last], labels[last], self.metric.head(tried))
        loss = add_up(scored.losses, self.settings.over)
        gradients = torch.autograd.grad(loss, list(tried.values()), materialize_grads=True)
        return scored.losses.detach().mean(), self.metric.scaled(_averaged(list(gradients)))

    def slopes(self, direction: list[Tensor], training: Pass) -> Float[Tensor, "t"]:
        """How each tuple's loss changes along ``direction``."""
        if self.route != "double_backward":
            try:
                return self._slopes_by_tangents(direction, training)
            except RuntimeError as error:
                if not lacks_forward_mode(error):
                    raise
                self.route = "double_backward"  # from now on; `note` says so
        return slopes_by_double_backward(training.scored.losses, self.metric.leaves, direction)

    def _slopes_by_tangents(self, direction: list[Tensor], training: Pass) -> Float[Tensor, "t"]:
        rows, labels = len(training.labels), training.labels
        inputs = training.features.detach() if self.settings.unroll == "head" else training.inputs
        tangents = embedding_tangents(self.metric, inputs, direction, route=self.route)
        if self.settings.unroll == "all":
            tangents, _ = gather(tangents, labels.new_zeros(len(tangents)))
        return slopes(self.metric, self.scoring, direction, training.embeddings, tangents[:rows], labels)

    def _told(self, steps: list[Tensor], validation: Tensor, scored: Scored) -> dict[str, Tensor]:
        return {
            "episode/training": scored.losses.detach().mean(),
            "episode/validation": validation,
            "virtual_step/relative_length": norm(steps) / norm(list(self.metric.parameters().values())),
        }


def _averaged(gradients: list[Tensor]) -> list[Tensor]:
    """Over the processes, each of which sees the whole loss but only its own rows."""
    if processes() == 1:
        return gradients
    holders = [nn.Parameter(g, requires_grad=False) for g in gradients]
    for holder, g in zip(holders, gradients, strict=True):
        holder.grad = g.clone()
    average_gradients(holders)
    return [holder.grad for holder in holders if holder.grad is not None]

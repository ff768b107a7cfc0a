"""Proxy Synthesis: Learning with Synthetic Classes for Deep Metric Learning (Gu, Ko and Kim, AAAI
2021).

| paper, by its authors' code (navervision/proxy-synthesis, commit 20dfe49) | here |
|---|---|
| synthetic embeddings and proxies | `synthetic_classes` |
| the loss of real and synthetic classes | `ProxySynthesis.step` |
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from vicinal.arguments import Positive, Share
from vicinal.data.records import Batch
from vicinal.distances import unit_rows
from vicinal.losses.proxies import has_proxies
from vicinal.methods.method import Method, StepResult
from vicinal.tuples import Embeddings, Scalar, SingleLabels


class Classes(NamedTuple):
    """Samples, proxies and their labels."""

    embeddings: Embeddings
    labels: SingleLabels
    proxies: Float[Tensor, "*m d"]
    proxy_labels: Int[Tensor, "m"]


def synthetic_classes(
    real: Classes, factor: Scalar, turn: Int[Tensor, ""], mu: float = 1.0
) -> Classes:
    """Return the classes of a batch, each mixed with another of them.

        x~ = λ x + (1 - λ) x',   p~ = λ p + (1 - λ) p'            Gu et al. 2021, authors' code

    x' is a sample of another class and p' that class's proxy. Labels go on from the largest real
    one. A batch of one class has none.

    Args:
        real: on the unit sphere, where the loss compares them there.
        factor: λ.
        turn: any number from 0; says how far apart two classes of a mixture are in the order of
            labels.
        mu: μ, how many synthetic classes there are beside the batch's.
    """
    classes, of, sizes = torch.unique(real.labels, return_inverse=True, return_counts=True)
    present = torch.arange(len(classes), device=of.device)
    others = (present + 1 + turn % max(1, len(classes) - 1)) % len(classes)
    made = round(mu * len(classes)) if len(classes) > 1 else 0
    order = of.argsort(stable=True)
    starts = sizes.cumsum(0) - sizes
    rows = order[: int(sizes[:made].sum())]
    theirs = others[of[rows]]
    rank = torch.arange(len(rows), device=of.device) - starts[of[rows]]
    partners = order[starts[theirs] + rank % sizes[theirs]]
    columns = torch.searchsorted(real.proxy_labels, classes)
    first = int(real.proxy_labels[-1]) + 1
    return Classes(
        torch.lerp(real.embeddings[partners], real.embeddings[rows], factor),
        first + of[rows],
        torch.lerp(real.proxies[columns[others[:made]]], real.proxies[columns[:made]], factor),
        first + present[:made],
    )


@dataclass(eq=False)
class ProxySynthesis(Method):
    """Proxy Synthesis (Gu et al. 2021): mixtures of two classes are classes of their own, with
    mixtures of samples and a mixture of proxies, so that the space between classes is ordered, too.

        J = L(X and X~, P and P~),   λ ~ Beta(α, α)               Gu et al. 2021, authors' code

    Each step draws one λ, as the authors' code does.

    Differs: there each sample is mixed with the next in a shuffled batch and is a synthetic class
    of its own. Here the samples of a class are mixed with those of one other, and the synthetic
    class has as many: two synthetic classes never have the same proxy. With one sample of each
    class both are the same.

    Attributes:
        alpha: α; the smaller, the nearer are mixtures to one of the two.
        mu: μ, how many synthetic classes there are beside those of the batch.
    """

    alpha: Positive = 0.4
    mu: Share = 1.0

    default_loss = "normalized_softmax"
    chunkable = False
    title = "Proxy Synthesis"
    needs = "a loss with proxies, of which it makes those of synthetic classes"
    suggests = "normalized_softmax or proxy_anchor"
    capturable = False  # a batch's classes are counted

    def takes(self, loss: nn.Module) -> bool:
        return has_proxies(loss)

    def prepare(self, batch: Batch) -> Batch:
        """Draw λ, and which classes are mixed, by the seed and the step alone."""
        rng = self.draws()
        return self.given(batch, factor=rng.beta(self.alpha, self.alpha), turn=rng.integers(2**31))

    def step(self, batch: Batch) -> StepResult:
        embeddings, labels = self.embed(batch)
        drawn = batch.extras
        loss = self.of_all(embeddings, labels, drawn["factor"], drawn["turn"])
        return self.update(loss, embeddings, labels)

    def of_all(
        self,
        embeddings: Embeddings,
        labels: SingleLabels,
        factor: Scalar,
        turn: Int[Tensor, ""],
    ) -> Scalar:
        """Return the loss of real and synthetic classes."""
        loss = self.loss
        loss.check(embeddings, labels)
        proxies = loss.beside(embeddings)
        if loss.distance.normalize:
            embeddings = unit_rows(embeddings)
            proxies = unit_rows(proxies)
        real = Classes(embeddings, labels, proxies, loss.proxy_labels)
        made = synthetic_classes(real, factor.to(proxies.dtype), turn, self.mu)
        every = (torch.cat(both) for both in zip(real, made, strict=True))
        return loss.score(loss.compare(*every))

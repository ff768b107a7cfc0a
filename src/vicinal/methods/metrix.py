"""Metrix: It Takes Two to Tango: Mixup for Deep Metric Learning (Venkataramanan, Psomas, Kijak,
Amsaleg, Karantzalos and Avrithis, ICLR 2022).

| paper | here |
|---|---|
| the general loss l over labels y of pairs, and its form over mixed ones | `mixed_comparisons` |
| M(a), of which examples mixed ones are made | `Metrix.partners`, `mixed_comparisons` |
| mixing of inputs, features or embeddings | `Metrix.step` |
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from vicinal.arguments import Count, NonNegative, Positive
from vicinal.data.records import Batch
from vicinal.losses.loss import Comparisons, Loss
from vicinal.methods.method import Method, StepResult
from vicinal.parallel import all_rows, gather
from vicinal.tuples import Embeddings, Scalar, SingleLabels, other_class, same_class


def mixed_comparisons(
    loss: Loss,
    embeddings: Embeddings,
    labels: SingleLabels,
    mixed: Float[Tensor, "n m d"],
    there: Bool[Tensor, "n m"],
    factor: Scalar,
    with_anchor: Bool[Tensor, ""],
) -> Comparisons:
    """Compare each anchor with the mixed examples that are its own.

        l(a)  = σ⁺(Σ_(x,y) y ρ⁺(s(a, x))) + σ⁻(Σ_(x,y) (1 - y) ρ⁻(s(a, x)))
        l~(a) = the same over (v, λ),   v = λ x + (1 - λ) x',   (x, x') in M(a)
            Venkataramanan et al. 2022, Section 3

    With y in {0, 1} the first is the loss itself, σ and ρ its own. A mixed example is a positive of
    weight λ and a negative of weight 1 - λ. x' is a negative of the anchor; x one of its positives
    or, ``with_anchor``, the anchor itself. An anchor that is a proxy has positives alone.

    Args:
        loss: one with ``separate_sums``.
        embeddings: the samples.
        labels: their classes.
        mixed: of sample i and each of its m partners, of other classes.
        there: which of them are; the rest is padding.
        factor: λ.
        with_anchor: see above.
    """
    rows = mixed.flatten(0, 1)
    per_sample = mixed.shape[1]
    if not loss.takes_reference:
        found = loss.comparisons(rows, labels.repeat_interleave(per_sample))
        compared = found.positive
        own = found.keep_positive
    else:
        compared = loss.distance(embeddings, rows)
        itself = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
        own = torch.where(with_anchor, itself, same_class(labels))
        own = own.repeat_interleave(per_sample, dim=1)
    own = own & there.flatten()
    weights = factor.to(compared.dtype).expand_as(compared)
    return Comparisons(compared, own, compared, own, weights, 1 - weights)


@dataclass(eq=False)
class Metrix(Method):
    """Metrix (Venkataramanan et al. 2022): anchors also meet mixtures of a positive and a negative,
    which are each in part.

        E = 1/|X| Σ_a l(a) + w l~(a)                  Venkataramanan et al. 2022, Section 3
        v = λ x + (1 - λ) x',   λ ~ Beta(α, α)

    Each step draws one λ, and whether x is a positive of the anchor or the anchor itself.

    Differs: a batch has one λ, as the authors' code draws it. Their code takes the first positive
    of an anchor and mixes anchors with negatives only where they have no positive; here every
    positive counts and every anchor takes its turn, as in the paper's text. Negatives that are
    ``hardest`` are so for x, not for each anchor, so that a mixture serves all anchors. The
    authors' code has no mixing over Proxy-Anchor: there a proxy is the anchor of the mixtures of
    its samples with all others, and is not mixed itself.

    Attributes:
        mix: ``"features"`` before pooling, the paper's best, ``"embeddings"``, or ``"inputs"``,
            which takes another pass of the network.
        weight: w.
        alpha: α.
        hardest: how many negatives each sample is mixed with, nearest first; None is all, of
            inputs one, as in the authors' code.

    Charts:
        loss: loss is what the network descends, real_loss + w mixed_loss. The mixed loss should
            exceed the real one, as no mixture is wholly of a class, and fall with it.
    """

    mix: Literal["inputs", "features", "embeddings"] = "features"
    weight: NonNegative = 0.4
    alpha: Positive = 2.0
    hardest: Count | None = None

    needs = (
        "a loss that adds up positives and negatives apart, so that a mixture can be both in part"
    )
    suggests = "multi_similarity, contrastive or proxy_anchor"
    chunkable = False
    indivisible = "it mixes rows of the whole batch"

    def takes(self, loss: nn.Module) -> bool:
        return getattr(loss, "separate_sums", False) is True

    def prepare(self, batch: Batch) -> Batch:
        """Draw λ, and whether anchors are mixed themselves, by the seed and the step alone."""
        rng = self.draws()
        return self.given(batch, mixing=[rng.beta(self.alpha, self.alpha), rng.integers(2)])

    def step(self, batch: Batch) -> StepResult:
        embedder = self.embedder
        factor, with_anchor = batch.extras["mixing"].unbind()
        maps, labels = gather(embedder.maps(batch.inputs), batch.labels)
        embeddings = embedder.embed(embedder.pool(maps))
        columns, there = self.partners(embeddings, labels)
        if self.mix == "embeddings":
            mixed = mixtures(embeddings, columns, factor)
        elif self.mix == "features":
            mixed = embedder.embed(embedder.pool(mixtures(maps, columns, factor)))
        else:
            inputs = mixtures(all_rows(batch.inputs), columns, factor)
            mixed = embedder.embed(embedder.features(inputs))
        real = self.loss(embeddings, labels)
        mixed = mixed.view(*columns.shape, -1)
        comparisons = mixed_comparisons(
            self.loss, embeddings, labels, mixed, there, factor, with_anchor.bool()
        )
        of_mixed = self.loss.score(comparisons)
        loss = real + self.weight * of_mixed
        return self.update(loss, embeddings, labels, real_loss=real, mixed_loss=of_mixed)

    def partners(
        self, embeddings: Embeddings, labels: SingleLabels
    ) -> tuple[Int[Tensor, "n m"], Bool[Tensor, "n m"]]:
        """Return the samples of other classes that each is mixed with, and which are no padding."""
        others = other_class(labels)
        hardest = 1 if self.mix == "inputs" and self.hardest is None else self.hardest
        if hardest is None:
            return torch.arange(len(labels), device=labels.device).expand_as(others), others
        nearer = self.loss.distance.larger_is_closer
        far = -torch.inf if nearer else torch.inf
        compared = self.loss.distance(embeddings.detach()).masked_fill(~others, far)
        columns = compared.topk(min(hardest, len(labels)), dim=1, largest=nearer).indices
        return columns, others.gather(1, columns)


def mixtures(
    rows: Float[Tensor, "n *size"], columns: Int[Tensor, "n m"], factor: Scalar
) -> Float[Tensor, "nm *size"]:
    """Return λ x_i + (1 - λ) x_j of each row and each of its partners.

    >>> mixtures(torch.tensor([[0.0], [4.0]]), torch.tensor([[1], [0]]), torch.tensor(0.75))
    tensor([[1.],
            [3.]])
    """
    return torch.lerp(rows[columns], rows[:, None], factor.to(rows.dtype)).flatten(0, 1)

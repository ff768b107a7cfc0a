"""Harder synthetic tuples of a batch (Zheng et al., CVPR 2019): augmentor, generator and head, Eqs.
(4)-(8), and what the generator costs, Eq. (9).

The generator computes in float32: the reconstruction term sums over 10^5 squares, which half
precision can neither add nor hold.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear, relu, threshold

from vicinal.distances import pairwise_distances, row_distances, unit_rows
from vicinal.errors import ConfigError
from vicinal.losses.loss import Comparisons, Loss, tuple_loss
from vicinal.losses.proxies import has_proxies
from vicinal.tuples import Embeddings, Scalar, SingleLabels, same_class

Embed = Callable[[Tensor], Tensor]
Points = Float[Tensor, "*#rows d"]
Lengths = Float[Tensor, "*#rows"]
BatchRows = Float[Tensor, "b d"]
BatchLabels = Integer[Tensor, "b"]
LabelAverage = Literal["rows", "parts", "sum"]
Reconstruction = Literal["sum", "relative"]

HIDDEN = 512  # the paper's width between an embedding of 512 and a feature of 1024
ALONE = 1.0  # d⁺ of an anchor without positives: "a fixed value" (Section 3.2)


def harder(
    anchor: Points, negative: Points, reference_distance: Lengths, lambda_: Tensor | float
) -> Points:
    """Pull negatives towards their anchor on a straight line, never nearer than the reference
    distance.

        ẑ⁻ = z + [λ d + (1 - λ) d⁺] (z⁻ - z) / d    if d = ‖z⁻ - z‖ > d⁺,  else z⁻
            Zheng et al. 2019, Eqs. (5)-(7)

    Written as z⁻ + (1 - λ) [1 - d⁺/d]_+ (z - z⁻), the same points: with λ = 1, and within d⁺, a
    negative stays exactly where it is, and it passes no gradient to the anchor there. The gradient
    flows through d and d⁺ as well. A distance of 0 moves nothing, and leading axes broadcast.

    Figure 2: the anchor in the origin, its positive 1 away, a negative 3 away. The negative comes
    nearer on the line to the anchor, down to the circle of the positive; one that lies inside
    stays.

    >>> anchor, negatives = torch.zeros(2), torch.tensor([[3.0, 0.0], [0.0, 0.5]])
    >>> for lambda_ in (1.0, 0.5, 0.0):
    ...     print(harder(anchor, negatives, torch.tensor(1.0), lambda_).tolist())
    [[3.0, 0.0], [0.0, 0.5]]
    [[2.0, 0.0], [0.0, 0.5]]
    [[1.0, 0.0], [0.0, 0.5]]
    """
    back = anchor - negative
    distance = torch.linalg.vector_norm(back, dim=-1)
    # 0 where d is 0.
    share = (1 - lambda_) * relu(distance - reference_distance) / threshold(distance, 0.0, 1.0)
    return negative + share[..., None] * back


# -- Eqs. (8) and (9) ------------------------------------------------------------------------------


class Generator(nn.Module):
    """i: Z → Y, two fully connected layers of increasing width.

        ỹ = W₂ [BN] relu(W₁ ẑ + b₁) + b₂                                  Zheng et al. 2019, Eq. (8)

    Args:
        dim: size of an embedding.
        width: size of a feature.
        hidden: width between; None is the paper's 512 where that lies between ``dim`` and
            ``width``, else their geometric mean.
        norm: batch norm after the activation, where the authors' code has it and the paper does
            not.
    """

    def __init__(
        self, dim: int, width: int, *, hidden: int | None = None, norm: bool = False
    ) -> None:
        super().__init__()
        if hidden is None:
            hidden = HIDDEN if dim <= HIDDEN <= width else round(math.sqrt(dim * width))
        middle = [nn.BatchNorm1d(hidden)] if norm else []
        self.layers = nn.Sequential(
            nn.Linear(dim, hidden), nn.ReLU(), *middle, nn.Linear(hidden, width)
        )

    def forward(self, embeddings: Embeddings) -> Float[Tensor, "n y"]:
        return self.layers(embeddings)


class FeatureClassifier(nn.Module):
    """The softmax layer on features that tells the generator whether a synthetic kept its label
    (Section 3.3).

    It learns from real features alone: ``own_loss`` detaches them, ``label_costs`` detaches the
    layer, so no gradient can cross in either direction.

    Args:
        width: size of a feature.
        labels: the labels that training uses; any integers.
    """

    known: Tensor

    def __init__(self, width: int, labels: SingleLabels) -> None:
        super().__init__()
        self.register_buffer("known", torch.unique(labels.long()))
        self.layer = nn.Linear(width, len(self.known))

    def own_loss(self, features: Float[Tensor, "n y"], labels: SingleLabels) -> Scalar:
        """Return the cross-entropy on real features."""
        numbers = torch.searchsorted(self.known, labels.long())
        return cross_entropy(self.layer(features.detach()), numbers)

    def label_costs(
        self, features: Float[Tensor, "n y"], labels: SingleLabels
    ) -> Float[Tensor, "n"]:
        """Return what each row adds to J_soft (second part of Eq. 9)."""
        numbers = torch.searchsorted(self.known, labels.long())
        logits = linear(features, self.layer.weight.detach(), self.layer.bias.detach())
        return cross_entropy(logits, numbers, reduction="none")


def reconstruction_cost(
    features: Float[Tensor, "n y"], regenerated: Float[Tensor, "n y"], how: Reconstruction
) -> Scalar:
    """Return J_recon: how far regenerated features lie from the real ones, which are constants
    here.

        sum:       Σ ‖y - y'‖²                              Zheng et al. 2019, first part of Eq. (9)
        relative:  Σ ‖y - y'‖² / Σ ‖y - ȳ‖²

    ``"relative"`` (ours) is the share of the features' variance that was lost: 1 for a generator
    that knows but their mean, with any backbone.

    >>> features = torch.tensor([[0.0, 2.0], [0.0, 4.0]])
    >>> means = torch.tensor([[0.0, 3.0], [0.0, 3.0]])
    >>> [reconstruction_cost(features, means, how).item() for how in ("sum", "relative")]
    [2.0, 1.0]
    """
    features = features.detach()
    lost = (features - regenerated).square().sum()
    if how == "sum":
        return lost
    spread = (features - features.mean(dim=0)).square().sum()
    return lost / spread.clamp(min=torch.finfo(spread.dtype).tiny)


# -- tuples ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Roles:
    """Which rows of a batch are anchors, and which rows are the columns of a loss's negatives.

    The rows of a loss with proxies are those of the batch, then its proxies.

    Attributes:
        anchors: the rows that are anchors.
        columns: the rows that negatives come from.
        partners: where rows lie in blocks, each anchor's own positive; None: those of its class.
        paired: whether anchor t meets column t alone, as in triplets ``[a; p; n]``; else each
            anchor meets all columns.
        chosen: of each anchor its own columns, where they are limited to the hardest.
    """

    anchors: slice
    columns: slice
    partners: slice | None = None
    paired: bool = False
    chosen: Integer[Tensor, "n k"] | None = None

    @classmethod
    def of(cls, loss: Loss, rows: int) -> "Roles":
        """Return the roles that a loss gives to the rows of a batch."""
        if has_proxies(loss):
            samples, proxies = slice(0, rows), slice(rows, None)
            return cls(proxies, samples) if loss.proxies_first else cls(samples, proxies)
        layout = loss.layout if loss.blocks else None
        if layout == "triplets":
            third = rows // 3
            return cls(
                slice(0, third), slice(2 * third, rows), slice(third, 2 * third), paired=True
            )
        if layout == "pairs":
            return cls(slice(0, rows // 2), slice(rows // 2, rows), slice(rows // 2, rows))
        return cls(slice(0, rows), slice(0, rows))

    def negatives(self, rows: Tensor) -> Tensor:
        """Return what ``rows [b ...]`` hold for each anchor's negatives: ``[n m ...]``, or ``[1 m
        ...]`` if shared."""
        found = rows[self.columns]
        if self.chosen is not None:
            return found[self.chosen]
        return found[:, None] if self.paired else found[None]

    def unaltered(self, rows: Tensor) -> Tensor:
        """Return those of ``rows [b ...]`` that stand in synthetic tuples as they are: all but
        triplets' negatives."""
        return rows[: self.columns.start] if self.paired else rows

    def reference(self, embeddings: BatchRows, labels: BatchLabels) -> Float[Tensor, "n"]:
        """Return d⁺ of each anchor: the mean distance to its positives, of which the paper has
        one."""
        if self.partners is not None:
            partners = embeddings[self.partners]
            return row_distances(embeddings[self.anchors], partners, squared=False)
        positive = same_class(labels)[self.anchors, self.columns]
        anchors = embeddings[self.anchors]
        others = None if self.anchors == self.columns else embeddings[self.columns]
        sums = (pairwise_distances(anchors, others, squared=False) * positive).sum(dim=1)
        count = positive.sum(dim=1)
        return torch.where(count > 0, sums / count.clamp(min=1), ALONE)

    def pulled(
        self,
        embeddings: BatchRows,
        labels: BatchLabels,
        lambda_: Scalar,
    ) -> Float[Tensor, "n m d"]:
        """Return ẑ⁻ of each anchor, Eqs. (4) to (7)."""
        reference = self.reference(embeddings, labels)[:, None]
        anchors = embeddings[self.anchors][:, None]
        return harder(anchors, self.negatives(embeddings), reference, lambda_)

    def limited(self, embeddings: BatchRows, labels: BatchLabels, hardest: int) -> "Roles":
        """Return the same with the ``hardest`` nearest negatives of each anchor as its only
        columns."""
        if self.paired:
            return self
        anchors = embeddings[self.anchors].detach()
        distances = pairwise_distances(anchors, embeddings[self.columns].detach(), squared=False)
        own = labels[self.anchors, None] == labels[self.columns]
        distances = distances.masked_fill(own, torch.inf)
        nearest = distances.topk(min(hardest, distances.shape[1]), dim=1, largest=False)
        return replace(self, chosen=nearest.indices)


def replaceable(loss: nn.Module) -> Loss:
    """Return ``loss`` if it compares anchors with negatives that synthetic ones can replace."""
    if has_proxies(loss):
        return loss
    loss, name = tuple_loss(loss, "HDML"), type(loss).__name__
    if not loss.single_negatives:
        raise ConfigError(
            f"HDML makes negatives for one anchor, but {name} compares each negative with the "
            "middle of a pair. Use n_pair, or lifted_structure for both members of a pair."
        )
    return loss


class Synthetics(NamedTuple):
    """The synthetic tuples of a batch.

    Attributes:
        comparisons: T(z̃), what the loss's core takes.
        regenerated: y' = i(z) of all rows unaltered.
        features: Ỹ of Eq. (9), the rows unaltered and those moved.
        labels: of ``features``.
        label_weights: factors of their costs in J_soft.
    """

    comparisons: Comparisons
    regenerated: Float[Tensor, "b y"]
    features: Float[Tensor, "k y"]
    labels: Integer[Tensor, "k"]
    label_weights: Float[Tensor, "k"]


@dataclass(frozen=True)
class Synthesis:
    """Augmentor, generator and head in a row, for one loss.

        T(ẑ) = (z, z⁺, harder(z⁻)),   T(ỹ) = i(T(ẑ)),   T(z̃) = g(T(ỹ))
            Zheng et al. 2019, Eqs. (7) and (8)

    All members of a tuple pass the generator, so that they lie in one space (Section 3.3); the loss
    never compares a regenerated embedding with a real one.

    J_soft is over anchors, positives and moved negatives, each once: Ỹ of Eq. (9). ``"parts"`` is
    the authors' N-pair: a mean over anchors, and one over their N² moved rows, among which the N
    positives are.

    Attributes:
        loss: any loss whose tuples have negatives.
        generator: i.
        label_average: J_soft as one mean (``"rows"``), as ``"parts"`` or as the ``"sum"``.
        twice: whether anchors and positives pass the generator twice, for J_recon and within their
            tuples, as in the authors' code. It matters to batch norms alone: the generator's sees
            6T rows of T triplets instead of 4T, that of the head the tuples alone. Differs: the N
            positives of N-pair tuples, in their code among the N² moved rows, pass a third time.
        hardest: how many negatives of each anchor are synthesized, nearest first; None is all.
    """

    loss: Loss
    generator: Generator
    label_average: LabelAverage = "rows"
    twice: bool = False
    hardest: int | None = None

    def __call__(
        self,
        embeddings: BatchRows,
        labels: BatchLabels,
        lambda_: Scalar,
        embed: Embed,
    ) -> Synthetics:
        """Return the synthetic tuples of a batch of z with these labels; ``embed`` is the head
        g."""
        samples = len(embeddings)
        roles = Roles.of(self.loss, samples)
        if has_proxies(self.loss):
            # Samples and proxies are rows of one space, the sphere where the loss compares there.
            proxies = self.loss.beside(embeddings).flatten(end_dim=-2)
            embeddings = torch.cat([embeddings, proxies])
            if self.loss.distance.normalize:
                embeddings = unit_rows(embeddings)
            classes = self.loss.proxy_labels.repeat_interleave(self.loss.centers)
            labels = torch.cat([labels, classes])
        rows = len(embeddings)
        if self.hardest is not None:
            roles = roles.limited(embeddings, labels, self.hardest)
        pulled = roles.pulled(embeddings, labels, lambda_)
        again = roles.unaltered(embeddings)[: None if self.twice else 0]
        features = self.generator(torch.cat([embeddings, again, pulled.flatten(0, 1)]))  # Eq. (8)
        seen = embed(features[rows if self.twice else 0 :])  # z̃ = g(ỹ)
        moved = pulled.shape[0] * pulled.shape[1]
        unaltered, negatives = torch.split(seen, [len(seen) - moved, moved])
        own = labels[roles.anchors][:, None]
        theirs = roles.negatives(labels).expand(len(own), -1)
        tuples = [roles.unaltered(features[:rows]), features[len(features) - moved :]]
        # Factors of J_soft, Eq. (9): a moved row counts where it is of other class than its anchor.
        weights = [tuples[0].new_ones(len(tuples[0])), (own != theirs).flatten().float()]
        if self.label_average == "parts":
            weights[0] = torch.zeros_like(weights[0])
            weights[0][roles.anchors] = 1
            if roles.partners is not None:  # of the authors' N² rows the positives are a part
                weights[1] = torch.ones_like(weights[1])
            weights = [weight / weight.sum().clamp(min=1) for weight in weights]
        label_weights = torch.cat(weights)
        if self.label_average == "rows":
            label_weights = label_weights / label_weights.sum()
        return Synthetics(
            self._compared(roles, labels, unaltered, negatives.view_as(pulled)),
            features[:samples],
            torch.cat(tuples),
            torch.cat([roles.unaltered(labels), theirs.flatten()]),
            label_weights,
        )

    def _compared(
        self,
        roles: Roles,
        labels: BatchLabels,
        unaltered: Float[Tensor, "u d"],
        negatives: Float[Tensor, "n m d"],
    ) -> Comparisons:
        """Return the loss's comparisons of unaltered rows with the moved negatives; of samples and
        proxies all are compared, those that were not moved as they are."""
        loss = self.loss
        if roles.paired:  # [a; p; n] with n moved
            kept = unaltered[: roles.columns.start]
            return loss.comparisons(torch.cat([kept, negatives[:, 0]]), labels)
        anchors = unaltered[roles.anchors]
        compared = loss.distance(anchors, negatives)
        if has_proxies(loss):
            count = len(labels) - len(loss.proxy_labels) * loss.centers
            own = labels[:count]
            proxies = unaltered[count:].view_as(loss.proxies)
            found = loss.compare(unaltered[:count], own, proxies, loss.proxy_labels)
            if roles.chosen is not None:
                whole = loss.distance(anchors, unaltered[roles.columns])
                compared = whole.scatter(1, roles.chosen, compared)
            if loss.proxies_first:
                compared = compared.T
            arranged = loss.arrange(compared, own, loss.proxy_labels)
            return replace(found, negative=arranged.negative)
        # The penalty is over N² rows, as the authors take it.
        penalty = loss.penalty(anchors, negatives)
        found = loss.comparisons(unaltered, labels)
        there = found.keep_negative
        if roles.chosen is not None:
            there = there.gather(1, roles.chosen)
        return replace(found, negative=compared, keep_negative=there, penalty=penalty)

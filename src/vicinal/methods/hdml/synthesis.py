"""Synthetic tuples of a batch: roles of its rows, augmentor, generator and head (Zheng et al. 2019, Eqs. 4-8)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vicinal.distances import pairwise_distances, row_distances
from vicinal.errors import ConfigError
from vicinal.losses.loss import Comparisons, Loss, tuple_loss
from vicinal.methods.hdml.augmentor import (
    Path,
    Reference,
    angles,
    farther,
    harder,
    harder_on_arc,
    reference_distances,
)
from vicinal.methods.hdml.generator import FeatureClassifier, Generator, LabelTerm
from vicinal.tuples import positives, same_class

if TYPE_CHECKING:
    from vicinal.methods.hdml.method import HDML, LabelAverage

Embed = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Roles:
    """Which rows of a batch are anchors, and which rows are the columns of a loss's negatives.

    Attributes:
        anchors: the rows that are anchors.
        columns: the rows that negatives come from.
        partners: where rows lie in blocks, each anchor's own positive; None: its positives are found by label.
        paired: whether anchor t meets column t alone, as in triplets ``[a; p; n]``; else each anchor meets all columns.
        chosen: of each anchor its own columns, where they are limited to the hardest.
    """

    anchors: slice
    columns: slice
    partners: slice | None = None
    paired: bool = False
    chosen: Integer[Tensor, "n k"] | None = None

    @classmethod
    def of(cls, loss: Loss, rows: int) -> "Roles":
        """The roles that a loss gives to the rows of a batch."""
        layout = loss.layout if getattr(loss, "blocks", False) else None
        if layout == "triplets":
            third = rows // 3
            return cls(slice(0, third), slice(2 * third, rows), slice(third, 2 * third), paired=True)
        if layout == "pairs":
            return cls(slice(0, rows // 2), slice(rows // 2, rows), slice(rows // 2, rows))
        return cls(slice(0, rows), slice(0, rows))

    def negatives(self, rows: Tensor, part: slice) -> Tensor:
        """What ``rows [b ...]`` hold for the negatives of some anchors: ``[n m ...]``, or ``[1 m ...]`` if shared."""
        found = rows[self.columns]
        if self.chosen is not None:
            return found[self.chosen[part]]
        return found[part, None] if self.paired else found[None]

    def unaltered(self, rows: Tensor) -> Tensor:
        """Those of ``rows [b ...]`` that stand in synthetic tuples as they are: all but the negatives of triplets."""
        return rows[: self.columns.start] if self.paired else rows

    def reference(
        self, embeddings: Float[Tensor, "b d"], labels: Integer[Tensor, "b"], path: Path, rule: Reference, fixed: float
    ) -> Float[Tensor, "n"]:
        """d⁺ of each anchor: the distance, on the arc the angle, of its positive pair or pairs."""
        if self.partners is not None:
            between = row_distances(embeddings[self.anchors], embeddings[self.partners], squared=False)
            if path == "arc":
                between = angles(embeddings[self.anchors], embeddings[self.partners])
            same = labels[self.anchors] == labels[self.partners]
            return reference_distances(between[:, None], same[:, None], rule=rule, fixed=fixed)
        if path == "arc":
            among = angles(embeddings[:, None], embeddings)
        else:
            among = pairwise_distances(embeddings, squared=False)
        return reference_distances(among, same_class(labels), rule=rule, fixed=fixed)

    def limited(self, embeddings: Float[Tensor, "b d"], labels: Integer[Tensor, "b"], hardest: int) -> "Roles":
        """The same with the ``hardest`` nearest negatives of each anchor as its only columns."""
        if self.paired:
            return self
        distances = self.distances(embeddings, labels)
        chosen = distances.topk(min(hardest, distances.shape[1]), dim=1, largest=False).indices
        return replace(self, chosen=chosen)

    @torch.no_grad()
    def distances(self, embeddings: Float[Tensor, "b d"], labels: Integer[Tensor, "b"]) -> Float[Tensor, "n m"]:
        """The distance of each anchor to its real negatives, infinite where a column is none."""
        anchors, columns = embeddings[self.anchors], embeddings[self.columns]
        if self.paired:
            found = row_distances(anchors, columns, squared=False)[:, None]
            other = (labels[self.anchors] != labels[self.columns])[:, None]
        else:
            found = pairwise_distances(anchors, columns, squared=False)
            other = labels[self.anchors, None] != labels[self.columns]
        return found.masked_fill(~other, torch.inf)

    def positives(
        self, labels: Integer[Tensor, "b"], largest_class: int | None = None
    ) -> tuple[Integer[Tensor, "n p"], Bool[Tensor, "n p"]]:
        """The rows of each anchor's positives, in the order of a loss's comparisons, and which are there."""
        if self.paired and self.partners is not None:
            rows = torch.arange(self.partners.start, self.partners.stop, device=labels.device)
            return rows[:, None], (labels[self.anchors] == labels[self.partners])[:, None]
        if self.partners is None:
            return positives(labels, largest_class=largest_class)
        found = positives(labels[self.anchors], labels[self.columns], largest_class=largest_class)
        return found.columns + self.columns.start, found.keep


def replaceable(loss: nn.Module) -> Loss:
    """Return ``loss`` if it compares anchors with negatives that synthetic ones can replace."""
    loss, name = tuple_loss(loss, "HDML"), type(loss).__name__
    if not loss.single_negatives:
        raise ConfigError(
            f"HDML makes negatives for one anchor, but {name} compares each negative with the middle of a pair. "
            f"Use n_pair, or lifted_structure for both members of a pair."
        )
    if loss.reduction == "none":
        raise ConfigError(f'HDML needs one number from {name}, but its reduction is "none". Use "mean" or "sum".')
    return loss


class Synthetics(NamedTuple):
    """What a step needs of the synthetic tuples.

    Attributes:
        comparisons: the tuples as the loss's core takes them.
        regenerated: y' = i(z), the generator's features of all rows unaltered; None without a generator.
        label_cost: J_soft; None without a generator.
        labels_kept: the share of moved rows in which the judge still sees their label; None without a generator.
    """

    comparisons: Comparisons
    regenerated: Float[Tensor, "b y"] | None = None
    label_cost: Float[Tensor, ""] | None = None
    labels_kept: Float[Tensor, ""] | None = None


class _Part(NamedTuple):
    """What some anchors of a batch contribute."""

    regenerated: Float[Tensor, "b y"]
    embeddings: Float[Tensor, "b d"]
    negative: Float[Tensor, "n m"]
    penalty: Float[Tensor, "n"]
    altered: LabelTerm | None


@dataclass(frozen=True)
class Synthesis:
    """Augmentor, generator and head in a row, for one loss.

        T(ẑ) = (z, z⁺, harder(z⁻)),   T(ỹ) = i(T(ẑ)),   T(z̃) = g(T(ỹ))        Zheng et al. 2019, Eqs. (7) and (8)

    All members of a tuple pass the generator, so that they lie in one space (Section 3.3); the loss never compares a
    regenerated embedding with a real one. With ``members="real"`` (ours) that space is the real one: of the generator
    only the change i(ẑ⁻) - i(z⁻) is used, added to the real y⁻.

    Differs: the authors send anchors and positives through the generator twice, with all rows and within their tuples.
    Here each passes once, which differs only in the statistics of batch norms. ``settings.repeated`` gives the authors'
    rows, but for the N positives of N-pair tuples: in their code these are among the N² moved rows, here passed again.

    Attributes:
        loss: any loss whose tuples have negatives.
        generator: i; None takes the interpolated embeddings as they are.
        classifier: tells whether labels were kept.
        settings: see ``HDML``.
        label_average: how J_soft is averaged, as ``HDML.preset`` has it for this loss.
    """

    loss: Loss
    generator: Generator | None
    classifier: FeatureClassifier
    settings: "HDML"
    label_average: "LabelAverage"

    def roles(self, embeddings: Float[Tensor, "b d"], labels: Integer[Tensor, "b"]) -> Roles:
        """Who is anchor and who is negative; with ``hardest``, of each anchor the nearest negatives only."""
        roles, hardest = Roles.of(self.loss, len(labels)), self.settings.hardest
        return roles if hardest is None else roles.limited(embeddings, labels, hardest)

    def mover(
        self, embeddings: Float[Tensor, "b d"], labels: Integer[Tensor, "b"], pull: Tensor, roles: Roles
    ) -> Callable[[slice], Float[Tensor, "n m d"]]:
        """A function that gives ẑ⁻ of the anchors in a part of the batch, Eq. (7)."""
        s = self.settings
        reference = roles.reference(embeddings, labels, s.path, s.reference, s.fixed_distance)
        anchors, move = embeddings[roles.anchors], harder if s.path == "straight" else harder_on_arc
        return lambda part: move(anchors[part, None], roles.negatives(embeddings, part), reference[part, None], pull)

    def __call__(
        self,
        embeddings: Float[Tensor, "b d"],
        labels: Integer[Tensor, "b"],
        pull: Float[Tensor, ""],
        embed: Embed,
        features: Float[Tensor, "b y"] | None = None,
    ) -> Synthetics:
        """The synthetic tuples of a batch.

        Args:
            embeddings: z of all rows.
            labels: their classes.
            pull: 1 - λ.
            embed: the head g.
            features: y of all rows, for ``members="real"``; ignored otherwise.
        """
        if self.settings.members == "regenerated" or self.generator is None:
            features = None
        elif features is None:
            raise ConfigError('members="real" adds to real features, got features=None.')
        roles = self.roles(embeddings, labels)
        move = self.mover(embeddings, labels, pull, roles)
        anchors, columns = len(labels[roles.anchors]), roles.negatives(labels, slice(0, 1)).shape[1]
        step = max(1, self.settings.chunk // max(1, columns))
        slices = [slice(start, min(start + step, anchors)) for start in range(0, anchors, step)] or [slice(0, 0)]
        if len(slices) == 1:
            parts = [self._part(embeddings, features, labels, move(slices[0]), roles, slices[0], embed)]
        else:  # keep nothing but embeddings for the backward pass, and make each part again there
            parts = [
                checkpoint(
                    lambda z, y, part: self._part(z, y, labels, move(part), roles, part, embed),
                    embeddings,
                    features,
                    part,
                    use_reentrant=False,
                    preserve_rng_state=False,
                )
                for part in slices
            ]
        return self._assembled(parts, embeddings, features, labels, pull, roles, embed)

    def regenerate(self, embeddings: Float[Tensor, "n d"], embed: Embed) -> tuple[Tensor, Float[Tensor, "n d"]]:
        """ỹ = i(ẑ) and z̃ = g(ỹ)."""
        if self.generator is None:
            return embeddings, embeddings
        features = self.generator(embeddings)
        return features, embed(features)

    def _part(
        self,
        embeddings: Tensor,
        real: Tensor | None,
        labels: Tensor,
        moved: Float[Tensor, "n m d"],
        roles: Roles,
        part: slice,
        embed: Embed,
    ) -> _Part:
        # The unaltered rows go along in every part, so that a batch norm sees a tuple's members together.
        rows, (count, columns, _) = len(labels), moved.shape
        if self.settings.repeated and self.generator is not None:
            again = roles.unaltered(embeddings)
            features = self.generator(torch.cat([embeddings, again, moved.flatten(0, 1)]))
            seen, changed = embed(features[rows:]), features[rows + len(again) :]
            own = torch.cat([seen[: len(again)], embeddings[len(again) :]])  # negatives of triplets are unused
            negatives = seen[len(again) :].view(count, columns, -1)
        else:
            features, seen = self.regenerate(torch.cat([embeddings, moved.flatten(0, 1)]), embed)
            own, negatives, changed = seen[:rows], seen[rows:].view(count, columns, -1), features[rows:]
        if real is not None:  # what the generator lost of y⁻ is given back
            lost = roles.negatives(real - features[:rows], part)
            changed = (changed.view(count, columns, -1) + lost).flatten(0, 1)
            own, negatives = embeddings, embed(changed).view(count, columns, -1)
        anchors = own[roles.anchors][part]
        negative = self.loss.distance(anchors, negatives)
        penalty = self.loss.penalty(anchors, negatives)
        penalty = negative.new_zeros(count) if penalty is None else penalty
        altered = None
        if self.generator is not None:
            theirs = roles.negatives(labels, part).expand(count, columns)
            altered = self.classifier.label_term(
                changed, theirs.flatten(), self._labelled(labels, theirs, roles, part).flatten()
            )
        return _Part(features[:rows], own, negative, penalty, altered)

    @staticmethod
    def _labelled(labels: Tensor, theirs: Tensor, roles: Roles, part: slice) -> Bool[Tensor, "n m"]:
        """Which moved rows have a label to keep: negatives, and in blocks ``[a; p]`` all, as the authors count them."""
        if roles.partners is not None and not roles.paired:
            return torch.ones_like(theirs, dtype=torch.bool)
        return labels[roles.anchors][part, None] != theirs

    def _assembled(
        self,
        parts: list[_Part],
        embeddings: Tensor,
        real: Tensor | None,
        labels: Tensor,
        pull: Tensor,
        roles: Roles,
        embed: Embed,
    ) -> Synthetics:
        rows, own = parts[0].regenerated, parts[0].embeddings
        found = self.loss.comparisons(own, labels)
        keep = found.keep_negative if roles.chosen is None else found.keep_negative.gather(1, roles.chosen)
        found = replace(found, negative=torch.cat([part.negative for part in parts]), keep_negative=keep)
        if found.penalty is not None:  # over N² rows, as the authors take it
            found = replace(found, penalty=torch.cat([part.penalty for part in parts]))
        altered = [part.altered for part in parts if part.altered is not None]
        if self.settings.push_positives:
            lost = None if real is None else real - rows
            positive, pushed = self._pushed(embeddings, own[roles.anchors], lost, labels, pull, roles, embed)
            found = replace(found, positive=positive)
            altered += [] if pushed is None else [pushed]
        if not altered:
            return Synthetics(found)
        moved = LabelTerm(*(torch.stack(each).sum() for each in zip(*altered, strict=True)))
        return Synthetics(found, rows, self._label_cost(rows, labels, moved, roles), moved.share_kept())

    def _pushed(
        self,
        embeddings: Tensor,
        own: Tensor,
        lost: Tensor | None,
        labels: Tensor,
        pull: Tensor,
        roles: Roles,
        embed: Embed,
    ) -> tuple[Float[Tensor, "n p"], LabelTerm | None]:
        """Comparisons with positives that were pushed away, at most to the anchor's nearest negative."""
        rows, keep = roles.positives(labels, self.loss.largest_class)
        nearest = roles.distances(embeddings, labels).amin(dim=1)[:, None]
        nearest = nearest.masked_fill(nearest.isinf(), 0)  # no negative, nowhere to go
        push = (self.settings.push_positives * pull).clamp(max=1)
        moved = farther(embeddings[roles.anchors][:, None], embeddings[rows], nearest, push)
        features, seen = self.regenerate(moved.flatten(0, 1), embed)
        if lost is not None:
            features = features + lost[rows.flatten()]
            seen = embed(features)
        compared = self.loss.distance(own, seen.view(*rows.shape, -1))
        if self.generator is None:
            return compared, None
        return compared, self.classifier.label_term(features, labels[rows].flatten(), keep.flatten())

    def _label_cost(self, rows: Tensor, labels: Tensor, moved: LabelTerm, roles: Roles) -> Float[Tensor, ""]:
        if self.label_average == "parts":
            return self.classifier.label_term(rows[roles.anchors], labels[roles.anchors]).mean() + moved.mean()
        every = self.classifier.label_term(roles.unaltered(rows), roles.unaltered(labels)) + moved
        return every.cost if self.label_average == "sum" else every.mean()

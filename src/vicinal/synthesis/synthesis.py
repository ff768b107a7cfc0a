"""From the embeddings of a batch to synthetic tuples, as a loss's pure core takes them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from vicinal.errors import ConfigError
from vicinal.losses.loss import Comparisons, Loss
from vicinal.synthesis.augmentor import farther, harder, harder_on_arc
from vicinal.synthesis.generator import FeatureClassifier, Generator, LabelTerm
from vicinal.synthesis.hardness import HDMLConfig, LabelAverage
from vicinal.synthesis.roles import Roles

Embed = Callable[[Tensor], Tensor]


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
        label_average: how J_soft is averaged, as ``HDMLConfig.preset`` has it for this loss.
    """

    loss: Loss
    generator: Generator | None
    classifier: FeatureClassifier
    settings: HDMLConfig
    label_average: LabelAverage

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
            features: y of all rows; of concern to ``members="real"`` alone, which must have them.
        """
        if self.settings.members == "regenerated" or self.generator is None:
            features = None
        elif features is None:
            raise ConfigError('members="real" adds to real features, but none came.')
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
        negative = self.loss.compare(anchors, negatives)
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
        rows, keep = roles.positives(labels)
        nearest = roles.distances(embeddings, labels).amin(dim=1)[:, None]
        nearest = nearest.masked_fill(nearest.isinf(), 0)  # no negative, nowhere to go
        push = (self.settings.push_positives * pull).clamp(max=1)
        moved = farther(embeddings[roles.anchors][:, None], embeddings[rows], nearest, push)
        features, seen = self.regenerate(moved.flatten(0, 1), embed)
        if lost is not None:
            features = features + lost[rows.flatten()]
            seen = embed(features)
        compared = self.loss.compare(own, seen.view(*rows.shape, -1))
        if self.generator is None:
            return compared, None
        return compared, self.classifier.label_term(features, labels[rows].flatten(), keep.flatten())

    def _label_cost(self, rows: Tensor, labels: Tensor, moved: LabelTerm, roles: Roles) -> Float[Tensor, ""]:
        if self.label_average == "parts":
            return self.classifier.label_term(rows[roles.anchors], labels[roles.anchors]).mean() + moved.mean()
        every = self.classifier.label_term(roles.unaltered(rows), roles.unaltered(labels)) + moved
        return every.cost if self.label_average == "sum" else every.mean()

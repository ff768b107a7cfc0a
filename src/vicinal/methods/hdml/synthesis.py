"""Harder synthetic tuples of a batch (Zheng et al., CVPR 2019): augmentor, generator and head, Eqs.
(4)-(8).

The augmentor is a set of pure functions of embeddings. Leading axes broadcast, so one call serves T
triplets ``[t d]`` and all N x N pairs of an N-pair batch, ``anchor [n 1 d]`` and ``negative [1 n
d]``. Where points meet, values and
gradients stay finite: a distance of 0 moves nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor, nn
from torch.nn.functional import relu, threshold
from torch.utils.checkpoint import checkpoint

from vicinal.distances import at_least_float32, pairwise_distances, row_distances, unit_rows
from vicinal.errors import ConfigError, unknown
from vicinal.losses.loss import Comparisons, Loss, tuple_loss
from vicinal.methods.hdml.generator import FeatureClassifier, Generator, LabelTerm
from vicinal.tuples import Embeddings, positives, same_class

if TYPE_CHECKING:
    from vicinal.methods.hdml.method import HDML, LabelAverage

Embed = Callable[[Tensor], Tensor]
Points = Float[Tensor, "*#rows d"]
Lengths = Float[Tensor, "*#rows"]
Path = Literal["straight", "arc"]
ReferenceRule = Literal["mean", "farthest", "fixed"]


# -- the augmentor ---------------------------------------------------------------------------------


def harder(
    anchor: Points, negative: Points, reference_distance: Lengths, lambda_: Tensor | float
) -> Points:
    """Pull negatives towards their anchor on a straight line, never nearer than the reference
    distance.

        ẑ⁻ = z + [λ d + (1 - λ) d⁺] (z⁻ - z) / d    if d = ‖z⁻ - z‖ > d⁺,  else z⁻    Zheng et al. 2019, Eqs. (5)-(7)

    Written as z⁻ + (1 - λ) [1 - d⁺/d]_+ (z - z⁻), the same points: with λ = 1, and within d⁺, a
    negative stays exactly where it is, and it passes no gradient to the anchor there. The gradient
    flows through d and d⁺ as well; detach what it should not reach.

    Figure 2: the anchor in the origin, its positive 1 away, a negative 3 away. The negative comes
        nearer on the line
    to the anchor, down to the circle of the positive; one that lies inside stays.

    >>> anchor, negatives = torch.zeros(2), torch.tensor([[3.0, 0.0], [0.0, 0.5]])
    >>> for lambda_ in (1.0, 0.5, 0.0):
    ...     print(harder(anchor, negatives, torch.tensor(1.0), lambda_).tolist())
    [[3.0, 0.0], [0.0, 0.5]]
    [[2.0, 0.0], [0.0, 0.5]]
    [[1.0, 0.0], [0.0, 0.5]]
    """
    negative = at_least_float32(negative)
    back = at_least_float32(anchor) - negative
    distance = torch.linalg.vector_norm(back, dim=-1)
    share = (
        (1 - lambda_) * relu(distance - reference_distance) / threshold(distance, 0.0, 1.0)
    )  # 0 where d is 0
    return negative + share[..., None] * back


def farther(
    anchor: Points, positive: Points, reference_distance: Lengths, push: Tensor | float
) -> Points:
    """Push positives away from their anchor, at most to a reference distance such as that of the
    nearest negative.

        ẑ⁺ = z + [(1 - push) d + push d⁻] (z⁺ - z) / d              if d = ‖z⁺ - z‖ < d⁻,  else z⁺

    Differs: the paper names positive pairs as an easy extension (Section 3.2) and gives no formula;
        this is Eq. (6)
    turned around. A positive on its anchor has no direction to go and stays.

    >>> farther(torch.zeros(2), torch.tensor([[1.0, 0.0], [0.0, 4.0]]), torch.tensor(3.0), 0.5).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """
    anchor, positive = at_least_float32(anchor), at_least_float32(positive)
    distance = row_distances(anchor, positive, squared=False)
    missing = relu(reference_distance - distance) / threshold(distance, 0.0, 1.0)
    return positive + (-push * missing)[..., None] * (anchor - positive)


def harder_on_arc(
    anchor: Points, negative: Points, reference_angle: Lengths, lambda_: Tensor | float
) -> Points:
    """Turn negatives towards their anchor about the origin, never nearer than the reference angle;
    lengths stay.

        θ̂ = λ θ + (1 - λ) θ⁺    if θ > θ⁺,  else θ                Eq. (6) with angles for distances

    For losses on the unit sphere, where ``harder`` before the normalization cuts through the ball:
    what it does to the angle then depends on lengths that the loss never sees. A negative opposite
    to its anchor has no shortest arc and stays.

    >>> turned = harder_on_arc(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 2.0]), torch.tensor(torch.pi / 6), 0.0)
    >>> turned
    tensor([1.7321, 1.0000])
    """
    anchor, negative = at_least_float32(anchor), at_least_float32(negative)
    towards, start = unit_rows(anchor), unit_rows(negative)
    turn = relu(angles(anchor, negative) - reference_angle)[..., None] * (1 - lambda_)
    across = unit_rows(
        towards - (towards * start).sum(dim=-1, keepdim=True) * start
    )  # 0 where they meet or oppose
    length = torch.linalg.vector_norm(negative, dim=-1, keepdim=True)
    turned = length * (turn.cos() * start + turn.sin() * across)
    stays = (turn == 0) | (across == 0).all(dim=-1, keepdim=True)
    return torch.where(stays, negative, turned)


def angles(x: Points, y: Points) -> Lengths:
    """Return the angle between rows, 0 to π.

    From the tangent, because the cosine's inverse has an infinite slope where rows meet.

    >>> angles(torch.tensor([1.0, 0.0]), torch.tensor([[0.0, 1.0], [2.0, 0.0]])).tolist()
    [1.5707963705062866, 0.0]
    """
    x, y = unit_rows(x), unit_rows(y)
    cosine = (x * y).sum(dim=-1)
    sine: Tensor = torch.linalg.vector_norm(
        x - cosine[..., None] * y, dim=-1
    )  # its gradient at 0 is 0
    return torch.atan2(
        sine, cosine.masked_fill((sine == 0) & (cosine == 0), 1)
    )  # a row of zeros lies everywhere


def reference_distances(
    distances: Float[Tensor, "n m"],
    positive: Bool[Tensor, "n m"],
    *,
    rule: ReferenceRule,
    fixed: float,
) -> Float[Tensor, "n"]:
    """Return d⁺ of each anchor: the mean distance to its positives, that of the farthest, or a
    fixed value.

    The paper has one positive pair for each anchor, where mean and farthest agree, "or a fixed
    value" (Section 3.2), which is also what an anchor without positives gets.

    >>> distances = torch.tensor([[1.0, 3.0, 9.0], [4.0, 5.0, 6.0]])
    >>> positive = torch.tensor([[True, True, False], [False, False, False]])
    >>> for rule in ("mean", "farthest", "fixed"):
    ...     print(reference_distances(distances, positive, rule=rule, fixed=2.5).tolist())
    [2.0, 2.5]
    [3.0, 2.5]
    [2.5, 2.5]
    """
    if rule not in get_args(ReferenceRule):
        raise ConfigError(unknown("reference", str(rule), get_args(ReferenceRule)))
    if rule == "fixed":
        return distances.new_full(distances.shape[:1], fixed)
    kept = distances * positive
    count = positive.sum(dim=1)
    found = kept.amax(dim=1) if rule == "farthest" else kept.sum(dim=1) / count.clamp(min=1)
    return torch.where(count > 0, found, fixed)


# -- who is anchor and who is negative
# --------------------------------------------------------------


@dataclass(frozen=True)
class Roles:
    """Which rows of a batch are anchors, and which rows are the columns of a loss's negatives.

    Attributes:
        anchors: the rows that are anchors.
        columns: the rows that negatives come from.
        partners: where rows lie in blocks, each anchor's own positive; None: its positives are
            found by label.
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
        layout = loss.layout if getattr(loss, "blocks", False) else None
        if layout == "triplets":
            third = rows // 3
            return cls(
                slice(0, third), slice(2 * third, rows), slice(third, 2 * third), paired=True
            )
        if layout == "pairs":
            return cls(slice(0, rows // 2), slice(rows // 2, rows), slice(rows // 2, rows))
        return cls(slice(0, rows), slice(0, rows))

    def negatives(self, rows: Tensor, part: slice) -> Tensor:
        """Return what ``rows [b ...]`` hold for some anchors' negatives: ``[n m ...]``, or ``[1 m
        ...]`` if shared."""
        found = rows[self.columns]
        if self.chosen is not None:
            return found[self.chosen[part]]
        return found[part, None] if self.paired else found[None]

    def unaltered(self, rows: Tensor) -> Tensor:
        """Return those of ``rows [b ...]`` that stand in synthetic tuples as they are: all but
        triplets' negatives."""
        return rows[: self.columns.start] if self.paired else rows

    def reference(
        self,
        embeddings: Float[Tensor, "b d"],
        labels: Integer[Tensor, "b"],
        path: Path,
        rule: ReferenceRule,
        fixed: float,
    ) -> Float[Tensor, "n"]:
        """Return d⁺ of each anchor: the distance, on the arc the angle, of its positive pair or
        pairs."""
        if self.partners is not None:  # of one positive, mean and farthest agree
            anchors, partners = embeddings[self.anchors], embeddings[self.partners]
            apart = (
                angles(anchors, partners)
                if path == "arc"
                else row_distances(anchors, partners, squared=False)
            )
            there = labels[self.anchors] == labels[self.partners]
            return (
                torch.where(there, apart, fixed)
                if rule != "fixed"
                else torch.full_like(apart, fixed)
            )
        on_arc, same = path == "arc", same_class(labels)
        among = (
            angles(embeddings[:, None], embeddings)
            if on_arc
            else pairwise_distances(embeddings, squared=False)
        )
        return reference_distances(among, same, rule=rule, fixed=fixed)

    def limited(
        self, embeddings: Float[Tensor, "b d"], labels: Integer[Tensor, "b"], hardest: int
    ) -> "Roles":
        """Return the same with the ``hardest`` nearest negatives of each anchor as its only
        columns."""
        if self.paired:
            return self
        distances = self.distances(embeddings, labels)
        return replace(
            self,
            chosen=distances.topk(min(hardest, distances.shape[1]), dim=1, largest=False).indices,
        )

    @torch.no_grad()
    def distances(
        self, embeddings: Float[Tensor, "b d"], labels: Integer[Tensor, "b"]
    ) -> Float[Tensor, "n m"]:
        """Return the distance of each anchor to its real negatives, infinite where a column is
        none."""
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
        """Return the rows of each anchor's positives, in the order of a loss's comparisons, and
        which are there."""
        if self.partners is None:
            return positives(labels, largest_class=largest_class)
        if self.paired:
            rows = torch.arange(self.partners.start, self.partners.stop, device=labels.device)
            return rows[:, None], (labels[self.anchors] == labels[self.partners])[:, None]
        found = positives(labels[self.anchors], labels[self.columns], largest_class=largest_class)
        return found.columns + self.columns.start, found.keep


def replaceable(loss: nn.Module) -> Loss:
    """Return ``loss`` if it compares anchors with negatives that synthetic ones can replace."""
    loss, name = tuple_loss(loss, "HDML"), type(loss).__name__
    if not loss.single_negatives:
        raise ConfigError(
            f"HDML makes negatives for one anchor, but {name} compares each negative with the "
            "middle of a pair. "
            f"Use n_pair, or lifted_structure for both members of a pair."
        )
    return loss


# -- tuples ----------------------------------------------------------------------------------------


class Regenerated(NamedTuple):
    """What the generator made of a batch.

    Attributes:
        features: y' = i(z) of all rows unaltered.
        label_cost: J_soft.
        labels_kept: the share of moved rows in which the judge still sees their label.
    """

    features: Float[Tensor, "b y"]
    label_cost: Float[Tensor, ""]
    labels_kept: Float[Tensor, ""]


class Synthetics(NamedTuple):
    """The synthetic tuples of a batch.

    Attributes:
        comparisons: what the loss's core takes.
        regenerated: tells what a generator, if there is one, made of the batch; the loss does not
            wait for it.
    """

    comparisons: Comparisons
    regenerated: Callable[[], Regenerated] | None = None


@dataclass(frozen=True)
class Synthesis:
    """Augmentor, generator and head in a row, for one loss.

        T(ẑ) = (z, z⁺, harder(z⁻)),   T(ỹ) = i(T(ẑ)),   T(z̃) = g(T(ỹ))        Zheng et al. 2019, Eqs. (7) and (8)

    All members of a tuple pass the generator, so that they lie in one space (Section 3.3); the loss
    never compares a regenerated embedding with a real one. With ``members="real"`` (ours) that
    space is the real one: of the generator only the change i(ẑ⁻) - i(z⁻) is used, added to the real
        y⁻.

    Differs: the authors send anchors and positives through the generator twice, with all rows and
        within their tuples.
    Here each passes once, which differs only in the statistics of batch norms.
    ``settings.repeated`` gives the authors' rows, but for the N positives of N-pair tuples: in
    their code these are among the N² moved rows, here passed again.

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
        """Return who is anchor and who is negative; with ``hardest``, of each anchor the nearest
        negatives only."""
        roles, hardest = Roles.of(self.loss, len(labels)), self.settings.hardest
        return roles if hardest is None else roles.limited(embeddings, labels, hardest)

    def mover(
        self,
        embeddings: Float[Tensor, "b d"],
        labels: Integer[Tensor, "b"],
        lambda_: Tensor,
        roles: Roles,
    ) -> Callable[[slice], Float[Tensor, "n m d"]]:
        """Return a function that gives ẑ⁻ of the anchors in a part of the batch, Eq. (7)."""
        s = self.settings
        reference = roles.reference(embeddings, labels, s.path, s.reference, s.fixed_distance)
        anchors, move = embeddings[roles.anchors], harder if s.path == "straight" else harder_on_arc
        return lambda part: move(
            anchors[part, None], roles.negatives(embeddings, part), reference[part, None], lambda_
        )

    def regenerate(self, embeddings: Embeddings, embed: Embed) -> tuple[Tensor, Embeddings]:
        """Return ỹ = i(ẑ) and z̃ = g(ỹ)."""
        if self.generator is None:
            return embeddings, embeddings
        features = self.generator(embeddings)
        return features, embed(features)

    def __call__(
        self,
        embeddings: Float[Tensor, "b d"],
        labels: Integer[Tensor, "b"],
        lambda_: Float[Tensor, ""],
        embed: Embed,
        features: Float[Tensor, "b y"] | None = None,
    ) -> Synthetics:
        """Return the synthetic tuples of a batch.

        Args:
            embeddings: z of all rows.
            labels: their classes.
            lambda_: λ.
            embed: the head g.
            features: y of all rows, for ``members="real"``; ignored otherwise.
        """
        if self.settings.members == "regenerated" or self.generator is None:
            features = None
        elif features is None:
            raise ConfigError('members="real" adds to real features, got features=None.')
        roles = self.roles(embeddings, labels)
        move = self.mover(embeddings, labels, lambda_, roles)
        anchors, columns = len(labels[roles.anchors]), roles.negatives(labels, slice(0, 1)).shape[1]
        step = max(1, self.settings.chunk // max(1, columns))
        slices = [
            slice(start, min(start + step, anchors)) for start in range(0, anchors, step)
        ] or [slice(0, 0)]
        unaltered, whole = len(roles.unaltered(labels)), len(slices) == 1

        def make(z: Tensor, y: Tensor | None, part: slice) -> "_Part":
            rows, own, negatives, penalty, changed = self._part(
                z, y, labels, roles, part, move, embed
            )
            if whole or self.generator is None:
                return rows, own, negatives, penalty, changed
            return rows, own, negatives, penalty, self._label_term(changed, labels, roles, part)

        if whole:
            parts = [make(embeddings, features, slices[0])]
        else:  # keep nothing but embeddings for the backward pass, and make each part again there
            parts = [
                checkpoint(
                    make, embeddings, features, part, use_reentrant=False, preserve_rng_state=False
                )
                for part in slices
            ]
        rows, own = parts[0][:2]
        _, _, negatives, penalties, made = zip(*parts, strict=True)
        if roles.paired:  # [a; p; n] with n moved
            found = self.loss.comparisons(torch.cat([own[:unaltered], *negatives]), labels)
        else:
            found = self.loss.comparisons(own, labels)
            there = (
                found.keep_negative
                if roles.chosen is None
                else found.keep_negative.gather(1, roles.chosen)
            )
            found = replace(
                found, negative=negatives[0] if whole else torch.cat(negatives), keep_negative=there
            )
        if found.penalty is not None:  # over N² rows, as the authors take it
            found = replace(found, penalty=penalties[0] if whole else torch.cat(penalties))
        pushed: list[LabelTerm] = []
        if self.settings.push_positives:
            lost = None if features is None else features - rows
            positive, term = self._pushed(
                embeddings, own[roles.anchors], lost, labels, lambda_, roles, embed
            )
            found, pushed = replace(found, positive=positive), [] if term is None else [term]
        if self.generator is None:
            return Synthetics(found)

        def regenerated() -> Regenerated:
            terms = [self._label_term(made[0], labels, roles, slices[0])] if whole else list(made)
            moved = LabelTerm.sum(terms + pushed)
            if self.label_average == "parts":
                cost = (
                    self.classifier.label_term(rows[roles.anchors], labels[roles.anchors]).mean()
                    + moved.mean()
                )
            else:
                every = LabelTerm.sum(
                    [self.classifier.label_term(rows[:unaltered], labels[:unaltered]), moved]
                )
                cost = every.cost if self.label_average == "sum" else every.mean()
            return Regenerated(rows, cost, moved.share_kept())

        return Synthetics(found, regenerated)

    def _part(
        self,
        embeddings: Tensor,
        real: Tensor | None,
        labels: Tensor,
        roles: Roles,
        part: slice,
        move: Callable[[slice], Tensor],
        embed: Embed,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor]:
        """Return what some anchors contribute: i(z), g(i(z)), negatives, penalty, moved features.

        Negatives are comparisons with them or, where each anchor has its own, their embeddings.
        """
        rows, again = len(labels), roles.unaltered(embeddings)
        moved = move(part)
        count, columns, _ = moved.shape
        # The unaltered rows go along in every part, so that a batch norm sees a tuple's members
        # together.
        if self.settings.repeated and self.generator is not None:
            features = self.generator(torch.cat([embeddings, again, moved.flatten(0, 1)]))
            seen, changed = embed(features[rows:]), features[rows + len(again) :]
            own = torch.cat(
                [seen[: len(again)], embeddings[len(again) :]]
            )  # negatives of triplets are unused
            negatives = seen[len(again) :].view(count, columns, -1)
        else:
            given = torch.cat([embeddings, moved.flatten(0, 1)])
            features = given if self.generator is None else self.generator(given)
            seen = given if self.generator is None else embed(features)
            own, negatives = torch.split(seen, [rows, count * columns])
            negatives, changed = negatives.view(count, columns, -1), features[rows:]
        if real is not None:  # what the generator lost of y⁻ is given back
            lost = roles.negatives(real - features[:rows], part)
            changed = (changed.view(count, columns, -1) + lost).flatten(0, 1)
            own, negatives = embeddings, embed(changed).view(count, columns, -1)
        anchors = own[roles.anchors][part]
        penalty = self.loss.penalty(anchors, negatives) if self.loss.penalizes else None
        compared = (
            negatives.squeeze(dim=1) if roles.paired else self.loss.distance(anchors, negatives)
        )
        return features[:rows], own, compared, penalty, changed

    def _label_term(self, changed: Tensor, labels: Tensor, roles: Roles, part: slice) -> LabelTerm:
        """Return the label term of what the generator made of some anchors' moved negatives."""
        # Negatives have a label to keep; in blocks [a; p] all moved rows have, as the authors count
        # them.
        own = labels[roles.anchors][part, None]
        theirs = roles.negatives(labels, part).expand(len(own), -1)
        all_labelled = roles.partners is not None and not roles.paired
        return self.classifier.label_term(
            changed, theirs.flatten(), None if all_labelled else (own != theirs).flatten()
        )

    def _pushed(
        self,
        embeddings: Tensor,
        own: Tensor,
        lost: Tensor | None,
        labels: Tensor,
        lambda_: Tensor,
        roles: Roles,
        embed: Embed,
    ) -> tuple[Float[Tensor, "n p"], LabelTerm | None]:
        """Return comparisons with positives that were pushed away, at most to the anchor's nearest
        negative."""
        rows, keep = roles.positives(labels, self.loss.largest_class)
        nearest = roles.distances(embeddings, labels).amin(dim=1)[:, None]
        nearest = nearest.masked_fill(nearest.isinf(), 0)  # no negative, nowhere to go
        push = (self.settings.push_positives * (1 - lambda_)).clamp(max=1)
        moved = farther(embeddings[roles.anchors][:, None], embeddings[rows], nearest, push)
        features, seen = self.regenerate(moved.flatten(0, 1), embed)
        if lost is not None:
            features = features + lost[rows.flatten()]
            seen = embed(features)
        compared = self.loss.distance(own, seen.view(*rows.shape, -1))
        if self.generator is None:
            return compared, None
        return compared, self.classifier.label_term(
            features, labels[rows].flatten(), keep.flatten()
        )


_Part = tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | LabelTerm]

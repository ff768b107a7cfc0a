"""Losses with proxies, learned points that stand for classes, so that a sample meets every class in
every batch.

Proxy-NCA (Movshovitz-Attias et al., ICCV 2017) and ProxyNCA++ (Teh et al., ECCV 2020), its improved
form after ANML (Song et al., TPAMI 2022), Proxy-Anchor (Kim et al., CVPR 2020), normalized softmax
(Zhai and Wu, BMVC 2019) and SoftTriple (Qian et al., ICCV 2019). By the angle to a proxy and with a
margin: ArcFace (Deng et al., CVPR 2019), CosFace (Wang et al., CVPR 2018), sub-center ArcFace (Deng
et al., ECCV 2020); also P2SGrad (Zhang et al., CVPR 2019) and the instance loss (Zheng et al., TOMM
2020).
"""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Annotated, ClassVar, Literal, TypeGuard, TypeVar

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.nn.functional import softplus

from vicinal import parallel
from vicinal.arguments import Count, Limits, NonNegative, Positive
from vicinal.distances import Cosine, DotProduct, at_least_float32, row_distances, unit_rows
from vicinal.errors import ConfigError, DataError
from vicinal.geometry import log_one_plus_sum_exp, shift_angle
from vicinal.losses.loss import Comparisons, Loss, Terms
from vicinal.tuples import Embeddings, Labels, Reference, SingleLabels, being_captured

T = TypeVar("T")
DRAWN = 2**16  # classes whose first proxies are drawn at a time
CROWD = 5  # neighbors that say how crowded a proxy is
NAMED = 3  # classes that a note names
MOST = 5000  # classes whose proxies are all compared with each other for a note


@dataclass(eq=False, repr=False)
class ProxyLoss(Loss):
    """What losses with proxies share: the proxies, which labels they stand for, and the arguments
    below.

    >>> from vicinal.losses import ProxyAnchorLoss
    >>> loss: ProxyLoss = ProxyAnchorLoss(classes=3, dim=2, known=(4, 7, 9))
    >>> loss.proxies.shape, bool(loss(torch.randn(2, 2), torch.tensor([9, 4])) > 0)
    (torch.Size([3, 2]), True)

    Args:
        classes: number of classes.
        dim: dimension of the embeddings.
        known: the labels of the classes in increasing order; None for 0 to ``classes`` - 1. Name no
            class that never occurs: its proxy would only push.
        seed: seed of the initial proxies.
        centers: how many proxies a class has, of which the nearest counts.
        start: where a run puts the proxies: at random, or at the means of their classes by the
            network that it begins with, several at the means of a class's parts. None is ``means``
            where ``model.weights`` brings network and head of another run, so that a class added to
            its data has a proxy in its place.
        sampled: share of the classes that are not in a batch whose proxies it meets, drawn at
            random (Partial FC, An et al. 2022); others get no gradient. Several processes must draw
            the same numbers from torch's global generator.
        divided: whether each of several processes keeps the proxies of its share of the classes
            alone, with gradients and optimizer (An et al. 2021). All give the same gathered rows.
            A run does so where the method is the loss alone.
        reduction: as in ``torch.nn``.

    Where ``proxies_first`` a proxy is the anchor, and samples are its positives and negatives;
    where ``samples_beside_proxies`` it compares nothing else, so that ``arrange`` gives all.
    """

    classes: Count
    dim: Count
    _: KW_ONLY
    known: tuple[int, ...] | None = None
    seed: int = 0
    centers: Count = 1
    start: Literal["random", "means"] | None = None
    sampled: Annotated[float, Limits("(0, 1]")] = 1.0
    divided: bool = False

    takes_reference = False
    proxies_first: ClassVar[bool] = False
    samples_beside_proxies: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        known = self.known
        if known is not None and (len(known) != self.classes or list(known) != sorted(set(known))):
            raise ConfigError(
                f"`known` names each of {self.classes} classes once, in increasing order, got "
                f"{len(known)} labels ({len(set(known))} different). Sort them and leave out "
                "repetitions."
            )
        if self.divided and self.indivisible:
            raise ConfigError(
                f"{type(self).__name__} needs all proxies in every process: {self.indivisible}. "
                "Set loss.divided=false."
            )
        self.capturable = self.sampled == 1
        # Even directions of length 1: where they are normalized it only sets how far an optimizer's
        # step turns them.
        rng = torch.Generator().manual_seed(self.seed)
        own = self.own(range(self.classes))
        kept = []
        for first in range(0, self.classes, DRAWN):
            rows = range(first, min(self.classes, first + DRAWN))
            drawn = torch.randn(len(rows), *self.shape[1:], generator=rng)
            kept.append(unit_rows(drawn[max(0, own.start - first) : max(0, own.stop - first)]))
        kind = parallel.Shard if self.divided else nn.Parameter
        self.proxies = kind(torch.cat(kept))
        self.proxy_labels: Tensor
        labels = torch.arange(self.classes) if known is None else torch.tensor(known)
        self.register_buffer("proxy_labels", labels, persistent=False)  # follows from `known`

    def own(self, classes: T) -> T:
        """Return those of all classes whose proxies this process has."""
        return parallel.part(classes) if self.divided else classes

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of all proxies."""
        return (self.classes, *([] if self.centers == 1 else [self.centers]), self.dim)

    @torch.no_grad()
    def start_at_means(self, embeddings: Embeddings, labels: SingleLabels) -> None:
        """Turn each proxy to the mean of its class, and keep its length; of several, to the means
        of parts along the class's widest direction.

        A class without a row keeps its proxies, and one with fewer than proxies has equal ones.

        Args:
            embeddings: of the training records; of longer ones the first ``dim`` numbers count.
            labels: class of each.
        """
        rows = embeddings[:, : self.dim]
        rows = unit_rows(rows) if self.distance.normalize else rows
        proxies = self.proxies.view(-1, self.centers, self.dim)
        for place, label in enumerate(self.own(self.proxy_labels).cpu()):
            own = rows[labels == label]
            if not len(own):
                continue
            along = torch.linalg.svd(own - own.mean(dim=0), full_matrices=False).Vh[0]
            parts = own[(own @ along).argsort()].tensor_split(self.centers)
            means = torch.stack([(part if len(part) else own).mean(dim=0) for part in parts])
            lengths = proxies[place].norm(dim=1, keepdim=True)
            proxies[place] = unit_rows(means.to(proxies)) * lengths

    def comparisons(
        self, embeddings: Embeddings, labels: Labels, reference: Reference | None = None
    ) -> Comparisons:
        self.check(embeddings, labels)
        proxies = self.beside(embeddings)
        classes = self.own(self.proxy_labels)
        if self.sampled < 1 and self.training:
            drawn = torch.rand(self.classes) < self.sampled
            drawn[torch.searchsorted(self.proxy_labels, labels).cpu()] = True
            drawn = self.own(drawn)
            drawn[0] |= ~drawn.any()  # a process without proxies could not take part
            rows = drawn.nonzero()[:, 0].to(labels.device)
            proxies = self.proxies.index_select(0, rows).to(proxies.dtype)
            classes = classes[rows]
        found = self.compare(embeddings, labels, proxies, classes)
        return self.united(found, len(classes)) if self.divided else found

    def united(self, c: Comparisons, classes: int) -> Comparisons:
        """Return comparisons with ``classes``, this process's, as those with all processes': each
        knows the positives and has its own negatives."""
        found = replace(c, divided=True)
        if self.proxies_first:
            return found
        own = c.positive.masked_fill(~c.keep_positive, 0)
        known = found.total(c.keep_positive.int()) > 0
        penalty = c.penalty
        if penalty is not None:  # a mean over classes
            share = torch.full_like(penalty, classes)
            penalty = found.total(penalty * share) / found.total(share)
        return replace(found, positive=found.total(own), keep_positive=known, penalty=penalty)

    def beside(self, embeddings: Embeddings) -> Float[Tensor, "*m d"]:
        """Return the proxies in the precision in which embeddings are compared."""
        return self.proxies.to(at_least_float32(embeddings).dtype)

    def compare(
        self,
        embeddings: Embeddings,
        labels: SingleLabels,
        proxies: Float[Tensor, "*m d"],
        proxy_labels: Integer[Tensor, "m"],
    ) -> Comparisons:
        """Compare samples with proxies, those of the loss or any others, such as synthetic ones.

        Args:
            embeddings: the samples, real or synthetic.
            labels: class of each; one that no proxy has makes no positive pair.
            proxies: ``[m d]``, or ``[m k d]`` of k centers each.
            proxy_labels: class of each, all different.
        """
        compared = self.distance(embeddings, proxies.flatten(end_dim=-2))
        return self.arrange(compared, labels, proxy_labels)

    def arrange(
        self,
        compared: Float[Tensor, "n mk"],
        labels: SingleLabels,
        proxy_labels: Integer[Tensor, "m"],
    ) -> Comparisons:
        """Return the comparisons of samples (rows) with proxies (columns, those of a class's
        centers beside each other) as the core takes them; here a method can put others in the place
        of the distances."""
        same = labels[:, None] == proxy_labels
        to_classes = self.merged(compared.view(-1, len(proxy_labels), self.centers))
        own = same.int().argmax(dim=1, keepdim=True)
        return Comparisons(
            to_classes.gather(1, own), same.any(dim=1, keepdim=True), to_classes, ~same
        )

    def merged(self, each: Float[Tensor, "n m k"]) -> Float[Tensor, "n m"]:
        """Return one number for the centers of a class."""
        return self.distance.nearest(each, dim=2)

    def check(self, embeddings: Embeddings, labels: SingleLabels) -> None:
        """Raise a DataError where embeddings do not fit the proxies, or a label has none.

        A device is waited for, but in a step that is being captured.
        """
        if self.dim != embeddings.shape[-1]:
            raise DataError(
                f"proxies of {self.dim} dimensions cannot be compared with embeddings of "
                f"{embeddings.shape[-1]}. Give the loss the embedder's `dim`."
            )
        if being_captured(labels):
            return
        nearest = torch.searchsorted(self.proxy_labels, labels).clamp(max=self.classes - 1)
        strange = self.proxy_labels[nearest] != labels
        if bool(strange.any()):
            allowed = (
                f"labels from 0 to {self.classes - 1}"
                if self.known is None
                else "the labels in `known`"
            )
            raise DataError(
                f"proxies stand for {self.classes} classes, {allowed}, got label "
                f"{int(labels[strange][0])}. "
                "Number the classes from 0 and raise `classes`, or name every training class in "
                "`known`."
            )


def has_proxies(loss: nn.Module) -> TypeGuard[ProxyLoss]:
    """Return whether a loss compares samples with proxies alone, which methods can replace."""
    return isinstance(loss, ProxyLoss) and loss.samples_beside_proxies


def start_at_means(loss: nn.Module, embeddings: Embeddings, labels: SingleLabels) -> None:
    """Start all proxies of a loss at class means, those of a nested one at each of its sizes."""
    for part in _with_proxies(loss):
        part.start_at_means(embeddings, labels)


def wants_means(loss: nn.Module, usual: bool) -> bool:
    """Return whether proxies of a loss start at class means; ``usual`` is for those that leave it
    open."""
    return any(
        part.start == "means" or (part.start is None and usual) for part in _with_proxies(loss)
    )


@torch.no_grad()
def crowding(loss: nn.Module, names: Sequence[str]) -> list[str]:
    """Say which classes have the nearest proxies and whose proxies are crowded, in a note; in none
    for losses without proxies or with very many.

    Args:
        loss: after training; of a nested one the whole embedding counts.
        names: of the labels.
    """
    found = []
    for part in _with_proxies(loss):
        if not 3 <= part.classes <= MOST:
            continue
        every = part.proxies.detach().cpu()
        every = parallel.join_rows(every) if part.divided else every
        unit = unit_rows(every).view(-1, part.dim)
        near = (unit @ unit.T).view(part.classes, part.centers, part.classes, part.centers)
        near = near.amax(dim=(1, 3)).fill_diagonal_(-1)
        called = [names[label] for label in part.proxy_labels.tolist()]
        pairs = near.triu(1).flatten().topk(NAMED)
        nearest = (
            f"{called[at // part.classes]} and {called[at % part.classes]} ({cosine:.2f})"
            for cosine, at in zip(*(each.tolist() for each in pairs), strict=True)
        )
        crowds = near.topk(min(CROWD, part.classes - 1)).values.mean(dim=1).topk(NAMED)
        crowded = (
            f"{called[at]} ({cosine:.2f})"
            for cosine, at in zip(*(each.tolist() for each in crowds), strict=True)
        )
        found.append(
            f"after the last step the classes with the nearest proxies are {', '.join(nearest)}; "
            f"the most crowded proxies, by the cosine to their nearest, are {', '.join(crowded)}."
        )
    return found[-1:]


def _with_proxies(loss: nn.Module) -> list[ProxyLoss]:
    return [part for part in loss.modules() if isinstance(part, ProxyLoss)]


@dataclass(eq=False, repr=False)
class ProxyNCALoss(ProxyLoss):
    """Proxy-NCA (Movshovitz-Attias et al. 2017): a sample nearer to its class's proxy than to all
    others.

        l_i = -log( exp(-d(x_i, p_y)/T) / Σ_{z ≠ y} exp(-d(x_i, p_z)/T) )
            Movshovitz-Attias et al. 2017

    with squared distances on the unit sphere and T = 1. The class's own proxy is left out of the
    sum, as printed, so the loss is not a probability's logarithm and may be negative. Many
    implementations have it in; that is ``full_softmax``, and with T = 1/9 the loss of ProxyNCA++.

    The mean is over samples. The proxies are the loss's parameters: give them to an optimizer.

    Args:
        temperature: T.
        full_softmax: whether the sum is over all proxies.
        squared: whether distances are squared.
        normalize: whether embeddings and proxies are put on the unit sphere first.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per sample.
    """

    _: KW_ONLY
    temperature: Positive = 1.0
    full_softmax: bool = False
    squared: bool = True
    normalize: bool = True

    def core(self, c: Comparisons) -> Terms:
        against = c.log_sum_exp(-c.negative / self.temperature)
        losses = c.positive / self.temperature + against[:, None]
        if self.full_softmax:
            losses = softplus(losses, threshold=40.0)  # -log(p / (p + Σ)) = log(1 + Σ / p)
        return c.per_positive(losses)


@dataclass(eq=False, repr=False)
class ImprovedProxyNCALoss(ProxyLoss):
    """Improved Proxy-NCA (after Song et al. 2022): Proxy-NCA with an inverse temperature and an
    offset.

        l_i = 1/γ log(1 + Σ_{z ≠ y} exp(γ (d(x_i, p_y) - d(x_i, p_z) - λ)))
            by analogy to Song et al., Eq. (31)

    with squared distances on the unit sphere. At λ = 0 it is 1/γ times
    ``ProxyNCALoss(full_softmax=True)`` of temperature 1/γ, that is, ProxyNCA++; γ → ∞ is [d(x_i,
    p_y) - min_z d(x_i, p_z) - λ]_+.

    Differs: the paper evaluates an improved Proxy-NCA (Table 3) and prints no formula. This one has
        a sample in place
    of N-pair's anchor and proxies in place of its others.

    The mean is over samples. The proxies are the loss's parameters: give them to an optimizer.

    Args:
        gamma: γ > 0.
        offset: λ; above 0 it relaxes.
        squared: whether distances are squared.
        normalize: whether embeddings and proxies are put on the unit sphere first.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per sample.
    """

    _: KW_ONLY
    gamma: Positive = 9.0
    offset: float = 0.0
    squared: bool = True
    normalize: bool = True

    def core(self, c: Comparisons) -> Terms:
        losses = c.cross_entropy(-self.gamma * c.positive, self.gamma * (-c.negative - self.offset))
        return c.per_positive(losses / self.gamma)


@dataclass(eq=False, repr=False)
class ProxyAnchorLoss(ProxyLoss):
    """Proxy-Anchor (Kim et al. 2020): proxies pull the samples of their class and push all others.

        L = 1/|P⁺| Σ_{p ∈ P⁺} log(1 + Σ_{x ∈ X_p⁺} exp(-α (s(x, p) - δ)))
          + 1/|P|  Σ_{p ∈ P}  log(1 + Σ_{x ∈ X_p⁻} exp(+α (s(x, p) + δ)))           Kim et al. 2020

    Paper to code: s = cosine similarity, δ = ``margin``, P the proxies, P⁺ those with samples in
        the batch.

    An anchor is a proxy here, so ``"none"`` gives one value per class. The first sum is scaled by
    |P| / |P⁺|, so that the mean over all proxies is L. The proxies are the loss's parameters: give
    them to an optimizer; the paper's rate for them is 100 times the network's.

    Args:
        margin: δ.
        alpha: how sharply the hardest sample dominates.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per proxy.
    """

    _: KW_ONLY
    margin: float = 0.1
    alpha: Positive = 32.0

    distance = Cosine()
    separate_sums = True
    proxies_first = True

    @property
    def indivisible(self) -> str | None:
        return None if self.divided else "proxies are its anchors"

    def arrange(
        self,
        compared: Float[Tensor, "n mk"],
        labels: SingleLabels,
        proxy_labels: Integer[Tensor, "m"],
    ) -> Comparisons:
        """Let each proxy be an anchor among the samples of its class and all others."""
        same = proxy_labels[:, None] == labels
        to_classes = self.merged(compared.view(-1, len(proxy_labels), self.centers)).T
        return Comparisons(to_classes, same, to_classes, ~same)

    def core(self, c: Comparisons) -> Terms:
        pull = log_one_plus_sum_exp(
            -self.alpha * (c.positive - self.margin), c.keep_positive, c.positive_weights
        )
        push = log_one_plus_sum_exp(
            self.alpha * (c.negative + self.margin), c.keep_negative, c.negative_weights
        )
        counts = torch.ones_like(pull)
        classes = c.total(counts.sum())
        with_positives = c.total(c.keep_positive.any(dim=1).sum()).clamp(min=1)
        sums = pull * (classes / with_positives) + push
        if c.divided:
            sums = c.total(sums.sum(dim=0, keepdim=True))
            counts = classes[None]
        return Terms(sums, counts)


@dataclass(eq=False, repr=False)
class NormalizedSoftmaxLoss(ProxyLoss):
    """Normalized softmax (Zhai and Wu 2019): classify by the cosine to one proxy for each class.

        l_i = -log( exp(x_i·p_y / σ) / Σ_z exp(x_i·p_z / σ) )                       Zhai and Wu 2019

    with x and p on the unit sphere and no bias: the classifier that any metric learning loss should
    beat. On the sphere ‖x - p‖² = 2 - 2 x·p, so it equals ``ProxyNCALoss(full_softmax=True,
    temperature=2 * temperature)``.

    Differs: the paper normalizes x after a layer norm without affine parameters; that belongs to a
        head, not here.

    The mean is over samples. The proxies are the loss's parameters: give them to an optimizer.

    Args:
        temperature: σ; the paper's 0.05.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per sample.
    """

    _: KW_ONLY
    temperature: Positive = 0.05

    distance = Cosine()

    def core(self, c: Comparisons) -> Terms:
        return c.per_positive(
            c.cross_entropy(c.positive / self.temperature, c.negative / self.temperature)
        )


@dataclass(eq=False, repr=False)
class SoftTripleLoss(ProxyLoss):
    """SoftTriple (Qian et al. 2019): a softmax over classes with several centers each.

        S'_ic = Σ_k softmax_k(s(x_i, w_c^k) / γ) · s(x_i, w_c^k)
        l_i   = -log( exp(λ (S'_iy - δ)) / (exp(λ (S'_iy - δ)) + Σ_{c ≠ y} exp(λ S'_ic)) )
              + τ / (C K (K - 1)) · Σ_c Σ_{k < l} √(2 - 2 w_c^k·w_c^l)              Qian et al. 2019

    Paper to code: s = cosine similarity, K = ``centers``, γ = ``gamma``, λ = ``scale``, δ =
        ``margin``, τ = ``merge``.
    The last sum draws centers of a class together, so that it keeps no more of them than it needs.

    The mean is over samples. The centers are the loss's parameters: give them to an optimizer.

    Args:
        centers: K.
        scale: λ.
        gamma: how evenly a sample belongs to the centers of a class; small is the nearest one
            alone.
        margin: δ.
        merge: τ.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per sample.
    """

    _: KW_ONLY
    centers: Count = 10
    scale: Positive = 20.0
    gamma: Positive = 0.1
    margin: float = 0.01
    merge: float = 0.2

    distance = Cosine()

    def compare(
        self,
        embeddings: Embeddings,
        labels: SingleLabels,
        proxies: Float[Tensor, "*m d"],
        proxy_labels: Integer[Tensor, "m"],
    ) -> Comparisons:
        found = super().compare(embeddings, labels, proxies, proxy_labels)
        return replace(found, penalty=self.spread_penalty(proxies).expand(len(labels)))

    def merged(self, each: Float[Tensor, "n m k"]) -> Float[Tensor, "n m"]:
        return ((each / self.gamma).softmax(dim=2) * each).sum(dim=2)

    def spread_penalty(self, proxies: Float[Tensor, "*m d"]) -> Float[Tensor, ""]:
        """Return what it costs that the centers of a class differ."""
        unit = unit_rows(proxies).reshape(len(proxies), -1, proxies.shape[-1])
        count = unit.shape[1]
        first, second = torch.triu_indices(count, count, offset=1, device=proxies.device)
        # ‖w - v‖ = √(2 - 2 w·v).
        apart = row_distances(unit[:, first], unit[:, second], squared=False)
        return self.merge * apart.sum() / max(1, len(unit) * count * (count - 1))

    def core(self, c: Comparisons) -> Terms:
        return c.per_positive(
            c.cross_entropy(self.scale * (c.positive - self.margin), self.scale * c.negative)
        )


@dataclass(eq=False, repr=False)
class CosFaceLoss(ProxyLoss):
    """CosFace (Wang et al. 2018): classify by the cosine to one proxy for each class, the right one
    less a margin.

        l_i = -log(exp(s (cos θ_y - m)) / (exp(s (cos θ_y - m)) + Σ_{z ≠ y} exp(s cos θ_z)))
            Wang et al. 2018

    θ_z is the angle between the sample and the proxy of class z. The mean is over samples. The
    proxies are the loss's
    parameters: give them to an optimizer.

    Args:
        margin: m.
        scale: s.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per sample.
    """

    _: KW_ONLY
    margin: NonNegative = 0.35
    scale: Positive = 64.0

    distance = Cosine()

    def core(self, c: Comparisons) -> Terms:
        return c.per_positive(
            c.cross_entropy(self.scale * (c.positive - self.margin), self.scale * c.negative)
        )


@dataclass(eq=False, repr=False)
class ArcFaceLoss(ProxyLoss):
    """ArcFace (Deng et al. 2019): classify by the angle to one proxy for each class, the right one
    plus a margin.

        l_i = -log( exp(s cos(θ_y + m)) / (exp(s cos(θ_y + m)) + Σ_{z ≠ y} exp(s cos θ_z)) )
            Deng et al. 2019, Eq. (3)

    θ_z is the angle between the sample and the proxy of class z. Beyond θ_y = π - m, where cos(θ_y
    + m) would rise again, cos θ_y - m sin m takes its place, as in the authors' code. The mean is
    over samples. The proxies are the loss's parameters: give them to an optimizer.

    Args:
        margin: m in radians; 0.5 is 28.6 degrees.
        scale: s.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per sample.
    """

    _: KW_ONLY
    margin: NonNegative = 0.5
    scale: Positive = 64.0

    distance = Cosine()

    def core(self, c: Comparisons) -> Terms:
        beyond = c.positive < -math.cos(self.margin)
        falling = c.positive - self.margin * math.sin(self.margin)
        own = torch.where(beyond, falling, shift_angle(c.positive, self.margin))
        return c.per_positive(c.cross_entropy(self.scale * own, self.scale * c.negative))


@dataclass(eq=False, repr=False)
class SubCenterArcFaceLoss(ArcFaceLoss):
    """Sub-center ArcFace (Deng et al. 2020): ArcFace with several centers for each class, of which
    the nearest counts.

        cos θ_z = max_k x_i·w_z^k                                                   Deng et al. 2020

    and then as `ArcFaceLoss`: mislabeled samples gather at a center of their own and pull the
    others less.

    Args:
        margin: m in radians; 0.5 is 28.6 degrees.
        scale: s.
        centers: how many centers a class has.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per sample.
    """

    _: KW_ONLY
    centers: Count = 3


@dataclass(eq=False, repr=False)
class P2SGradLoss(ProxyLoss):
    """P2SGrad (Zhang et al. 2019): the gradient of a softmax over angles with cosines in place of
    probabilities.

        l_i  = 1/2 Σ_z (cos θ_z - 1[z = y])²
        ∇l_i = Σ_z (cos θ_z - 1[z = y]) ∇cos θ_z                                   Zhang et al. 2019

    A sample pulls by how far its cosine is off, at any scale and number of classes. The
    paper gives the gradient alone. The mean is over samples. The proxies are the loss's parameters:
    give them to an optimizer.

    Args:
        reduction: as in ``torch.nn``; ``"none"`` gives one value per sample.
    """

    distance = Cosine()

    def core(self, c: Comparisons) -> Terms:
        sums = c.add_up((1 - c.positive).square() / 2, c.negative.square() / 2)
        return Terms.of_anchors(sums, c.count_pairs() > 0)


@dataclass(eq=False, repr=False)
class InstanceLoss(ProxyLoss):
    """Instance loss (Zheng et al. 2020): every instance is a class of its own, of which views or
    texts are samples.

        l_i = -log softmax(s W x_i)_y                                              Zheng et al. 2020

    with one row of W for each instance y, shared by the modalities, and no bias. The mean is over
    samples. W is the loss's parameter: give it to an optimizer.

    Args:
        scale: s; 1 in the paper, some 64 for normalized rows.
        normalize: whether embeddings and W are put on the unit sphere first; the paper does not.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per sample.
    """

    _: KW_ONLY
    scale: Positive = 1.0
    normalize: bool = False

    @cached_property
    def distance(self) -> DotProduct:
        return DotProduct(self.normalize)

    def core(self, c: Comparisons) -> Terms:
        return c.per_positive(c.cross_entropy(self.scale * c.positive, self.scale * c.negative))

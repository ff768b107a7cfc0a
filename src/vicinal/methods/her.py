"""HER: Ground-to-Aerial Geo-Localization With a Hard Exemplar Reweighting Triplet Loss (Cai et al., ICCV 2019)."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from vicinal.data.augmentation import rotate, to_device
from vicinal.data.records import Batch
from vicinal.errors import ConfigError, unknown
from vicinal.exhibits import Exhibit
from vicinal.losses.hard_exemplar import HardExemplarLoss, orientation_errors
from vicinal.losses.normalized_softmax import NormalizedSoftmaxLoss
from vicinal.losses.reduction import reduce
from vicinal.methods.exemplars import HardestPairs
from vicinal.methods.method import Parts, Sampler, check_batches
from vicinal.methods.optimizer import OptimizerConfig, fuse
from vicinal.methods.paired_views import Turning, fitting, turns
from vicinal.methods.plain import SHARED_READINGS, collapsed_loss, describe_batch
from vicinal.methods.recording import Recorder, Work, differentiate, learnt
from vicinal.models.embedder import Embedder
from vicinal.models.orientation import OrientationHead
from vicinal.parallel import all_rows, average_gradients, gather
from vicinal.tuples import other_class

READINGS = {
    "triplets_share": (
        "Of each query with its match and every other gallery image of the batch: hard, where the other image is "
        "nearer than the match; easy, where it is farther by the margin and more, so that the triplet weighs next to "
        "nothing. Hard should fall towards 0 and easy rise. Easy near 100 % early: the batch is too small to hold hard "
        "exemplars."
    ),
    "weight": (
        "The mean weight of a triplet: 1 where its gap is half the margin, at most log2(1 + e^(m/2)). It falls with "
        "the share of hard triplets; 1 throughout where weighting is off."
    ),
    "orientation": (
        "By how many degrees the head is off in telling how far the gallery image is turned, a mean over the batch. "
        "Guessing gives 90."
    ),
}


@dataclass(frozen=True)
class HER:
    """HER (Cai et al. 2019): match queries with gallery images; hard exemplars weigh more, matches are oriented.

    Attributes:
        lambda1: λ1, of the weighted triplets, or of the classifier in their place.
        lambda2: λ2, of the orientation; the authors recommend half of λ1.
        turning: how gallery images are turned at random in training, on top of how they are: by ``"any"`` angle, by
            ``"quarters"`` of a full turn as in the authors' code, or not at all (``"none"``).
        regression: whether a head learns how far each match is turned.
        classifier: whether a normalized softmax over the classes takes the place of the triplets.
    """

    lambda1: float = 1.0
    lambda2: float = 0.5
    turning: Turning = "any"
    regression: bool = True
    classifier: bool = False

    default_loss: ClassVar[str] = "hard_exemplar"

    def __post_init__(self) -> None:
        if self.turning not in get_args(Turning):
            raise ConfigError(unknown("turning", str(self.turning), get_args(Turning)))
        if self.lambda1 < 0 or self.lambda2 < 0:
            raise ConfigError(f"λ1 and λ2 are at least 0, but {self.lambda1} and {self.lambda2} came.")

    def sampler_for(self, loss: type[nn.Module]) -> str:
        return "cross_view"

    def check(self, loss: nn.Module, sampler: object) -> None:
        check_batches("HER", loss, sampler, ("cross_view",))
        _oriented(loss)

    def build(self, parts: Parts) -> "HERTraining":
        self.check(parts.loss, parts.sampler)
        dim, known = parts.embedder.dim or parts.embedder.width, tuple(np.unique(parts.train.labels).tolist())
        return HERTraining.from_config(
            parts.embedder,
            _oriented(parts.loss),
            parts.sampler,
            parts.optimizer,
            self,
            head=OrientationHead(dim) if self.regression else None,
            classifier=NormalizedSoftmaxLoss(len(known), dim, known=known, seed=parts.seed)
            if self.classifier
            else None,
            steps=parts.steps,
            seed=parts.seed,
        )


def _oriented(loss: nn.Module) -> HardExemplarLoss:
    """Return ``loss`` if it scores pairs together with their orientation."""
    if not isinstance(loss, HardExemplarLoss):
        raise ConfigError(f"HER trains HardExemplarLoss, got {type(loss).__name__}. Set loss=hard_exemplar.")
    return loss


@dataclass
class HERTraining:
    """Queries against gallery images, hard exemplars weighing more, while a head tells how far each match is turned.

        L = λ1 · w_hard · log(1 + exp(d_p - d_n)) + λ2 · w_hard · |(sin^, cos^) - (sin, cos)|²           Cai et al. 2019

    Batches are pairs ``[q, g, q, g, ...]`` of different classes. Queries take the one stream of the embedder and
    gallery images the other; an embedder with a single stream serves both. Gallery images are turned in every variant,
    so that a twin without the regression sees the same pictures, and so does ``classifier``, which in place of the
    triplets tells the class of every query and gallery image: what any loss of pairs should beat.

    Differs: AdamW with one schedule instead of SGD whose momentum starts anew each epoch. The authors raise λ1 and λ2
    together from (1, 0.5) to (5, 2.5) half-way, which under AdamW changes nothing. Angles are any, not quarters. The
    context block that their code has after the last stage, beyond the paper, is left out.

    Attributes:
        embedder: of both streams.
        loss: with its weights; of a classifier's batches it tells hard triplets from easy ones.
        sampler: pairs, ``CrossViewSampler``.
        optimizer: of the embedder, the head and the classifier.
        seed: of the turning; with the epoch and the record it determines every angle.
        head: tells the orientation; None leaves the regression out.
        orientation: settings.
        classifier: over both views; None is HER and its twin.
        schedule: of ``optimizer``.
        epoch: the epoch that the batches are of.
    """

    embedder: Embedder
    loss: HardExemplarLoss
    sampler: Sampler
    optimizer: Optimizer
    seed: int
    head: OrientationHead | None = None
    orientation: HER = HER()
    classifier: NormalizedSoftmaxLoss | None = None
    schedule: LRScheduler | None = None
    epoch: int = field(default=0, init=False)
    _hardest: HardestPairs = field(default_factory=HardestPairs, init=False, repr=False)
    _recorder: Recorder = field(init=False, repr=False)

    def __post_init__(self) -> None:
        pure = self.loss.replayable and (self.classifier is None or self.classifier.replayable)
        self._recorder = Recorder(self.embedder, learnt(self.optimizer), pure=pure)

    @classmethod
    def from_config(
        cls,
        embedder: Embedder,
        loss: HardExemplarLoss,
        sampler: Sampler,
        config: OptimizerConfig,
        orientation: HER,
        *,
        head: OrientationHead | None,
        classifier: NormalizedSoftmaxLoss | None = None,
        steps: int,
        seed: int,
    ) -> "HERTraining":
        """Build the optimizer for ``steps`` updates; head and classifier learn at ``loss_factor`` times the rate."""
        others = [p for part in (head, classifier) if part is not None for p in part.parameters()]
        optimizer, schedule = config.build(embedder, steps=steps, others=others)
        return cls(embedder, loss, sampler, optimizer, seed, head, orientation, classifier, schedule)

    @property
    def notes(self) -> tuple[str, ...]:
        return () if self.sampler.note is None else (self.sampler.note,)

    @property
    def readings(self) -> Mapping[str, str]:
        mine = {name: text for name, text in READINGS.items() if name != "orientation" or self.head is not None}
        return mine | SHARED_READINGS

    def to(self, device: torch.device) -> None:
        for part in (self.embedder, self.loss, self.head, self.classifier):
            if part is not None:
                part.to(device)
        fuse(self.optimizer, device)

    def batches(self, epoch: int) -> Sequence[Sequence[int]]:
        self.epoch = epoch
        self._hardest.clear()
        return self.sampler.epoch(epoch)

    def step(self, batch: Batch) -> dict[str, Tensor]:
        """Take one optimisation step; return what the step was worth."""
        by, angles = turns(batch, self.orientation.turning, seed=self.seed, epoch=self.epoch)
        done = self._recorder(self._work, batch, by, angles, fitting(batch))
        average_gradients(self._recorder.parameters)
        self.optimizer.step()
        if self.schedule is not None:
            self.schedule.step()
        self._hardest.add(to_device(batch.indices, by.device), *done.seen)
        return dict(done.scalars)

    def _work(
        self,
        inputs: Tensor,
        labels: Integer[Tensor, "rows"],
        by: Float[Tensor, "pairs"],
        angles: Float[Tensor, "pairs"],
        fits: Bool[Tensor, "pairs"],
    ) -> Work:
        """Turn and embed both views, score, differentiate."""
        query, gallery = self.embedder.stream("query"), self.embedder.stream("gallery")
        aerial = inputs[1::2] if self.orientation.turning == "none" else rotate(inputs[1::2], by)
        views = query.embed(query.features(inputs[0::2])), gallery.embed(gallery.features(aerial))
        rows, labels = gather(torch.stack(views, dim=1).flatten(0, 1), labels)
        queries, matches, labels_of_pairs = rows[0::2], rows[1::2], labels[0::2]
        errors, described = self._orientation(queries, matches, all_rows(angles))
        fits = all_rows(fits.long()).bool()
        pairs = self.loss.with_orientation(queries, matches, labels_of_pairs, errors, fits)
        match = pairs.match if self.classifier is None else _classified(self.classifier, rows, labels, fits)
        loss = self.orientation.lambda1 * match + self.orientation.lambda2 * pairs.orientation
        gaps = self._gaps(queries.detach(), matches.detach(), other_class(labels_of_pairs) & fits & fits[:, None])
        described |= self._shares(gaps) | describe_batch(rows.detach(), labels, self.loss)
        differentiate(loss, self._recorder.parameters)
        hardest = gaps.flatten().min(dim=0)
        scalars = {"loss": loss.detach(), "weight/mean": pairs.weight, **described}
        return Work(scalars, (hardest.values, hardest.indices))

    def collapsed_loss(self, batch: Batch) -> float:
        """All gaps 0, and a head that, seeing one point, is off by a right angle in the mean."""
        labels, dim = batch.labels[0::2], self.embedder.dim or self.embedder.width
        same = torch.ones(len(labels), dim, device=labels.device)
        off = torch.full((len(labels),), 0.0 if self.head is None else 2.0, device=labels.device)
        with torch.no_grad():
            pairs = self.loss.with_orientation(same, same, labels, off)
        match = float(pairs.match) if self.classifier is None else collapsed_loss(self.classifier, labels, dim)
        return self.orientation.lambda1 * match + self.orientation.lambda2 * float(pairs.orientation)

    def exhibits(self) -> Sequence[Exhibit]:
        """The queries of the last epoch that were nearest to be matched wrongly."""
        return self._hardest.exhibits()

    def state_dict(self) -> dict[str, Any]:
        return {name: part.state_dict() for name, part in self._parts().items()} | {"epoch": self.epoch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        self.epoch = state["epoch"]  # a run that goes on in mid-epoch turns its pictures as that epoch would have

    def _parts(self) -> dict[str, Any]:
        parts = {
            "embedder": self.embedder,
            "loss": self.loss,
            "head": self.head,
            "classifier": self.classifier,
            "optimizer": self.optimizer,
            "schedule": self.schedule,
        }
        return {name: part for name, part in parts.items() if part is not None}

    def _orientation(
        self, queries: Float[Tensor, "n d"], matches: Float[Tensor, "n d"], angles: Float[Tensor, "n"]
    ) -> tuple[Float[Tensor, "n"], dict[str, Tensor]]:
        """The error of each pair's orientation, and its mean in degrees; 0 where there is no head."""
        if self.head is None:
            return torch.zeros_like(angles), {}
        errors = orientation_errors(self.head(queries, matches), angles)
        cosine = (1 - errors.detach() / 2).clamp(-1, 1)  # 2 - 2 cos of the difference
        return errors, {"orientation/degrees": cosine.acos().mean() * (180 / math.pi)}

    def _gaps(
        self, queries: Float[Tensor, "n d"], matches: Float[Tensor, "n d"], apart: Bool[Tensor, "n n"]
    ) -> Float[Tensor, "n n"]:
        """How much farther each match of another query is than a query's own; infinite where it is not another's."""
        compared = self.loss.compare(queries, matches)
        return (compared - compared.diagonal()[:, None]).masked_fill(~apart, torch.inf)

    def _shares(self, gaps: Float[Tensor, "n n"]) -> dict[str, Tensor]:
        """Of hard and easy triplets."""
        there = gaps.isfinite()
        count = there.sum().clamp(min=1)
        return {
            "triplets_share/hard": (gaps <= 0).sum() / count,
            "triplets_share/easy": ((gaps >= self.loss.scaled_margin) & there).sum() / count,
        }


def _classified(
    classifier: NormalizedSoftmaxLoss,
    rows: Float[Tensor, "rows d"],
    labels: Integer[Tensor, "rows"],
    fits: Bool[Tensor, "pairs"],
) -> Float[Tensor, ""]:
    """What telling the class of both views costs; a pair that does not fit takes no part."""
    compared = classifier.comparisons(rows, labels)
    there = compared.keep_positive & fits.repeat_interleave(2)[:, None]
    return reduce(classifier.core(replace(compared, keep_positive=there)), "mean")

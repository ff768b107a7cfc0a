"""HDML: Hardness-Aware Deep Metric Learning (Zheng, Chen, Lu and Zhou, CVPR 2019)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import Adam, Optimizer
from torch.optim.lr_scheduler import LRScheduler

from vicinal.data.records import Batch
from vicinal.exhibits import Exhibit
from vicinal.losses.loss import Comparisons, Loss
from vicinal.losses.reduction import reduce
from vicinal.methods.method import Parts, Sampler, check_batches
from vicinal.methods.optimizer import OptimizerConfig, fuse
from vicinal.methods.plain import SHARED_READINGS, Plain, collapsed_loss, describe_batch
from vicinal.methods.recording import Recorder, Work, differentiate, learnt
from vicinal.methods.windows import WindowedMean
from vicinal.models.embedder import Embedder
from vicinal.parallel import average_gradients, gather
from vicinal.synthesis.augmentor import interpolation_factor
from vicinal.synthesis.generator import FeatureClassifier, Generator, reconstruction_cost
from vicinal.synthesis.hardness import HDMLConfig
from vicinal.synthesis.picture import tuple_scatter
from vicinal.synthesis.roles import checked
from vicinal.synthesis.synthesis import Synthesis

UNKNOWN_LOSS = 1e6  # the authors' J_avg and J_gen before the first window is complete
FREE = 1e-3  # a tuple that costs less teaches nothing; a softmax never reaches 0

READINGS = {
    "loss": (
        "loss is what the network descends, w J_m + (1 - w) J_syn; real_loss is J_m, synthetic_loss J_syn. Synthetic "
        "tuples should cost more than real ones and fall with them. No more than real ones: alpha is too small. Rising "
        "while the real loss falls: alpha is too large."
    ),
    "hardness": (
        "lambda is the share of its surplus distance that a negative keeps: 1 draws nothing, 0 draws all to the "
        "distance of the positive pair. It should leave 1 after the first window and fall as the loss falls. Near 1 to "
        "the end: alpha is too small. Near 0 from the second window on: alpha is too large. w is the weight of real "
        "tuples. Near 1 to the end, synthetics never counted: raise beta. Near 0 early, an unskilled generator leads: "
        "lower beta."
    ),
    "generator": (
        "J_recon and J_soft as they stand in J_gen: how far regenerated features are from the real ones, and how hard "
        "their labels are to tell. Both should fall and stay; J_soft rising again: negatives are drawn faster than the "
        "generator can keep their labels, so alpha is too large or generator_rate too small."
    ),
    "zero_loss_share": (
        "Anchors whose tuples cost nothing, before and after synthesis. Synthesis should lie clearly below: the same "
        "line twice means that alpha is too small. At 0 all along, with a label share that falls: alpha is too large."
    ),
    "label_share": (
        "Features to which a classifier gives their label. It learns from real ones only, and the generator never sees "
        "it. Synthetic negatives should follow the real line; far below it they have become somebody else: alpha is "
        "too large, or label_factor too small."
    ),
}


@dataclass(frozen=True)
class HDML(HDMLConfig):
    __doc__ = HDMLConfig.__doc__

    default_loss: ClassVar[str] = "multi_similarity"

    def sampler_for(self, loss: type[nn.Module]) -> str:
        return Plain().sampler_for(loss)

    def check(self, loss: nn.Module, sampler: object) -> None:
        check_batches("HDML", loss, sampler)
        checked(loss)
        self.preset()

    def build(self, parts: Parts) -> "HDMLTraining":
        self.check(parts.loss, parts.sampler)
        return HDMLTraining.from_config(
            parts.embedder,
            checked(parts.loss),
            parts.sampler,
            parts.optimizer,
            self,
            labels=parts.train.labels,
            steps=parts.steps,
        )


@dataclass
class HDMLTraining:
    """One forward pass, three disjoint updates: metric (f, g and what the loss learns), generator, its classifier.

        J_metric = w J_m + (1 - w) J_syn,   w = exp(-β / J_gen)             Zheng et al. 2019, Eq. (11)
        J_gen = J_recon + λ J_soft                                          Eq. (9)
        λ of Eq. (7) = exp(-α / J_avg)

    J_m is the loss of the batch's tuples, J_syn that of the same tuples with synthetic negatives. J_avg and J_gen in
    the exponents are means over windows of steps, numbers without gradient. Each loss is differentiated with respect
    to its own parameters only, so none leaks into another's. What is deployed is the embedder alone.

    Differs: the paper averages J_avg "over the last epoch"; as in the authors' code it is a window of 64 steps, because
    an epoch may be shorter or longer than what λ should wait for. The optimiser is the recipe's, in place of the
    authors' Adam without decay.

    Attributes:
        embedder: f and g.
        loss: J; any loss whose tuples have negatives.
        sampler: what the batches hold.
        optimizer: of the embedder and the loss.
        auxiliary: of generator and classifier.
        generator: i; None where ``settings.generate`` is False.
        classifier: the softmax layer on features.
        settings: see ``HDML``.
        schedule: of ``optimizer``.
        steps: total number of updates, for a note where they are too few; None where unknown.
    """

    embedder: Embedder
    loss: Loss
    sampler: Sampler
    optimizer: Optimizer
    auxiliary: Optimizer
    generator: Generator | None
    classifier: FeatureClassifier
    settings: HDMLConfig
    schedule: LRScheduler | None = None
    steps: int | None = None
    _seen: tuple[Tensor, Tensor] | None = field(default=None, init=False, repr=False)
    _recorder: Recorder = field(init=False, repr=False)

    def __post_init__(self) -> None:
        checked(self.loss)
        self.preset = self.settings.preset(
            triplets=self.loss.layout == "triplets" and bool(getattr(self.loss, "blocks", False))
        )
        self.synthesis = Synthesis(self.loss, self.generator, self.classifier, self.settings, self.preset.label_average)
        self.average_loss = WindowedMean(self.settings.window, initial=UNKNOWN_LOSS)
        self.generator_loss = WindowedMean(self.settings.window, initial=UNKNOWN_LOSS)
        self._decaying = [
            parameter
            for module in self.embedder.modules()
            if isinstance(module, (nn.Linear, nn.Conv2d))  # the authors leave batch norms out
            for parameter in module.parameters(recurse=False)
        ]
        parameters = learnt(self.optimizer, self.auxiliary)
        self._recorder = Recorder(self.embedder, parameters, pure=self.loss.replayable)

    @classmethod
    def from_config(
        cls,
        embedder: Embedder,
        loss: Loss,
        sampler: Sampler,
        config: OptimizerConfig,
        settings: HDMLConfig,
        *,
        labels: np.ndarray,
        steps: int,
    ) -> "HDMLTraining":
        """Build the generator, a classifier of ``labels`` and all optimizers; see ``PlainTraining.from_config``."""
        checked(loss)
        optimizer, schedule = config.build(embedder, steps=steps, others=loss.parameters())
        norm = settings.preset().generator_norm
        dim = embedder.dim or embedder.width
        generator = Generator(dim, embedder.width, hidden=settings.hidden, norm=norm) if settings.generate else None
        classifier = FeatureClassifier(embedder.width, torch.as_tensor(labels))
        groups = [{"params": list(classifier.parameters()), "lr": settings.classifier_rate}]
        if generator is not None:
            groups.append({"params": list(generator.parameters()), "lr": settings.generator_rate})
        return cls(embedder, loss, sampler, optimizer, Adam(groups), generator, classifier, settings, schedule, steps)

    @property
    def notes(self) -> tuple[str, ...]:
        inert = None
        if self.steps is not None and self.steps <= self.settings.window:
            inert = (
                f"HDML moves no negative before its first window of {self.settings.window} steps is complete, and "
                f"there are {self.steps} steps in all. Set method.window={max(1, self.steps // 8)}, or train longer."
            )
        return tuple(note for note in (self.sampler.note, inert) if note)

    @property
    def readings(self) -> Mapping[str, str]:
        without = () if self.settings.generate else ("generator", "label_share")
        return {group: text for group, text in READINGS.items() if group not in without} | SHARED_READINGS

    def to(self, device: torch.device) -> None:
        for module in (self.embedder, self.loss, self.generator, self.classifier):
            if module is not None:
                module.to(device)
        for mean in (self.average_loss, self.generator_loss):
            mean.to(device)
        for optimizer in (self.optimizer, self.auxiliary):
            fuse(optimizer, device)

    def batches(self, epoch: int) -> Sequence[Sequence[int]]:
        return self.sampler.epoch(epoch)

    def step(self, batch: Batch) -> dict[str, Tensor]:
        """Take one step of each of the three optimisations; return what the step was worth."""
        done = self._recorder(self._work, batch)
        scalars = dict(done.scalars)
        real, real_share = scalars["real_loss"], scalars["hardness/w"]
        self.average_loss.add(real_share * real if self.preset.averaged == "weighted" else real)
        if "generator/J_recon" in scalars:
            self.generator_loss.add(scalars["generator/J_recon"] + scalars["generator/J_soft"])
        average_gradients(self._recorder.parameters)
        self.optimizer.step()
        self.auxiliary.step()
        if self.schedule is not None:
            self.schedule.step()
        self._seen = done.seen[0], done.seen[1]
        return scalars

    def _work(self, inputs: Tensor, labels: Tensor) -> Work:
        """Embed, synthesise, score; differentiate each loss by its own parameters."""
        features, labels = gather(self.embedder.features(inputs), labels)
        embeddings = self.embedder.embed(features)
        factor, real_share = self._factor(), self._real_share()
        real, free = self._score(self.loss.comparisons(embeddings, labels))
        real = real + self._decay()
        reached = features if self.settings.syn_grad == "full" else features.detach()
        source = embeddings if self.settings.syn_grad == "full" else self.embedder.embed(reached)
        found = self.synthesis(source, labels, 1 - factor, self.embedder.embed, reached)
        synthetic, still_free = self._score(found.comparisons)
        objective = real_share * real + (1 - real_share) * synthetic
        scalars = {
            "loss": objective,
            "real_loss": real,
            "synthetic_loss": synthetic,
            "hardness/lambda": factor,
            "hardness/w": real_share,
            "zero_loss_share/real": free,
            "zero_loss_share/synthetic": still_free,
        }
        own, known = self.classifier.own_loss(features, labels)
        differentiate(own, list(self.classifier.parameters()))
        if found.regenerated is not None and found.label_cost is not None and found.labels_kept is not None:
            preset = self.preset
            recon = preset.reconstruction_factor * reconstruction_cost(
                features, found.regenerated, preset.reconstruction
            )
            label = preset.label_factor * found.label_cost
            if self.generator is not None:
                differentiate(recon + label, list(self.generator.parameters()), keep=True)
            scalars |= {"generator/J_recon": recon, "generator/J_soft": label}
            scalars |= {"label_share/real": known, "label_share/synthetic": found.labels_kept}
        differentiate(objective, learnt(self.optimizer))
        scalars = {name: value.detach() for name, value in scalars.items()}
        scalars |= describe_batch(embeddings.detach(), labels, self.loss)
        return Work(scalars, (features.detach(), labels))

    def exhibits(self) -> Sequence[Exhibit]:
        """One tuple of the last batch, as the network sees it now."""
        if self._seen is None:  # resumed at the very end: no batch came by
            return ()
        features, labels = self._seen
        with torch.no_grad():
            embeddings, pull = self.embedder.embed(features), 1 - self._factor()
        for module in (self.embedder, self.generator):
            if module is not None:
                module.eval()  # a picture must not move a batch norm's averages
        shown = tuple_scatter(self.synthesis, embeddings, labels, pull, self.embedder.embed, features)
        return () if shown is None else (shown,)

    def collapsed_loss(self, batch: Batch) -> float:
        return collapsed_loss(self.loss, batch.labels, self.embedder.dim or self.embedder.width)

    def state_dict(self) -> dict[str, Any]:
        return {name: part.state_dict() for name, part in self._parts().items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, part in self._parts().items():
            part.load_state_dict(state[name])

    # -- the pieces of a step ---------------------------------------------------------------------

    def _factor(self) -> Float[Tensor, ""]:
        """λ of Eq. (7)."""
        average = self.average_loss
        return interpolation_factor(
            self.preset.alpha, average.relative() if self.settings.scale == "relative" else average.last
        )

    def _real_share(self) -> Float[Tensor, ""]:
        """w of Eq. (11)."""
        if self.settings.real_share is not None:
            return torch.full_like(self.generator_loss.last, self.settings.real_share)
        mean = self.generator_loss
        return interpolation_factor(
            self.preset.beta, mean.relative() if self.settings.scale == "relative" else mean.last
        )

    def _score(self, comparisons: Comparisons) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """The loss of some tuples, and the share of anchors whose tuples cost next to nothing."""
        terms = self.loss.core(comparisons)
        with torch.no_grad():
            penalty = 0.0 if comparisons.penalty is None else comparisons.penalty * terms.counts
            formed = terms.counts > 0
            free = ((terms.sums - penalty) <= FREE * terms.counts) & formed
            share = free.sum() / formed.sum().clamp(min=1)
        return reduce(terms, self.loss.reduction), share

    def _decay(self) -> Float[Tensor, ""] | float:
        """wd/2 Σ|θ|² inside J_m, as the authors have it: it is weighed with w, and part of their J_avg."""
        if not self.preset.weight_decay:
            return 0.0
        return self.preset.weight_decay / 2 * torch.stack([p.square().sum() for p in self._decaying]).sum()

    def _parts(self) -> dict[str, Any]:
        parts = {
            "embedder": self.embedder,
            "loss": self.loss,
            "classifier": self.classifier,
            "generator": self.generator,
            "optimizer": self.optimizer,
            "auxiliary": self.auxiliary,
            "schedule": self.schedule,
            "average_loss": self.average_loss,
            "generator_loss": self.generator_loss,
        }
        return {name: part for name, part in parts.items() if part is not None}

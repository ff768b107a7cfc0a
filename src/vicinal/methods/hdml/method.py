"""HDML: Hardness-Aware Deep Metric Learning (Zheng, Chen, Lu and Zhou, CVPR 2019)."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from typing import Literal

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from vicinal.arguments import Count, NonNegative, Positive, Share, check_arguments
from vicinal.data.records import Batch
from vicinal.errors import ConfigError
from vicinal.figures import Figure, Point, Scatter, Segment
from vicinal.losses.loss import Comparisons, Terms, reduce
from vicinal.methods.hdml.generator import (
    FeatureClassifier,
    Generator,
    Reconstruction,
    reconstruction_cost,
)
from vicinal.methods.hdml.synthesis import Embed, Path, ReferenceRule, Synthesis, replaceable
from vicinal.methods.method import Beside, Method, Parts, StepResult, tensor_cores
from vicinal.methods.optimizer import Adam
from vicinal.parallel import gather, processes
from vicinal.tuples import Embeddings

LEAST_LOSS = 1e-6  # below it a loss is 0; keeps α / J_avg finite
UNKNOWN_LOSS = 1e6  # the authors' J_avg and J_gen before the first window is complete
FREE = 1e-3  # a tuple with a smaller loss teaches nothing; a softmax never reaches 0

Scale = Literal["authors", "paper", "relative"]
Gradient = Literal["full", "head"]
Averaged = Literal["metric", "weighted"]
LabelAverage = Literal["rows", "parts", "sum"]
Members = Literal["regenerated", "real"]


@dataclass(frozen=True)
class Preset:
    """The values that one ``scale`` stands for; see ``HDML``. The defaults are those of
    ``"relative"``."""

    alpha: float = 0.5
    beta: float = 0.2
    averaged: Averaged = "metric"
    weight_decay: float = 0.0
    reconstruction: Reconstruction = "relative"
    reconstruction_factor: float = 1.0
    label_average: LabelAverage = "rows"
    label_factor: float = 0.5  # λ
    generator_norm: bool = False


# What the paper's text and the authors' code (wzzheng/HDML, commit fa03ef0) differ in, and what we
# do instead.
PRESETS: dict[Scale, Preset] = {
    "authors": Preset(
        alpha=90.0,  # with triplets 7
        beta=1e4,
        averaged="weighted",
        weight_decay=1e-3,  # on CUB; 5e-3 on Cars196
        reconstruction="sum",
        reconstruction_factor=0.5,  # 1 - λ
        label_average="parts",  # with triplets "rows"
        label_factor=5e3,  # λ = 0.5 times their undocumented 1e4
        generator_norm=True,
    ),
    "paper": Preset(
        alpha=90.0, beta=1e4, reconstruction="sum", label_average="sum"
    ),  # α with triplets 7
    "relative": Preset(),
}


@dataclass(eq=False)
class HDML(Method):
    """HDML (Zheng et al. 2019): train on harder synthetic negatives beside the real ones.

        J_metric = w J_m + (1 - w) J_syn,   w = exp(-β / J_gen)                             Eq. (11)
        J_gen = J_recon + λ J_soft                                                           Eq. (9)
        λ of Eq. (7) = exp(-α / J_avg)

    J_m is the loss of the batch's tuples, J_syn that of the same tuples with synthetic negatives.
    J_avg and J_gen in the exponents are means over windows of steps, without gradient. One forward
    pass serves three disjoint updates: metric (f, g and what the loss learns), generator,
        classifier. Only the embedder is deployed.

    Differs: the paper averages J_avg "over the last epoch"; as in the authors' code it is a window
        of 64 steps, because
    an epoch may be shorter or longer than what λ should wait for.

    Arguments that are None take the value of the preset ``scale``. The paper's text and its
    authors' code disagree in scale, and the published α and β belong to the code's. ``"authors"``
    and ``"paper"`` are these two presets. ``"relative"``, ours, divides J_avg and J_gen by their
    own first window, so that λ = exp(-α J_first / J_avg) and w = exp(-β J_first / J_gen) mean the
    same over any backbone and loss; the first window has λ = w = 1.

    Attributes:
        scale: the preset.
        alpha: α, the pulling factor of Eq. (7); larger is harder. 90 for N-pair, 7 for triplets, on
            the authors' scale.
        beta: β of Eq. (11); larger gives synthetics more weight.
        averaged: what J_avg averages: J_m (``"metric"``) or w (J_m + decay) (``"weighted"``).
        weight_decay: wd; adds wd/2 Σ|θ|² to J_m, as the authors do, beside whatever the optimizer
            decays.
        reconstruction: ``"sum"``, ``"mean"`` or ``"relative"`` to the features' variance.
        reconstruction_factor: of J_recon in J_gen; 0 is the paper's ablation.
        label_average: J_soft as one mean over all rows of the synthetic tuples (``"rows"``), the
            mean over negatives plus that over anchors (``"parts"``, the authors' N-pair), or the
            ``"sum"``.
        label_factor: of J_soft in J_gen; 0 is the paper's ablation.
        generator_norm: batch norm in the generator.
        repeated: whether anchors and positives pass the generator twice, for J_recon and within
            their tuples, as in the authors' code. Without batch norms it changes nothing. With
            them, the generator's takes its statistics from 6T rows of T triplets instead of 4T, and
            that of the head from the tuples alone.
        hidden: width of its hidden layer; None is the paper's 512 where that fits.
        generate: whether synthetics pass the generator; False uses the interpolated ẑ as they are.
        members: what the anchor and positives of a synthetic tuple are: ``"regenerated"`` like its
            negative (the paper), or ``"real"`` (ours), with the negative real but for what pulling
            it changes in the generator's eyes, ỹ⁻ = y⁻ + i(ẑ⁻) - i(z⁻). A generator that loses part
            of the features brings regenerated anchors and positives together, so that synthetic
            tuples may be easier than real ones; real ones keep their distances.
        real_share: a constant w in place of exp(-β / J_gen); what ``generate=False`` needs.
        syn_grad: whether J_syn reaches the whole network (``"full"``, the authors) or the head
            alone (``"head"``).
        path: interpolate on the ``"straight"`` line between embeddings, before any normalization,
            or along the ``"arc"`` between their directions.
        reference: d⁺ of an anchor with several positives: ``"mean"``, ``"farthest"``, or always
            ``"fixed"``.
        fixed_distance: d⁺ of an anchor without positives, or of all with ``"fixed"``; radians on
            the arc.
        push_positives: how strongly positives are pushed away, in multiples of the pull on
            negatives; 0 is not.
        hardest: how many negatives of each anchor are synthesized, nearest first; None is all.
        chunk: synthetic rows held at once; beyond it they are computed again in the backward pass,
            part by part.
        window: steps over which J_avg and J_gen are averaged.
        generator_rate: the generator's learning rate (Adam); the authors' is 1e-2.
        classifier_rate: the classifier's learning rate (Adam), the authors'.

    Charts:
        loss: loss is what the network descends, w J_m + (1 - w) J_syn; real_loss is J_m,
            synthetic_loss J_syn. The synthetic loss should exceed the real one and fall with it. No
            larger than the real one: alpha is too
            small. Rising while the real loss falls: alpha is too large.
        hardness: lambda is the share of its surplus distance that a negative keeps: 1 pulls
            nothing, 0 pulls all to the distance of the positive pair. It should leave 1 after the
            first window and fall as the loss falls. Near 1
            to the end: alpha is too small. Near 0 from the second window on: alpha is too large. w
            is the weight of real tuples. Near 1 to the end, synthetics never counted: raise beta.
            Near 0 early, an unskilled generator
            leads: lower beta.
        generator: J_recon and J_soft as they stand in J_gen: how far regenerated features are from
            the real ones, and how hard their labels are to tell. Both should fall and stay; J_soft
            rising again: negatives are pulled faster than the generator can keep their labels, so
            alpha is too large or generator_rate too small.
        zero_loss_share: Anchors whose tuples have no loss, before and after synthesis. Synthesis
            should lie clearly
            below: the same line twice means that alpha is too small. At 0 all along, with a label
            share that falls: alpha is too large.
        label_share: Features to which a classifier gives their label. It learns from real ones
            only, and the generator never sees it. Synthetic negatives should follow the real line;
            far below it they have become somebody else: alpha is too large, or label_factor too
            small.
    """

    scale: Scale = "relative"
    alpha: NonNegative | None = None
    beta: NonNegative | None = None
    averaged: Averaged | None = None
    weight_decay: NonNegative | None = None
    reconstruction: Reconstruction | None = None
    reconstruction_factor: NonNegative | None = None
    label_average: LabelAverage | None = None
    label_factor: NonNegative | None = None
    generator_norm: bool | None = None
    repeated: bool = False
    hidden: Count | None = None
    generate: bool = True
    members: Members = "regenerated"
    real_share: Share | None = None
    syn_grad: Gradient = "full"
    path: Path = "straight"
    reference: ReferenceRule = "mean"
    fixed_distance: Positive = 1.0
    push_positives: NonNegative = 0.0
    hardest: Count | None = None
    chunk: Count = 2**15
    window: Count = 64
    generator_rate: Positive = 1e-3
    classifier_rate: Positive = 1e-3

    def __post_init__(self) -> None:
        check_arguments(self)
        if self.push_positives and self.path == "arc":
            raise ConfigError(
                "positives are pushed on straight lines, got path=arc. Set method.path=straight, "
                "or push_positives=0."
            )
        if not self.generate and self.real_share is None:
            raise ConfigError(
                "without a generator there is no J_gen to set w = exp(-beta / J_gen), got "
                "real_share=None. "
                "Give a constant w, such as method.real_share=0.5."
            )

    def preset(self, *, triplets: bool = False) -> Preset:
        """Return the preset ``scale`` with the arguments that were set in place of its own.

        >>> HDML("authors").preset().label_factor, HDML("paper", label_factor=0.0).preset().label_factor
        (5000.0, 0.0)
        """
        preset = PRESETS[self.scale]
        if triplets and self.scale != "relative":
            preset = replace(preset, alpha=7.0)
        if triplets and self.scale == "authors":
            preset = replace(preset, label_average="rows")
        chosen = {field.name: getattr(self, field.name) for field in fields(Preset)}
        return replace(
            preset, **{name: value for name, value in chosen.items() if value is not None}
        )

    # -- training ---------------------------------------------------------------------------------

    def check(self, loss: nn.Module, sampler: object) -> None:
        super().check(loss, sampler)
        replaceable(loss)

    def setup(self, parts: Parts) -> None:
        super().setup(parts)
        self.steps: int = parts.steps
        self.setup_generator(parts)

    def setup_generator(self, parts: Parts) -> None:
        """Build the generator, the classifier that supervises it, their optimizer, and the means of
        J_avg and J_gen."""
        embedder = self.embedder
        norm, dim = self.preset().generator_norm, embedder.embedding_dim
        self.generator = (
            Generator(dim, embedder.width, hidden=self.hidden, norm=norm) if self.generate else None
        )
        self.classifier = FeatureClassifier(embedder.width, torch.as_tensor(parts.train.labels))
        groups = [{"params": list(self.classifier.parameters()), "lr": self.classifier_rate}]
        if self.generator is not None:
            groups.append({"params": list(self.generator.parameters()), "lr": self.generator_rate})
        self.generator_optimizer = self.optimizers["generator"] = Adam(groups)
        self.values = self.preset(triplets=self.loss.layout == "triplets")
        self.synthesis = Synthesis(
            self.loss, self.generator, self.classifier, self, self.values.label_average
        )
        self.average_loss = WindowedMean(self.window, initial=UNKNOWN_LOSS)
        self.generator_loss = WindowedMean(self.window, initial=UNKNOWN_LOSS)
        self._decaying = [
            parameter
            for module in embedder.modules()
            if isinstance(module, (nn.Linear, nn.Conv2d))  # the authors leave batch norms out
            for parameter in module.parameters(recurse=False)
        ]

    def step(self, batch: Batch) -> StepResult:
        beside = Beside(batch.labels.device)
        with beside:
            lambda_, w = self.lambda_(), self.real_weight()
        features, labels = gather(self.embedder.features(batch.inputs), batch.labels)  # y = f(x)
        reached = features.detach().requires_grad_()

        # A GPU computes synthetic and real tuples at the same time, and the gradients of each where
        # it computed them.
        with beside:
            embeddings = self.embedder.embed(reached)  # z = g(y)
            beside.mark()
            source, given = embeddings, reached
            if self.syn_grad == "head":
                given = reached.detach()
                source = self.embedder.embed(given)
            with self._products():
                found = self.synthesis(
                    source, labels, lambda_, self.embedder.embed, given
                )  # Eqs. (4)-(8)
            synthetic_terms = self.loss.core(found.comparisons)
            synthetic = reduce(synthetic_terms, self.loss.reduction)  # J_syn
        beside.catch_up()
        real_tuples = self.loss.comparisons(embeddings, labels)
        real_terms = self.loss.core(real_tuples)
        real = reduce(real_terms, self.loss.reduction)  # J_m
        if self.values.weight_decay:
            real = real + self._weight_penalty()
        beside.join()
        objective = torch.lerp(synthetic, real, w)  # w J_m + (1 - w) J_syn, Eq. (11)
        with self._products():
            gradient = self.differentiate_to(objective, reached)

        # What trains generator and classifier, and what is reported, is computed beside the
        # backbone's gradient.
        with beside, self._products():
            own, known = self.classifier.own_loss(features, labels)
            self.differentiate(own, self.classifier.parameters())
            scalars = {
                "real_loss": real,
                "synthetic_loss": synthetic,
                "hardness/lambda": lambda_,
                "hardness/w": w,
            }
            if found.regenerated is not None and self.generator is not None:
                made = found.regenerated()
                lost = reconstruction_cost(features, made.features, self.values.reconstruction)
                recon, soft = (
                    self.values.reconstruction_factor * lost,
                    self.values.label_factor * made.label_cost,
                )
                scalars |= {"generator/J_recon": recon, "generator/J_soft": soft}
                scalars |= {"label_share/real": known, "label_share/synthetic": made.labels_kept}
                self.differentiate(recon + soft, self.generator.parameters())  # J_gen, Eq. (9)
                self.generator_loss.add(recon + soft)
            scalars["zero_loss_share/real"] = zero_loss_share(real_tuples, real_terms)
            scalars["zero_loss_share/synthetic"] = zero_loss_share(
                found.comparisons, synthetic_terms
            )
            self.average_loss.add(w * real if self.values.averaged == "weighted" else real)
        with self._products():
            self.differentiate_from(features, gradient)
        beside.join()
        self.optimize(self.metric_optimizer, self.generator_optimizer)
        return StepResult({"loss": objective, **scalars}, embeddings, labels).detach()

    def _products(self) -> AbstractContextManager[None]:
        """Let products take tensor cores where the network trains in bfloat16: synthetic rows are
        N² in N-pair loss."""
        return nullcontext() if self.embedder.precision is None else tensor_cores(True)

    def lambda_(self) -> Float[Tensor, ""]:
        """Return λ of Eq. (7)."""
        return self._decreasing(self.values.alpha, self.average_loss)

    def real_weight(self) -> Float[Tensor, ""]:
        """Return w of Eq. (11)."""
        if self.real_share is not None:
            return torch.full_like(self.generator_loss.last, self.real_share)
        return self._decreasing(self.values.beta, self.generator_loss)

    def _decreasing(self, exponent: float, mean: "WindowedMean") -> Float[Tensor, ""]:
        return interpolation_factor(
            exponent, mean.relative() if self.scale == "relative" else mean.last
        )

    def _weight_penalty(self) -> Float[Tensor, ""]:
        """Return wd/2 Σ|θ|² of J_m, as the authors have it: it is weighed with w, and part of their
        J_avg."""
        return (
            self.values.weight_decay
            / 2
            * torch.stack([p.square().sum() for p in self._decaying]).sum()
        )

    @property
    def notes(self) -> tuple[str, ...]:
        if self.steps > self.window:
            return super().notes
        return (
            *super().notes,
            f"HDML moves no negative before its first window of {self.window} steps is complete, "
            "and there are "
            f"{self.steps} steps in all. Set method.window={max(1, self.steps // 8)}, or train "
            "longer.",
        )

    @property
    def captions(self) -> Mapping[str, str]:
        without = () if self.generate else ("generator", "label_share")
        return {group: text for group, text in super().captions.items() if group not in without}

    @torch.no_grad()
    def figures(self, batch: Batch) -> Sequence[Figure]:
        """Draw one tuple of the last batch, as the network sees it now."""
        if processes() > 1:
            return ()
        for module in (self.embedder, self.generator):
            if module is not None:
                module.eval()  # a picture must not move a batch norm's averages
        features, labels = self.embedder.features(batch.inputs), batch.labels
        embeddings = self.embedder.embed(features)
        shown = tuple_scatter(
            self.synthesis, embeddings, labels, self.lambda_(), self.embedder.embed, features
        )
        return () if shown is None else (shown,)


class WindowedMean(nn.Module):
    """The mean over the last completed window of steps, windows not overlapping; values that are
    NaN are skipped.

    HDML's authors average J_avg and J_gen so, over 64 steps whatever an epoch is. Until the first
    window is complete ``last`` is ``initial``. All of it stays on the device, so that a CUDA graph
    can hold it.

    Args:
        window: steps in a window.
        initial: stands for the mean until the first window is complete.

    >>> mean = WindowedMean(2, initial=1e6)
    >>> for value in (1.0, 3.0, 9.0):
    ...     mean.add(torch.tensor(value))
    >>> mean.last.item(), mean.first.item()
    (2.0, 2.0)
    """

    steps: Tensor
    last: Tensor
    first: Tensor
    sum: Tensor
    count: Tensor

    def __init__(self, window: int, *, initial: float) -> None:
        super().__init__()
        self.window, self.initial = window, initial
        self.register_buffer("steps", torch.tensor(0))
        for name, value in (
            ("last", float(initial)),
            ("first", torch.inf),
            ("sum", 0.0),
            ("count", 0.0),
        ):
            self.register_buffer(name, torch.tensor(value))

    @torch.no_grad()
    def add(self, value: Float[Tensor, ""]) -> None:
        """Count one step's value."""
        value = value.detach().float()
        known = ~value.isnan()
        self.sum += torch.where(known, value, 0.0)
        self.count += known
        self.steps += 1
        ended = self.steps % self.window == 0
        counted = ended & (self.count > 0)
        self.last.copy_(torch.where(counted, self.sum / self.count, self.last))
        self.first.copy_(torch.where(self.first.isinf() & counted, self.last, self.first))
        self.sum.masked_fill_(ended, 0)
        self.count.masked_fill_(ended, 0)

    def relative(self) -> Float[Tensor, ""]:
        """Return the last window over the first; infinite until there is one."""
        ratio = self.last / self.first.clamp(min=torch.finfo(torch.float32).tiny)
        return torch.where(self.first.isinf(), torch.inf, ratio)


def interpolation_factor(alpha: float, average_loss: Float[Tensor, ""]) -> Float[Tensor, ""]:
    """Return λ, the share of a negative's distance beyond the reference distance that stays,
    between 0 and 1.

        λ = exp(-α / J_avg)                                            Zheng et al. 2019, in Eq. (7)

    The smaller the average loss, the smaller λ and the harder the synthetics. λ = 1 changes
    nothing, which is α = 0 or a loss that is not known yet (infinite); λ = 0 pulls every negative
    to the reference distance. The weight of the real tuples in Eq. (11), exp(-β / J_gen), is the
    same function.

    >>> losses = torch.tensor([torch.inf, 2.0, 1.0, 0.0])
    >>> interpolation_factor(1.0, losses)
    tensor([1.0000, 0.6065, 0.3679, 0.0000])
    >>> interpolation_factor(0.0, losses)
    tensor([1., 1., 1., 1.])
    """
    return torch.exp(-alpha / average_loss.clamp(min=LEAST_LOSS))


@torch.no_grad()
def zero_loss_share(comparisons: Comparisons, terms: Terms) -> Float[Tensor, ""]:
    """Return the share of anchors whose tuples have next to no loss, apart from the penalty."""
    penalty = 0.0 if comparisons.penalty is None else comparisons.penalty * terms.counts
    formed = terms.counts > 0
    free = ((terms.sums - penalty) <= FREE * terms.counts) & formed
    return free.sum() / formed.sum().clamp(min=1)


# -- what it reports
# ---------------------------------------------------------------------------------

NEGATIVES = 12  # of one anchor: more would hide the arrows
TUPLE_CAPTION = (
    "One anchor of the last batch, its positives and its nearest negatives in the plane that "
    "shows most of them. "
    "Arrows go from a real negative to where it was pulled, and on to what generator and head "
    "made of it. Arrows of no "
    "length: alpha is too small. Pulled negatives as near as the positives are as hard as they "
    "get; if the regenerated "
    "ones then mix with the anchor and its positives, alpha is too large. Regenerated points far "
    "from the pulled ones: "
    "the generator does not keep hardness (generator_rate, reconstruction_factor)."
)


@torch.no_grad()
def tuple_scatter(
    synthesis: Synthesis,
    embeddings: Float[Tensor, "b d"],
    labels: Integer[Tensor, "b"],
    lambda_: Float[Tensor, ""],
    embed: Embed,
    features: Float[Tensor, "b y"],
) -> Scatter | None:
    """Draw the tuple of a middling anchor: half of the anchors have a nearer negative. None where
    there is none."""
    roles = synthesis.roles(embeddings, labels)
    distances = roles.distances(embeddings, labels)
    if roles.chosen is not None:
        distances = distances.gather(1, roles.chosen)
    nearest = distances.amin(dim=1) if distances.numel() else distances.new_full((1,), torch.inf)
    if not nearest.isfinite().any():
        return None
    anchor = int((nearest - nearest[nearest.isfinite()].median()).abs().argmin())
    one, count = slice(anchor, anchor + 1), min(NEGATIVES, int(distances[anchor].isfinite().sum()))
    columns = distances[anchor].argsort()[:count]
    rows, there = roles.positives(labels)
    own = rows[anchor][there[anchor]]
    pulled = synthesis.mover(embeddings, labels, lambda_, roles)(one)[0][columns]
    parts = [
        ("anchor", embeddings[roles.anchors][one], labels[roles.anchors][one]),
        ("positive", embeddings[own], labels[own]),
    ]
    theirs, begin = roles.negatives(labels, one)[0][columns], 1 + len(own)
    parts += [
        ("real negative", roles.negatives(embeddings, one)[0][columns], theirs),
        ("pulled negative", pulled, theirs),
    ]
    if synthesis.generator is not None:
        changed, seen = synthesis.regenerate(pulled, embed)
        if synthesis.settings.members == "real":
            lost = features - synthesis.generator(embeddings)
            seen = embed(changed + roles.negatives(lost, one)[0][columns])
        parts.append(("regenerated negative", seen, theirs))
    plane = _plane(torch.cat([vectors for _, vectors, _ in parts]), parts[0][1]).tolist()
    names = [(group, f"class {label}") for group, _, classes in parts for label in classes.tolist()]
    points = tuple(
        Point(x, y, group, label) for (x, y), (group, label) in zip(plane, names, strict=True)
    )
    steps = range(
        begin, begin + (len(parts) - 3) * count
    )  # every negative but the last kind goes on to the next
    return Scatter(
        "Real and synthetic negatives",
        TUPLE_CAPTION,
        points,
        tuple(Segment(i, i + count) for i in steps),
    )


def _plane(vectors: Embeddings, origin: Float[Tensor, "1 d"]) -> Float[Tensor, "n 2"]:
    """Return vectors about an origin in the two directions in which they extend most."""
    about = (vectors - origin).double().cpu()
    directions = torch.linalg.svd(about, full_matrices=False).Vh[:2]
    found = about @ directions.T
    found = torch.nn.functional.pad(found, (0, 2 - found.shape[1]))
    return (found * found.sum(dim=0).sign().where(found.sum(dim=0) != 0, 1)).round(
        decimals=5
    )  # a sign of its own

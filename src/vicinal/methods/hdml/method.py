"""HDML: Hardness-Aware Deep Metric Learning (Zheng, Chen, Lu and Zhou, CVPR 2019)."""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from vicinal.arguments import Count, NonNegative, Positive
from vicinal.data.records import Batch
from vicinal.losses.loss import Comparisons, Terms, reduce
from vicinal.methods.hdml.synthesis import (
    FeatureClassifier,
    Generator,
    LabelAverage,
    Reconstruction,
    Synthesis,
    reconstruction_cost,
    replaceable,
)
from vicinal.methods.method import (
    EARLY,
    Method,
    Parts,
    StepResult,
    with_tensor_cores,
)
from vicinal.methods.optimizer import Adam
from vicinal.parallel import gather
from vicinal.tuples import Scalar

LEAST_LOSS = 1e-6  # below it a loss is 0; keeps α / J_avg finite
UNKNOWN_LOSS = 1e6  # the authors' J_avg and J_gen before the first window is complete
FREE = 1e-3  # a tuple with a smaller loss teaches nothing; a softmax never reaches 0

HDMLForm = Literal["ours", "paper", "authors"]


@dataclass(frozen=True)
class Values:
    """The values that one ``form`` stands for; the defaults are ours.

    Attributes:
        averaged: what J_avg averages: J_m (``"metric"``) or w (J_m + decay) (``"weighted"``).
        reconstruction: ``"sum"``, or ``"relative"`` to the features' variance.
        label_average: J_soft as one mean over the rows of synthetic tuples (``"rows"``), as the
            mean over anchors plus that over moved rows (``"parts"``), or as the ``"sum"``.
        generator_norm: batch norm in the generator.
        twice: see `Synthesis`.
    """

    alpha: float = 0.5
    beta: float = 0.2
    weight_decay: float = 0.0
    reconstruction_factor: float = 1.0
    label_factor: float = 0.5  # λ
    averaged: Literal["metric", "weighted"] = "metric"
    reconstruction: Reconstruction = "relative"
    label_average: LabelAverage = "rows"
    generator_norm: bool = False
    twice: bool = False


# What the paper's text and the authors' code (wzzheng/HDML, commit fa03ef0) differ in, and what we
# do instead.
FORMS: dict[HDMLForm, Values] = {
    "authors": Values(
        alpha=90.0,  # over N-pair; with triplets 7
        beta=1e4,
        weight_decay=1e-3,  # on CUB; 5e-3 on Cars196
        reconstruction_factor=0.5,  # 1 - λ
        label_factor=5e3,  # λ = 0.5 times their undocumented 1e4
        averaged="weighted",
        reconstruction="sum",
        label_average="parts",  # with triplets "rows"
        generator_norm=True,
        twice=True,
    ),
    "paper": Values(  # α with triplets 7
        alpha=90.0, beta=1e4, reconstruction="sum", label_average="sum"
    ),
    "ours": Values(),
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

    Differs: the paper averages J_avg "over the last epoch" and says nothing of J_gen; as in the
    authors' code both have a window of 64 steps, because an epoch may be shorter or longer than
    what λ should wait for. Ours is shorter where an epoch or a twentieth of the run is.

    The paper's text and its authors' code disagree in scale, and the published α and β belong to
    the code's. ``form="authors"`` and ``"paper"`` set these numbers, and what J_avg and J_gen sum
    or average; they choose nothing of the loss, which the presets ``hdml-*`` do. ``"ours"``
    divides J_avg and J_gen by their own first window, so that λ = exp(-α J_first / J_avg) and
    w = exp(-β J_first / J_gen) mean the same over any backbone and loss; the first window has
    λ = w = 1. Arguments that are None take the value of the form.

    Attributes:
        form: whose numbers.
        alpha: α, the pulling factor of Eq. (7); larger is harder. Published: 90 for N-pair,
            7 for triplets, which all losses take that are not over pairs.
        beta: β of Eq. (11); larger gives synthetics more weight.
        weight_decay: wd; adds wd/2 Σ|θ|² to J_m, as the authors do, beside what the optimizer
            decays.
        reconstruction_factor: of J_recon in J_gen; 0 is the paper's ablation.
        label_factor: of J_soft in J_gen; 0 is the paper's ablation.
        hidden: width of the generator's hidden layer; None is the paper's 512 where that fits.
        hardest: how many negatives of each anchor are synthesized, nearest first; None is all.
        window: steps over which J_avg and J_gen are averaged, and before which no negative moves;
            None is that of the form.
        generator_rate: the generator's learning rate (Adam); the authors' is 1e-2.
        classifier_rate: the classifier's learning rate (Adam), the authors'.

    Charts:
        loss: loss is what the network descends, w J_m + (1 - w) J_syn; real_loss is J_m,
            synthetic_loss J_syn. The synthetic loss should exceed the real one and fall with it. No
            larger than the real one: alpha is too small. Rising while the real loss falls: alpha is
            too large.
        hardness: lambda is the share of its surplus distance that a negative keeps: 1 pulls
            nothing, 0 pulls all to the distance of the positive pair. It should leave 1 after the
            first window and fall as the loss falls. Near 1 to the end: alpha is too small. Near 0
            from the second window on: alpha is too large. w is the weight of real tuples. Near 1 to
            the end, synthetics never counted: raise beta. Near 0 early, an unskilled generator
            leads: lower beta.
        generator: J_recon and J_soft as they stand in J_gen: how far regenerated features are from
            the real ones, and how hard their labels are to tell. Both should fall and stay; J_soft
            rising again: negatives are pulled faster than the generator can keep their labels, so
            alpha is too large or generator_rate too small.
        zero_loss_share: Anchors whose tuples have no loss, before and after synthesis. Synthesis
            should lie clearly
            below: the same line twice means that alpha is too small. At 0 all along, with a J_soft
            that rises: alpha is too large.
    """

    form: HDMLForm = "ours"
    alpha: NonNegative | None = None
    beta: NonNegative | None = None
    weight_decay: NonNegative | None = None
    reconstruction_factor: NonNegative | None = None
    label_factor: NonNegative | None = None
    hidden: Count | None = None
    hardest: Count | None = None
    window: Count | None = None
    generator_rate: Positive = 1e-3
    classifier_rate: Positive = 1e-3

    indivisible = "it makes tuples of the whole batch"

    def chosen(self, *, pairs: bool = True) -> Values:
        """Return the values of the form with the arguments that were set in place of its own;
        ``pairs``: for a loss over pairs.

        >>> HDML("authors").chosen().label_factor
        5000.0
        >>> HDML("paper", label_factor=0.0).chosen().label_factor
        0.0
        """
        values = FORMS[self.form]
        if not pairs and self.form != "ours":
            average = "rows" if self.form == "authors" else values.label_average
            values = replace(values, alpha=7.0, label_average=average)
        given = {name: getattr(self, name, None) for name in vars(values)}
        return replace(values, **{name: it for name, it in given.items() if it is not None})

    # -- training ---------------------------------------------------------------------------------

    def check(self, loss: nn.Module, sampler: object) -> None:
        super().check(loss, sampler)
        replaceable(loss)

    def setup(self, parts: Parts) -> None:
        """Build the generator, the classifier that supervises it, their optimizer, and the means of
        J_avg and J_gen."""
        super().setup(parts)
        embedder = self.embedder
        values = self.values = self.chosen(pairs=self.loss.layout == "pairs")
        width = embedder.width
        self.generator = Generator(
            embedder.embedding_dim, width, hidden=self.hidden, norm=values.generator_norm
        )
        self.classifier = FeatureClassifier(width, torch.as_tensor(parts.train.labels))
        groups = [
            {"params": self.classifier.parameters(), "lr": self.classifier_rate},
            {"params": self.generator.parameters(), "lr": self.generator_rate},
        ]
        self.generator_optimizer = self.optimizers["generator"] = Adam(groups)
        self.synthesis = Synthesis(
            self.loss,
            self.generator,
            label_average=values.label_average,
            twice=values.twice,
            hardest=self.hardest,
        )
        window = self.window or (parts.early if self.form == "ours" else EARLY)
        self.acts_from = window
        self.average_loss = WindowedMean(window)
        self.generator_loss = WindowedMean(window)
        self._decaying = [
            parameter
            for module in embedder.modules()
            if isinstance(module, (nn.Linear, nn.Conv2d))  # the authors leave batch norms out
            for parameter in module.parameters(recurse=False)
        ]

    @with_tensor_cores
    def step(self, batch: Batch) -> StepResult:
        values = self.values
        features, labels = gather(self.embedder.features(batch.inputs), batch.labels)  # y = f(x)
        embeddings = self.embedder.embed(features)  # z = g(y)
        lambda_ = self.factor(values.alpha, self.average_loss)
        w = self.factor(values.beta, self.generator_loss)
        synthetic = self.synthesis(embeddings, labels, lambda_, self.embedder.embed)  # (4) to (8)
        real = self.loss.comparisons(embeddings, labels)
        real_terms = self.loss.core(real)
        synthetic_terms = self.loss.core(synthetic.comparisons)
        j_m = reduce(real_terms, self.loss.reduction)
        j_syn = reduce(synthetic_terms, self.loss.reduction)
        if values.weight_decay:
            j_m = j_m + self.weight_penalty()
        j_metric = torch.lerp(j_syn, j_m, w)  # w J_m + (1 - w) J_syn, Eq. (11)
        recon = reconstruction_cost(features, synthetic.regenerated, values.reconstruction)
        recon = values.reconstruction_factor * recon
        costs = self.classifier.label_costs(synthetic.features, synthetic.labels)
        soft = values.label_factor * (costs * synthetic.label_weights).sum()
        j_gen = recon + soft  # Eq. (9)
        own = self.classifier.own_loss(features, labels)
        self.average_loss.add(w * j_m if values.averaged == "weighted" else j_m)
        self.generator_loss.add(j_gen)
        scalars = {
            "real_loss": j_m,
            "synthetic_loss": j_syn,
            "hardness/lambda": lambda_,
            "hardness/w": w,
            "generator/J_recon": recon,
            "generator/J_soft": soft,
            "zero_loss_share/real": zero_loss_share(real, real_terms),
            "zero_loss_share/synthetic": zero_loss_share(synthetic.comparisons, synthetic_terms),
        }
        self.differentiate(j_gen + own, self.generator_optimizer, keep=True)
        return self.update(j_metric, embeddings, labels, self.generator_optimizer, **scalars)

    def weight_penalty(self) -> Scalar:
        """Return wd/2 Σ|θ|² of J_m, as the authors have it: it is weighed with w, and part of their
        J_avg."""
        squares = torch.stack([parameter.square().sum() for parameter in self._decaying]).sum()
        return self.values.weight_decay / 2 * squares

    def factor(self, exponent: float, mean: "WindowedMean") -> Scalar:
        """Return λ of Eq. (7), or w of Eq. (11)."""
        return interpolation_factor(exponent, mean.relative() if self.form == "ours" else mean.last)


class WindowedMean(nn.Module):
    """The mean over the last completed window of steps, windows not overlapping.

    HDML's authors average J_avg and J_gen so, over 64 steps, not an epoch. Until the first
    window is complete ``last`` is ``UNKNOWN_LOSS``. All of it stays on the device, so that a CUDA
    graph can hold it.

    Args:
        window: steps in a window.

    >>> mean = WindowedMean(2)
    >>> for value in (1.0, 3.0, 9.0):
    ...     mean.add(torch.tensor(value))
    >>> mean.last.item(), mean.first.item()
    (2.0, 2.0)
    """

    steps: Tensor
    last: Tensor
    first: Tensor
    sum: Tensor

    def __init__(self, window: int) -> None:
        super().__init__()
        self.window = window
        self.register_buffer("steps", torch.tensor(0))
        self.register_buffer("last", torch.tensor(UNKNOWN_LOSS))
        self.register_buffer("first", torch.tensor(torch.inf))
        self.register_buffer("sum", torch.tensor(0.0))

    @torch.no_grad()
    def add(self, value: Scalar) -> None:
        """Count one step's value."""
        self.sum += value
        self.steps += 1
        ended = self.steps % self.window == 0
        self.last.copy_(torch.where(ended, self.sum / self.window, self.last))
        self.first.copy_(torch.where(ended & self.first.isinf(), self.last, self.first))
        self.sum.masked_fill_(ended, 0)

    def relative(self) -> Scalar:
        """Return the last window over the first; infinite until there is one."""
        ratio = self.last / self.first.clamp(min=torch.finfo(torch.float32).tiny)
        return torch.where(self.first.isinf(), torch.inf, ratio)


def interpolation_factor(alpha: float, average_loss: Scalar) -> Scalar:
    """Return λ, the share of a negative's distance beyond the reference distance that stays,
    between 0 and 1.

        λ = exp(-α / J_avg)                                            Zheng et al. 2019, in Eq. (7)

    The smaller the average loss, the smaller λ and the harder the synthetics. λ = 1 changes
    nothing, which is α = 0 or a loss that is not known yet (infinite); λ = 0 pulls every negative
    to the reference distance. The weight of the real tuples in Eq. (11), exp(-β / J_gen), is the
    same function.

    >>> losses = torch.tensor([torch.inf, 2.0, 1.0, 0.0])
    >>> [round(interpolation_factor(1.0, loss).item(), 4) for loss in losses]
    [1.0, 0.6065, 0.3679, 0.0]
    """
    return torch.exp(-alpha / average_loss.clamp(min=LEAST_LOSS))


@torch.no_grad()
def zero_loss_share(comparisons: Comparisons, terms: Terms) -> Scalar:
    """Return the share of anchors whose tuples have next to no loss, apart from the penalty."""
    penalty = 0.0 if comparisons.penalty is None else comparisons.penalty * terms.counts
    formed = terms.counts > 0
    free = ((terms.sums - penalty) <= FREE * terms.counts) & formed
    return free.sum() / formed.sum().clamp(min=1)

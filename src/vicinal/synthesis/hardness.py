"""The settings of HDML (Zheng et al., CVPR 2019): its two published presets, one for any scale, and every switch."""

from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

from vicinal.errors import ConfigError, unknown
from vicinal.synthesis.augmentor import Path, Reference
from vicinal.synthesis.generator import Reconstruction

Scale = Literal["authors", "paper", "relative"]
Gradient = Literal["full", "head"]
Averaged = Literal["metric", "weighted"]
LabelAverage = Literal["rows", "parts", "sum"]
Members = Literal["regenerated", "real"]


@dataclass(frozen=True)
class Preset:
    """The values that one ``scale`` stands for; see ``HDMLConfig``."""

    alpha: float
    beta: float
    averaged: Averaged
    weight_decay: float
    reconstruction: Reconstruction
    reconstruction_factor: float
    label_average: LabelAverage
    label_factor: float
    generator_norm: bool


# What the paper's text and the authors' code (wzzheng/HDML, commit fa03ef0) differ in, and what we do instead.
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
        alpha=90.0,  # with triplets 7
        beta=1e4,
        averaged="metric",
        weight_decay=0.0,
        reconstruction="sum",
        reconstruction_factor=1.0,
        label_average="sum",
        label_factor=0.5,  # λ
        generator_norm=False,
    ),
    "relative": Preset(
        alpha=0.5,
        beta=0.2,
        averaged="metric",
        weight_decay=0.0,
        reconstruction="relative",
        reconstruction_factor=1.0,
        label_average="rows",
        label_factor=0.5,
        generator_norm=False,
    ),
}


@dataclass(frozen=True)
class HDMLConfig:
    """HDML (Zheng et al. 2019): train on harder synthetic negatives beside the real ones.

    Arguments that are None take the value of the preset ``scale``. The paper's text and its authors' code disagree in
    scale, and the published α and β belong to the code's. ``"authors"`` and ``"paper"`` are these two presets; the loss
    has its own share in them (``published_triplet``, ``published_n_pair``). ``"relative"``, ours, divides J_avg and
    J_gen by their own first window, so that λ = exp(-α J_first / J_avg) and w = exp(-β J_first / J_gen) mean the same
    over any backbone and loss; the first window has λ = w = 1.

    Attributes:
        scale: the preset.
        alpha: α, the pulling factor of Eq. (7); larger is harder. 90 for N-pair, 7 for triplets, on the authors' scale.
        beta: β of Eq. (11); larger gives synthetics more weight.
        averaged: what J_avg averages: J_m (``"metric"``) or w (J_m + decay) (``"weighted"``).
        weight_decay: wd; adds wd/2 Σ|θ|² to J_m, as the authors do, beside whatever the optimiser decays.
        reconstruction: ``"sum"``, ``"mean"`` or ``"relative"`` to the features' variance.
        reconstruction_factor: of J_recon in J_gen; 0 is the paper's ablation.
        label_average: J_soft as one mean over all rows of the synthetic tuples (``"rows"``), the mean over negatives
            plus that over anchors (``"parts"``, the authors' N-pair), or the ``"sum"``.
        label_factor: of J_soft in J_gen; 0 is the paper's ablation.
        generator_norm: batch norm in the generator.
        repeated: whether anchors and positives pass the generator twice, for J_recon and within their tuples, as in the
            authors' code. Without batch norms it changes nothing. With them, the generator's takes its statistics from
            6T rows of T triplets instead of 4T, and that of the head from the tuples alone.
        hidden: width of its hidden layer; None is the paper's 512 where that fits.
        generate: whether synthetics pass the generator; False uses the interpolated ẑ as they are.
        members: what the anchor and positives of a synthetic tuple are: ``"regenerated"`` like its negative (the
            paper), or ``"real"`` (ours), with the negative real but for what drawing it changes in the generator's
            eyes, ỹ⁻ = y⁻ + i(ẑ⁻) - i(z⁻). A generator that loses part of the features draws regenerated anchors and
            positives together, so that synthetic tuples may be easier than real ones; real ones keep their distances.
        real_share: a constant w in place of exp(-β / J_gen); what ``generate=False`` needs.
        syn_grad: whether J_syn reaches the whole network (``"full"``, the authors) or the head alone (``"head"``).
        path: interpolate on the ``"straight"`` line between embeddings, before any normalisation, or along the
            ``"arc"`` between their directions.
        reference: d⁺ of an anchor with several positives: ``"mean"``, ``"farthest"``, or always ``"fixed"``.
        fixed_distance: d⁺ of an anchor without positives, or of all with ``"fixed"``; radians on the arc.
        push_positives: how strongly positives are pushed away, in multiples of the pull on negatives; 0 is not.
        hardest: how many negatives of each anchor are synthesised, nearest first; None is all.
        chunk: synthetic rows held at once; beyond it they are computed again in the backward pass, part by part.
        window: steps over which J_avg and J_gen are averaged.
        generator_rate: the generator's learning rate (Adam); the authors' is 1e-2.
        classifier_rate: the classifier's learning rate (Adam), the authors'.
    """

    scale: Scale = "relative"
    alpha: float | None = None
    beta: float | None = None
    averaged: Averaged | None = None
    weight_decay: float | None = None
    reconstruction: Reconstruction | None = None
    reconstruction_factor: float | None = None
    label_average: LabelAverage | None = None
    label_factor: float | None = None
    generator_norm: bool | None = None
    repeated: bool = False
    hidden: int | None = None
    generate: bool = True
    members: Members = "regenerated"
    real_share: float | None = None
    syn_grad: Gradient = "full"
    path: Path = "straight"
    reference: Reference = "mean"
    fixed_distance: float = 1.0
    push_positives: float = 0.0
    hardest: int | None = None
    chunk: int = 2**15
    window: int = 64
    generator_rate: float = 1e-3
    classifier_rate: float = 1e-3

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for field in fields(self):
            value, choices = getattr(self, field.name), _choices(hints[field.name])
            if choices and value is not None and value not in choices:
                raise ConfigError(unknown(field.name, str(value), choices))
        for name in ("alpha", "beta", "weight_decay", "reconstruction_factor", "label_factor", "push_positives"):
            if (getattr(self, name) or 0) < 0:
                raise ConfigError(f"{name} is at least 0, but {getattr(self, name)} came.")
        for name in ("window", "chunk", "hardest"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ConfigError(f"{name} is at least 1, but {getattr(self, name)} came.")
        for name in ("generator_rate", "classifier_rate", "fixed_distance"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} is positive, but {getattr(self, name)} came.")
        if self.real_share is not None and not 0 <= self.real_share <= 1:
            raise ConfigError(f"real_share is w, between 0 and 1, but {self.real_share} came.")
        if self.push_positives and self.path == "arc":
            raise ConfigError(
                'positives are pushed on straight lines, but path="arc" came. Use "straight", or no push.'
            )

    def preset(self, *, triplets: bool = False) -> Preset:
        """Return the preset ``scale`` with the arguments that were set in place of its own.

        >>> HDMLConfig("authors").preset().label_factor, HDMLConfig("paper", label_factor=0.0).preset().label_factor
        (5000.0, 0.0)
        """
        if not self.generate and self.real_share is None:
            raise ConfigError(
                "without a generator there is no J_gen to set w = exp(-beta / J_gen), and real_share is None. "
                "Give a constant w, such as real_share=0.5."
            )
        preset = PRESETS[self.scale]
        if triplets and self.scale != "relative":
            preset = replace(preset, alpha=7.0)
        if triplets and self.scale == "authors":
            preset = replace(preset, label_average="rows")
        chosen = {field.name: getattr(self, field.name) for field in fields(Preset)}
        return replace(preset, **{name: value for name, value in chosen.items() if value is not None})


def _choices(hint: Any) -> tuple[str, ...]:
    """The texts that ``Literal[...]`` or ``Literal[...] | None`` allows; none for other annotations."""
    return tuple(choice for part in (hint, *get_args(hint)) if get_origin(part) is Literal for choice in get_args(part))

"""The base of published backbones: width, the input that public weights expect, frozen batch norm;
and weight files."""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, ClassVar, Literal, Self

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from vicinal.errors import ConfigError, DataError, few
from vicinal.files import read_tensors

Features = Float[Tensor, "n c"]
PUBLIC = ("imagenet", "public")  # words for the weights that a network was published with
_SAMPLED = 8  # how many names of a network are sought in a file to find a prefix


@dataclass(frozen=True)
class Preprocessing:
    """From RGB in 0..1 to a backbone's input: ``(scale · x - mean) / std``, channels in the
    weights' own order.

    Args:
        mean: subtracted from each channel after scaling, in the order of ``channels``.
        std: what each channel is divided by then.
        channels: ``"RGB"``, or ``"BGR"`` for weights from Caffe.
        scale: the value of white: 1, or 255.
        size: side of the square images in pixels; None where the weights leave it open.
        interpolation: filter that images are resized with.
        resize: length to which they are brought before a square of ``size`` is cut from their
            middle; None leaves it open.
        fit: whether the shorter side gets that length, or both (``ImageTransform``).
    """

    mean: tuple[float, ...]
    std: tuple[float, ...] = (1.0, 1.0, 1.0)
    channels: Literal["RGB", "BGR"] = "RGB"
    scale: float = 1.0
    size: int | None = None
    interpolation: str = "bilinear"
    resize: int | None = None
    fit: Literal["shorter", "squash"] = "shorter"


# Torchvision's ResNets.
IMAGENET = Preprocessing(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), size=224)
# Weights ported from TensorFlow: -1..1.
HALF = Preprocessing(mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5), size=224)
# BN-Inception.
CAFFE = Preprocessing(mean=(104.0, 117.0, 128.0), channels="BGR", scale=255.0, size=224)
PREPROCESSING = {  # by name, for weights that were trained on another input than a network's own
    "imagenet": IMAGENET,
    "half": HALF,
    "caffe": replace(CAFFE, mean=(103.939, 116.779, 123.68)),  # He et al.'s ResNets
}


class Backbone(nn.Module, ABC):
    """A network whose parameters bear the names of the public weight files, without their
    classifier.

    A constructor only builds and initializes, so that a network described in ``model.json`` is
    rebuilt on a machine that lacks those files; ``load_pretrained`` reads them.

    >>> from vicinal.models import ResNet
    >>> backbone = ResNet(18)
    >>> isinstance(backbone, Backbone), backbone.width, backbone(torch.zeros(1, 3, 64, 64)).shape
    (True, 512, torch.Size([1, 512, 2, 2]))

    Attributes:
        width: channels of what ``forward`` returns.
        prefix_tokens: tokens before those of the patches, where ``forward`` returns tokens ``[n t
            c]``; the first is the class token.
        preprocessing: the input that the public weights were trained on.
        classifiers: beginnings of names in the public files that belong to heads left out here.
        optional: parts of names of tensors that no public file has.
        publisher: who publishes the weights, where no package carries them.
        public_file: name of the file that they publish.
        freeze_norm: whether batch norm keeps the running statistics and the affine parameters it
            has. Statistics of small batches of similar images are poor ones, and most published
            metric-learning code freezes them.
    """

    width: int
    prefix_tokens: int = 0
    preprocessing: Preprocessing
    classifiers: tuple[str, ...] = ()
    optional: ClassVar[tuple[str, ...]] = ()
    publisher: ClassVar[str] = "torchvision"
    public_file: str = ""

    def __init__(self, *, freeze_norm: bool) -> None:
        super().__init__()
        self.freeze_norm = freeze_norm

    @abstractmethod
    def forward(self, inputs: Tensor) -> Tensor: ...

    @classmethod
    def preprocessing_for(cls, *names: Any, **arguments: Any) -> Preprocessing:
        """Return the preprocessing of the network with these arguments, without building it."""
        return cls.preprocessing

    @property
    def license(self) -> str:
        """The license of the public weights as their publisher writes it, or ``"unknown"``."""
        return "unknown"

    @property
    def trunk(self) -> nn.Module:
        """The module whose names are those of the public files."""
        return self

    def find_weights(self, name: str) -> Path | Mapping[str, Tensor]:
        """Find the weights called ``name`` on this machine, or raise an error that says how to get
        them."""
        cached = Path(torch.hub.get_dir()) / "checkpoints" / self.public_file
        if not cached.is_file():
            raise ConfigError(
                f"weights {name!r} of {type(self).__name__} come in no package, and {cached} does "
                f"not exist. Download {self.publisher}'s {self.public_file} and set model.weights "
                "to its path, or set model.weights=none."
            )
        return cached

    def adapt(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Bring the tensors of a weight file to the shapes of this network, where its input size
        has changed."""
        return tensors

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        if self.freeze_norm:
            for norm in self._norms():
                norm.eval()
        return self

    def _freeze(self) -> None:
        """Freeze what is to be frozen; a constructor's last step."""
        if self.freeze_norm:
            for norm in self._norms():
                norm.requires_grad_(False)
            self.train(self.training)

    def _norms(self) -> list[nn.Module]:
        """Looked up each time: SyncBatchNorm may have taken the place of what was built."""
        return [module for module in self.modules() if isinstance(module, _BatchNorm)]


def initialize(network: nn.Module) -> None:
    """Draw the convolutions of a network as He et al. 2015 do."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            # Fan-in, since the fan-out of a depthwise weight counts channels that its outputs never
            # reach.
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)


def convolve(maps: Tensor, convolution: nn.Conv2d, norm: _BatchNorm) -> Tensor:
    """Compute ``norm(convolution(maps))``.

    A norm in evaluation mode is a scale and a shift per channel. They go into the weights, which
    are small, instead of over the maps, which are large: on a GPU that saves a quarter of a
    training step with frozen norms, forward and backward, and most of it again under forward-mode
    differentiation.
    """
    found = fold(convolution, norm)
    if found is None:
        result: Tensor = norm(convolution(maps))
    else:
        result = convolution._conv_forward(maps, *found)
    return result


def fold(convolution: nn.Conv2d, norm: _BatchNorm) -> tuple[Tensor, Tensor] | None:
    """Return weight and bias of a convolution that does what it and the norm after it do.

    None for a norm by the statistics of the batch.
    """
    if norm.training or norm.running_mean is None or norm.running_var is None:
        return None
    scale = torch.rsqrt(norm.running_var + norm.eps)
    if norm.weight is not None:
        scale = scale * norm.weight
    mean = norm.running_mean if convolution.bias is None else norm.running_mean - convolution.bias
    shift = -mean * scale if norm.bias is None else norm.bias - mean * scale
    return convolution.weight * scale[:, None, None, None], shift


class Kernels:
    """Whether the pass that runs now may use kernels that have first derivatives only."""

    enabled = False


@contextmanager
def kernels(inputs: Tensor) -> Iterator[None]:
    """Use Triton's kernels for what runs here, on a GPU with Triton, up to float32.

    They have no derivatives in forward mode.
    """
    before = Kernels.enabled
    Kernels.enabled = inputs.is_cuda and inputs.dtype != torch.float64 and _have_kernels()
    try:
        yield
    finally:
        Kernels.enabled = before


@cache
def _have_kernels() -> bool:
    if find_spec("triton") is None:
        return False
    import_module("vicinal.models.kernels")  # registers the operators
    return True


def probe(network: nn.Module, shape: tuple[int, ...]) -> Any:
    """Return what a network gives for two inputs of zeros, without a trace in it or in torch's
    generators.

    Running statistics, modes of submodules and random states are as before.
    """
    modes = {module: module.training for module in network.modules()}
    first = next(network.parameters(), torch.empty(0))
    try:
        network.eval()
        with (
            torch.no_grad(),
            torch.random.fork_rng(devices=[first.device] if first.is_cuda else []),
        ):
            return network(first.new_zeros(2, *shape))
    finally:
        for module, mode in modes.items():
            module.training = mode


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, without a final stop: libraries explain at
    length."""
    return (str(error) or type(error).__name__).splitlines()[0].rstrip(".")


# -- weight files ---------------------------------------------------------------------------------


def forbids_commerce(license: str) -> bool:
    """Return whether the identifier of a license says that it does not allow commercial use.

    >>> [forbids_commerce(one) for one in ("cc-by-nc-4.0", "apache-2.0", "unknown")]
    [True, False, False]
    """
    return re.search(r"\bnc\b|non-?commercial|research|apple-amlr", license, re.I) is not None


def load_pretrained(backbone: nn.Module, source: str | Path) -> None:
    """Fill a backbone with trained weights; a classifier among them is ignored.

    Args:
        backbone: as its constructor left it.
        source: ``"imagenet"`` or ``"public"`` for the weights that an installed package or cache
            holds, or the path of a file or run.
    """
    if isinstance(backbone, Backbone):
        found = backbone.find_weights(str(source)) if source in PUBLIC else Path(source)
        load_weights(
            backbone.trunk,
            found,
            ignore=backbone.classifiers,
            optional=backbone.optional,
            adapt=backbone.adapt,
        )
    else:
        load_weights(getattr(backbone, "trunk", backbone), Path(source))


def load_weights(
    module: nn.Module,
    source: str | Path | Mapping[str, Tensor],
    *,
    ignore: Sequence[str] = (),
    optional: Sequence[str] = (),
    adapt: Callable[[dict[str, Tensor]], dict[str, Tensor]] = dict,
) -> None:
    """Load tensors into the parameters and buffers of the same names.

    A prefix that all names of the network have in the file (``module.``, ``model.``, ``backbone.``)
    is dropped, and what lies beside it in the file is ignored. A tensor of another shape, one that
    is missing and one that is unexpected raise an error before anything has changed.

    Args:
        module: the network to fill.
        source: a ``.pth`` file (read without running anything in it), a ``.safetensors`` file, or
            the tensors.
        ignore: beginnings of names in the file that are left out on purpose.
        optional: parts of names of the network that the file may lack.
        adapt: changes the tensors of the file before they are compared with those of the network.
    """
    where = "the given weights" if isinstance(source, Mapping) else str(source)
    given = dict(source) if isinstance(source, Mapping) else read_weights(Path(source))
    wanted = module.state_dict()
    if not wanted:
        raise ConfigError(
            f"model.weights={where}: {type(module).__name__} has no weights of its own. Give the "
            "folder of a run, whose head is taken, or set model.weights=none."
        )
    prefix = _prefix(given, list(wanted))
    given = adapt(
        {
            name.removeprefix(prefix): value
            for name, value in given.items()
            if name.startswith(prefix)
        }
    )
    fitting = {
        name: _fitted(name, given[name], wanted[name].shape, where)
        for name in wanted
        if name in given
    }
    unexpected = [n for n in given if n not in wanted and not n.startswith(tuple(ignore))]
    # Counters are absent from files older than torch 0.4.1, and count only where momentum is None.
    spared = (".num_batches_tracked", *optional)
    missing = [
        name for name in wanted if name not in given and not any(part in name for part in spared)
    ]
    if not fitting or missing or unexpected:
        listed = [
            f"{len(names)} ({few(names)})" if names else "0" for names in (missing, unexpected)
        ]
        raise ConfigError(
            f"{where} does not hold the weights of {type(module).__name__}: {len(fitting)} tensors "
            f"fit, {listed[0]} missing, {listed[1]} unexpected. Set model.name and its arguments "
            "to the network that the file was saved from, or set model.weights=none."
        )
    module.load_state_dict(fitting, strict=False)


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a ``.safetensors`` or ``.pth`` file by name, without executing anything
    in it.

    Tensors under ``"state_dict"`` or ``"model"`` are taken out of it.
    """
    if path.is_dir():  # a run
        path /= "model.safetensors"
    if not path.is_file():
        raise ConfigError(f"weights file {path} does not exist. Check the path in model.weights.")
    try:
        safe = path.suffix == ".safetensors"
        content: Any = (
            read_tensors(path) if safe else torch.load(path, map_location="cpu", weights_only=True)
        )
    except (UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        raise DataError(
            f"{path} cannot be read as weights: {first_line(error)}. Only tensors by name are "
            "read, from .safetensors or .pth; save a state_dict() alone."
        ) from error
    for key in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not all(
        isinstance(value, Tensor) for value in content.values()
    ):
        raise DataError(
            f"{path} holds a {type(content).__name__}, not tensors by name. Save a state_dict() "
            "alone."
        )
    return dict(content)


def _prefix(given: Mapping[str, Tensor], wanted: Sequence[str]) -> str:
    """Return what stands before the names of a network in a file; empty where more names fit as
    they are."""
    some = [f".{name}" for name in wanted[:_SAMPLED]]
    prefixes = {name.removesuffix(end[1:]) for name in given for end in some if name.endswith(end)}
    return max(
        ("", *sorted(prefixes)), key=lambda prefix: sum(prefix + name in given for name in wanted)
    )


def _fitted(name: str, value: Tensor, shape: torch.Size, where: str) -> Tensor:
    # The first BN-Inception files, from torch 0.3, hold batch norm's vectors as rows.
    if value.shape == (1, *shape) and len(shape) == 1:
        return value[0]
    if value.shape != shape:
        raise ConfigError(
            f"{name} has shape {list(shape)} in the network, but {list(value.shape)} in {where}. "
            "Use weights of the same network and variant."
        )
    return value

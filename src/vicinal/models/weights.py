"""Load weight files into networks; errors name the tensors that do not fit."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from vicinal.errors import ConfigError, DataError, few
from vicinal.models.backbone import Backbone, first_line

_SAMPLED = 8  # how many names of a network are sought in a file to find a prefix


class LoadReport(NamedTuple):
    """The names of tensors that filled the network, and of those in the file that it leaves out, such as a head's."""

    loaded: tuple[str, ...]
    ignored: tuple[str, ...]


def load_pretrained(backbone: nn.Module, source: str | Path) -> LoadReport:
    """Fill a backbone with trained weights; a classifier among them is ignored.

    Args:
        backbone: as its constructor left it.
        source: ``"imagenet"`` for the weights that an installed package or cache holds, or the path of a file.
    """
    if isinstance(backbone, Backbone):
        found = backbone.find_weights("imagenet") if source == "imagenet" else Path(source)
        return load_weights(
            backbone.trunk, found, ignore=backbone.classifiers, optional=backbone.optional, adapt=backbone.adapt
        )
    if source == "imagenet":
        advice = "Set model.weights=none, or to the path of a file."
        raise ConfigError(f"{type(backbone).__name__} has no public weights, got weights='imagenet'. {advice}")
    return load_weights(getattr(backbone, "trunk", backbone), Path(source))


def load_weights(
    module: nn.Module,
    source: str | Path | Mapping[str, Tensor],
    *,
    ignore: Sequence[str] = (),
    optional: Sequence[str] = (),
    adapt: Callable[[dict[str, Tensor]], dict[str, Tensor]] = dict,
) -> LoadReport:
    """Load tensors into the parameters and buffers of the same names.

    A prefix that all names of the network have in the file (``module.``, ``model.``, ``backbone.``) is dropped, and
    what lies beside it in the file is ignored. A tensor of another shape, one that is missing and one that is
    unexpected raise an error before anything has changed.

    Args:
        module: the network to fill.
        source: a ``.pth`` file (read without running anything in it), a ``.safetensors`` file, or the tensors.
        ignore: beginnings of names in the file that are left out on purpose.
        optional: parts of names of the network that the file may lack.
        adapt: changes the tensors of the file before they are compared with those of the network.
    """
    where = "the given weights" if isinstance(source, Mapping) else str(source)
    given = dict(source) if isinstance(source, Mapping) else read_weights(Path(source))
    wanted = module.state_dict()
    prefix = _prefix(given, list(wanted))
    beside = tuple(name for name in given if not name.startswith(prefix))
    given = adapt({name.removeprefix(prefix): value for name, value in given.items() if name.startswith(prefix)})
    fitting = {name: _fitted(name, given[name], wanted[name].shape, where) for name in wanted if name in given}
    extra = [name for name in given if name not in wanted]
    unexpected = [name for name in extra if not name.startswith(tuple(ignore))]
    # Counters are absent from files older than torch 0.4.1, and count only where momentum is None.
    spared = (".num_batches_tracked", *optional)
    missing = [name for name in wanted if name not in given and not any(part in name for part in spared)]
    if not fitting or missing or unexpected:
        listed = [f"{len(names)} ({few(names)})" if names else "0" for names in (missing, unexpected)]
        raise ConfigError(
            f"{where} does not hold the weights of {type(module).__name__}: {len(fitting)} tensors fit, "
            f"{listed[0]} missing, {listed[1]} unexpected. Set model.name and its arguments to the "
            f"network that the file was saved from, or set model.weights=none."
        )
    module.load_state_dict(fitting, strict=False)
    return LoadReport(tuple(fitting), (*extra, *beside))


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a ``.safetensors`` or ``.pth`` file by name, without executing anything in it.

    Tensors under ``"state_dict"`` or ``"model"`` are taken out of it.
    """
    if not path.is_file():
        raise ConfigError(f"weights file {path} does not exist. Check the path in model.weights.")
    try:
        safe = path.suffix == ".safetensors"
        content: Any = load_file(path) if safe else torch.load(path, map_location="cpu", weights_only=True)
    except (UnpicklingError, SafetensorError, RuntimeError, EOFError, ValueError) as error:
        advice = "Only tensors by name are read, from .safetensors or .pth; save a state_dict() alone."
        raise DataError(f"{path} cannot be read as weights: {first_line(error)}. {advice}") from error
    for key in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not all(isinstance(value, Tensor) for value in content.values()):
        raise DataError(f"{path} holds a {type(content).__name__}, not tensors by name. Save a state_dict() alone.")
    return dict(content)


def _prefix(given: Mapping[str, Tensor], wanted: Sequence[str]) -> str:
    """Return what stands before the names of a network in a file; empty where more names fit as they are."""
    some = [f".{name}" for name in wanted[:_SAMPLED]]
    prefixes = {name.removesuffix(end[1:]) for name in given for end in some if name.endswith(end)}
    return max(("", *sorted(prefixes)), key=lambda prefix: sum(prefix + name in given for name in wanted))


def _fitted(name: str, value: Tensor, shape: torch.Size, where: str) -> Tensor:
    if value.shape == (1, *shape) and len(shape) == 1:
        return value[0]  # the first BN-Inception files, from torch 0.3, hold batch norm's vectors as rows
    if value.shape != shape:
        raise ConfigError(
            f"{name} has shape {list(shape)} in the network, but {list(value.shape)} in {where}. "
            f"Use weights of the same network and variant."
        )
    return value

"""Weight files into networks: what fits is loaded, what does not is named, and nothing is downloaded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from vicinal.errors import ConfigError, DataError
from vicinal.models.backbone import Backbone

_NAMED = 3  # how many tensors a message names before it counts the rest


@dataclass(frozen=True)
class LoadReport:
    """What became of the tensors of a weight file and of a network, by name.

    Attributes:
        missing: of the network, but not in the file; they kept their values.
        unexpected: in the file, but neither of the network nor of a head that was left out on purpose.
        ignored: in the file, of heads that the network leaves out.
        loaded: filled from the file.
    """

    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    ignored: tuple[str, ...]
    loaded: tuple[str, ...]

    def __str__(self) -> str:
        kinds = {"missing": self.missing, "unexpected": self.unexpected, "ignored": self.ignored}
        rest = [f"{len(names)} {kind} ({_listed(names)})" for kind, names in kinds.items() if names]
        return "; ".join([f"{len(self.loaded)} tensors loaded", *rest])


def load_pretrained(backbone: Backbone, source: str | Path) -> LoadReport:
    """Fill a backbone with public weights; their classifier is ignored.

    Args:
        backbone: as its constructor left it.
        source: ``"imagenet"`` for the weights that an installed package carries, or the path of a file.
    """
    found = backbone.find_weights("imagenet") if source == "imagenet" else Path(source)
    return load_weights(backbone.trunk, found, ignore=backbone.classifiers)


def load_weights(
    module: nn.Module, source: str | Path | Mapping[str, Tensor], *, ignore: Sequence[str] = (), strict: bool = True
) -> LoadReport:
    """Load tensors into the parameters and buffers of the same names.

    A tensor of another shape is always refused, before anything has changed.

    Args:
        module: the network to fill.
        source: a ``.pth`` file (read without running anything in it), a ``.safetensors`` file, or the tensors.
        ignore: beginnings of names in the file that are left out on purpose.
        strict: refuse a file in which something is missing or unexpected; else both are only reported.
    """
    if isinstance(source, Mapping):
        where, given = "the given weights", dict(source)
    else:
        where, given = str(source), read_weights(Path(source))
    wanted = module.state_dict()
    ignored = {name for name in given if name not in wanted and name.startswith(tuple(ignore))}
    fitting = {name: _fitted(name, given[name], wanted[name].shape, where) for name in wanted if name in given}
    report = LoadReport(
        # Counters are absent from files older than torch 0.4.1, and count only where momentum is None.
        missing=tuple(n for n in wanted if n not in given and not n.endswith(".num_batches_tracked")),
        unexpected=tuple(n for n in given if n not in wanted and n not in ignored),
        ignored=tuple(n for n in given if n in ignored),
        loaded=tuple(fitting),
    )
    if not fitting or (strict and (report.missing or report.unexpected)):
        raise ConfigError(
            f"the weights of {type(module).__name__} were to be read from {where}, but it does not fit: {report}. "
            f"Check that it is of this very network" + ("; strict=False loads what fits." if fitting else ".")
        )
    module.load_state_dict(fitting, strict=False)
    return report


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a ``.safetensors`` or ``.pth`` file by name; a checkpoint's ``"state_dict"`` is taken out."""
    if not path.is_file():
        raise ConfigError(f"weights were to be read from {path}, but there is no such file. Check the path.")
    try:
        content: Any
        if path.suffix == ".safetensors":
            content = load_file(path)
        else:
            content = torch.load(path, map_location="cpu", weights_only=True)
    except (UnpicklingError, SafetensorError, RuntimeError, EOFError, ValueError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")  # torch explains at length
        raise DataError(
            f"{path} cannot be read as weights: {reason}. Only tensors by name are read, from .safetensors or .pth; "
            f"save a state_dict() alone."
        ) from error
    if isinstance(content, Mapping) and isinstance(content.get("state_dict"), Mapping):
        content = content["state_dict"]
    if not isinstance(content, Mapping) or not all(isinstance(value, Tensor) for value in content.values()):
        raise DataError(f"{path} holds a {type(content).__name__}, not tensors by name. Save a state_dict() alone.")
    return dict(content)


def _fitted(name: str, value: Tensor, shape: torch.Size, where: str) -> Tensor:
    if value.shape == (1, *shape) and len(shape) == 1:
        return value[0]  # the first BN-Inception files, from torch 0.3, hold batch norm's vectors as rows
    if value.shape != shape:
        raise ConfigError(
            f"{name} has shape {list(shape)} in the network, but {list(value.shape)} in {where}. "
            f"Take the weights of this very network and variant."
        )
    return value


def _listed(names: Sequence[str]) -> str:
    rest = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")

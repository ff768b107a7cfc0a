"""A network of the user's own as a backbone."""

import copy
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any

from torch import Tensor, nn

from vicinal.arguments import class_name, describe, kept_arguments
from vicinal.errors import ConfigError
from vicinal.models.backbone import probe
from vicinal.models.finetuning import merge_lora


class CustomBackbone(nn.Module):
    """Any module that gives vectors ``[n c]``, tokens ``[n t c]`` or maps ``[n c h w]``.

    Its output width is found by running it once on zeros. ``model.json`` names the class of the
    module, which is imported only where the user trusts it by name; see ``trusted``.

    A module that gives tokens states in ``prefix_tokens`` (or ``num_prefix_tokens``) how many of
    them precede those of the patches; the first is the class token.

    Args:
        module: the network, without a classifier.
        shape: of one input: ``(channels, side, side)``, or ``(width,)`` for feature vectors.

    >>> import torch
    >>> CustomBackbone(nn.Conv2d(3, 8, 3), (3, 16, 16)).width
    8
    """

    def __init__(self, module: nn.Module, shape: tuple[int, ...] = (3, 224, 224)) -> None:
        super().__init__()
        self.module = module
        self.shape = tuple(shape)
        self.prefix_tokens = int(
            getattr(module, "prefix_tokens", getattr(module, "num_prefix_tokens", 0))
        )
        name = class_name(type(module))
        try:
            output = probe(module, self.shape)
        except Exception as error:  # a user's own code may raise anything
            raise ConfigError(
                f"{name} cannot take an input of shape {[2, *self.shape]}: {type(error).__name__}: "
                f"{error}. Change the module, or transform.size and transform.channels."
            ) from error
        if not isinstance(output, Tensor) or output.ndim not in (2, 3, 4):
            raise ConfigError(
                "a backbone gives a tensor [n c], [n t c] or [n c h w], got "
                f"{getattr(output, 'shape', type(output).__name__)} from {name}. "
                "Wrap it in a module whose forward returns such a tensor."
            )
        self.vectors = output.ndim == 2
        self.width = output.shape[2 if output.ndim == 3 else 1]
        self.input_width = self.shape[0] if len(self.shape) == 1 else self.width

    def forward(self, inputs: Tensor) -> Tensor:
        return self.module(inputs)

    @property
    def trunk(self) -> nn.Module:
        return self.module

    def to_description(self) -> dict[str, Any]:
        """Describe the module by its class and its constructor's arguments; None where it does not
        keep them."""
        kept = kept_arguments(self.module)
        return {
            "class": type(self).__name__,
            "factory": class_name(type(self.module)),
            "arguments": kept and {name: describe(value) for name, value in kept.items()},
            "shape": list(self.shape),
        }

    @classmethod
    def from_description(
        cls, description: Mapping[str, Any], allowed: Mapping[str, Any]
    ) -> "CustomBackbone":
        """Rebuild from a description; ``allowed`` must hold the factory that it names."""
        factory = str(description.get("factory"))
        given = description.get("arguments")
        if factory not in allowed:
            advice = "Give the network in Python: vicinal.load(RUN, module=network)."
            if given is not None:
                advice += (
                    f" Or, if you trust its code: `vicinal --trust {factory} COMMAND ...`, or "
                    f"trust={{{factory!r}}} in Python."
                )
            given_classes = ", ".join(name for name in allowed if ":" in name)
            raise ConfigError(
                f"this model was built from the class {factory!r}, which is not part of vicinal; "
                f"got {given_classes or 'no class for it'}. {advice}"
            )
        arguments = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in (given or {}).items()
        }
        try:
            module = allowed[factory](**arguments)
        except Exception as error:  # a user's own code may raise anything
            raise ConfigError(
                f"{factory} cannot be rebuilt with {arguments or 'no arguments'}: "
                f"{type(error).__name__}: {error}. A class rebuilds when it keeps its "
                "constructor's arguments as attributes of the same names."
            ) from error
        return cls(module, tuple(description.get("shape", ())))


TRUSTED: dict[
    str, Any
] = {}  # what the user trusts in this process: `vicinal --trust module:Class COMMAND`


def trusted(trust: nn.Module | type | Mapping[str, Any] | Iterable[str] | None) -> dict[str, Any]:
    """Return the factories that a description may name beside ``MODELS``.

    Args:
        trust: a class that the user trusts; or names ``package.module:Class``, which are imported;
            or classes by such names; or a live module, the user's own or an embedder over it, which
            is copied instead: a run rebuilds the network that it trains, of any class.
    """
    if trust is None:
        return dict(TRUSTED)
    if isinstance(trust, nn.Module):
        customs = [each.module for each in trust.modules() if isinstance(each, CustomBackbone)] or [
            trust
        ]
        return {class_name(type(custom)): _copying(custom) for custom in customs}
    if isinstance(trust, type):
        return {class_name(trust): trust}
    if isinstance(trust, Mapping):
        return dict(trust)
    return {name: import_class(name) for name in ([trust] if isinstance(trust, str) else trust)}


def import_class(name: str) -> Any:
    """Import ``package.module:Class``, also from the current folder, as ``python -m`` does."""
    module, _, path = name.partition(":")
    folder = os.getcwd()
    sys.path.insert(0, folder)
    try:
        return attrgetter(path)(importlib.import_module(module))
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"{name!r} cannot be imported: {error}. Name a class as package.module:Class, on "
            "Python's path."
        ) from error
    finally:
        sys.path.remove(folder)


def _copying(module: nn.Module) -> Callable[..., nn.Module]:
    def build(**arguments: Any) -> nn.Module:
        built = copy.deepcopy(module)
        merge_lora(built)  # the embedder that is rebuilt adds updates of its own
        return built

    return build

"""Walks a package, so that a contract covers a new file before its author writes a test."""

import importlib
import inspect
import pkgutil

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


def defined(package):
    """Everything that the modules of a package define, or that one module does."""
    found = pkgutil.iter_modules(getattr(package, "__path__", ()), f"{package.__name__}.")
    for name in [each.name for each in found] or [package.__name__]:
        for each in vars(importlib.import_module(name)).values():
            if getattr(each, "__module__", None) == name:
                yield each


def kinds(package, base):
    """Every class that can be made of ``base``, exported or not."""
    return [
        each
        for each in defined(package)
        if inspect.isclass(each) and issubclass(each, base) and not inspect.isabstract(each)
    ]


class LargestTensor(TorchDispatchMode):
    """Notes how many numbers the largest tensor has that comes into being, views apart."""

    numbers = 0

    def __torch_dispatch__(self, function, _, given=(), options=None):
        made = function(*given, **(options or {}))
        for part in tree_leaves(made):
            if isinstance(part, torch.Tensor):
                held = part.untyped_storage().nbytes() // part.element_size()
                self.numbers = max(self.numbers, held)
        return made

"""vicinal: metric learning for PyTorch and scikit-learn.

``import vicinal`` loads nothing else: each part loads at its first use
(``vicinal.losses.MultiSimilarityLoss``).
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vicinal.api import Run, best, train
    from vicinal.retrieval.model import load

PARTS = (
    "compat",
    "data",
    "evaluation",
    "geometry",
    "linear",
    "losses",
    "methods",
    "miners",
    "models",
    "reports",
    "retrieval",
    "samplers",
    "training",
)


_LAZY = {
    "train": "vicinal.api",
    "best": "vicinal.api",
    "Run": "vicinal.api",
    "load": "vicinal.retrieval.model",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    if name == "__version__":
        from importlib.metadata import version

        return version("vicinal")
    if name in PARTS:
        return importlib.import_module(f"vicinal.{name}")
    raise AttributeError(
        f"module 'vicinal' has no attribute {name!r}; its parts are {', '.join(PARTS)}"
    )


__all__ = ["Run", "best", "load", "train"]


def __dir__() -> list[str]:
    return ["Run", "__version__", "best", "load", "train", *PARTS]

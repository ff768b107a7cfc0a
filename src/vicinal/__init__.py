"""vicinal: metric learning for PyTorch and scikit-learn.

``import vicinal`` loads nothing else: each part loads at its first use
(``vicinal.losses.MultiSimilarityLoss``).
"""

import importlib
from os import PathLike
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vicinal.api import Run, train
    from vicinal.models.embedder import Role
    from vicinal.retrieval.model import EmbeddingModel

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


def load(
    run: str | PathLike[str], *, device: str = "auto", role: "Role | None" = None, trust: Any = None
) -> "EmbeddingModel":
    """Load the model of a run, or of a folder that ``vicinal export`` wrote; nothing in it is
    executed.

    Args:
        run: the run's folder, or the exported one, which may lie on another machine.
        device: ``"auto"`` (a GPU where there is one), ``"cpu"``, ``"cuda"`` or ``"cuda:1"``.
        role: ``"query"`` or ``"gallery"``, for a model that embeds the two by different networks.
        trust: the class of your own that the run's network is of; without it such a run is not
            loaded.
    """
    from vicinal.retrieval.model import load as load_run

    return load_run(run, device=device, role=role, trust=trust)


def __getattr__(name: str) -> Any:
    if name in ("train", "Run"):
        return getattr(importlib.import_module("vicinal.api"), name)
    if name == "__version__":
        from importlib.metadata import version

        return version("vicinal")
    if name in PARTS:
        return importlib.import_module(f"vicinal.{name}")
    raise AttributeError(
        f"module 'vicinal' has no attribute {name!r}; its parts are {', '.join(PARTS)}"
    )


__all__ = ["Run", "load", "train"]


def __dir__() -> list[str]:
    return ["Run", "__version__", "load", "train", *PARTS]

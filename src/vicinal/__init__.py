"""vicinal: metric learning in which hardness is a quantity one can see and steer.

``import vicinal`` costs nothing: parts load when they are first named (``vicinal.losses.MultiSimilarityLoss``).
"""

import importlib
from os import PathLike
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vicinal.models.embedder import Role
    from vicinal.search.loaded import EmbeddingModel

PARTS = (
    "compat",
    "data",
    "evaluation",
    "geometry",
    "index",
    "linear",
    "losses",
    "methods",
    "mining",
    "models",
    "reports",
    "sampling",
    "search",
    "training",
)


def load(run: str | PathLike[str], *, device: str = "auto", role: "Role | None" = None) -> "EmbeddingModel":
    """The model of a run, with ``.embed(images)``; see ``vicinal.search.loaded.load``."""
    from vicinal.search.loaded import load as load_run

    return load_run(run, device=device, role=role)


def __getattr__(name: str) -> ModuleType | str:
    if name == "__version__":
        from importlib.metadata import version

        return version("vicinal")
    if name in PARTS:
        return importlib.import_module(f"vicinal.{name}")
    raise AttributeError(f"module 'vicinal' has no attribute {name!r}; its parts are {', '.join(PARTS)}")


def __dir__() -> list[str]:
    return ["__version__", "load", *PARTS]

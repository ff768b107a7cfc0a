"""vicinal: metric learning in which hardness is a quantity one can see and steer.

``import vicinal`` costs nothing: parts load when they are first named (``vicinal.losses.MultiSimilarityLoss``).
"""

import importlib
from types import ModuleType

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
    "training",
)


def __getattr__(name: str) -> ModuleType | str:
    if name == "__version__":
        from importlib.metadata import version

        return version("vicinal")
    if name in PARTS:
        return importlib.import_module(f"vicinal.{name}")
    raise AttributeError(f"module 'vicinal' has no attribute {name!r}; its parts are {', '.join(PARTS)}")


def __dir__() -> list[str]:
    return ["__version__", *PARTS]

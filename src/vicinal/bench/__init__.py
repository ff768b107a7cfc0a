"""Tables of experiments over seeds, run by one command and compared with intervals; tuning;
comparison of runs; the best settings for given data.

``table`` describes a table, ``job`` does one row and seed, ``pool`` runs jobs side by side,
``results`` keeps what they find, ``run`` puts these together; ``summary`` and ``page`` show it.
``tuning`` searches the rows of a table on held-out training classes, ``best`` the settings for
given data, ``compare`` compares any runs.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vicinal.bench.table import Table, baseline, row

__all__ = ["Table", "baseline", "row"]


def __getattr__(name: str) -> Any:
    """Load torch and all that follows only where a table is made: workers start without."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from vicinal.bench import table

    return getattr(table, name)

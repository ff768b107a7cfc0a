"""Where data lies: the folder of data sets that VICINAL_DATA names, and the cache of what was made from nothing."""

import os
from pathlib import Path

from vicinal.errors import DataError

_VARIABLE = "VICINAL_DATA"
_REPOSITORY = Path(__file__).parents[3]  # repository/src/vicinal/data/location.py


def data_root() -> Path:
    """The folder of data sets: VICINAL_DATA, or ``../shared/data`` seen from the repository. It need not exist."""
    named = os.environ.get(_VARIABLE)
    return Path(named).expanduser() if named else _REPOSITORY.parent / "shared" / "data"


def expanded(path: str) -> Path:
    """The place that a data set's ``path`` means: ``$VICINAL_DATA/...`` and ``~`` are expanded.

    The data set keeps the short form, so that a run's description holds on another machine too.
    """
    for spelling in (f"${_VARIABLE}", f"${{{_VARIABLE}}}"):
        if path == spelling or path.startswith(spelling + "/"):
            return data_root() / path[len(spelling) :].lstrip("/")
    return Path(path).expanduser()


def existing(path: str) -> Path:
    """``expanded(path)``, refused where nothing lies there."""
    found = expanded(path)
    if not found.exists():
        unset = _VARIABLE in path and not os.environ.get(_VARIABLE)
        advice = f"Set {_VARIABLE} to the folder of data sets." if unset else "Check the path."
        raise DataError(f"data were to be read from {path}, but {found} does not exist. {advice}")
    return found


def cache_folder() -> Path | None:
    """``$XDG_CACHE_HOME/vicinal`` or ``~/.cache/vicinal``; None for a user who has no home."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(named):  # the XDG base directory specification: a relative one is to be ignored
        return Path(named) / "vicinal"
    try:
        return Path.home() / ".cache" / "vicinal"
    except RuntimeError:
        return None

"""What vectors depend on, as a short text: vectors of two models are never compared."""

import shlex
from collections.abc import Mapping
from typing import Any

from vicinal.data.packed import file_hash
from vicinal.errors import RunError
from vicinal.run_directory import RunDirectory


def model_fingerprint(run: RunDirectory) -> str:
    """Network, preprocessing and weights of a run's selected model."""
    return file_hash(run.model_path)[:32] + file_hash(run.weights_path)[:32]


def require_same_model(run: RunDirectory, about: Mapping[str, Any]) -> None:
    """Refuse a collection whose vectors another model made; their distances to new ones would mean nothing."""
    if "model" in about and about["model"] != model_fingerprint(run):
        raise RunError(
            f"the collection was indexed with another model than {run.path} has now. "
            f"Bring it up to date with `vicinal index {shlex.quote(str(run.path))}`, or name another with --collection."
        )

"""LMNN and ITML for ANML's Table 2: metric-learn's own code, which vicinal does not depend on."""

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any, ClassVar

import numpy.typing as npt
from sklearn.base import BaseEstimator, TransformerMixin

PEER_VERSION = "0.7.0"
_INSTALL = f"pip install --no-deps metric-learn=={PEER_VERSION}"


class _Peer(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A method of metric-learn as an estimator that can be copied and sent to processes of a
    search."""

    theirs: ClassVar[str]

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike) -> "_Peer":
        self.fitted_ = _peer(self.theirs)(**self.get_params(), random_state=0).fit(X, y)
        self.n_iter_ = self.fitted_.n_iter_
        return self

    def transform(self, X: npt.ArrayLike) -> npt.NDArray[Any]:
        found: npt.NDArray[Any] = self.fitted_.transform(X)
        return found


class LMNN(_Peer):
    """Large-margin nearest neighbours (Weinberger and Saul 2009) as metric-learn computes it."""

    theirs = "LMNN"

    def __init__(
        self, regularization: float = 0.5, n_neighbors: int = 3, max_iter: int = 1000
    ) -> None:
        self.regularization = regularization
        self.n_neighbors = n_neighbors
        self.max_iter = max_iter


class ITML(_Peer):
    """Information-theoretic metric learning (Davis et al. 2007) as metric-learn computes it, from
    labels."""

    theirs = "ITML_Supervised"

    def __init__(self, gamma: float = 1.0, max_iter: int = 1000) -> None:
        self.gamma = gamma
        self.max_iter = max_iter


def lacking() -> str:
    """Why LMNN and ITML cannot be measured here, and what to do; empty where they can."""
    try:
        version = import_module("metric_learn").__version__
    except ImportError:
        return f"they come from metric-learn {PEER_VERSION}, which is not installed ({_INSTALL})"
    if version != PEER_VERSION:
        return (
            f"they come from metric-learn {PEER_VERSION}, and {version} is installed ({_INSTALL})"
        )
    return ""


def accept_old_names() -> None:
    """metric-learn 0.7.0 calls two of scikit-learn's checks by an argument's name of before
    scikit-learn 1.6."""

    def renamed(check: Callable[..., Any]) -> Callable[..., Any]:
        def old(*values: Any, force_all_finite: bool | str = True, **named: Any) -> Any:
            return check(*values, ensure_all_finite=force_all_finite, **named)

        return old

    used = import_module("metric_learn._util")
    for name in ("check_array", "check_X_y"):
        check = getattr(used, name)
        if "ensure_all_finite" in inspect.signature(check).parameters:
            setattr(used, name, renamed(check))


def _peer(name: str) -> Any:
    """A class of metric-learn, in whichever process fits it: those of a search start anew."""
    accept_old_names()
    return getattr(import_module("metric_learn"), name)

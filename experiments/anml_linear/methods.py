"""The methods of ANML's Table 2, each with the values that it is tuned over: the paper's grids
where it names one."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator
    from tuning import Grid

OLDER = ("euclidean", "lda", "rvml", "gmml", "nca")
NEW = ("pnca", "lanml+", "lanml-")
PEERS = ("lmnn", "itml")
OWN = (*OLDER, *NEW)  # that come with vicinal or scikit-learn
METHODS = (*OLDER, *PEERS, *NEW)
FOLDS = 5


def contestant(method: str, smallest_class: int) -> "tuple[BaseEstimator, Grid]":
    """A method's estimator and grid.

    Args:
        smallest_class: samples of it in the training part, which bound LMNN's neighbours.
    """
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
    from sklearn.neighbors import NeighborhoodComponentsAnalysis
    from sklearn.preprocessing import FunctionTransformer

    from peers import ITML, LMNN
    from vicinal.linear import GMML, LANML, PAPER_GRIDS, PNCA, RVML

    most = max(1, smallest_class * (FOLDS - 1) // FOLDS - 1)  # also within a fold
    tenths = [round(0.1 * step, 1) for step in range(1, 10)]
    contestants: dict[str, tuple[BaseEstimator, Grid]] = {
        "euclidean": (FunctionTransformer(), {"validate": [False]}),
        "lda": (
            LinearDiscriminantAnalysis(solver="eigen"),
            {"shrinkage": [0.001, 0.01, 0.03, *tenths]},
        ),
        "rvml": (RVML(), {"regularization": [10.0 ** (quarter / 4) for quarter in range(-20, 9)]}),
        "gmml": (GMML(), PAPER_GRIDS["gmml"]),
        "nca": (  # it has no dial of its own
            NeighborhoodComponentsAnalysis(random_state=0),
            {"init": ["identity", "pca"], "tol": [1e-5, 1e-3, 1e-2]},
        ),
        "lmnn": (
            LMNN(),
            {"regularization": tenths, "n_neighbors": sorted({min(k, most) for k in range(4, 11)})},
        ),
        "itml": (ITML(), {"gamma": [0.25, 0.5, 0.7, 0.9]}),
        "pnca": (PNCA(), PAPER_GRIDS["pnca"]),
        "lanml+": (LANML(), PAPER_GRIDS["lanml+"]),
        "lanml-": (LANML(), PAPER_GRIDS["lanml-"]),
    }
    return contestants[method]

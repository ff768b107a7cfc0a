"""Linear metric learning as scikit-learn estimators: LANML and PNCA, and two learners with closed forms."""

from vicinal.linear.closed_forms import GMML, RVML
from vicinal.linear.lanml import LANML
from vicinal.linear.mahalanobis import MahalanobisTransformer
from vicinal.linear.pnca import PNCA
from vicinal.linear.search import PAPER_GRIDS, Search, Trial, neighbor_accuracies, search

__all__ = ["GMML", "LANML", "PNCA", "RVML", "MahalanobisTransformer"]
__all__ += ["PAPER_GRIDS", "Search", "Trial", "neighbor_accuracies", "search"]

"""Linear metric learning as scikit-learn estimators: LANML and PNCA, and two learners with closed
forms."""

from vicinal.linear.closed_forms import GMML, RVML
from vicinal.linear.lanml import LANML
from vicinal.linear.pnca import PNCA
from vicinal.linear.search import PAPER_GRIDS, search

__all__ = ["GMML", "LANML", "PAPER_GRIDS", "PNCA", "RVML", "search"]

"""Linear metric learning as scikit-learn estimators: LANML and PNCA, and two learners with closed
forms."""

from vicinal.linear.estimators import GMML, LANML, NCA, PAPER_GRIDS, PNCA, RVML

# What `vicinal train model=NAME` fits.
ESTIMATORS = {"lanml": LANML, "pnca": PNCA, "nca": NCA, "gmml": GMML}

__all__ = ["ESTIMATORS", "GMML", "LANML", "NCA", "PAPER_GRIDS", "PNCA", "RVML"]

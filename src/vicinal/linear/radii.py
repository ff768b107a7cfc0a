"""Log-exp means of many rows at once with their derivatives: the radii of neighbourhoods, in NumPy.

``vicinal.geometry.means`` is the definition, and the tests hold this file to it. The twin exists because a
solver asks millions of rows for value and derivative together, of which most entries do not matter: where γ is
large, only the few terms within rounding of the leading one are exponentiated at all.
"""

from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from vicinal.linear.neighbourhoods import Array, Positions

_SPARSE = 0.08  # share of entries that matter, below which picking them out is faster than taking all
_MANY = 2**15  # entries below which a sparse matrix costs more to set up than it saves
_GENTLE = 2.0**-9  # |γ| below which the quick form, whose rounding errors are divided by γ, loses some 3 of 16 digits


class Radii(NamedTuple):
    """Log-exp means and their derivatives.

    Attributes:
        values: b(γ) of each row.
        terms: exp(-γ a) of each entry up to one factor per row; 0 where it is below rounding.
        sums: their sums, so that ∂b/∂a = terms / sums.
        columns: the samples that the entries of ``terms`` stand for: a slice for all rows, or one for each entry.
    """

    values: Array
    terms: "Array | csr_array"
    sums: Array
    columns: slice | Positions = slice(None)


def radii(distances: Array, gamma: float, dropped: slice | Positions | None = None) -> Radii:
    """Log-exp mean of each row of ``distances``, which it overwrites.

        b(γ) = -1/γ · log(1/n · Σ_j exp(-γ a_j)),   ∂b/∂a_j = exp(-γ a_j) / Σ_k exp(-γ a_k)   Song et al., Eq. (12)

    Args:
        distances: one row per query.
        gamma: γ; 0 is the arithmetic mean, and near 0 no digits are lost.
        dropped: columns that do not count, as a slice for all rows or as one column for each row.
    """
    everywhere = (slice(None), dropped) if isinstance(dropped, slice) else (np.arange(len(distances)), dropped)
    count = distances.shape[1]
    if dropped is not None:
        count -= dropped.stop - dropped.start if isinstance(dropped, slice) else 1
    if abs(gamma) < _GENTLE:
        kept = np.ones_like(distances)
        if dropped is not None:
            kept[everywhere] = 0
        return _near_the_mean(distances, kept, gamma, count)
    logits = np.multiply(distances, -gamma, out=distances)
    if dropped is not None:
        logits[everywhere] = -np.inf
    leading = logits.max(axis=1)
    # Dropped terms together stay below one rounding of the sum, which is at least the leading term, 1.
    matters = logits > (leading + np.log(np.finfo(float).eps / count))[:, None]
    if logits.size > _MANY and np.count_nonzero(matters) < _SPARSE * logits.size:
        picked = np.flatnonzero(matters)
        stops = np.searchsorted(picked, np.arange(1, len(logits) + 1) * logits.shape[1])
        lengths = np.diff(stops, prepend=0)
        terms = np.exp(logits.ravel()[picked] - np.repeat(leading, lengths))
        sums = np.add.reduceat(terms, stops - lengths)
        columns = picked - np.repeat(np.arange(len(logits)) * logits.shape[1], lengths)
        terms = csr_array((terms, columns, np.append(0, stops)), shape=logits.shape)
    else:
        terms = np.exp(np.subtract(logits, leading[:, None], out=logits), out=logits)
        sums = terms.sum(axis=1)
    return Radii(-(np.log(sums / count) + leading) / gamma, terms, sums)


def _near_the_mean(distances: Array, kept: Array, gamma: float, count: int) -> Radii:
    """Log-exp means for a γ near 0: the logarithm of a mean near 1 is taken from what it lacks.

    b(γ) = e - 1/γ log(1 + 1/n Σ_j (exp(x_j) - 1)),   x_j = -γ (a_j - e) ≤ 0, with e the least a for γ > 0, or the most
    """
    side = -1.0 if gamma < 0 else 1.0
    edge = side * np.where(kept, side * distances, np.inf).min(axis=1)
    beyond = (distances - edge[:, None]) * kept
    if gamma == 0:
        return Radii(edge + beyond.sum(axis=1) / count, kept, np.full(len(distances), float(count)))
    below = np.expm1(-gamma * beyond)  # all of one sign, so that their sum has as many digits as they
    terms = (1 + below) * kept
    return Radii(edge - np.log1p(below.sum(axis=1) / count) / gamma, terms, terms.sum(axis=1))

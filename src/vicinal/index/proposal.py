"""Which gallery rows may be near, from one float32 product, with a bound on its rounding."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

_PASS = 4096  # rows per pass where a float64 copy is made in passing


class Proposal:
    """The gallery's order around a query from one product, and how far that can be wrong.

    Args:
        among: the gallery.
        in_place: multiply with the gallery as it lies instead of a copy about its mean. The bound below holds only
            where no row is longer than 1, which is for the caller to know.
    """

    def __init__(self, among: Float[Tensor, "g d"], *, in_place: bool = False) -> None:
        self.dtype = torch.float32 if _multiplies_in_float32(among.device) else torch.float64
        parts = torch.split(among, _PASS)
        if in_place and among.dtype == self.dtype:
            self.centre, self.scale, self.rows = among.new_zeros(among.shape[1], dtype=torch.float64), 1.0, among
        else:
            # Distances do not change with the origin, nor does their order with the unit. About the mean and in units
            # of the farthest row, the product neither overflows nor spends its digits on what all rows share.
            self.centre = torch.stack([part.sum(dim=0, dtype=torch.float64) for part in parts]).sum(dim=0) / len(among)
            farthest = max(float((part - self.centre).norm(dim=1).max()) for part in parts)
            self.scale = farthest or 1.0
            self.rows = torch.empty_like(among, dtype=self.dtype)
            for part, target in zip(parts, torch.split(self.rows, _PASS), strict=True):
                target.copy_((part - self.centre) / self.scale)
        self.squares = torch.linalg.vector_norm(self.rows, dim=1, dtype=torch.float64).square().to(self.dtype)

    def buffer(self, queries: int) -> Float[Tensor, "q g"]:
        return torch.empty(queries, len(self.rows), dtype=self.dtype, device=self.rows.device)

    def __call__(self, block: Float[Tensor, "b d"], out: Float[Tensor, "b g"]) -> Float[Tensor, "b"]:
        """Fill ``out`` with ``|g|² - 2 q·g``; give for each query the gap at which two of its values surely differ.

        With unit roundoff u and |g| <= 1, the coordinates' rounding costs at most 4u|q| + 2u; the product, in any
        order of summation, 2du|q| (Higham 2002, Eq. (3.5)); |g|² and the last addition 2u + 2u|q|. Two values are
        wrong by at most twice the sum; 1.01 covers terms in u².
        """
        query = ((block - self.centre) / self.scale).to(self.dtype)
        torch.mm(query, self.rows.T, out=out)
        torch.add(self.squares, out, alpha=-2, out=out)
        length: Tensor = torch.linalg.vector_norm(query, dim=1, dtype=torch.float64)
        return 2 * 1.01 * 2.0**-24 * ((2 * block.shape[1] + 6) * length + 4)


def _multiplies_in_float32(device: torch.device) -> bool:
    """False where the user lets float32 products run in TF32 or bfloat16, for which the bound does not hold."""
    backend: Any = torch.backends.cuda if device.type == "cuda" else torch.backends.mkldnn
    return backend.matmul.fp32_precision in ("ieee", "none")

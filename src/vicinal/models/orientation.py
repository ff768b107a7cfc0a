"""The orientation head of HER (Cai et al., ICCV 2019): by how much one view is turned against the
other."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional


class OrientationHead(nn.Module):
    """(sin, cos) of the angle from both embeddings, before they are put on the sphere.

        [q; g] -> ReLU -> linear, 100 -> ReLU -> linear, 2 -> length 1

    as in the authors' code. It serves training alone and is not deployed.

    Args:
        dim: size of an embedding.
        hidden: units between the two layers.
    """

    def __init__(self, dim: int, hidden: int = 100) -> None:
        super().__init__()
        self.dim = dim
        self.hidden = hidden
        self.first = nn.Linear(2 * dim, hidden)
        self.second = nn.Linear(hidden, 2)

    def forward(
        self, queries: Float[Tensor, "n d"], gallery: Float[Tensor, "n d"]
    ) -> Float[Tensor, "n 2"]:
        inner = self.first(torch.cat([queries, gallery], dim=1).relu()).relu()
        return functional.normalize(self.second(inner), dim=1)

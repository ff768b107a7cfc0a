"""Matryoshka representation learning (Kusupati et al., NeurIPS 2022): the first numbers are embeddings, too."""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor, nn

from vicinal.errors import ConfigError
from vicinal.tuples import Embeddings, SingleLabels


class NestedLoss(nn.Module):
    """A loss of each of several prefixes of the embeddings, added up.

        L = Σ_{m ∈ M} c_m L_m(z_{1:m})                                    Kusupati et al. 2022, Eq. (1), with c_m = 1

    So one run gives embeddings of every size in M: the first m numbers, scaled to length 1 again where the model
    normalizes.

    Args:
        losses: one for each size; losses with proxies have proxies of that size.
        sizes: M, increasing.

    >>> import torch
    >>> from vicinal.losses import ContrastiveLoss
    >>> z, labels = torch.tensor([[0.0, 0.0], [1.0, 2.0]]), torch.tensor([0, 0])
    >>> NestedLoss([ContrastiveLoss(), ContrastiveLoss()], [1, 2])(z, labels)  # 1/2 · 1² + 1/2 · (1² + 2²)
    tensor(3.)
    """

    def __init__(self, losses: Sequence[nn.Module], sizes: Sequence[int]) -> None:
        super().__init__()
        if len(losses) != len(sizes) or not sizes or list(sizes) != sorted(set(sizes)) or sizes[0] < 1:
            raise ConfigError(f"nested sizes increase from 1 or more, with a loss each, got {list(sizes)}.")
        self.losses, self.sizes = nn.ModuleList(losses), tuple(sizes)
        self.reduction = getattr(losses[0], "reduction", "mean")

    @property
    def capturable(self) -> bool:
        """Whether a step can be captured as a CUDA graph."""
        return all(getattr(loss, "capturable", False) for loss in self.losses)

    def forward(self, embeddings: Embeddings, labels: SingleLabels) -> Float[Tensor, ""]:
        """Return the sum over the sizes."""
        if embeddings.shape[1] < self.sizes[-1]:
            raise ConfigError(f"nested sizes {self.sizes} need as many dimensions, got {embeddings.shape[1]}.")
        total = embeddings.new_zeros(())
        for loss, size in zip(self.losses, self.sizes, strict=True):
            total = total + loss(embeddings[:, :size], labels)
        return total

    def extra_repr(self) -> str:
        return f"sizes={self.sizes}"

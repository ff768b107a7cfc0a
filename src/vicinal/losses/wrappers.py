"""Losses around other losses.

Cross-batch memory (Wang et al., CVPR 2020) has embeddings of past batches as further positives and
negatives; in Matryoshka representation learning (Kusupati et al., NeurIPS 2022) the first numbers
are embeddings, too.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from vicinal.arguments import Count, Natural, check_arguments
from vicinal.errors import ConfigError, DataError
from vicinal.losses.loss import Loss, tuple_loss
from vicinal.tuples import Embeddings, Labels, Reference, Scalar, SingleLabels


class CrossBatchMemory(nn.Module):
    """Any loss, with the batch as anchors and the last ``size`` embeddings as what they are
    compared with.

    An embedding changes so slowly, after the first steps, that those of past batches still serve.
    They are kept in a queue without a gradient; each call writes the batch over the oldest rows and
    compares it with all of the queue, its own rows included, an anchor never with itself (Wang et
    al. 2020, Algorithm 1). During the first ``warmup`` calls the loss is that of the batch alone
    and nothing is kept.

    The queue moves in training only: in evaluation mode, or where gradients are switched off, the
    loss is that of the batch alone. Queue and counters are part of ``state_dict``; the counters
    live on the host, which therefore never waits for a device. All processes of a ``torchrun`` give
    the gathered rows and keep the same queue.

    Differs: the authors' code adds the loss of the batch alone, with gradients on both sides; so
        does
    ``memory(embeddings, labels) + memory.loss(embeddings, labels)``.

    >>> from vicinal.losses import TripletLoss
    >>> memory = CrossBatchMemory(TripletLoss(), size=1024, dim=8, warmup=0)
    >>> for _ in range(3):
    ...     loss = memory(torch.randn(16, 8, requires_grad=True), torch.arange(16) // 4)
    >>> loss.backward()

    Args:
        loss: any loss whose anchors are compared with rows; not one with proxies, nor with rows in
            blocks.
        size: rows kept.
        dim: of the embeddings.
        warmup: calls before the memory is used.
    """

    embeddings: Tensor
    labels: Tensor

    def __init__(self, loss: Loss, *, size: Count, dim: Count, warmup: Natural = 0) -> None:
        super().__init__()
        if tuple_loss(loss, "cross-batch memory").blocks:
            raise ConfigError(
                f"cross-batch memory compares each row with all others, but {type(loss).__name__} "
                "takes its rows in blocks. Set loss.blocks=false."
            )
        self.loss = loss
        self.size = size
        self.dim = dim
        self.warmup = warmup
        check_arguments(self)
        self.calls = 0
        self.written = 0
        self.register_buffer("embeddings", torch.zeros(size, dim))
        self.register_buffer("labels", torch.zeros(size, dtype=torch.long))

    def forward(
        self, embeddings: Embeddings, labels: SingleLabels, keys: Embeddings | None = None
    ) -> Scalar | Float[Tensor, "rows"]:
        """Return the loss of the batch against the memory.

        Args:
            embeddings: the anchors.
            labels: class of each.
            keys: what is kept of the batch, as a slower network embeds it; None: the embeddings
                themselves.
        """
        Reference.checked(embeddings, labels)
        memory: tuple[Tensor, ...] = ()
        if self.training and torch.is_grad_enabled():
            self.calls += 1
            if self.calls > self.warmup:
                kept = embeddings if keys is None else keys
                own, rows, classes = self.remember(kept.detach(), labels)
                memory = rows.to(embeddings.dtype), classes, own
        return self.loss(embeddings, labels, *memory)

    def remember(
        self, rows: Embeddings, labels: SingleLabels
    ) -> tuple[Integer[Tensor, "n"], Float[Tensor, "m d"], Integer[Tensor, "m"]]:
        """Put rows in the place of the oldest; return their places, and all rows kept with their
        labels."""
        if len(rows) > self.size or rows.shape[1:] != (self.dim,):
            raise DataError(
                f"a memory of {self.size} rows of {self.dim} dimensions cannot take in a batch "
                f"{list(rows.shape)}. "
                f"Give it the embedder's `dim` and a `size` of several batches."
            )
        places = (
            torch.arange(len(rows), device=rows.device) + self.written % self.size
        ) % self.size
        # A row that is not finite would make every later loss NaN; one of zeros has no direction to
        # pull or push in.
        rows = rows.to(self.embeddings.dtype).masked_fill(
            ~rows.isfinite().all(dim=1, keepdim=True), 0
        )
        # A new tensor, for the old one is part of the graph of a loss that may not have been
        # differentiated yet.
        self.embeddings = self.embeddings.index_copy(0, places, rows)
        self.labels = self.labels.index_copy(0, places, labels.long())
        self.written += len(rows)
        kept = min(self.written, self.size)
        return places, self.embeddings[:kept], self.labels[:kept]

    def get_extra_state(self) -> Integer[Tensor, "2"]:
        """The counters, for ``state_dict``."""
        return torch.tensor([self.calls, self.written])

    def set_extra_state(self, state: Integer[Tensor, "2"]) -> None:
        self.calls, self.written = state.tolist()


class NestedLoss(nn.Module):
    """A loss of each of several prefixes of the embeddings, added up.

        L = Σ_{m ∈ M} c_m L_m(z_{1:m})                   Kusupati et al. 2022, Eq. (1), with c_m = 1

    So one run gives embeddings of every size in M: the first m numbers, scaled to length 1 again
    where the model normalizes.

    Args:
        losses: one for each size; losses with proxies have proxies of that size.
        sizes: M, increasing.

    >>> import torch
    >>> from vicinal.losses import ContrastiveLoss
    >>> z, labels = torch.tensor([[0.0, 0.0], [1.0, 2.0]]), torch.tensor([0, 0])
    >>> nested = NestedLoss([ContrastiveLoss(), ContrastiveLoss()], [1, 2])
    >>> nested(z, labels)  # 1/2 · 1² + 1/2 · (1² + 2²)
    tensor(3.)
    """

    def __init__(self, losses: Sequence[nn.Module], sizes: Sequence[int]) -> None:
        super().__init__()
        if len(losses) != len(sizes) or [0, *sizes] != sorted({0, *sizes}) or not sizes:
            raise ConfigError(
                f"nested sizes increase from 1 or more, with a loss each, got {list(sizes)}."
            )
        self.losses = nn.ModuleList(losses)
        self.sizes = tuple(sizes)
        self.reduction = getattr(losses[0], "reduction", "mean")

    @property
    def capturable(self) -> bool:
        """Whether a step can be captured as a CUDA graph."""
        return all(getattr(loss, "capturable", False) for loss in self.losses)

    def forward(self, embeddings: Embeddings, labels: Labels) -> Scalar:
        """Return the sum over the sizes."""
        Reference.checked(embeddings, labels, several=True)
        if embeddings.shape[1] < self.sizes[-1]:
            raise ConfigError(
                f"nested sizes {self.sizes} need as many dimensions, got {embeddings.shape[1]}."
            )
        parts = zip(self.losses, self.sizes, strict=True)
        return torch.stack([loss(embeddings[:, :size], labels) for loss, size in parts]).sum()

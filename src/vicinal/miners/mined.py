"""A loss over the triplets that a miner chooses in each batch."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from vicinal.errors import ConfigError, unknown
from vicinal.losses.loss import tuple_loss
from vicinal.miners.batch import distance_weighted, easy_positive, hardest, semi_hard
from vicinal.tuples import Triplets

Miner = Callable[..., Triplets]

# The miners that choose triplets in a batch, by the names that `loss.miner` takes. `multi_similarity` chooses pairs and
# is part of its loss (`loss.epsilon`); `SmartMiner` chooses in the whole training set.
MINERS: dict[str, Miner] = {
    "distance_weighted": distance_weighted,
    "easy_positive": easy_positive,
    "hardest": hardest,
    "semi_hard": semi_hard,
}


class Mined(nn.Module):
    """A loss over the triplets that a miner chooses, in place of all tuples of the batch.

    A miner that draws (``distance_weighted``, ``semi_hard`` with ``rule="random"``) is given a generator, which follows
    from ``seed`` and the number of training batches so far; that number is part of ``state_dict``, so a resumed run
    draws the same triplets.

    Args:
        loss: a tuple loss, scored by its ``on_triplets``.
        miner: a name in ``vicinal.miners.MINERS``, or a function ``miner(embeddings, labels) -> Triplets``.
        arguments: keyword arguments of the miner.
        seed: seed of what the miner draws.
    """

    capturable = False  # the number of triplets changes from batch to batch

    def __init__(
        self, loss: nn.Module, miner: str | Miner, *, arguments: Mapping[str, Any] | None = None, seed: int = 0
    ) -> None:
        super().__init__()
        self.loss, self.miner, self.arguments, self.seed = tuple_loss(loss, "mining"), miner, arguments, seed
        if getattr(loss, "blocks", False):
            raise ConfigError("a miner chooses among all rows, but the loss has blocks=True. Set sampler=classes.")
        if isinstance(miner, str) and miner not in MINERS:
            raise ConfigError(unknown("miner", miner, MINERS))
        self.calls = 0

    def forward(
        self, embeddings: Float[Tensor, "n d"], labels: Integer[Tensor, "n"]
    ) -> Float[Tensor, ""] | Float[Tensor, "t"]:
        """Mine the triplets of the batch and return their loss."""
        return self.loss.on_triplets(embeddings, self.mine(embeddings.detach(), labels), labels=labels)

    def mine(self, embeddings: Float[Tensor, "n d"], labels: Integer[Tensor, "n"]) -> Triplets:
        """Choose the triplets of a batch."""
        given = dict(self.arguments or {})
        if self.miner == "distance_weighted" or given.get("rule") == "random":
            given["generator"] = torch.Generator().manual_seed((self.seed * 2**32 + self.calls) % 2**63)
        if self.training and torch.is_grad_enabled():
            self.calls += 1
        miner = MINERS[self.miner] if isinstance(self.miner, str) else self.miner
        return miner(embeddings, labels, **given)

    def get_extra_state(self) -> Integer[Tensor, ""]:
        """The number of training batches so far, for ``state_dict``."""
        return torch.tensor(self.calls)

    def set_extra_state(self, state: Integer[Tensor, ""]) -> None:
        self.calls = int(state)

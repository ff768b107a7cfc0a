"""The heaviest and the lightest tuples of late training, for a person to look at."""

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from vicinal.exhibits import Exhibit, Member, RecordTuple, Tuples

SHOWN = 6  # tuples of each kind
ROLES = ("anchor", "positive", "negative")
PAIR_ROLES = ("first", "second")


class Showcase:
    """Collects weighed tuples and shows the extremes; nothing is read from a device before it is shown."""

    def __init__(self) -> None:
        self._records: list[Integer[Tensor, "t m"]] = []
        self._weights: list[Float[Tensor, "t"]] = []

    def clear(self) -> None:
        """Forget all: tuples of an epoch long past were weighed by another assessor."""
        self._records, self._weights = [], []

    def add(self, records: Integer[Tensor, "t m"], weights: Float[Tensor, "t"]) -> None:
        """Take in the tuples of an episode."""
        self._records.append(records)
        self._weights.append(weights)

    def exhibits(self) -> tuple[Exhibit, ...]:
        """Two rows of tuples; none where nothing was collected.

        Tuples are ranked by their weight over the mean of their episode. That mean drifts within an epoch, so by the
        weights themselves one would see the last episode and the first.
        """
        if not self._weights:
            return ()
        records, weights = torch.cat(self._records).cpu(), torch.cat(self._weights).cpu()
        relative = torch.cat([episode / episode.mean() for episode in self._weights]).cpu()
        order = relative.argsort(descending=True, stable=True)
        roles = ROLES if records.shape[1] == len(ROLES) else PAIR_ROLES
        kinds = (("Heaviest tuples", order[:SHOWN]), ("Lightest tuples", order.flip(0)[:SHOWN]))
        reading = (
            f"Of {len(weights):,} tuples of the last epoch, weighed {relative.min():.3f} to {relative.max():.3f} times "
            f"the mean of their episode. Does the assessor prefer what a person would call instructive, or mislabelled "
            f"and odd pictures?"
        )
        return tuple(
            Tuples(
                title,
                reading,
                tuple(
                    RecordTuple(
                        tuple(Member(row, role) for row, role in zip(records[place].tolist(), roles, strict=True)),
                        f"weight {weights[place]:.3f}, {relative[place]:.3f} times the mean",
                    )
                    for place in chosen.tolist()
                ),
            )
            for title, chosen in kinds
        )

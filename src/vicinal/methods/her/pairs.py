"""Batches of pairs ``[q, g, q, g, ...]`` of HER: how gallery images are turned, and the hardest pairs of an epoch."""

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vicinal.data.augmentation import to_device
from vicinal.data.draws import uniform
from vicinal.data.records import GALLERY, QUERY, Batch
from vicinal.errors import ConfigError
from vicinal.figures import Figure, Member, RecordTuple, Tuples
from vicinal.parallel import all_rows

SHOWN = 12  # hardest pairs in the report

Turning = Literal["any", "quarters", "none"]
_STEPS = {"any": 0.0, "quarters": 90.0}


def fitting(batch: Batch) -> Bool[Tensor, "pairs"]:
    """Which pairs are a query and its match: a stand-in for an unreadable image may be of the other role."""
    same = batch.labels[0::2] == batch.labels[1::2]
    roles = batch.extras.get("role")
    return same if roles is None else same & (roles[0::2] == QUERY) & (roles[1::2] == GALLERY)


def turns(
    batch: Batch, turning: Turning, *, seed: int, epoch: int
) -> tuple[Float[Tensor, "pairs"], Float[Tensor, "pairs"]]:
    """By how many degrees each gallery image is to be turned, and how far it is then from its query, in radians.

    Seed, epoch and record determine an angle, whatever batch or process the record is in.
    """
    if len(batch.inputs) % 2:
        raise ConfigError(
            f"HER takes pairs [q, g, q, g, ...], got {len(batch.inputs)} rows in this process. Choose a number of "
            f"pairs that the number of processes divides."
        )
    device = batch.labels.device
    angles = batch.extras.get("angle", torch.zeros(len(batch.inputs), device=device))
    apart = angles[1::2] - angles[0::2]
    if turning == "none":
        return torch.zeros_like(apart), torch.deg2rad(apart)
    if batch.inputs.ndim != 4:
        raise ConfigError(f"gallery images are turned, got inputs {list(batch.inputs.shape)}. Set method.turning=none.")
    # Negative epochs, for the numbers of the others have gone into the augmentation of the same records.
    drawn = 360 * uniform(seed, -1 - epoch, batch.indices[1::2].numpy(), 1)[:, 0]
    step = _STEPS[turning]
    by = to_device(torch.from_numpy(drawn // step * step if step else drawn).float(), device)
    return by, torch.deg2rad(apart + by)


class HardestPairs:
    """Collect the hardest triplet of each batch; nothing is read from the device before it is shown."""

    def __init__(self) -> None:
        self._records: list[Int[Tensor, "3"]] = []
        self._gaps: list[Float[Tensor, ""]] = []

    def clear(self) -> None:
        """Forget all: the triplets of an epoch long past were hard for another network."""
        self._records, self._gaps = [], []

    def add(self, indices: Int[Tensor, "rows"], gap: Float[Tensor, ""], place: Int[Tensor, ""]) -> None:
        """Take in a batch: the records of this process's rows ``[q, g, q, g, ...]``, the least of all gaps and where.

        Place n·i + k of n pairs is query i with its own match and the match of query k. It is copied: the next step may
        overwrite it.
        """
        records = all_rows(indices)
        pairs = len(records) // 2
        query, other = place // pairs, place % pairs
        self._records.append(records[torch.stack([2 * query, 2 * query + 1, 2 * other + 1])])
        self._gaps.append(gap.clone())

    def figures(self) -> tuple[Figure, ...]:
        """The hardest of them, each once; none where nothing was collected."""
        if not self._gaps:
            return ()
        records, gaps = torch.stack(self._records).cpu(), torch.stack(self._gaps).cpu()
        order = [place for place in gaps.argsort(stable=True).tolist() if gaps[place].isfinite()]
        hardest = {tuple(records[place].tolist()): float(gaps[place]) for place in reversed(order)}
        shown = sorted(hardest.items(), key=lambda pair: pair[1])[:SHOWN]
        if not shown:
            return ()
        return (
            Tuples(
                "Hardest exemplars",
                "Of the last epoch's batches, the queries whose match was farthest behind another gallery image, as "
                "they are in the data, before training turned them. A gap is how much farther that image is than the "
                "match: below 0 the query was matched wrongly, and its weight is the largest there is.",
                tuple(
                    RecordTuple(
                        tuple(
                            Member(record, role)
                            for record, role in zip(triplet, ("query", "match", "nearer"), strict=True)
                        ),
                        f"gap {gap:+.2f}",
                    )
                    for triplet, gap in shown
                ),
            ),
        )

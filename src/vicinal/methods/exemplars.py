"""What HER (Cai et al., ICCV 2019) shows of itself: the queries nearest to be matched wrongly, and by what."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vicinal.exhibits import Exhibit, Member, RecordTuple, Tuples
from vicinal.parallel import all_rows

SHOWN = 12


class HardestPairs:
    """Collects the hardest triplet of each batch; nothing is read from a device before it is shown."""

    def __init__(self) -> None:
        self._records: list[Int[Tensor, "3"]] = []
        self._gaps: list[Float[Tensor, ""]] = []

    def clear(self) -> None:
        """Forget all: the triplets of an epoch long past were hard for another network."""
        self._records, self._gaps = [], []

    def add(self, indices: Int[Tensor, "rows"], gap: Float[Tensor, ""], place: Int[Tensor, ""]) -> None:
        """Take in a batch: the records of this process's rows ``[q, g, q, g, ...]``, the least of all gaps and where.

        Place n·i + k of n pairs is query i with its own match and the match of query k. What comes is copied: a
        recorded step overwrites it.
        """
        records = all_rows(indices)
        pairs = len(records) // 2
        query, other = place // pairs, place % pairs
        self._records.append(records[torch.stack([2 * query, 2 * query + 1, 2 * other + 1])])
        self._gaps.append(gap.clone())

    def exhibits(self) -> tuple[Exhibit, ...]:
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

"""Scores of embedded records: leave-one-out, or query against gallery where the records have such roles."""

from collections.abc import Sequence

import torch

from vicinal.data.records import BOTH, GALLERY, QUERY
from vicinal.errors import DataError
from vicinal.evaluation.encoder import Embedded
from vicinal.evaluation.protocol import evaluate


def measure(
    embedded: Embedded, *, recalls: Sequence[int], clustering: bool, seed: int, restarts: int = 5
) -> dict[str, float]:
    """The scores of ``evaluate`` under the records' own protocol, computed where the GPU is, if there is one.

    Queries that are sought in a gallery are clustered only where there are two of a class on average. With one of each,
    as of two views of a place, every query is a cluster of its own: NMI and F1 of 1, whatever the network.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    vectors, labels = embedded.vectors, embedded.labels
    role = embedded.records.columns.get("role")
    if role is None or (role == BOTH).all():
        queries, gallery = torch.ones(len(labels), dtype=torch.bool), None
    elif (role == BOTH).any():
        raise DataError(
            f"{embedded.records.name} mixes rows that are query and gallery with rows that are one of them. "
            f"Give every row the role {QUERY} (query) or {GALLERY} (gallery), or none a role."
        )
    else:
        queries, gallery = torch.from_numpy(role == QUERY), torch.from_numpy(role == GALLERY)
        clustering = clustering and 2 * len(torch.unique(labels[queries])) <= int(queries.sum())
    return evaluate(
        vectors[queries],
        labels[queries],
        gallery=None if gallery is None else vectors[gallery],
        gallery_labels=None if gallery is None else labels[gallery],
        recalls=recalls,
        top_percent=gallery is not None,
        clustering=clustering,
        seed=seed,
        restarts=restarts,
        device=device,
    )

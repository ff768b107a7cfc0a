"""What HTL (Ge et al., ECCV 2018) reports: the margins of a batch, and a picture of the class tree."""

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vicinal.data.records import Records
from vicinal.figures import Dendrogram, Leaf, Merge
from vicinal.samplers.class_tree import ClassTree

MOST_SHOWN = 80  # classes in the report: some four screens


def describe_margins(margins: Float[Tensor, "n n"], apart: Bool[Tensor, "n n"]) -> dict[str, Tensor]:
    """The least, mean and largest margin of the pairs of rows that lie ``apart``, in different classes."""
    count = apart.sum().clamp(min=1)
    mean = margins.masked_fill(~apart, 0).sum() / count
    return {  # what is not there counts as the mean, so that a batch of one class is no exception
        "margin/least": torch.where(apart, margins, mean).amin(),
        "margin/mean": mean,
        "margin/largest": torch.where(apart, margins, mean).amax(),
    }


def tree_figure(tree: ClassTree, records: Records) -> Dendrogram | None:
    """The tree with one record of each class; of many classes those that merge first. None where there is no tree."""
    if tree.merges is None or tree.heights is None or not len(tree.heights):
        return None
    order = tree.heights.argsort(stable=True)
    edges, heights = tree.merges[order].tolist(), tree.heights[order].tolist()
    shown = list(dict.fromkeys(end for edge in edges for end in edge))[:MOST_SHOWN]
    labels = tree.classes[shown].tolist()
    leaves = [Leaf(int(np.flatnonzero(records.labels == label)[0]), records.classes[label]) for label in labels]
    # Of each group of merged classes its members, and the node that stands for those of them that are shown.
    groups: dict[int, tuple[list[int], int | None]] = {place: ([place], None) for place in range(len(tree.classes))}
    groups |= {place: ([place], leaf) for leaf, place in enumerate(shown)}
    merges = list[Merge]()
    for (here, there), height in zip(edges, heights, strict=True):
        (members, one), (others, other) = groups[here], groups[there]
        node = other if one is None else one
        if one is not None and other is not None:
            node = len(leaves) + len(merges)
            merges.append(Merge(one, other, height))
        members += others
        groups |= dict.fromkeys(members, (members, node))
    some = "" if len(shown) == len(tree.classes) else f" Shown are the {len(shown)} that merge first."
    return Dendrogram(
        f"The tree of {len(tree.classes)} classes",
        f"Training classes as the network saw them in the last epoch. The farther to the left two branches meet, the "
        f"farther apart are their classes: from squared distance 0 at the names to {merges[-1].height:.2f}. Classes "
        f"that meet below {float(tree.thresholds[0]):.2f}, the mean within a class, it does not separate.{some}",
        tuple(leaves),
        tuple(merges),
    )

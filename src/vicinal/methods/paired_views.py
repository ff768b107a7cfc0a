"""Batches of pairs ``[q, g, q, g, ...]``: which are a query and its match, and the gallery images turned at random."""

from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vicinal.data.augmentation import to_device
from vicinal.data.draws import uniform
from vicinal.data.records import GALLERY, QUERY, Batch, Records
from vicinal.errors import ConfigError, DataError

Turning = Literal["any", "quarters", "none"]
_STEPS = {"any": 0.0, "quarters": 90.0}


def roles_of(train: Records) -> Int[np.ndarray, "n"]:
    """Which records are queries and which the gallery; two streams without it would train, and then not be measured."""
    if "role" not in train.columns:
        raise DataError(
            f"two views were to be trained on, but {train.name} does not say which images are queries and which the "
            f"gallery. Name a table with the columns query_path and gallery_path."
        )
    return train.columns["role"]


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
            f"HER takes pairs [q, g, q, g, ...], but {len(batch.inputs)} rows came to this process. Choose a "
            f"number of pairs that the number of processes divides."
        )
    device = batch.labels.device
    angles = batch.extras.get("angle", torch.zeros(len(batch.inputs), device=device))
    apart = angles[1::2] - angles[0::2]
    if turning == "none":
        return torch.zeros_like(apart), torch.deg2rad(apart)
    if batch.inputs.ndim != 4:
        raise ConfigError(
            f"gallery images were to be turned, but inputs are {list(batch.inputs.shape)}. Set method.turning=none."
        )
    # Negative epochs, for the numbers of the others have gone into the augmentation of the same records.
    drawn = 360 * uniform(seed, -1 - epoch, batch.indices[1::2].numpy(), 1)[:, 0]
    step = _STEPS[turning]
    by = to_device(torch.from_numpy(drawn // step * step if step else drawn).float(), device)
    return by, torch.deg2rad(apart + by)

"""Proxies: learnt points that stand for classes, so that a sample meets every class in every batch."""

import torch
from jaxtyping import Bool, Float, Int, Integer
from torch import Tensor, nn

from vicinal.errors import ConfigError, DataError
from vicinal.geometry import at_least_float32, unit_rows
from vicinal.tuples import being_recorded


def initial_proxies(*shape: int, seed: int) -> nn.Parameter:
    """Directions drawn evenly, of length 1, as the parameter that learns them.

    Their length is of no concern where they are normalised, but it sets how far a step of the optimiser turns them.
    """
    if min(shape) < 1:
        raise ConfigError(f"proxies need at least 1 class, 1 centre and 1 dimension, but {list(shape)} came.")
    rng = torch.Generator().manual_seed(seed)
    return nn.Parameter(unit_rows(torch.randn(*shape, generator=rng)))


def beside(proxies: Float[Tensor, "*c d"], embeddings: Float[Tensor, "n width"]) -> Float[Tensor, "*c d"]:
    """The proxies in the precision in which embeddings are compared; refused if they cannot be."""
    if proxies.shape[-1] != embeddings.shape[-1]:
        raise DataError(
            f"proxies of {proxies.shape[-1]} dimensions cannot be compared with embeddings of {embeddings.shape[-1]}. "
            f"Give the loss the embedder's `dim`."
        )
    return proxies.to(at_least_float32(embeddings).dtype)


def columns_of(
    labels: Integer[Tensor, "n"], classes: int
) -> tuple[Int[Tensor, "n 1"], Bool[Tensor, "n 1"], Bool[Tensor, "n c"]]:
    """The column of each label's own class, that it is there, and the columns of all other classes.

    A device is waited for once: an index out of range there would end the process instead of raising an error. Only a
    step that is being recorded cannot wait.
    """
    if len(labels) and not being_recorded(labels):
        least, most = (int(bound) for bound in labels.aminmax())
        if least < 0 or most >= classes:
            raise DataError(
                f"a loss with {classes} proxies takes labels from 0 to {classes - 1}, but labels from {least} to "
                f"{most} came. Number the classes from 0, or raise `classes`."
            )
    own = labels.long()[:, None]
    others = torch.arange(classes, device=labels.device) != own
    return own, torch.ones_like(own, dtype=torch.bool), others


def refuse_reference(loss: nn.Module, reference: Tensor | None) -> None:
    """A memory or gallery beside proxies would go unused."""
    if reference is not None:
        raise ConfigError(
            f"{type(loss).__name__} compares samples with proxies, not with each other, so `reference` rows have no "
            f"meaning for it. Leave them out."
        )

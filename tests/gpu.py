"""What tests on a GPU share."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def never_waiting() -> Iterator[None]:
    """Raise an error wherever the host waits for the GPU."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns that this mode is a prototype
            torch.cuda.set_sync_debug_mode("error")
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")

"""Functions in processes of their own, all forked from one that has imported torch: a new one would
take seconds to."""

from multiprocessing import get_context

import torch
import torch.distributed as dist
from torch.multiprocessing import start_processes

FORKS = get_context("forkserver")
FORKS.set_forkserver_preload(
    ["pytest", "torch.distributed", "vicinal.methods", "vicinal.data.loader"]
)


def alone(function, *arguments):
    """What ``function(*arguments)`` returns in a process of its own."""
    with FORKS.Pool(1) as pool:
        return pool.apply(function, arguments)


def both(function, *arguments):
    """Run ``function(0, *arguments)`` and ``function(1, *arguments)`` together; an error of either
    is raised."""
    start_processes(function, args=arguments, nprocs=2, start_method="forkserver")


def in_two(function, folder, *arguments):
    """Return what ``function(number, *arguments)`` gives in each of two processes that train
    together."""
    both(_together, function, str(folder), *arguments)
    return [torch.load(f"{folder}/{number}.pt", weights_only=True) for number in range(2)]


def _together(number, function, folder, *arguments):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=number, world_size=2)
    try:
        torch.save(function(number, *arguments), f"{folder}/{number}.pt")
    finally:
        dist.destroy_process_group()

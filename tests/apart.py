"""Functions in processes of their own, all forked from one that has imported torch: a new one would
take seconds to."""

from multiprocessing import get_context

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

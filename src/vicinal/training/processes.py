"""Several processes of one run: started by torch's elastic launcher, joined in one process group,
stopped together.

Ctrl-C asks to stop between steps, and the run stops where it can be resumed. When a process dies,
exchanges with it raise `ContactError` in the others, and the launcher ends those that hang on a
GPU. The run goes on from its last written checkpoint.
"""

import gc
import importlib
import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any
from uuid import uuid4

import torch
import torch.distributed as dist

from vicinal import parallel
from vicinal.errors import ConfigError, VicinalError

# Of one exchange, for a machine that vanishes without closing its connections. It must be longer
# than the first process takes to draw what a report shows, for which the others wait.
TIMEOUT = timedelta(hours=12)
FAILED = 1  # exit codes, as with one process
REJECTED = 2
INTERRUPTED = 130
HEADSTART_SECONDS = 0.5  # most errors meet all processes: the first one reports those


def launch(count: int | None) -> bool:
    """Run this very command in ``count`` processes of this machine; False where this is one of them
    or is enough."""
    if count is None:
        return False
    if count < 1:
        raise ConfigError(f"--processes counts processes, got {count}.")
    started = os.environ.get("WORLD_SIZE", "1")
    if "RANK" in os.environ and started != str(count):
        raise ConfigError(
            f"a launcher has already started {started} processes, got --processes {count}. Leave "
            "it out."
        )
    if count == 1 or "RANK" in os.environ:
        return False
    from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs, SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.disable(logging.CRITICAL)  # the processes report their errors themselves
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // count)))
    # Seconds to finish a step and write a checkpoint.
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "600")
    if sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # the host's name may resolve to nowhere
    place: dict[str, Any] = {
        "rdzv_backend": "c10d",
        "rdzv_endpoint": "localhost:0",
        "local_addr": "localhost",
    }
    try:
        with tempfile.TemporaryDirectory(prefix="vicinal-") as folder:
            logs = DefaultLogsSpecs(folder)
            config = LaunchConfig(1, 1, count, logs, run_id=uuid4().hex, max_restarts=0, **place)
            command = "-P", "-m", "vicinal", *sys.argv[1:]  # -P: no import from the current folder
            elastic_launch(config, sys.executable)(*command)
    except SignalException:
        raise KeyboardInterrupt from None
    except ChildFailedError as error:
        codes = [
            failure.exitcode for failure in error.failures.values()
        ]  # of the process that ended first, first
        if codes[0] == INTERRUPTED:
            raise KeyboardInterrupt from None
        for rank, failure in error.failures.items():
            if failure.exitcode == -9:  # by SIGKILL, which Windows has not
                sys.stderr.write(
                    f"error: process {rank} of {count} was killed, or ran out of memory.\n"
                )
        sys.exit(max((code for code in codes if FAILED <= code <= REJECTED), default=FAILED))
    return True


@contextmanager
def joined() -> Iterator[None]:
    """Join the process group of the processes that were started with this one; alone, do nothing.

    GPUs exchange through NCCL, hosts through gloo. Of an error that several processes raise, one is
    reported.
    """
    if int(os.environ.get("WORLD_SIZE", 1)) == 1 or dist.is_initialized():
        yield
        return
    from torch.distributed.rendezvous import rendezvous  # not built on every platform

    # Later its functions would keep the group, and so its threads.
    importlib.import_module("torch.distributed.nn")
    # A process that must stop says so first, as on Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    store, rank, count = next(rendezvous("env://"))
    gpus = torch.cuda.is_available() and dist.is_nccl_available()
    backend = "cpu:gloo,cuda:nccl" if gpus else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=count, timeout=TIMEOUT)
    try:
        yield
    except Interrupted:
        _leave()
        raise
    except Exception as error:
        # By the end of another process, which reports its own error.
        lost = isinstance(error, parallel.ContactError)
        code = REJECTED if isinstance(error, VicinalError) and not lost else FAILED
        reporter = rank
        await_turn(error)
        with suppress(RuntimeError):  # the store may be gone already
            reporter = int(store.compare_set("reporter", "", str(rank)))
        if reporter != rank:
            sys.exit(code)
        if rank or lost:
            sys.stderr.write(f"error: process {rank} of {count}: {error}\n")
        if lost or (rank and code == REJECTED):
            sys.exit(code)
        raise
    _leave()


def _leave() -> None:
    """Leave the process group when all are ready to: the first process may still have measured."""
    parallel.from_all(None)
    dist.destroy_process_group()
    gc.collect()  # the group ends its threads when nothing refers to it any more


class Interrupted(KeyboardInterrupt):
    """Every process has stopped after the same step, as was asked for."""


def await_turn(error: BaseException) -> None:
    """Before several processes report an error: let the one speak that knows most, and nothing
    interrupt it."""
    for number in (signal.SIGINT, signal.SIGTERM):  # which a launcher sends to those that are left
        signal.signal(number, signal.SIG_IGN)
    if not parallel.first() and not isinstance(error, parallel.ContactError):
        time.sleep(HEADSTART_SECONDS)

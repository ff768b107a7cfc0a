"""A process that does one task after another.

It is sent a task's folder, calls what ``task.json`` there names, writes ``done.json`` and answers
how the task ended when it is ready for the next. A process that is not (killed, interrupted, an
unforeseen error, a task that left traces) ends instead, and its exit code is the answer.
"""

import gc
import importlib
import multiprocessing
import os
import random
import runpy
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from vicinal.errors import VicinalError
from vicinal.files import read_json, write_json

DONE, REJECTED, INTERRUPTED = 0, 2, 130  # how tasks end; after the first two a process may stay
LEFT_BYTES = (
    2**29
)  # on a GPU: below it is work space that libraries keep for each stream, above it a leak


def serve(pipe: Connection, log: str, prepare: str) -> None:
    """Do tasks until no more come, or until one leaves this process unfit for the next.

    Args:
        pipe: brings the tasks' folders; takes their exit codes.
        log: where output goes before the first task; standard output and error are each task's own
            log.
        prepare: ``module:name`` of what loads what tasks need and gives the state that they begin
            in.
    """
    if hasattr(os, "setsid"):
        os.setsid()  # a terminal's Ctrl-C reaches the bench alone, which stops each task once
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    _log_to(Path(log))
    try:
        state = _function(prepare)()
        while True:
            folder = Path(pipe.recv())
            _log_to(folder / "log.txt")
            with (
                warnings.catch_warnings()
            ):  # a task is warned of what the one before it was warned of
                code = do(folder)
            sys.stdout.flush()
            if code not in (DONE, REJECTED) or not state.restore():
                sys.exit(code)
            pipe.send(code)
    except KeyboardInterrupt:  # without a task, which would have caught it
        sys.exit(INTERRUPTED)
    except (EOFError, BrokenPipeError):
        return


def do(folder: Path) -> int:
    """The task of a folder, and its exit code; an unforeseen error is raised."""
    try:
        task = read_json(folder / "task.json")
        write_json(folder / "done.json", _function(task["call"])(folder, **task["arguments"]))
    except KeyboardInterrupt:
        return INTERRUPTED
    except VicinalError as error:
        sys.stderr.write(f"error: {error}\n")
        return REJECTED
    return DONE


def _function(call: str) -> Callable[..., Any]:
    """``module:name`` or ``FILE.py:name``, where the file may import those beside it."""
    place, _, name = call.rpartition(":")
    if not place.endswith(".py"):
        return getattr(importlib.import_module(place), name)  # type: ignore[no-any-return]
    sys.path.insert(0, str(Path(place).resolve().parent))
    try:
        return runpy.run_path(place)[name]  # type: ignore[no-any-return]
    finally:
        sys.path.pop(0)


def _log_to(path: Path) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    with path.open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)


def _stop_with_parent() -> None:
    """End as by Ctrl-C, which saves a run, when this process's parent is gone, even if that was
    killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGINT)


class ProcessState:
    """This process before its first task: no task sees what the one before it left behind."""

    def __init__(self) -> None:
        import vicinal.bench.job  # noqa: F401  (what tasks load is part of the state that they begin in)
        from vicinal.bench.results import fingerprint

        fingerprint()  # results name the code that this process has, should the files change
        self._settings, self._environment = _settings(), dict(os.environ)

    def restore(self) -> bool:
        """Undo what every task leaves behind; False where one left more, and the process should
        end.

        Global settings are only compared: a process that differs is replaced, not repaired.
        """
        import numpy as np
        import torch

        if (
            "torch._dynamo" in sys.modules
        ):  # compiled code and learnt shapes would serve the next network
            torch.compiler.reset()
        gc.collect()
        on_gpu = bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
        if on_gpu:
            torch.cuda.empty_cache()
        random.seed()
        np.random.seed()  # noqa: NPY002  (libraries of a user's own table may draw from it)
        torch.seed()
        os.environ.clear()
        os.environ.update(self._environment)
        traces = [name for name, value in _settings().items() if value != self._settings[name]]
        left = torch.cuda.memory_allocated() if on_gpu else 0
        traces += [f"{left / 2**20:.0f} MiB on the GPU"] * (left >= LEFT_BYTES)
        if traces:
            sys.stderr.write(
                f"note: the task left traces in its process ({', '.join(traces)}), which ends.\n"
            )
        return not traces


def _settings() -> dict[str, Any]:
    """What a task could set for the whole process and that decides numbers."""
    import numpy as np
    import torch

    cudnn = torch.backends.cudnn
    return {
        "threads": [torch.get_num_threads(), torch.get_num_interop_threads()],
        "default type": [torch.get_default_dtype(), str(torch.get_default_device())],
        "gradients": torch.is_grad_enabled(),
        "determinism": [
            torch.are_deterministic_algorithms_enabled(),
            cudnn.benchmark,
            cudnn.deterministic,
        ],
        "precision of products": torch.get_float32_matmul_precision(),
        "floating-point errors": np.geterr(),
        "folder": os.getcwd(),
        "imports": list(sys.path),
        "signals": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)],
    }

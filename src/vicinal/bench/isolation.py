"""Jobs that follow one another in a process: none sees what the one before it left behind."""

import gc
import os
import random
import signal
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

LEFT_BYTES = 2**29  # on a GPU: below it is the work space that libraries keep for each stream, above it a leak


class ProcessState:
    """This process as it is now, before its first job."""

    def __init__(self) -> None:
        self._settings, self._environment = settings(), dict(os.environ)

    def restore(self) -> bool:
        """Undo what a job leaves behind as a matter of course; False where it left more, and the process should end.

        Random numbers begin as in a new process, from nowhere: who needs them again has seeded them. What jobs have no
        business to change is only looked at: a process that differs is replaced, not repaired.
        """
        if "torch._dynamo" in sys.modules:  # compiled code and what it learnt of shapes would serve the next network
            torch.compiler.reset()
        gc.collect()
        if _on_gpu():
            torch.cuda.empty_cache()
        random.seed()
        np.random.seed()  # noqa: NPY002  (what a recipe's libraries may draw from)
        torch.seed()
        if os.environ != self._environment:
            os.environ.clear()
            os.environ.update(self._environment)
        now, left = settings(), _left_on_gpu()
        traces = [name for name, value in now.items() if value != self._settings[name]]
        traces += [f"{left / 2**20:.0f} MiB on the GPU"] * (left >= LEFT_BYTES)
        if traces:
            sys.stderr.write(
                f"note: the job is done and left traces in its process ({', '.join(traces)}), which ends.\n"
            )
        return not traces


def settings() -> dict[str, Any]:
    """All that a job could set for the whole process and that decides numbers, or how the next job behaves.

    Warning filters are not among them, for imports add their own; ``warnings.catch_warnings`` undoes those.
    """
    cuda, cudnn = torch.backends.cuda, torch.backends.cudnn
    attention: list[Callable[[], bool]] = [
        cuda.flash_sdp_enabled,
        cuda.mem_efficient_sdp_enabled,
        cuda.math_sdp_enabled,
    ]
    readings: dict[str, Callable[[], Any]] = {
        "threads": torch.get_num_threads,
        "threads of operators": torch.get_num_interop_threads,
        "dtype": torch.get_default_dtype,
        "device": torch.get_default_device,
        "gradients": torch.is_grad_enabled,
        "inference": torch.is_inference_mode_enabled,
        "anomalies": torch.is_anomaly_enabled,
        "autocast": lambda: [torch.is_autocast_enabled(kind) for kind in ("cpu", "cuda")],
        "determinism": torch.get_deterministic_debug_mode,
        "float32 products": torch.get_float32_matmul_precision,
        # Not `fp32_precision`: setting the older names back leaves another word there, of the same meaning.
        "TF32": lambda: [cuda.matmul.allow_tf32, cudnn.allow_tf32],
        "reduced sums": lambda: [
            cuda.matmul.allow_fp16_reduced_precision_reduction,
            cuda.matmul.allow_bf16_reduced_precision_reduction,
        ],
        "cuDNN": lambda: [cudnn.enabled, cudnn.benchmark, cudnn.deterministic],
        "oneDNN": lambda: torch.backends.mkldnn.enabled,
        "attention": lambda: [kind() for kind in attention],
        "processes": lambda: dist.is_available() and dist.is_initialized(),
        "floating-point errors": np.geterr,
        "collection": gc.isenabled,
        "folder": os.getcwd,
        "imports": lambda: list(sys.path),  # two recipe files may mean two modules by one name
        # Not SIGCHLD: torch watches over processes that read images from the first of them on.
        "signals": lambda: [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)],
    }
    return {name: _read(reading) for name, reading in readings.items()}


def _read(reading: Callable[[], Any]) -> Any:
    """None where there is no answer: torch gives none on TF32 once it was set by its newer names too."""
    try:
        return reading()
    except (RuntimeError, FileNotFoundError):
        return None


def _on_gpu() -> bool:
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def _left_on_gpu() -> int:
    return torch.cuda.memory_allocated() if _on_gpu() else 0

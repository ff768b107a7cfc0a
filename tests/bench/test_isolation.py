"""After a job its process is as good as new, or says that it is not."""

import os
import random
import signal
import sys
import warnings

import numpy as np
import pytest
import torch

from vicinal.assessment.meta_gradient import full_float32
from vicinal.bench import isolation
from vicinal.bench.isolation import ProcessState


def test_random_numbers_do_not_follow_from_those_of_the_job_before():
    state = ProcessState()

    def drawn():
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002
        torch.manual_seed(0)
        assert state.restore()
        return random.random(), float(np.random.rand()), float(torch.rand(()))  # noqa: NPY002

    assert all(one != other for one, other in zip(drawn(), drawn(), strict=True))


def test_the_environment_comes_back(monkeypatch):
    monkeypatch.setenv("VICINAL_KEPT", "before")
    state = ProcessState()
    os.environ.update(VICINAL_KEPT="after", VICINAL_NEW="1")
    assert state.restore()
    assert os.environ["VICINAL_KEPT"] == "before" and "VICINAL_NEW" not in os.environ


def test_compiled_code_does_not_reach_the_next_job(monkeypatch):
    calls = []
    monkeypatch.setitem(sys.modules, "torch._dynamo", sys.modules.get("torch._dynamo", torch))
    monkeypatch.setattr(torch.compiler, "reset", lambda: calls.append("reset"))
    assert ProcessState().restore() and calls == ["reset"]


def test_memory_that_stays_on_a_gpu_is_a_leak(monkeypatch):
    state = ProcessState()
    emptied = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: emptied.append(True))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 2**27)
    assert state.restore() and emptied
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: isolation.LEFT_BYTES)
    assert not state.restore()


@pytest.mark.parametrize(
    ("read", "write", "value"),
    [
        (torch.get_num_threads, torch.set_num_threads, 2),
        (torch.get_default_dtype, torch.set_default_dtype, torch.float64),
        (torch.get_default_device, torch.set_default_device, "meta"),
        (torch.is_grad_enabled, torch.set_grad_enabled, False),
        (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "high"),
        (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode, 1),
        (lambda: signal.getsignal(signal.SIGTERM), lambda to: signal.signal(signal.SIGTERM, to), signal.SIG_IGN),
        (os.getcwd, os.chdir, "/"),
        (lambda: list(sys.path), lambda to: sys.path.__setitem__(slice(None), to), ["elsewhere"]),
        *(
            (lambda o=owner, n=name: getattr(o, n), lambda to, o=owner, n=name: setattr(o, n, to), value)
            for owner, name, value in (
                (torch.backends.cuda.matmul, "allow_tf32", True),
                (torch.backends.cudnn, "allow_tf32", False),
                (torch.backends.cudnn, "benchmark", True),
                (torch.backends.cudnn, "deterministic", True),
            )
        ),
    ],
)
def test_a_process_whose_settings_were_changed_is_not_used_again(read, write, value, capsys):
    before, state = read(), ProcessState()
    write(value)
    try:
        assert not state.restore()
    finally:
        write(before)
    assert "left traces in its process" in capsys.readouterr().err
    assert state.restore(), "as long as nobody sets them back"


def test_settings_that_a_method_sets_back_are_no_trace():
    state = ProcessState()
    with full_float32():
        assert not state.restore()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert state.restore()


def test_torchs_watch_over_processes_that_read_images_is_no_trace():
    state, before = ProcessState(), signal.getsignal(signal.SIGCHLD)
    signal.signal(signal.SIGCHLD, lambda *rest: None)
    try:
        assert state.restore()
    finally:
        signal.signal(signal.SIGCHLD, before)

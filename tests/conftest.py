"""What all tests share: seeded data, one torch thread, shape checks, and where the shared data
lies."""

import gc
import importlib.util
import os
import signal
from pathlib import Path

import pytest
from _pytest.doctest import DoctestModule
from jaxtyping import install_import_hook

# torch is imported where it is used: the process that only hands out tests to others does without.
os.environ.setdefault("OMP_NUM_THREADS", "1")  # before it is: two workers share two cores
os.environ.setdefault(
    "HF_HUB_OFFLINE", "1"
)  # tests ask nothing of the hub, which is asked for long
gc.disable()  # until all tests are collected: what comes into being meanwhile stays

# Shapes in annotations are checked while tests run; a mismatch is a test failure with both shapes
# named. A machine on which nothing can be installed may lack the checker; the tests still run
# there.
PARTS = ("geometry", "losses", "tuples", "miners", "compat", "evaluation")
CHECKED = [f"vicinal.{part}" for part in PARTS]
if importlib.util.find_spec("beartype"):
    install_import_hook(CHECKED, "beartype.beartype")
# As a shell starts what runs in its background, and nohup what outlives the shell.
for number, handler in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

DATA = Path(os.environ.get("VICINAL_DATA", Path(__file__).parents[2] / "shared" / "data"))
CHROMIUM = Path("/usr/bin/chromium")
IN_CI = bool(os.environ.get("CI"))
MUST_RUN_IN_CI = ("data", "browser")
# The server's tests cannot even be read without its framework; in CI it is there, or they fail.
collect_ignore = [] if IN_CI or importlib.util.find_spec("fastapi") else ["retrieval/serve"]


@pytest.hookimpl(wrapper=True)
def pytest_collect_file():
    """The examples in docstrings that `--doctest-modules` looks for stand in src."""
    found = yield
    return [each for each in found if not isinstance(each, DoctestModule)]


@pytest.hookimpl(trylast=True)  # after those that were not asked for are left out
def pytest_collection_modifyitems(config, items):
    import torch

    torch.set_num_threads(1)
    for item in items:
        if item.get_closest_marker("data") and not DATA.is_dir():
            item.add_marker(pytest.mark.skip(reason=f"no data sets at {DATA}; set VICINAL_DATA"))
        if item.get_closest_marker("browser") and not CHROMIUM.exists():
            item.add_marker(pytest.mark.skip(reason=f"no {CHROMIUM}; `apt-get install chromium`"))
        if item.get_closest_marker("gpu") and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1))
    items[:] = long_ones_first(items, workers)


def long_ones_first(items, workers):
    """Give each worker, which gets as many tests as the others, its share of the long ones to begin
    with.

    A long one that began last would run while the other workers have nothing left to do.
    """
    marks = [item.get_closest_marker("slow") for item in items]
    seconds = {
        item: mark.args[0] for item, mark in zip(items, marks, strict=True) if mark and mark.args
    }
    long = sorted(seconds, key=seconds.get, reverse=True)
    others = [item for item in items if item not in seconds]
    ordered = []
    for worker in range(workers):
        mine = long[worker::workers]
        end = len(items) * (worker + 1) // workers
        count = end - len(ordered) - len(mine)
        ordered += mine + others[: max(count, 0)]
        others = others[max(count, 0) :]
    return ordered + others


def pytest_collection_finish(session):
    # the tests themselves, torch and all that is imported: no later search for garbage looks at
    # them
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """In CI everything that those tests need is there, so a skip would hide that it is not."""
    report = yield
    if IN_CI and report.skipped and any(item.get_closest_marker(name) for name in MUST_RUN_IN_CI):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI: {report.longrepr}"
    return report


@pytest.fixture(scope="session", autouse=True)
def quick():
    """No test asks how well a map has settled, or whether a file outlives a power cut."""
    from vicinal.evaluation import artifacts

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(artifacts, "STEPS", 250)  # the least that scikit-learn takes
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(scope="session")
def data_root() -> Path:
    return DATA


@pytest.fixture
def bucket(tmp_path, monkeypatch):
    """The URL of an empty bucket of an S3 server on loopback, with a cache of one's own."""
    pytest.importorskip("s3fs")
    import fsspec

    server = pytest.importorskip("moto.server").ThreadedMotoServer(port=0, verbose=False)
    server.start()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://{}:{}".format(*server.get_host_and_port()))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        monkeypatch.setenv(name, "us-east-1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    fsspec.filesystem("s3").clear_instance_cache()  # of another server
    name = tmp_path.name.replace("_", "-")  # all servers of a process hold the same
    fsspec.filesystem("s3").mkdir(name)
    yield f"s3://{name}"
    server.stop()


@pytest.fixture
def rng():
    import torch

    return torch.Generator().manual_seed(0)


@pytest.fixture
def unit_vectors(rng):
    """``unit_vectors(n, dim=d)``: float64 rows of length 1, the same in every run."""
    import torch

    def make(n, dim=4):
        return torch.nn.functional.normalize(
            torch.randn(n, dim, generator=rng, dtype=torch.float64), dim=1
        )

    return make

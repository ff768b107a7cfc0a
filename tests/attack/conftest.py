"""What users, strangers and power cuts do to the library, drawn from a seed.

A try ends well, or in an error of ours. Everything else fails: a traceback, more than ``SECONDS``
or ``MEMORY``, files outside of the folder that was worked in changed or read, programs started,
connections made. ``ATTACK_BUDGET=1 pytest -m slow tests/attack`` tries 100 times as much as the
slow tests do, ``ATTACK_SEED`` other things.

What needs no draws is held where it belongs:

- nothing outlives a training that was killed: ``data/test_loader.py``
- requests of strangers: ``retrieval/serve/test_fuzz.py``
- decisions follow pictures: ``retrieval/test_annotations.py`` and ``serve/test_workbench.py``
- any word is a label: ``retrieval/test_decisions.py``
- the current folder is not imported from: ``training/test_processes.py``, ``data/test_loader.py``
- pictures replaced at equal size and time: ``data/test_resident.py``
- damaged collections, vectors among them: ``retrieval/test_foreign.py``
- kills between operations of a tracker, and its links: ``training/test_trackers.py``
- files are synced before they are renamed, and locks that are not there: ``test_files.py``
"""

import os
import resource
import shutil
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.kills import Kills

from vicinal.errors import VicinalError

BUDGET = float(os.environ.get("ATTACK_BUDGET", 0.01))
SEED = int(os.environ.get("ATTACK_SEED", 0))
SECONDS = 120
MEMORY = 8 * 2**30

SMALL_IMAGES = (
    *("model=small", "model.widths=[4,8]", "model.dim=4"),
    *("transform.size=16", "transform.resize=16", "training.workers=0"),
    *("training.steps=2", "training.batch_size=8", "training.checkpoint_seconds=0"),
)
SMALL_VECTORS = (
    *("model.dim=4", "model.start=random", "training.validation=0.2"),
    *("training.steps=3", "training.ema=0.9", "training.checkpoint_seconds=0"),
    *("evaluation.artifacts=false", "evaluation.restarts=1"),
)


class Watch:
    """An audit hook that notes what no file or request of a stranger may cause."""

    def __init__(self):
        self.outside = None
        self.noted = []
        sys.addaudithook(self)

    def __call__(self, event, arguments):
        if self.outside is None:
            return
        path = arguments[0] if event == "open" else None
        reads = isinstance(path, str | os.PathLike) and os.path.realpath(path).startswith(
            self.outside
        )
        runs = event in ("subprocess.Popen", "os.posix_spawn", "os.system", "socket.connect")
        if reads or (runs and arguments[0] != "git"):  # which a run asks for the code's commit
            self.noted.append((event, str(arguments[:2])))


WATCH = Watch()


class Hung(BaseException):
    """A try took too long."""


def command(*words):
    """Run ``vicinal`` in this process, as a shell would; return its exit status."""
    from vicinal.cli.main import run

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["vicinal", *map(str, words)])
        try:
            run()
        except SystemExit as error:
            return error.code or 0
    return 0


def done(*words):
    """Run a command that must succeed."""
    assert command(*words) == 0, f"vicinal {' '.join(map(str, words))} failed"


def content(folder, *patterns):
    found = {path for pattern in patterns or ("*",) for path in folder.rglob(pattern)}
    return {str(path): path.read_bytes() for path in sorted(found) if path.is_file()}


def bent(data, draw):
    """Damage bytes as disks, networks and strangers do."""
    changed = bytearray(data or b"\0")
    place = int(draw.integers(len(changed)))
    match int(draw.integers(6)):
        case 0:
            del changed[place:]
        case 1:
            changed[place : place + int(draw.integers(1, 64))] = draw.bytes(int(draw.integers(64)))
        case 2:
            changed[place : place + 512] = bytes(len(changed[place : place + 512]))
        case 3:
            changed[place:place] = changed[: int(draw.integers(1, 200))]
        case _:  # most often, so that most of the format still holds
            for _ in range(int(draw.integers(1, 12))):
                end = min(64, len(changed)) if draw.random() < 0.4 else len(changed)
                changed[int(draw.integers(end))] = int(draw.integers(256))
    return bytes(changed)


@dataclass(frozen=True)
class Targets:
    """Small data, and a finished run on images with a collection."""

    photos: Path
    vectors: Path
    run: Path


@dataclass(frozen=True)
class Attack:
    """How to try, and what to draw from."""

    draw: np.random.Generator
    outside: Path
    command = staticmethod(command)
    done = staticmethod(done)
    content = staticmethod(content)
    bent = staticmethod(bent)
    images = SMALL_IMAGES
    vectors = SMALL_VECTORS

    def times(self, count):
        return range(max(1, round(count * BUDGET)))

    def points(self, total):
        """Some of the operations at which to kill, or all."""
        count = max(1, round(total * min(1, BUDGET)))
        return np.unique(np.linspace(1, total, count).round().astype(int)).tolist()

    def attempt(self, label, action):
        """Try something; return whether it was accepted."""
        before = content(self.outside)
        accepted = False
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        WATCH.outside = os.path.realpath(self.outside)
        WATCH.noted = []
        try:
            status = action()
            if isinstance(status, int):
                assert status in (0, 2), f"{label}: exit status {status}"
            accepted = not isinstance(status, int) or status == 0
        except VicinalError:
            pass
        except (Exception, Hung) as error:
            raise AssertionError(label) from error
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            WATCH.outside = None
        assert not WATCH.noted, f"{label}: {WATCH.noted}"
        assert content(self.outside) == before, f"{label}: bytes changed outside"
        return accepted


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def targets(cache, tmp_path_factory):
    folder = tmp_path_factory.mktemp("targets")
    draw = np.random.default_rng(0)
    found = Targets(folder / "photos", folder / "vectors.npz", folder / "run")
    for number in range(48):
        path = found.photos / f"class {number % 8}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = draw.integers(0, 60, (20, 24, 3)) + 25 * (number % 8)
        Image.fromarray(pixels.astype(np.uint8)).save(path)
    labels = np.repeat(np.arange(16), 12)
    rows = draw.normal(size=(16, 8))[labels] + 0.8 * draw.normal(size=(192, 8))
    splits = np.where(labels < 8, "train", "test")
    np.savez(found.vectors, features=rows.astype(np.float32), labels=labels, splits=splits)
    done("train", "--data", found.photos, "--run", found.run, "-q", *SMALL_IMAGES)
    done("index", found.run, found.photos)
    return found


@pytest.fixture(scope="session")
def kills():
    return Kills()


@pytest.fixture
def attack(request, tmp_path, monkeypatch):
    """Bounds on time and memory, and a folder beside the work that nothing may touch."""

    def hung(*_):
        raise Hung(f"took more than {SECONDS} s")

    outside = tmp_path / "outside"
    (outside / "photos").mkdir(parents=True)
    Image.new("RGB", (9, 9)).save(outside / "photos" / "mine.png")
    (outside / "notes.txt").write_text("mine")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    before = signal.signal(signal.SIGALRM, hung)
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, limits[1]))
    name = request.node.name.encode()
    yield Attack(np.random.default_rng([SEED, *name]), outside)
    resource.setrlimit(resource.RLIMIT_DATA, limits)
    signal.signal(signal.SIGALRM, before)
    shutil.rmtree(tmp_path, ignore_errors=True)

"""Several processes of one run: how they meet, notice each other's end, and part.

A process that dies leaves the others waiting in an exchange, on a GPU without end. So each has a thread that looks,
twice a second, for a cause to stop: an error that another process put on record, or a process of this machine that is
gone. Then all end at once; the run goes on from its last written checkpoint.
"""

import gc
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from vicinal import parallel
from vicinal.errors import VicinalError
from vicinal.training.interruption import Interrupted
from vicinal.training.launcher import INTERRUPTED, MEETING

# Of one exchange. What ends is noticed within a second, so this is only for a machine that vanishes without a word;
# it must be longer than the first process takes to measure the validation classes, for which the others wait.
TIMEOUT = timedelta(hours=2)
LOOK_SECONDS = 0.5
PATIENCE_SECONDS = 5.0  # from losing contact to knowing why
FAILED, REJECTED = 1, 2  # exit codes, as with one process

Report = Callable[[str, str], None]


@contextmanager
def joined() -> Iterator["Company"]:
    """Meet the processes that were started with this one, and part when all are done; alone, do nothing.

    GPUs exchange through NCCL, hosts through gloo.
    """
    company = Company()
    if int(os.environ.get("WORLD_SIZE", 1)) == 1 or dist.is_initialized():
        yield company
        return
    company.meet()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # who must stop says so first, as on Ctrl-C
    try:
        gpus = torch.cuda.is_available() and dist.is_nccl_available()
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if gpus else "gloo",
            store=_store(),
            rank=company.rank,
            world_size=company.count,
            timeout=TIMEOUT,
        )
        yield company
    except Interrupted:  # all stopped after the same step
        company.part()
        raise
    except BaseException as error:
        company.fail(error)
        raise
    company.part()


class Company:
    """The processes of a run, as one of them sees them.

    Attributes:
        report: told how the run ended (its state, and why) where the first process cannot tell it itself.
    """

    def __init__(self) -> None:
        self.rank, self.count = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        self.report: Report | None = None
        self._left = threading.Event()
        self._peers: dict[int, dict[str, Any]] = {}

    def meet(self) -> None:
        """Say who this process is, and begin to look after the others."""
        self._store, self._parent = _store(), os.getppid()
        self._store.set(f"process/{self.rank}", json.dumps({"machine": _machine(), "pid": os.getpid()}))
        self._looking = threading.Thread(target=self._look, name="company", daemon=True)
        self._looking.start()

    def part(self) -> None:
        """Wait until the first process is done, however long it measures, and go when all are ready to."""
        if self.rank == 0:
            self._store.set("done", "")
        while not self._store.check(["done"]):
            time.sleep(LOOK_SECONDS)
        parallel.from_all(None)
        with suppress(RuntimeError):  # the store goes with the process that holds it
            self._store.set(f"left/{self.rank}", "")
        self._left.set()
        self._looking.join()  # a thread inside torch while Python ends would abort the process
        dist.destroy_process_group()
        gc.collect()  # the group ends its threads when nothing refers to it any more

    def fail(self, error: BaseException) -> None:
        """Put an error on record as the cause that ends all; what is only the echo of another's end waits for that."""
        for number in (signal.SIGINT, signal.SIGTERM):  # it ends anyway, but not before it is known why
            signal.signal(number, signal.SIG_IGN)
        if isinstance(error, (parallel.ContactError, dist.DistError)):
            time.sleep(PATIENCE_SECONDS)  # the thread that looks ends this process as soon as it knows
        elif self.rank != 0:
            time.sleep(LOOK_SECONDS)  # most errors meet all processes, and the first one should be heard
        code = REJECTED if isinstance(error, VicinalError) else FAILED
        if isinstance(error, KeyboardInterrupt):
            code, error = INTERRUPTED, KeyboardInterrupt("stopped on request")
        with suppress(RuntimeError):  # the store may be gone already
            self._blame(self.rank, code, str(error) or type(error).__name__)

    # -- looking after the others -----------------------------------------------------------------

    def _look(self) -> None:
        cause = None
        while cause is None and not self._left.wait(LOOK_SECONDS):
            try:
                cause = self._cause()
            except RuntimeError as error:  # the store was where a process or a machine has ended
                if self._left.wait(2 * LOOK_SECONDS):  # ... after its work was done
                    return
                cause = {"rank": None, "code": FAILED, "message": f"lost contact: {error}", "gone": True}
        if cause is not None and cause["rank"] != self.rank:
            self._end(cause)

    def _cause(self) -> dict[str, Any] | None:
        if self._store.check(["cause"]):
            cause: dict[str, Any] = json.loads(self._store.get("cause"))
            return cause
        if os.getppid() != self._parent:
            return self._blame(None, FAILED, "the process that started the others is gone")
        for number in range(self.count):
            if self._is_gone(number):
                return self._blame(number, FAILED, "ended without a word: killed, or out of memory", gone=True)
        return None

    def _is_gone(self, number: int) -> bool:
        """Whether a process of this machine has ended and not said so; those of others are for their neighbours."""
        if number not in self._peers and self._store.check([f"process/{number}"]):
            self._peers[number] = json.loads(self._store.get(f"process/{number}"))
        peer = self._peers.get(number)
        if peer is None or peer["machine"] != _machine():
            return False
        try:
            os.kill(peer["pid"], 0)
        except ProcessLookupError:
            return not self._store.check([f"left/{number}"])
        except PermissionError:
            return False
        return False

    def _blame(self, culprit: int | None, code: int, message: str, *, gone: bool = False) -> dict[str, Any]:
        """Put a cause on record and return the one that stands, which is the first."""
        who = "" if culprit is None else f"process {culprit} of {self.count}: "
        cause = {"rank": culprit, "code": code, "message": who + message, "gone": gone}
        standing: dict[str, Any] = json.loads(self._store.compare_set("cause", "", json.dumps(cause)))
        return standing

    def _end(self, cause: dict[str, Any]) -> None:
        """End this process, whatever it waits for; if the first one cannot say why, another does."""
        try:
            if self.rank == _speaker(cause):
                failed = cause["code"] != INTERRUPTED
                if self.report is not None:
                    self.report("failed" if failed else "interrupted", cause["message"])
                if failed:
                    cursor = "\x1b[?25h" if sys.stderr.isatty() else ""  # which a progress bar has hidden
                    sys.stderr.write(f"{cursor}error: {cause['message']}\n")
                    sys.stderr.flush()
        finally:
            os._exit(cause["code"])


def _speaker(cause: Mapping[str, Any]) -> int | None:
    """Who says why all end: the first process, unless it has said so itself or can no longer."""
    if cause["rank"] != 0:
        return 0
    return 1 if cause["gone"] else None


def _store() -> Any:
    """Where the processes leave notes for each other: a file of our launcher, or what ``torchrun`` offers."""
    from torch.distributed.rendezvous import rendezvous  # not built on every platform

    if MEETING in os.environ:
        return dist.FileStore(os.environ[MEETING], -1)  # type: ignore[attr-defined]
    return next(rendezvous("env://"))[0]


def _machine() -> str:
    """What tells apart the places in which a process number means something: machines, and containers on them."""
    facts = [socket.gethostname()]
    if sys.platform == "linux":
        facts += [Path("/proc/sys/kernel/random/boot_id").read_text().strip(), os.readlink("/proc/self/ns/pid")]
    return "/".join(facts)

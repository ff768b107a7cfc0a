"""All that several processes need: share a batch, gather embeddings with gradient, average
gradients, agree; be started by torch's elastic launcher, join, and stop together.

Methods differentiate with ``torch.autograd.grad`` and forward mode, which the hooks of
DistributedDataParallel and FSDP do not see. With one process every function is the identity.
Every other function must be called by all processes, in the same order.

Ctrl-C asks to stop between steps, and the run stops where it can be resumed. When a process dies,
exchanges with it raise `ContactError` in the others, and the launcher ends those that hang on a
GPU. The run goes on from its last written checkpoint.
"""

import ctypes
import gc
import importlib
import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar
from uuid import uuid4

import torch
import torch.distributed as dist
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.amp.autocast_mode import is_autocast_available

from vicinal.errors import ConfigError, VicinalError, unknown

T = TypeVar("T")
# Of one exchange, for a machine that vanishes without closing its connections. It must be longer
# than the first process takes to draw what a report shows, for which the others wait.
TIMEOUT = timedelta(hours=12)
FAILED = 1  # exit codes, as with one process
REJECTED = 2
INTERRUPTED = 130
ROWS_AT_ONCE = 2**15  # of shards on their way
BUCKET = 2**22  # numbers of gradients that are sent together, at least
HEADSTART_SECONDS = 0.5  # most errors meet all processes: the first one reports those
_M_TRIM_THRESHOLD = -1  # of glibc's malloc.h
_M_MMAP_MAX = -4


class ContactError(VicinalError):
    """Another process no longer answers: its end is the cause, this is only how it was noticed."""


class Shard(nn.Parameter):
    """A parameter, or what an optimizer keeps of it, of which each process has its `part` of the
    rows."""


# -- who is who -----------------------------------------------------------------------------------


def processes() -> int:
    """Return how many processes train together; 1 where they have not met."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Return this process's number. It is known before the processes have met and after they have
    parted."""
    return dist.get_rank() if processes() > 1 else int(os.environ.get("RANK", 0))


def first() -> bool:
    """Return whether this is the process that writes files and prints."""
    return rank() == 0


def local_rank() -> int:
    """Return this process's number on its machine: which GPU is its own."""
    return int(os.environ.get("LOCAL_RANK", 0))


def local_processes() -> int:
    """Return how many processes share this machine's processors and memory."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", processes())) if processes() > 1 else 1


def restarted() -> bool:
    """Return whether torch's elastic launcher starts the processes again after one has died, or
    Slurm the job."""
    counts = "TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"
    return any(int(os.environ.get(name, 0)) for name in counts)


def pick_device(wanted: str) -> torch.device:
    """Pick where to compute: ``auto``, ``cpu``, ``cuda``, ``cuda:1`` or ``mps``; each process takes
    one GPU."""
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(wanted)
    except RuntimeError as error:
        raise ConfigError(unknown("device", wanted, ("auto", "cpu", "cuda", "mps"))) from error
    mps = torch.backends.mps.is_available() and is_autocast_available("mps")  # from torch 2.5 on
    if not {"cuda": torch.cuda.is_available(), "mps": mps}.get(device.type, True):
        raise ConfigError(
            f"device={wanted} needs a GPU, but torch sees none that it can use. Use device=cpu, or "
            "check the driver and the version of torch."
        )
    if device.type == "cpu":
        keep_memory()
    if device == torch.device("cuda") and processes() > 1:
        if local_rank() >= torch.cuda.device_count():
            raise ConfigError(
                f"each process takes a GPU, but there are {local_processes()} processes on this "
                f"machine and {torch.cuda.device_count()} GPUs. Start fewer, or use device=cpu."
            )
        torch.cuda.set_device(local_rank())
    return device


def keep_memory() -> None:
    """Let the C library keep what is freed for the next tensor, as torch does on a GPU.

    It gives large blocks back to the system otherwise, and each page of the next one is filled
    with zeros again: of photographs embedded on a CPU that took more time than the network.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another C library than glibc
            libc = ctypes.CDLL(None)
            libc.mallopt(_M_TRIM_THRESHOLD, -1)
            libc.mallopt(_M_MMAP_MAX, 0)


# -- rows -----------------------------------------------------------------------------------------


def part(rows: T) -> T:
    """Return the contiguous share of a sequence or tensor that is this process's: shares in the
    order of ranks are the rows again."""
    count = processes()
    if count == 1:
        return rows
    number = rank()
    whole: Any = rows
    return whole[len(whole) * number // count : len(whole) * (number + 1) // count]


def gather(
    embeddings: Float[Tensor, "n d"], labels: Shaped[Tensor, "n *c"]
) -> tuple[Float[Tensor, "m d"], Shaped[Tensor, "m *c"]]:
    """Gather the embeddings and labels of all processes, by rank; each brings the same number of
    rows.

    The gradient of the gathered rows flows back to the process that made them, summed over the
    processes' equal losses: it is ``processes()`` times too large, and ``average_gradients``
    divides by just that. Second derivatives and forward mode go through as well.
    """
    if processes() == 1:
        return embeddings, labels
    rows: Tensor = _Gather.apply(embeddings)  # type: ignore[no-untyped-call]
    found = all_rows(labels).as_subclass(type(labels))
    vars(found).update(vars(labels))  # how large a class is: of all processes
    return rows, found


def all_rows(rows: Tensor) -> Tensor:
    """Return the rows of all processes, without gradient; each brings the same number."""
    if processes() == 1:
        return rows
    together = rows.new_empty(processes() * len(rows), *rows.shape[1:])
    with _exchange():
        dist.all_gather(list(together.chunk(processes())), rows.detach().contiguous())
    return together


def join_rows(rows: Tensor) -> Tensor:
    """Return the rows of all processes, without gradient; each brings as many as it has."""
    return torch.cat(from_all(rows.cpu())).to(rows.device)


def stacked(values: Tensor) -> Tensor:
    """Return what each process has, along a new first dimension, with gradient as in `gather`."""
    return values[None] if processes() == 1 else _Gather.apply(values[None])  # type: ignore[no-untyped-call]


def collect(shard: Tensor) -> Iterator[Tensor]:
    """Yield all rows of a shard in the first process, some at a time; nothing in the others, which
    also go through it."""
    for owner, size in enumerate(from_all(len(shard))):
        for at in range(0, size, ROWS_AT_ONCE):
            rows = torch.empty(min(ROWS_AT_ONCE, size - at), *shard.shape[1:], dtype=shard.dtype)
            if owner == rank():
                rows.copy_(shard.detach()[at : at + len(rows)])
            spread([rows], owner)
            if first():
                yield rows


def deal(rows: Tensor) -> Tensor:
    """Return this process's part of rows that the first one has; others know their shape alone."""
    own = part(range(len(rows)))
    mine = torch.empty_like(part(rows), device="cpu")
    for at in range(0, len(rows), ROWS_AT_ONCE):
        some = rows[at : at + ROWS_AT_ONCE]
        if not first():
            some = torch.empty_like(some, device="cpu")
        spread([some])
        low = max(own.start, at)
        high = min(own.stop, at + len(some))
        if low < high:
            mine[low - own.start : high - own.start] = some[low - at : high - at]
    return mine


class _Gather(torch.autograd.Function):
    """All rows from everybody's rows. It is linear, and the transpose of ``_Scatter``."""

    @staticmethod
    def forward(rows: Tensor) -> Tensor:
        return all_rows(rows)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None: ...

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return _Scatter.apply(gradients[0])  # type: ignore[no-untyped-call]

    @staticmethod
    def jvp(ctx: Any, *tangents: Tensor) -> Tensor:
        return all_rows(tangents[0])


class _Scatter(torch.autograd.Function):
    """The sum over the processes of what they say about all rows, this process's share of it."""

    @staticmethod
    def forward(rows: Tensor) -> Tensor:
        total = rows.clone(memory_format=torch.contiguous_format)
        with _exchange():
            dist.all_reduce(total)
        return total.chunk(processes())[rank()].clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None: ...

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return _Gather.apply(gradients[0])  # type: ignore[no-untyped-call]


def average_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Replace each ``.grad`` by its mean over the processes; to that of a shard the others add
    nothing."""
    gradients = []
    for parameter in parameters:
        if parameter.grad is not None and isinstance(parameter, Shard):
            parameter.grad /= processes()
        elif parameter.grad is not None:
            gradients.append(parameter.grad)
    for gradient, mean in zip(gradients, averaged(gradients), strict=True):
        gradient.copy_(mean)


def averaged_gradients(loss: Tensor, parameters: list[nn.Parameter]) -> list[Tensor | None]:
    """Return the gradients of a loss as `average_gradients` leaves them, exchanged while the
    backward pass goes on.

    As in DistributedDataParallel (Li et al. 2020), parameters lie in buckets, the last first, and a
    bucket is sent when it is complete and those before it are on their way, so in one order in all
    processes.
    """
    buckets: list[list[nn.Parameter]] = [[]]
    for each in reversed(parameters):
        if sum(held.numel() for held in buckets[-1]) >= BUCKET:
            buckets.append([])
        if not isinstance(each, Shard):
            buckets[-1].append(each)
    found: dict[nn.Parameter, Tensor] = {}
    sent: list[Callable[[], list[Tensor]]] = []

    def take(parameter: nn.Parameter, gradient: Tensor) -> None:
        found[parameter] = gradient
        while len(sent) < len(buckets) and found.keys() >= {*buckets[len(sent)]}:
            sent.append(_begin([found[each] for each in buckets[len(sent)]]))

    hooks = [
        each.register_hook(partial(take, each))  # type: ignore[no-untyped-call]
        for each in parameters
    ]
    try:
        torch.autograd.grad(loss, parameters, allow_unused=True)
    finally:
        for hook in hooks:
            hook.remove()
    for number, bucket in enumerate(buckets):
        known = [each for each in bucket if each in found]  # the others do not enter the loss
        means = (sent[number] if number < len(sent) else _begin([found[p] for p in known]))()
        found.update(zip(known, means, strict=True))
    for shard in parameters:
        if isinstance(shard, Shard) and shard in found:
            found[shard] = found[shard] / processes()
    return [found.get(each) for each in parameters]


def averaged(tensors: list[Tensor]) -> list[Tensor]:
    """Return the means of tensors over the processes, from one flat exchange."""
    return _begin(tensors)()


def _begin(tensors: list[Tensor]) -> Callable[[], list[Tensor]]:
    """Begin to average tensors over the processes; return what waits for the means."""
    if processes() == 1 or not tensors:
        return lambda: tensors
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors]) / processes()
    with _exchange():
        sending = dist.all_reduce(flat, async_op=True)

    def end() -> list[Tensor]:
        with _exchange():
            sending.wait()
        means = torch.split(flat, [tensor.numel() for tensor in tensors])
        return [mean.view_as(tensor) for mean, tensor in zip(means, tensors, strict=True)]

    return end


def share_norms(module: nn.Module) -> None:
    """Let batch norms that learn on a GPU take their statistics from the whole batch; names and
    tensors stay. Where timm made the network it converts its own, which hold an activation too."""
    convert: Any = nn.SyncBatchNorm.convert_sync_batchnorm
    if "timm" in sys.modules:
        convert = importlib.import_module("timm.layers").convert_sync_batchnorm
    for name, child in module.named_children():
        module.add_module(name, convert(child))


def spread(tensors: Iterable[Tensor], owner: int = 0) -> None:
    """Give what one process has to all, in place."""
    for tensor in tensors if processes() > 1 else ():
        with _exchange():
            dist.broadcast(tensor, src=owner)


# -- agreement ------------------------------------------------------------------------------------


def from_first(make: Callable[[], T]) -> T:
    """Return what ``make`` gives in the first process, in every process; the others wait and do not
    call theirs."""
    if processes() == 1:
        return make()
    box: list[Any] = [make() if first() else None]
    with _exchange():
        dist.broadcast_object_list(box, src=0)
    return box[0]


def from_all(value: T) -> list[T]:
    """Return what each process has, in the order of ranks."""
    if processes() == 1:
        return [value]
    box: list[Any] = [None] * processes()
    with _exchange():
        dist.all_gather_object(box, value)
    return box


class Agreement:
    """The largest of what the processes wish for, known to all at the same step, and without
    waiting for a GPU.

    Each call sends this process's wish, from host to host, and gives the answer to the call before,
    which has arrived while the step ran.
    """

    def __init__(self) -> None:
        self._wishes = torch.tensor([0])
        self._sending: dist.Work | None = None

    def __call__(self, wish: int) -> int:
        if processes() == 1:
            return wish
        answer = self.answer()
        self._wishes = torch.tensor([wish])
        with _exchange():
            self._sending = dist.all_reduce(self._wishes, dist.ReduceOp.MAX, async_op=True)
        return answer

    def answer(self) -> int:
        """Return the answer to the last call."""
        if self._sending is not None:
            with _exchange():
                self._sending.wait()
            # One that is kept would keep torch's threads beyond the end of Python.
            self._sending = None
        return int(self._wishes)


@contextmanager
def _exchange() -> Iterator[None]:
    """Torch's errors of an exchange that failed are of no kind of their own."""
    try:
        yield
    except RuntimeError as error:
        raise ContactError(
            f"process {rank()} of {processes()} lost contact with the others: {error}"
        ) from error


# -- the processes of one run ----------------------------------------------------------------------


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
    try:
        with tempfile.TemporaryDirectory(prefix="vicinal-") as folder:
            logs = DefaultLogsSpecs(folder)
            config = LaunchConfig(
                1,
                1,
                count,
                logs,
                run_id=uuid4().hex,
                max_restarts=0,
                rdzv_backend="c10d",
                rdzv_endpoint="localhost:0",
                local_addr="localhost",
            )
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
    # A restarted launcher may still hold what the processes before said of themselves.
    if int(os.environ.get("LOCAL_WORLD_SIZE", 0)) == count:
        store = dist.distributed_c10d.PrefixStore(
            os.environ.get("TORCHELASTIC_RESTART_COUNT", ""), store
        )
    elif store.add(f"starts of {rank}", 1) > 1:
        raise ConfigError(
            "to restart processes on several machines torchrun needs --rdzv-backend c10d, and in "
            "its environment TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1."
        )
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
        lost = isinstance(error, ContactError)
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
    from_all(None)
    dist.destroy_process_group()
    gc.collect()  # the group ends its threads when nothing refers to it any more


class Interrupted(KeyboardInterrupt):
    """Every process has stopped after the same step, as was asked for."""


def await_turn(error: BaseException) -> None:
    """Before several processes report an error: let the one speak that knows most, and nothing
    interrupt it."""
    for number in (signal.SIGINT, signal.SIGTERM):  # which a launcher sends to those that are left
        signal.signal(number, signal.SIG_IGN)
    if not first() and not isinstance(error, ContactError):
        time.sleep(HEADSTART_SECONDS)

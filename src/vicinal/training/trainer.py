"""The training loop: takes steps, logs, evaluates, selects, saves, and reports what a user must
know."""

import itertools
import math
import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler

from vicinal import parallel
from vicinal.data.records import Batch
from vicinal.errors import ConfigError, DivergenceError
from vicinal.files import Document, read_object
from vicinal.methods.method import Method
from vicinal.reports.tables import metric_title
from vicinal.run_directory import Journal, RunDirectory
from vicinal.training.checkpoint import latest_checkpoint, save_checkpoint
from vicinal.training.console import Follower, sparkline
from vicinal.training.cuda_graph import CUDAGraphStep
from vicinal.training.experiment import Experiment, Verdict, check_equal_parts, pick_precision
from vicinal.training.finish import write_results
from vicinal.training.trackers import Trackers

COLLAPSED_SPREAD = 0.01  # embeddings this near their mean, relative to their length, are one point
STEPS_PER_TRANSFER = 20  # on a GPU: reading a scalar waits for all work before it
# A compiler takes 15 to 54 s and saves 8 ms of a step of ResNet-50, 1 of Lite0's.
STEPS_WORTH_COMPILING = 5400
SAVE = 1  # what a process may wish for after a step
STOP = 2
ECHO_SECONDS = 1.0  # a terminal and a launcher may both pass on one and the same Ctrl-C
STEPS_PER_DIAGNOSIS = 10  # diagnostics compare all rows of a batch once more


class Step(NamedTuple):
    """One update: its number since the start of training, its batch and its scalars, still on the
    device."""

    number: int
    batch: Batch
    scalars: dict[str, Tensor]


class Interruption:
    """While entered, the first SIGINT or SIGTERM asks to stop; a later SIGINT interrupts at once.

    A signal that cut a step in half would leave weights and optimizer out of step, so the step is
    finished first.
    """

    def __init__(self) -> None:
        self._asked_at: float | None = None
        self._agreement = parallel.Agreement()
        self._launcher = os.getppid()
        self._before: dict[int, object] = {}
        self._wish = 0  # on its way

    def __enter__(self) -> "Interruption":
        # Python delivers signals nowhere else.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        if kind is None:
            self._agreement.answer()  # nothing is left on its way

    def requested(self, due: bool = False) -> int:
        """Whether to `SAVE` or to `STOP` after this step, asked once in each; all processes answer
        alike, whichever was signalled or has a checkpoint due."""
        several = parallel.processes() > 1
        orphaned = several and os.getppid() != self._launcher
        if orphaned or self._asked_at is not None:
            self._wish = STOP
        else:
            self._wish = SAVE if due and not (several and self._wish) else 0
        return self._agreement(self._wish)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._asked_at is None:
            self._asked_at = now
        elif number == signal.SIGINT and now - self._asked_at > ECHO_SECONDS:
            raise KeyboardInterrupt


@dataclass
class Position:
    """How far a run has come: all of a checkpoint that is not the method's own state.

    Attributes:
        batch: batches of this epoch that are done.
        stale: evaluations since the best one.
        start: the verdict on the model before the first step, which always competes.
        best: that on the selected model; None before the first look.
        last: that of the last look.
        metrics_length: bytes of ``metrics.jsonl`` that belong to the steps done.
        seconds: training time of all processes that worked on this run.
        skipped: names of files that could not be read.
        scores: of all looks so far.
    """

    epoch: int = 0
    batch: int = 0
    step: int = 0
    start: Verdict | None = None
    best: Verdict | None = None
    last: Verdict | None = None
    best_step: int = 0
    best_epoch: int = 0
    stale: int = 0
    metrics_length: int = 0
    seconds: float = 0.0
    skipped: list[str] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, state: Document) -> "Position":
        """Return the position that ``asdict`` wrote."""
        looks = {name: state[name] and Verdict(**state[name]) for name in ("start", "best", "last")}
        return cls(**{**state, **looks})


class Trainer:
    """Trains one experiment into one run directory.

    Args:
        plan: batches of the first epoch, where they are known.
        until: when, by ``time.monotonic``, training ends though steps are left.
    """

    def __init__(
        self,
        experiment: Experiment,
        run: RunDirectory,
        plan: Sequence[Sequence[int]] | None = None,
        until: float = math.inf,
    ) -> None:
        self.experiment = experiment
        self.until = until
        self.length = experiment.steps
        self.run = run
        self.console = experiment.console
        self.settings = experiment.config.training
        self.method = experiment.method
        self.position = Position()
        self._plan = plan
        self._pending: list[Step] = []  # steps whose scalars are still on the device
        self._steps = self._rows = 0  # of this process
        self._take: Method | CUDAGraphStep | None = None
        self._judge = experiment.judge
        ema = self.settings.ema
        self._precision = pick_precision(self.settings.precision, experiment.device)
        if self._precision == torch.float16:
            self.method.scaler = GradScaler(experiment.device.type)
            shards = any(isinstance(each, parallel.Shard) for each in self.method.parameters())
            if shards and parallel.processes() > 1:
                raise ConfigError(  # a gradient may overflow in one process alone
                    "proxies that processes divide cannot train in float16. Set "
                    "training.precision=bfloat16 or loss.divided=false."
                )
        self.average = None if ema is None else WeightAverage(self.method.embedder, ema)
        self._began = self._saved_at = time.monotonic()

    def restore(self, state: Document) -> None:
        """Continue where a checkpoint was saved."""
        self.position = Position.of(state["position"])
        self._plan = state["plan"]
        check_equal_parts(self._plan or ())
        self.method.load_training_state(state["method"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        set_random_state(state["random"])

    def train(self) -> None:
        """Train to the end or to an interruption; in any case, leave a run that resumes."""
        first = parallel.first()
        if first:
            self._write_status("running")
        length = self.position.metrics_length
        self.metrics = (
            Journal(self.run.metrics_path, length) if first else Journal(Path(os.devnull))
        )
        names = self.settings.trackers if first else ()
        # Other processes may be here before the run is written.
        slots = self.run.config["slots"] if names else {}
        self.trackers = Trackers(names, self.run, slots, self.settings.tracker_mode)
        self._began = time.monotonic()
        self._seconds_before = self.position.seconds
        try:
            with Interruption() as interruption:
                if self.position.step == 0 and self.position.best is None:
                    self._select("start")  # with which the training competes
                while not self._done():
                    self._epoch(interruption)
            # No validation classes: the last model is the selected one.
            if self.position.best is None:
                self.position.best_step = self.position.step
                self.position.best_epoch = self.position.epoch
                with self._averaged():
                    self._keep_model()
            if first:
                self.run.write_document("captions", dict(self.method.captions))
            self._checkpoint()
            write_results(self.experiment, self.run, self._selected(), self.position.skipped)
        except KeyboardInterrupt:
            self.trackers.finish("interrupted")
            if first:
                self._write_status("interrupted", "stopped on request")
            self.console.line(f"stopped. Go on with: {self.run.resume_command()}")
            raise
        except BaseException as error:
            self.trackers.finish("failed")
            self._fail(error)
            raise
        finally:
            self.metrics.close()
        self.trackers.finish("finished")
        if first:
            self._write_status("finished")

    # -- one epoch --------------------------------------------------------------------------------

    def _epoch(self, interruption: Interruption) -> None:
        experiment = self.experiment
        settings = self.settings
        epoch = self.position.epoch
        left = self.length - self.position.step
        if self._plan is None:  # asked once per epoch, also across a resume
            self._plan = experiment.plan(epoch)
        self._plan = self._plan[: self.position.batch + left]
        if self._take is None:
            self.method.embedder.accelerate(self._precision, compiled=self._compiles(left))
            self._take = CUDAGraphStep(self.method) if self._captures() else self.method
        # What is drawn for gathered rows is the same everywhere.
        set_random_state(parallel.from_first(random_state))
        batches = experiment.batches(self._plan, epoch=epoch, start=self.position.batch)
        self.method.embedder.train()
        at_once = STEPS_PER_TRANSFER if experiment.device.type == "cuda" else 1
        title = f"epoch {epoch + 1}/{self._epochs()}"
        with self.console.following(len(self._plan), self.position.batch, title) as follower:
            for number, batch in enumerate(batches, self.position.step):
                result = self._take(batch)
                step = Step(number, batch, dict(result.scalars))
                if self.average is not None:
                    self.average.update(self.method.embedder)
                self._pending.append(step)
                self.position.step = number + 1
                self.position.batch = self.position.batch + 1
                if time.monotonic() >= self.until and self.position.step < self.length:
                    words = f"time is up: trained {self.position.step} of {self.length} steps"
                    self.console.line(words, warning=True)
                    self.length = self.position.step
                ended = self.position.step >= self.length
                last = ended or self.position.batch == len(self._plan)
                if last or number % STEPS_PER_DIAGNOSIS == 0:
                    step.scalars.update(self.method.diagnostics(result))
                due = time.monotonic() - self._saved_at >= settings.checkpoint_seconds
                wish = interruption.requested(due)
                due = wish >= SAVE or not settings.checkpoint_seconds
                stop = wish == STOP
                if last or due or len(self._pending) >= at_once:
                    scalars = self._write_steps(follower)
                    if last:
                        self._watch_collapse(scalars.get("spread", 1.0))
                if last or stop:  # what other processes could not read
                    for name in itertools.chain.from_iterable(
                        parallel.from_all(self.position.skipped)
                    ):
                        self._note_skipped(name)
                if due:
                    self._checkpoint()
                if stop:
                    raise parallel.Interrupted
                if ended:
                    break
        if (epoch + 1) % settings.evaluate_every == 0 or self.position.step >= self.length:
            self._select()
        self.position.epoch = epoch + 1
        self.position.batch = 0
        self._plan = None

    def _epochs(self) -> int:
        """Return how many epochs there will be, if all are as long as this one."""
        epoch = self.position.epoch
        done = self.position.step - self.position.batch
        return epoch + max(1, math.ceil((self.length - done) / max(1, len(self._plan or ()))))

    def _done(self) -> bool:
        """Whether all steps are taken, or the held-out classes have not improved for ``patience``
        evaluations.

        An epoch that has its plan is still to be evaluated, also when a checkpoint at its last step
        was resumed.
        """
        patience = self.settings.patience
        impatient = patience is not None and self.position.stale >= patience
        return self._plan is None and (impatient or self.position.step >= self.length)

    def _compiles(self, steps: int) -> bool:
        # Windows has no Triton.
        able = self.experiment.device.type == "cuda" and find_spec("triton") is not None
        worth = able and steps >= STEPS_WORTH_COMPILING
        return self.settings.compile == "on" or (self.settings.compile == "auto" and worth)

    def _captures(self) -> bool:
        # The positives of rows with several labels are counted on the host.
        alone = parallel.processes() == 1 and self.experiment.train.every is None
        settings = self.settings
        wanted = settings.cuda_graph == "auto" and settings.chunk is None
        return alone and wanted and self.experiment.device.type == "cuda" and self.method.capturable

    def _write_steps(self, follower: Follower) -> dict[str, float]:
        """Bring the pending scalars to the host in one transfer, check them, write them; return the
        last step's."""
        values = iter(
            torch.stack(
                [v.float() for step in self._pending for v in step.scalars.values()]
            ).tolist()
        )
        scalars: dict[str, float] = {}
        for step in self._pending:
            scalars = {name: next(values) for name in step.scalars}
            self._check_divergence(step, scalars)
            self._record("step", {"step": step.number, **scalars})
            self._steps += 1
            self._rows += parallel.processes() * len(step.batch.labels)
            for index in step.batch.skipped:
                self._note_skipped(self.experiment.train.source.name(index))
        self._pending.clear()
        now = time.monotonic()
        rate = self._rows / (now - self._began)
        left = (self.length - self.position.step) * (now - self._began) / self._steps
        facts = f"loss {scalars['loss']:.4f}  {rate:.0f} samples/s"
        if self.position.best is not None:
            facts += f"  {self._best()} {sparkline(self.position.scores)}"
        follower.advance(self.position.batch, facts, left)
        return scalars

    def _select(self, when: str = "") -> None:
        """Measure the validation classes; keep the model if it is the best so far."""
        position = self.position
        if not len(self._judge):
            return
        with self._averaged():
            parallel.buffers_from_first(self.method.embedder)
            verdict, scores = self._judge(self.experiment.encoder)
            self._record("evaluation", {"split": "validation", "metrics": scores})
            best = position.best is None or verdict.score > position.best.score
            if best:
                self._keep_model()
                position.best = verdict
                position.best_step = position.step
                position.best_epoch = position.epoch
        position.start = position.start or verdict
        position.last = verdict
        position.stale = 0 if best else position.stale + 1
        position.scores.append(verdict.score)
        mark = f"({'best so far' if best else self._best()})  {sparkline(position.scores)}"
        when = when or f"epoch {position.epoch + 1}/{self._epochs()}"
        found = f"{100 * verdict.score:.1f} ± {100 * verdict.error:.1f}"
        self.console.line(f"{when}  validation {metric_title(self._judge.by)} {found}  {mark}")

    def _best(self) -> str:
        """Say which step is chosen so far."""
        best = self.position.best
        return (
            "" if best is None else f"best {100 * best.score:.1f} at step {self.position.best_step}"
        )

    def _selected(self) -> Document:
        """Return which model is kept, by what, and how surely it is above the start and the last
        one."""
        position = self.position
        found: Document = {"step": position.best_step, "epoch": position.best_epoch}
        if position.best is None or position.start is None or position.last is None:
            return found | {"by": "last step", "value": None}
        best = position.best
        others = {"the start": position.start, "the last step": position.last}
        above = {name: asdict(best.above(other)) for name, other in others.items() if other != best}
        by = f"validation {self._judge.by}"
        return found | {"by": by, "value": best.score, "error": best.error, "above": above}

    def _averaged(self) -> AbstractContextManager[None]:
        """Put the moving average of the weights in place of the last ones, where there is one."""
        return nullcontext() if self.average is None else self.average.applied(self.method.embedder)

    # -- saving -----------------------------------------------------------------------------------

    def _record(self, kind: str, facts: Document) -> None:
        line = {"kind": kind, "step": self.position.step, "epoch": self.position.epoch, **facts}
        self.metrics.append(line)
        self.trackers.record(line)

    def _keep_model(self) -> None:
        if parallel.first():
            self.experiment.encoder.save_weights(self.run)

    def _checkpoint(self) -> None:
        """Save where the run stands: all processes stand there, so the first one does, and the
        others give their shards."""
        if parallel.first():
            self.position.metrics_length = self.metrics.sync()
        self.position.seconds = round(self._seconds_before + time.monotonic() - self._began, 3)
        state = {
            "position": asdict(self.position),
            "plan": self._plan,
            "method": self.method.training_state(),
            "average": None if self.average is None else self.average.state_dict(),
            "random": random_state(),
        }
        self.trackers.flush()
        save_checkpoint(self.run.checkpoints_path, self.position.step, state)
        self._saved_at = time.monotonic()

    def _write_status(self, state: str, message: str | None = None) -> None:
        where = {
            "epoch": self.position.epoch,
            "step": self.position.step,
            "seconds": self.position.seconds,
        }
        facts = (
            where
            | {"processes": parallel.processes()}
            | ({} if message is None else {"message": message})
        )
        self.run.write_status(state, **facts)

    def _fail(self, error: BaseException) -> None:
        """Write why the run ended, whichever process met it; the first word stands, the others only
        lost contact."""
        message = str(error) or type(error).__name__
        if parallel.processes() > 1:
            parallel.await_turn(error)
            written = self.run.status_path  # of a first process that may be gone, with its lock
            if not written.is_file() or read_object(written).get("state") != "running":
                return  # said already, or by a machine that does not see the run
            checkpoint = latest_checkpoint(self.run.checkpoints_path)
            place = "the start" if checkpoint is None else f"its last checkpoint, {checkpoint.name}"
            who = f"process {parallel.rank()} of {parallel.processes()}"
            message = f"{who}: {message.rstrip('.')}. It goes on from {place}."
        self._write_status("failed", message)

    # -- what a user must know --------------------------------------------------------------------

    def _check_divergence(self, step: Step, scalars: dict[str, float]) -> None:
        bad = ", ".join(
            f"{name} = {value}" for name, value in scalars.items() if not math.isfinite(value)
        )
        if not bad:
            return
        files = ", ".join(
            self.experiment.train.source.name(int(index)) for index in step.batch.indices[:8]
        )
        checkpoint = latest_checkpoint(self.run.checkpoints_path)
        rows = parallel.processes() * len(step.batch.indices)
        raise DivergenceError(
            f"training diverged at step {step.number}: {bad}. Its batch of {rows} rows held "
            f"{files}. Last good checkpoint: {checkpoint or 'none yet'}. Lower the learning rate, "
            "or look at these inputs with `vicinal data check`."
        )

    def _watch_collapse(self, spread: float) -> None:
        """Say so when all embeddings have become one point."""
        if spread < COLLAPSED_SPREAD:
            self._event(
                f"collapse: the embeddings of a batch spread by {spread:.1e} of their length. "
                "Lower the learning rate, use easier tuples or a larger batch, and check that the "
                "weights loaded."
            )

    def _note_skipped(self, name: str) -> None:
        if name not in self.position.skipped:
            self.position.skipped.append(name)
            self._event(f"could not read {name}; another record of its class stood in for it")

    def _event(self, message: str) -> None:
        self._record("event", {"message": message})
        self.console.line(message, warning=True)


class WeightAverage:
    """An exponential moving average of a network's trained parameters and buffers (Polyak and
    Juditsky 1992).

        θ̄ ← d θ̄ + (1 - d) θ,   d = min(decay, (1 + t) / (10 + t))        at update t = 0, 1, ...

    The smaller d of the first updates lets the average forget the initial weights. Frozen
    parameters are left out; integer buffers are copied. Nothing waits for the device.

    Args:
        embedder: the network, on the device that trains it and with the weights that training
            starts from.
        decay: between 0 and 1; 0.999 averages over about the last thousand steps.
    """

    def __init__(self, embedder: nn.Module, decay: float) -> None:
        self.decay = decay
        self.updates = 0
        self._average = {name: tensor.clone() for name, tensor in _averaged(embedder).items()}

    @torch.no_grad()
    def update(self, embedder: nn.Module) -> None:
        """Take the weights after an optimizer step into the average."""
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        self.updates += 1
        current = _averaged(embedder)
        real = [name for name, tensor in current.items() if tensor.is_floating_point()]
        whole = [name for name in current if name not in real]
        if real:
            torch._foreach_lerp_(
                [self._average[n] for n in real], [current[n] for n in real], 1 - decay
            )
        if whole:
            torch._foreach_copy_([self._average[n] for n in whole], [current[n] for n in whole])

    @contextmanager
    def applied(self, embedder: nn.Module) -> Iterator[None]:
        """Let ``embedder`` have the averaged weights for a while, and afterwards its own again, bit
        for bit.

        Values are copied into the same storage, which compiled code and captured CUDA graphs refer
        to.
        """
        current = _averaged(embedder)
        own = [tensor.clone() for tensor in current.values()]
        try:
            _copy(current.values(), [self._average[name] for name in current])
            yield
        finally:
            _copy(current.values(), own)

    def state_dict(self) -> Document:
        """Return the average and the number of updates behind it."""
        return {"updates": self.updates, "average": dict(self._average)}

    def load_state_dict(self, state: Document) -> None:
        """Continue where ``state`` was saved."""
        self.updates = int(state["updates"])
        _copy(self._average.values(), [state["average"][name] for name in self._average])


@torch.no_grad()
def _copy(targets: Iterable[Tensor], sources: list[Tensor]) -> None:
    torch._foreach_copy_(list(targets), sources)


def _averaged(module: nn.Module) -> dict[str, Tensor]:
    """Return what training changes, by name: parameters that are not frozen, and all buffers."""
    parameters = {name: p.detach() for name, p in module.named_parameters() if p.requires_grad}
    return parameters | dict(module.named_buffers())


def random_state() -> dict[str, Tensor]:
    """Return the state of torch's global generators, for what draws from them (dropout)."""
    state = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def set_random_state(state: dict[str, Tensor]) -> None:
    torch.set_rng_state(state["cpu"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])

"""The training loop: takes steps, logs, evaluates, selects, saves, and reports what a user must
know."""

import copy
import itertools
import math
import os
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
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
from vicinal.evaluation.encoder import Encoder
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
        names = "start", "best", "last"
        looks = {name: state[name] and Verdict(*map(tuple, state[name].values())) for name in names}
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
        self._precision = pick_precision(self.settings.precision, experiment.device)
        if self._precision == torch.float16:
            self.method.scaler = GradScaler(experiment.device.type)
            shards = any(isinstance(each, parallel.Shard) for each in self.method.parameters())
            if shards and parallel.processes() > 1:
                raise ConfigError(  # a gradient may overflow in one process alone
                    "proxies that processes divide cannot train in float16. Set "
                    "training.precision=bfloat16 or loss.divided=false."
                )
        # What is measured and kept: the network, or the moving average of its weights.
        self._measured = self.method.embedder
        if self.settings.ema is not None:
            self._measured = copy.deepcopy(self._measured)

    def restore(self, state: Document) -> None:
        """Continue where a checkpoint was saved."""
        self.position = Position.of(state["position"])
        self._plan = state["plan"]
        check_equal_parts(self._plan or ())
        self.method.load_training_state(state["method"])
        if self.settings.ema is not None:
            self._measured.load_state_dict(state["average"])
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
        self.trackers = Trackers(names, self.run, self.settings.tracker_mode)
        self._began = self._saved_at = time.monotonic()
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
        position = self.position
        epoch = position.epoch
        left = self.length - position.step
        if self._plan is None:  # asked once per epoch, also across a resume
            self._plan = experiment.plan(epoch)
        self._plan = self._plan[: position.batch + left]
        if self._take is None:
            self.method.embedder.accelerate(self._precision, compiled=self._compiles(left))
            self._take = CUDAGraphStep(self.method) if self._captures() else self.method
        # What is drawn for gathered rows is the same everywhere.
        set_random_state(parallel.from_first(random_state))
        batches = experiment.batches(self._plan, epoch=epoch, start=position.batch)
        self.method.embedder.train()
        at_once = STEPS_PER_TRANSFER if experiment.device.type == "cuda" else 1
        title = f"epoch {epoch + 1}/{self._epochs()}"
        with self.console.following(len(self._plan), position.batch, title) as follower:
            for number, batch in enumerate(batches, position.step):
                result = self._take(batch)
                step = Step(number, batch, dict(result.scalars))
                if settings.ema is not None:
                    average_weights(self._measured, self.method.embedder, settings.ema, number)
                self._pending.append(step)
                position.step = number + 1
                position.batch += 1
                if time.monotonic() >= self.until and position.step < self.length:
                    words = f"time is up: trained {position.step} of {self.length} steps"
                    self.console.line(words, warning=True)
                    self.length = position.step
                ended = position.step >= self.length
                last = ended or position.batch == len(self._plan)
                if last or number % STEPS_PER_DIAGNOSIS == 0:
                    step.scalars.update(self.method.diagnostics(result))
                due = time.monotonic() - self._saved_at >= settings.checkpoint_seconds
                wish = interruption.requested(due)
                if last or wish or len(self._pending) >= at_once:
                    scalars = self._write_steps(follower)
                    if last:
                        self._watch_collapse(scalars.get("spread", 1.0))
                if last or wish == STOP:  # what other processes could not read
                    for name in itertools.chain(*parallel.from_all(position.skipped)):
                        self._note_skipped(name)
                if wish:
                    self._checkpoint()
                if wish == STOP:
                    raise parallel.Interrupted
                if ended:
                    break
        if (epoch + 1) % settings.evaluate_every == 0 or position.step >= self.length:
            self._select()
        position.epoch = epoch + 1
        position.batch = 0
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
        parallel.spread(self._measured.buffers())  # each process has met other rows
        verdict, scores = self._judge(self._encoder)
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

    @property
    def _encoder(self) -> Encoder:
        return replace(self.experiment.encoder, embedder=self._measured)

    # -- saving -----------------------------------------------------------------------------------

    def _record(self, kind: str, facts: Document) -> None:
        line = {"kind": kind, "step": self.position.step, "epoch": self.position.epoch, **facts}
        self.metrics.append(line)
        self.trackers.record(line)

    def _keep_model(self) -> None:
        if parallel.first():
            self._encoder.save_weights(self.run)

    def _checkpoint(self) -> None:
        """Save where the run stands: all processes stand there, so the first one does, and the
        others give their shards."""
        if parallel.first():
            self.position.metrics_length = self.metrics.sync()
        now = time.monotonic()
        self.position.seconds = round(self.position.seconds + now - self._saved_at, 3)
        self._saved_at = now
        state = {
            "position": asdict(self.position),
            "plan": self._plan,
            "method": self.method.training_state(),
            "average": None if self.settings.ema is None else self._measured.state_dict(),
            "random": random_state(),
        }
        self.trackers.flush()
        save_checkpoint(self.run.checkpoints_path, self.position.step, state)

    def _write_status(self, state: str, message: str | None = None) -> None:
        self.run.write_status(
            state,
            epoch=self.position.epoch,
            step=self.position.step,
            seconds=self.position.seconds,
            processes=parallel.processes(),
            **({} if message is None else {"message": message}),
        )

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


@torch.no_grad()
def average_weights(average: nn.Module, network: nn.Module, decay: float, step: int) -> None:
    """Move an exponential moving average of a network's weights (Polyak and Juditsky 1992).

        θ̄ ← d θ̄ + (1 - d) θ,   d = min(decay, (1 + t) / (10 + t))        at step t = 0, 1, ...

    The smaller d of the first steps lets the average forget the initial weights. Integer buffers
    are copied. Nothing waits for the device.
    """
    pairs = [*zip(average.state_dict().values(), network.state_dict().values(), strict=True)]
    means, weights = zip(*(pair for pair in pairs if pair[0].is_floating_point()), strict=True)
    torch._foreach_lerp_(means, weights, 1 - min(decay, (1 + step) / (10 + step)))
    if counts := [pair for pair in pairs if not pair[0].is_floating_point()]:
        kept, new = zip(*counts, strict=True)
        torch._foreach_copy_(kept, new)


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

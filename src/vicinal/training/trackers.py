"""Experiment trackers: TensorBoard, MLflow and Weights & Biases get what ``metrics.jsonl`` gets.

Each writes below the run directory and sends nothing anywhere, unless the run asks for
``tracker_mode=online``, by which MLflow and Weights & Biases send to their servers:

- ``tensorboard/``: `tensorboard --logdir RUN`
- ``mlruns/``, MLflow's file store: `MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri
  RUN/mlruns`
- ``wandb/``, an offline run: `wandb sync RUN/wandb/offline-run-*` uploads it

A resumed run begins them anew and logs all of ``metrics.jsonl`` again: no step is there twice, none
is missing, and what a kill left half-written is gone. (A server of MLflow gets a new run, and the
old one into its trash; one of Weights & Biases takes steps that it has no second time.)
"""

import json
import os
import re
import shutil
import time
import warnings
from collections.abc import Mapping, Sequence
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from vicinal.errors import ConfigError
from vicinal.files import Document
from vicinal.run_directory import WANDB, RunDirectory, flat

State = Literal["finished", "failed", "interrupted"]
Mode = Literal["offline", "online"]
# MLflow takes up to 1000 at a time, and reads its description of the run for each call.
METRICS_PER_CALL = 900
MOST_LETTERS = 6000  # of a setting, as MLflow takes it
SETTINGS_PER_CALL = 100


class TensorBoard:
    """Event files."""

    def __init__(self, run: RunDirectory, folder: Path, mode: Mode) -> None:
        self._writer = import_module("torch.utils.tensorboard").SummaryWriter(str(folder))
        self.flush = self._writer.flush
        text = json.dumps(run.config["slots"], indent=2)
        self._writer.add_text("config", f"```json\n{text}\n```")

    def log(self, step: int, scalars: Mapping[str, float]) -> None:
        for name, value in scalars.items():  # scalars are float32 otherwise
            self._writer.add_scalar(name, value, step, new_style=True, double_precision=True)

    def finish(self, state: State) -> None:
        self._writer.close()


class MLflow:
    """One run, in a file store of its own or on the server at ``MLFLOW_TRACKING_URI``.

    Names of metrics are MLflow's: ``recall@1`` becomes ``recall_at_1``.
    """

    def __init__(self, run: RunDirectory, folder: Path, mode: Mode) -> None:
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # MLflow 3 asks for this consent
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # training waits for them
        self._entities = import_module("mlflow.entities")
        self._exception = import_module("mlflow.exceptions").MlflowException
        if mode == "offline":
            (folder / ".trash").mkdir()  # where MLflow, which knows an earlier store, looks
            uri = folder.as_uri()
        else:
            uri = os.environ["MLFLOW_TRACKING_URI"]
        self._client = import_module("mlflow").MlflowClient(uri)
        self._pending: list[Any] = []
        try:
            known = self._client.get_experiment_by_name("vicinal")
            experiment = known.experiment_id if known else self._client.create_experiment("vicinal")
            identity = {"vicinal.run": _identity(run)}
            of_this_run = f"tags.`vicinal.run` = '{_identity(run)}'"
            for earlier in self._client.search_runs([experiment], of_this_run):
                self._client.delete_run(earlier.info.run_id)
            begun = self._client.create_run(experiment, tags=identity, run_name=run.path.name)
            self._run = begun.info.run_id
            settings = [
                self._entities.Param(name, str(value)[:MOST_LETTERS])
                for name, value in flat(run.config["slots"]).items()
            ]
            for first in range(0, len(settings), SETTINGS_PER_CALL):
                some = settings[first : first + SETTINGS_PER_CALL]
                self._client.log_batch(self._run, params=some)
        except self._exception as error:
            raise ConfigError(f"MLflow at {uri} does not take this run: {error}") from error

    def log(self, step: int, scalars: Mapping[str, float]) -> None:
        now = int(time.time() * 1000)
        for name, value in scalars.items():
            known = re.sub(r"[^\w.\- :/]", "_", name.replace("@", "_at_"))
            self._pending.append(self._entities.Metric(known, value, now, step))

    def flush(self) -> None:
        """Send what is pending; what a server does not take is kept for the next time."""
        try:
            while self._pending:
                self._client.log_batch(self._run, metrics=self._pending[:METRICS_PER_CALL])
                del self._pending[:METRICS_PER_CALL]
        except self._exception as error:
            warnings.warn(f"MLflow did not take the metrics, so they wait: {error}", stacklevel=2)

    def finish(self, state: State) -> None:
        self.flush()
        status = {"finished": "FINISHED", "failed": "FAILED", "interrupted": "KILLED"}[state]
        try:
            self._client.set_terminated(self._run, status)
        except self._exception as error:
            warnings.warn(f"MLflow does not know that the run ended: {error}", stacklevel=2)


class WeightsAndBiases:
    """A run whose id follows from the run directory: a resumed one has the same page."""

    def __init__(self, run: RunDirectory, folder: Path, mode: Mode) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        wandb = import_module("wandb")
        quiet = {"silent": True, "console": "off", "disable_git": True, "save_code": False}
        try:
            self._run = wandb.init(
                project="vicinal",
                config=run.config["slots"],
                dir=str(folder.parent),
                name=run.path.name,
                id=_identity(run),
                mode=mode,
                resume="allow" if mode == "online" else None,
                reinit="create_new",
                settings=wandb.Settings(**quiet, x_disable_stats=True, x_disable_meta=True),
            )
        except wandb.errors.Error as error:
            raise ConfigError(f"Weights & Biases does not take this run: {error}") from error

    def log(self, step: int, scalars: Mapping[str, float]) -> None:
        self._run.log(dict(scalars), step=step)

    def flush(self) -> None: ...

    def finish(self, state: State) -> None:
        self._run.finish(exit_code=0 if state == "finished" else 1)


Tracker = TensorBoard | MLflow | WeightsAndBiases
_KNOWN: dict[str, tuple[str, type[Tracker]]] = {  # the folder of each, and its class
    "tensorboard": ("tensorboard", TensorBoard),
    "mlflow": ("mlruns", MLflow),
    "wandb": (WANDB, WeightsAndBiases),
}


class Trackers:
    """The trackers of a run, none or several, begun with what ``metrics.jsonl`` holds so far."""

    def __init__(self, names: Sequence[str], run: RunDirectory, mode: Mode = "offline") -> None:
        self.trackers = list[Tracker]()
        for name in names:
            place, kind = _KNOWN[name]
            folder = run.path.absolute() / place
            folder.mkdir(exist_ok=True)
            for old in folder.iterdir():
                shutil.rmtree(old) if old.is_dir() and not old.is_symlink() else old.unlink()
            self.trackers.append(kind(run, folder, mode))
        for line in run.metrics() if names else ():
            self.record(line)

    def record(self, line: Document) -> None:
        """Log a line of ``metrics.jsonl``."""
        for tracker in self.trackers:
            if scalars := scalars_of(line):
                tracker.log(line["step"], scalars)

    def flush(self) -> None:
        """Write all that was recorded, so that a crash cannot lose it."""
        for tracker in self.trackers:
            tracker.flush()

    def finish(self, state: State) -> None:
        """Close them; ``state`` is how the run ended."""
        for tracker in self.trackers:
            tracker.finish(state)


def check_trackers(names: Sequence[str], mode: Mode = "offline") -> None:
    """Raise a ConfigError for a tracker whose package is not installed, or whose server nobody
    named."""
    if "mlflow" in names and mode == "online" and "MLFLOW_TRACKING_URI" not in os.environ:
        raise ConfigError(
            "training.tracker_mode=online sends to the server of MLflow that MLFLOW_TRACKING_URI "
            "names, and it is not set. Set it, e.g. to http://localhost:5000."
        )
    for name in names:
        found = find_spec(name)
        if found is None or found.origin is None:  # a folder of that name is not the package
            raise ConfigError(
                f"training.trackers={name} needs a package that is not installed. Run `pip install "
                f"'vicinal[{name}]'`."
            )


def _identity(run: RunDirectory) -> str:
    return sha256(f"{run.info['created']} {run.path.name}".encode()).hexdigest()[:8]


def scalars_of(line: Document) -> dict[str, float]:
    """Return the scalars of a line of ``metrics.jsonl`` by their names in a tracker; none of an
    event.

    >>> scalars_of({"kind": "step", "step": 3, "epoch": 0, "loss": 0.5, "hardness/w": 1.0})
    {'loss': 0.5, 'hardness/w': 1.0}
    >>> line = {"kind": "evaluation", "step": 4, "epoch": 0, "split": "validation"}
    >>> scalars_of({**line, "metrics": {"recall@1": 0.9}})
    {'validation/recall@1': 0.9}
    """
    if line["kind"] == "step":
        return {
            name: value for name, value in line.items() if name not in ("kind", "step", "epoch")
        }
    if line["kind"] == "evaluation":
        return {f"{line['split']}/{name}": value for name, value in line["metrics"].items()}
    return {}

"""The run directory: the one format that training writes and everything else reads.

``docs/howto/run_directory.md`` describes each file. All that a report shows, the run wrote here;
reading a run executes nothing from it.
"""

import json
import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np

from vicinal.errors import RunError, few
from vicinal.files import (
    PARTS,
    Document,
    check_links,
    file_hash,
    lock_open_file,
    naming,
    read_arrays,
    read_lines,
    read_object,
    write_arrays,
    write_json,
)

WANDB = "wandb"  # of the tracker: nothing else reads there, and it keeps links to its own cache
FORMAT = 1  # raised when a reader of the old format would misread the new one


class RunDirectory:
    """Names, reads and writes the parts of one run."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.info_path = self.path / "run.json"
        self.status_path = self.path / "status.json"
        self.model_path = self.path / "model.json"
        self.weights_path = self.path / "model.safetensors"
        self.metrics_path = self.path / "metrics.jsonl"
        self.results_path = self.path / "results.json"
        self.rows_path = self.path / "rows.npz"  # see ``data.check``
        self.report_path = self.path / "report.html"
        self.checkpoints_path = self.path / "checkpoints"
        self.artifacts_path = self.path / "artifacts"
        self.head_path = self.artifacts_path / "head_start.safetensors"
        self.thumbnails_path = self.artifacts_path / "thumbnails.png"
        self.retrieval_thumbnails_path = self.artifacts_path / "retrieval.jpg"

    @classmethod
    def create(cls, path: Path | str) -> "RunDirectory":
        """Create an empty run directory; an error if it cannot be written, before any work is
        done."""
        run = cls(path)
        run.check_unused()
        try:
            run.path.mkdir(parents=True, exist_ok=True)
            TemporaryFile(dir=run.path).close()
        except OSError as error:
            raise RunError(
                f"the run folder {run.path} cannot be written: {error}. Name another with --run."
            ) from error
        return run

    def check_unused(self) -> None:
        """Raise a RunError for a folder that holds anything but what a run left that was killed
        before it began."""
        if self.path.exists() and not self._stillborn():
            advice = (
                f", or resume it with `{self.resume_command()}`" if self.info_path.is_file() else ""
            )
            raise RunError(
                f"the run folder {self.path} is not an empty folder. Name another with "
                f"--run{advice}."
            )

    def _stillborn(self) -> bool:
        """Whether the folder holds no more than what is written before run.json, which makes it a
        run."""
        return self.path.is_dir() and all(
            path.name in (".lock", self.model_path.name, self.rows_path.name) or path.match(PARTS)
            for path in self.path.iterdir()
        )

    @classmethod
    def open(cls, path: Path | str) -> "RunDirectory":
        """Open an existing run of a format that this version reads."""
        run = cls(path)
        if not run.info_path.is_file():
            fault = "it has no run.json" if run.path.is_dir() else "there is no such folder"
            # The newest runs in it or beside it.
            folder = run.path if run.path.is_dir() else run.path.parent
            near = sorted(folder.glob("*/run.json"), key=lambda file: -file.stat().st_mtime)
            names = few([file.parent.name for file in near], 5)
            advice = f"Runs in {folder}: {names}." if near else "`vicinal train` makes one."
            raise RunError(f"{run.path} is not a run: {fault}. {advice}")
        check_links(run.path, without=WANDB)
        found = run.info.get("format")
        if found != FORMAT:
            raise RunError(
                f"{run.path} has run format {found}, this vicinal reads format {FORMAT}. Use the "
                f"version that wrote it ({run.info.get('vicinal', 'unknown')})."
            )
        return run

    def resume_command(self) -> str:
        """Return the command that resumes this run, quoted for a shell."""
        return shlex.join(["vicinal", "train", "--resume", str(self.path)])

    def next_commands(self, *, tested: bool) -> tuple[str, ...]:
        """Return commands to try on the finished run, which had test records or none, quoted for a
        shell."""
        part = ("--split", "test") if tested else ()
        words = ("index", *part), ("search", "--id", "0"), ("serve",)
        return tuple(shlex.join(["vicinal", word, str(self.path), *more]) for word, *more in words)

    @property
    def config(self) -> Document:
        """``preset``, ``title`` and ``slots`` of the experiment."""
        return config_of(self.info)

    @property
    def settings(self) -> Document:
        """``training`` and ``evaluation`` in one."""
        slots = self.config["slots"]
        return {**slots.get("training", {}), **slots.get("evaluation", {})}

    # -- reading ----------------------------------------------------------------------------------

    @property
    def info(self) -> Document:
        return read_object(self.info_path)

    @property
    def status(self) -> Document:
        status = read_object(self.status_path) if self.status_path.is_file() else {}
        if status.get("state") == "running":
            # Nobody locks the run any more if the process that trained is gone.
            with suppress(OSError), (self.path / ".lock").open("rb") as lock:
                if lock_open_file(lock.fileno(), wait=False):
                    status["state"] = "interrupted"
        return status

    @property
    def results(self) -> Document | None:
        """Return the table of the finished run, or None while there is none."""
        return read_object(self.results_path) if self.results_path.is_file() else None

    def metrics(self, kind: str | None = None) -> Iterator[Document]:
        """Yield the lines of ``metrics.jsonl``, or those of a kind, in order; a last line cut off
        by a crash is left out."""
        return (line for line in read_lines(self.metrics_path) if kind in (None, line.get("kind")))

    def arrays(self, name: str) -> dict[str, np.ndarray] | None:
        """Return the arrays of ``artifacts/NAME.npz``, or None where the run did not write them."""
        path = self.artifacts_path / f"{name}.npz"
        return read_arrays(path) if path.is_file() else None

    def document(self, name: str) -> Document | None:
        """Return the content of ``artifacts/NAME.json``, or None where the run did not write it."""
        path = self.artifacts_path / f"{name}.json"
        return read_object(path) if path.is_file() else None

    # -- writing ----------------------------------------------------------------------------------

    def write_info(self, info: Document) -> None:
        write_json(self.info_path, {"format": FORMAT, **info})

    def write_status(self, state: str, **facts: Any) -> None:
        write_json(self.status_path, {"state": state, **facts})

    def write_results(self, results: Document) -> None:
        write_json(self.results_path, dict(results))

    def write_arrays(self, name: str, **arrays: np.ndarray) -> None:
        write_arrays(self.artifacts_path / f"{name}.npz", arrays)

    def write_document(self, name: str, document: Document) -> None:
        write_json(self.artifacts_path / f"{name}.json", dict(document))


def model_fingerprint(run: RunDirectory) -> str:
    """Return network, preprocessing and weights of a run's selected model: what its vectors depend
    on."""
    return file_hash(run.model_path)[:32] + file_hash(run.weights_path)[:32]


class Journal:
    """An append-only file of JSON lines that can be cut back to an earlier length.

    A checkpoint notes ``length``; a resume cuts to it, so lines of lost steps never stand twice.
    """

    def __init__(self, path: Path, length: int | None = None) -> None:
        present = path.stat().st_size if path.exists() else 0
        if length is not None and present < length:
            raise RunError(
                f"{path} has {present} bytes, the checkpoint expects {length}: it was cut. Start "
                "a new run."
            )
        self._path = path
        self._file = path.open("ab")
        if length is not None:
            self._file.truncate(length)
            self._file.seek(0, os.SEEK_END)

    def append(self, line: Document) -> None:
        with naming(self._path):
            self._file.write((json.dumps(line, allow_nan=False) + "\n").encode())
            self._file.flush()

    def sync(self) -> int:
        """Force all lines to disk; return the length to note in a checkpoint."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        self._file.close()


def config_of(info: Mapping[str, Any]) -> Document:
    """Return ``preset``, ``title`` and ``slots`` of ``run.json``."""
    return {"preset": None, "title": None, "slots": {}, **info.get("config", {})}


def flat(settings: Mapping[str, Any], before: str = "") -> Document:
    """Return nested settings by their names with dots.

    >>> flat({"loss": {"name": "triplet"}, "steps": 5})
    {'loss.name': 'triplet', 'steps': 5}
    """
    found: Document = {}
    for key, value in settings.items():
        nested = isinstance(value, Mapping)
        found |= flat(value, f"{before}{key}.") if nested else {before + key: value}
    return found

"""``vicinal.train`` and the ``Run`` it returns: an experiment from Python."""

import shlex
import sys
from collections.abc import Mapping
from datetime import datetime
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import nn

from vicinal.config import Config, checked, compose, read
from vicinal.errors import ConfigError
from vicinal.retrieval.model import EmbeddingModel, load
from vicinal.run_directory import RunDirectory
from vicinal.training.console import Console
from vicinal.training.run import resume as resume_run
from vicinal.training.run import start


class Run:
    """A finished run.

    Attributes:
        path: its folder.
    """

    def __init__(self, path: str | PathLike[str], *, own: Mapping[str, Any] | None = None) -> None:
        self.directory = RunDirectory.open(Path(path))
        self.path = self.directory.path
        self._own = dict(own or {})

    def __repr__(self) -> str:
        recall = self.results.get("trained", {}).get("recall@1")
        return (
            f"Run({str(self.path)!r}"
            + ("" if recall is None else f", Recall@1 {100 * recall:.1f}")
            + ")"
        )

    @property
    def results(self) -> dict[str, dict[str, float]]:
        """Metrics on the test classes by row: ``raw pixels``, ``untrained``, ``head start`` and
        ``trained``."""
        return {
            row["name"]: row["metrics"] for row in (self.directory.results or {}).get("rows", [])
        }

    @property
    def config(self) -> dict[str, Any]:
        """The slots of the experiment as they were resolved."""
        return dict(self.directory.config["slots"])

    @cached_property
    def model(self) -> EmbeddingModel:
        """The selected model, loaded when it is first asked for."""
        given = self._own.get("model")
        module = given if isinstance(given, nn.Module) else getattr(given, "module", None)
        return load(self.path, module=module)

    def embed(self, images: Any, *, batch_size: int = 64) -> Any:
        """Embed images or feature vectors; see ``EmbeddingModel.embed``."""
        return self.model.embed(images, batch_size=batch_size)

    def search(self, images: Any, *, k: int = 10) -> list[list[tuple[str, str, float]]]:
        """Find the ``k`` nearest test records of each image: name, class and distance.

        ``vicinal index`` and ``vicinal search`` keep a collection of your own; this looks in the
        run's test classes.
        """
        from vicinal.data import own_data
        from vicinal.data.memory import adopt
        from vicinal.evaluation.neighbors import neighbors

        own = self._own.get("data")
        held = own is not None and not isinstance(own, (str, PathLike, Mapping))
        records = adopt(own).load() if held else own_data(self.directory)[1]
        records = records if records.captions is None else records.pictures()
        part = records.part("test") if (records.splits == "test").any() else records
        queries = torch.from_numpy(self.embed(images))
        gallery = torch.from_numpy(self.model.embed_records(part))
        found = neighbors(queries, min(k, len(part)), gallery=gallery)
        return [
            [
                (part.source.name(row), part.title(row), distance)
                for row, distance in zip(*nearest, strict=True)
            ]
            for nearest in zip(found.ids.tolist(), found.distances.tolist(), strict=True)
        ]

    def report(self) -> Path:
        """Write the report and return its path."""
        from vicinal.reports import write_report

        return write_report(self.path)


def train(
    data: Any = None,
    *,
    preset: str | None = None,
    run: str | PathLike[str] | None = None,
    resume: str | PathLike[str] | None = None,
    trust: Mapping[str, Any] | None = None,
    quiet: bool = False,
    **slots: Any,
) -> Run:
    """Train any model with any loss and method; the Python form of ``vicinal train``.

    Args:
        data: a folder of class folders, a table or an array file, the name of a data set;
            ``(inputs, labels)``, a data frame with a column ``label``, a data set of torch or of
            Hugging Face; or a ``Dataset``.
        preset: a preset or a TOML file to begin with; without one it follows from the data.
        run: folder to write; a new one in ``runs/`` if None.
        resume: go on with this run; objects of your own are given again in their slots, and
            ``training={"epochs": 31}`` trains longer than before.
        trust: classes of your own by ``module:Class`` that slots may name.
        quiet: print nothing.
        slots: ``transform``, ``model``, ``sampler``, ``loss``, ``method``, ``optimizer``,
            ``training``, ``evaluation``: a name, a dictionary of name and arguments, one of our
            objects, or an object of your own.

    >>> import vicinal
    >>> from vicinal.losses import MultiSimilarityLoss
    >>> from vicinal.methods import HDML
    >>> loss = MultiSimilarityLoss(alpha=2.0)
    >>> run = vicinal.train("pictures/", loss=loss, method=HDML(alpha=0.5))  # doctest: +SKIP
    """
    console = Console(quiet=quiet)
    if resume is not None:
        if isinstance(data, (str, PathLike)) or preset is not None or run is not None:
            raise ConfigError(
                "a resumed run keeps its data, preset and folder: give only the objects of your "
                "own."
            )
        own = slots if data is None else {**slots, "data": data}
        directory = resume_run(Path(resume), own=own, trust=trust, console=console)
        return Run(directory.path, own=own)
    title, layer = read(preset) if preset is not None else (None, {})
    given = checked({slot: value for slot, value in slots.items() if value is not None})
    if data is not None:
        given["data"] = data
    config = compose(layer, given, preset_name=title, trust=trust)
    folder = Path(run) if run is not None else fresh(config)
    command = f"vicinal.train(...) in {shlex.quote(Path(sys.argv[0] or 'python').name)}"
    directory = start(config, folder, command=command, console=console)
    return Run(directory.path, own=given)


def best(
    data: Any,
    *words: str,
    minutes: float = 30.0,
    run: str | PathLike[str] | None = None,
    quiet: bool = False,
) -> Run:
    """Find the settings that serve the data best and train them; the Python form of ``vicinal
    best``.

    Args:
        data: as for ``train``.
        words: settings that stay or are searched, as on the command line: ``"loss=triplet"``,
            ``"loss.margin=0.05..0.4:log"``.
        minutes: time for all, the last training included.
        run: folder of the search, in which the same call continues; the run is ``run`` in it.
        quiet: print nothing.

    >>> import vicinal
    >>> run = vicinal.best("pictures/", minutes=30)  # doctest: +SKIP
    """
    from vicinal.bench.best import search

    folder = None if run is None else Path(run)
    data = data if not isinstance(data, PathLike) else str(data)
    found = search(data, words, minutes=minutes, out=folder, console=Console(quiet=quiet))
    return Run(found.path)


def fresh(config: Config) -> Path:
    """Return a folder in ``runs/`` that does not exist yet, named by preset and time."""
    name = f"runs/{config.preset}-{datetime.now():%Y%m%d-%H%M%S}"
    names = (name, *(f"{name}-{number}" for number in range(1, 1000)))
    return next(path for path in map(Path, names) if not path.exists())

"""What is served: a run, its collection, its model, its map."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from vicinal.errors import DataError
from vicinal.evaluation.encoder import Encoder
from vicinal.parallel import pick_device
from vicinal.retrieval.asking import ExportedModel
from vicinal.retrieval.calibration import NAME, QUERY_RATE, Threshold, calibration
from vicinal.retrieval.collection import CollectionDirectory, Snapshot
from vicinal.retrieval.decisions import Annotations
from vicinal.retrieval.model import EmbeddingModel
from vicinal.run_directory import RunDirectory


@dataclass(frozen=True)
class Library:
    """All that requests are answered from.

    Attributes:
        run: what was trained.
        collection: what is searched; a request takes one snapshot of it.
        model: embeds pictures, feature vectors or texts.
        reader: embeds texts; None where the run has no text encoder.
        threshold: beyond which a neighbor is no match, as calibrated on the run's validation
            classes; or None.
        of_texts: another where texts ask for pictures.
        layout: makes the map of a snapshot in the place of `collection_map`.
    """

    run: RunDirectory
    collection: CollectionDirectory
    model: EmbeddingModel | ExportedModel
    reader: EmbeddingModel | None = None
    threshold: Threshold | None = None
    of_texts: Threshold | None = None
    layout: Callable[[Snapshot], Any] | None = None

    @cached_property
    def annotations(self) -> Annotations:
        return Annotations(self.collection.path)

    def snapshot(self) -> Snapshot:
        """Return the newest generation with the labels that were given here in place of the data's.

        Annotations that cannot be read change nothing here; asked for them, the server says what
        is wrong.
        """
        indexed = self.collection.snapshot()
        with suppress(DataError, OSError):
            return self.annotations.read(indexed).snapshot
        return indexed


def open_library(
    run: Path,
    *,
    collection: Path | None = None,
    device: str = "auto",
    rate: float | None = None,
    images: Sequence[str] = (),
    engine: str | None = None,
    graph: str | None = None,
    thresholds: Path | None = None,
) -> Library:
    """Open a run with its collection and model; nothing from the run is executed.

    Args:
        rate: of false matches, at which to calibrate the threshold for "no match"; by default a run
            that was calibrated before shows that of `0.001`, and another none.
        images: folders of pictures to show besides those of the run's own data.
        engine: address of the engine to ask in the place of the collection's own vectors.
        thresholds: the table that ``vicinal calibrate`` wrote, in the place of a rate.
        graph: of ``RUN/export``, by which pictures are embedded in the place of torch.
    """
    directory = RunDirectory.open(run)
    found = CollectionDirectory.of(directory, collection, images=images, engine=engine)
    model: EmbeddingModel | ExportedModel
    reader = None
    if graph is None:
        model, reader = load_asking(run, device=device)
    else:
        model = ExportedModel.of(directory, graph)
    threshold = Threshold.read(thresholds) if thresholds else None
    of_texts = None
    if threshold is None and (rate is not None or directory.arrays(NAME) is not None):
        there = pick_device(device)
        threshold = calibration(directory, device=there).threshold(rate or QUERY_RATE)
        if reader is not None and model.kind != "text":
            across = calibration(directory, device=there, texts=True)
            of_texts = across.threshold(rate or QUERY_RATE)
    return Library(directory, found, model, reader, threshold, of_texts)


def load_asking(
    run: Path, *, device: str = "auto"
) -> tuple["EmbeddingModel", "EmbeddingModel | None"]:
    """Load what embeds the queries of a collection, and what embeds texts, which may be the same,
    or None."""
    encoder = Encoder.load(RunDirectory.open(run), pick_device(device))
    asking = encoder.stream("query")
    held = encoder.stream("gallery")
    if not asking.embedder.reads_text:
        return EmbeddingModel(asking), None
    return EmbeddingModel(held), EmbeddingModel(asking)

"""What is served: a run, its collection, its model as a function of one picture, its map."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from PIL import Image

from vicinal.data.records import Kind
from vicinal.errors import ConfigError, DataError
from vicinal.retrieval.annotations import Annotations
from vicinal.retrieval.calibration import NAME, Threshold, distance_threshold
from vicinal.retrieval.collection import CollectionDirectory, Snapshot
from vicinal.retrieval.map import CollectionMap, collection_map
from vicinal.retrieval.model import EmbeddingModel, load_asking
from vicinal.run_directory import RunDirectory


@dataclass(frozen=True)
class Library:
    """All that requests are answered from.

    Attributes:
        run: what was trained.
        collection: what is searched; a request takes one snapshot of it.
        kind: what the run embeds.
        embed: the embedding [d] of one decoded picture; None where the run embeds features or
            texts.
        reader: embeds texts; None where the run has no text encoder.
        layout: the map of a snapshot; slow the first time, kept beside the generation.
        threshold: beyond which a neighbor is no match, as calibrated on the run's validation
            classes; or None.
    """

    run: RunDirectory
    collection: CollectionDirectory
    kind: Kind
    embed: Callable[[Image.Image], np.ndarray] | None
    layout: Callable[[Snapshot], CollectionMap]
    threshold: Threshold | None = None
    reader: EmbeddingModel | None = None

    @cached_property
    def annotations(self) -> Annotations:
        return Annotations(self.collection.path)

    def snapshot(self) -> Snapshot:
        """Return the newest generation with the labels that were given here in place of the data's.

        A journal that cannot be read changes nothing here; asked for annotations, the server says
        what is wrong.
        """
        indexed = self.collection.snapshot()
        with suppress(DataError, OSError):
            return indexed.relabeled(self.annotations.read(indexed).labels)
        return indexed


def open_library(
    run: Path,
    *,
    collection: Path | None = None,
    device: str = "auto",
    rate: float | None = None,
    images: Sequence[str] = (),
    engine: str | None = None,
) -> Library:
    """Open a run with its collection and model; nothing from the run is executed.

    Args:
        rate: of false matches, at which to calibrate the threshold for "no match"; by default a run
            that was calibrated before shows that of `0.001`, and another none.
        images: folders of pictures to show besides those of the run's own data.
        engine: address of the engine to ask in the place of the collection's own vectors.
    """
    directory = RunDirectory.open(run)
    found = CollectionDirectory.of(directory, collection, images=images, engine=engine)
    model, reader = load_asking(run, device=device)

    def embed(image: Image.Image) -> np.ndarray:
        row: np.ndarray = model.embed(image)[0]
        return row

    if found.snapshot().dim != model.dim:
        held = f"the collection {found.path} holds vectors of {found.snapshot().dim}"
        advice = "Index with this run, or serve the run that it was indexed with."
        raise ConfigError(f"{run} embeds into {model.dim} dimensions, but {held}. {advice}")
    threshold = None
    if rate is not None or directory.arrays(NAME) is not None:
        threshold = distance_threshold(
            directory,
            rate=rate,
            device=model.device,
            snapshot=found.snapshot(),
        )
    embeds = embed if model.kind == "images" else None
    return Library(directory, found, model.kind, embeds, collection_map, threshold, reader)

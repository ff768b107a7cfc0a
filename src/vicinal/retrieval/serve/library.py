"""What is served: a run, its collection, its model, its map."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from vicinal.errors import DataError
from vicinal.retrieval.calibration import NAME, QUERY_RATE, Threshold, calibration
from vicinal.retrieval.collection import CollectionDirectory, Snapshot
from vicinal.retrieval.decisions import Annotations, Decided
from vicinal.retrieval.model import EmbeddingModel, load_asking
from vicinal.retrieval.overview import CollectionMap, collection_map
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
        layout: the map of a snapshot; slow the first time, kept beside the generation.
    """

    run: RunDirectory
    collection: CollectionDirectory
    model: EmbeddingModel
    reader: EmbeddingModel | None = None
    threshold: Threshold | None = None
    layout: Callable[[Snapshot], CollectionMap] = collection_map

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
            return self._relabeled(indexed, self.annotations.read(indexed))
        return indexed

    @cached_property
    def _relabeled(self) -> Callable[[Snapshot, Decided], Snapshot]:
        """Relabels once for each change, not for each request."""
        return lru_cache(1)(lambda snapshot, decided: snapshot.relabeled(decided.labels))


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
    threshold = None
    if rate is not None or directory.arrays(NAME) is not None:
        counts = calibration(directory, device=model.device, snapshot=found.snapshot())
        threshold = counts.threshold(rate or QUERY_RATE)
    return Library(directory, found, model, reader, threshold)

"""What is served, and within which limits: a run, its collection, its model as a function of one picture, its map."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from PIL import Image

from vicinal.errors import ConfigError
from vicinal.retrieval.calibration import NAME, QUERY_RATE, Threshold, distance_threshold
from vicinal.retrieval.collection import CollectionDirectory, Snapshot
from vicinal.retrieval.map import CollectionMap, collection_map
from vicinal.retrieval.model import load
from vicinal.run_directory import RunDirectory

MEBIBYTE = 2**20
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP")  # of uploads, by content; what else Pillow reads is not offered


@dataclass(frozen=True)
class Limits:
    """Bounds of a request, all inclusive; the page and the API's description read the same numbers.

    Attributes:
        k: neighbors in one answer.
        listed: items in one page of a listing.
        upload_bytes: of a picture, counted while it arrives.
        upload_pixels: of a picture, read from its header before anything is decoded. 40 million cover a phone's
            camera and decode to 120 MB.
        upload_aspect: longer to shorter side of a picture.
        json_bytes: of any other body; a vector of 8,192 numbers in 20 digits fits six times.
        picture_side: longer side of a picture that is shown large.
        waiting: requests of one kind that may wait for a worker; the next one is answered 503.
    """

    k: int = 200
    listed: int = 200
    upload_bytes: int = 16 * MEBIBYTE
    upload_pixels: int = 40_000_000
    upload_aspect: int = 32
    json_bytes: int = 1 * MEBIBYTE
    picture_side: int = 1280
    waiting: int = 64

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise ConfigError(f"the server's limit `{name}` is at least 1; got {value}.")


@dataclass(frozen=True)
class Library:
    """All that requests are answered from.

    Attributes:
        run: what was trained.
        collection: what is searched; a request takes one snapshot of it.
        kind: what the run embeds.
        embed: the embedding [d] of one decoded picture; None where the run embeds features.
        layout: the map of a snapshot; slow the first time, kept beside the generation.
        threshold: beyond which a neighbor is no match, as calibrated on the run's validation classes; or None.
    """

    run: RunDirectory
    collection: CollectionDirectory
    kind: Literal["images", "features"]
    embed: Callable[[Image.Image], np.ndarray] | None
    layout: Callable[[Snapshot], CollectionMap]
    threshold: Threshold | None = None


def open_library(
    run: Path, *, collection: Path | None = None, device: str = "auto", max_false_match: float | None = None
) -> Library:
    """Open a run with its collection and model; nothing from the run is executed.

    Args:
        max_false_match: the rate at which to calibrate the threshold for "no match"; by default a run that was
            calibrated before shows that of ``QUERY_RATE``, and another none.
    """
    directory, found = RunDirectory.open(run), CollectionDirectory.of(run, collection)
    model = load(run, device=device, role="query")

    def embed(image: Image.Image) -> np.ndarray:
        row: np.ndarray = model.embed(image)[0]
        return row

    if found.snapshot().dim != model.dim:
        raise ConfigError(
            f"{run} embeds into {model.dim} dimensions, but the collection {found.path} holds vectors of "
            f"{found.snapshot().dim}. Index with this run, or serve the run that it was indexed with."
        )
    threshold = None
    if max_false_match is not None or directory.arrays(NAME) is not None:
        threshold = distance_threshold(directory, rate=max_false_match, usual=QUERY_RATE, device=model.device)
    return Library(directory, found, model.kind, embed if model.kind == "images" else None, collection_map, threshold)

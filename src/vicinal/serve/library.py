"""What is served: a run, its collection, its model as a function of one picture, and its map."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from PIL import Image

from vicinal.run_directory import RunDirectory
from vicinal.search.calibration import Threshold
from vicinal.search.collection import CollectionDirectory, Snapshot
from vicinal.search.map import CollectionMap


@dataclass(frozen=True)
class Library:
    """All that requests are answered from.

    Attributes:
        run: what was trained.
        collection: what is searched; a request takes one snapshot of it.
        kind: what the run embeds.
        embed: the embedding [d] of one decoded picture; None where the run embeds features.
        layout: the map of a snapshot; slow the first time, kept beside the generation.
        threshold: beyond which a neighbour is no match, as calibrated on the run's validation classes; or None.
    """

    run: RunDirectory
    collection: CollectionDirectory
    kind: Literal["images", "features"]
    embed: Callable[[Image.Image], np.ndarray] | None
    layout: Callable[[Snapshot], CollectionMap]
    threshold: Threshold | None = None

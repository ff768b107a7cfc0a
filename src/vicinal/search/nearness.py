"""How near is near enough: a distance that was named, or one that is calibrated at a false-match rate."""

from dataclasses import dataclass

import torch

from vicinal.errors import ConfigError
from vicinal.index.exact import Metric
from vicinal.run_directory import RunDirectory
from vicinal.search.calibration import calibration

# False-match rates where none is named. Among n things there are n²/2 pairs, so they have to be small; a dense group
# needs several near rows for each member, so there a single false match does less harm.
DUPLICATE_RATE, DENSE_RATE = 1e-5, 1e-4


@dataclass(frozen=True)
class Nearness:
    """A distance, where it comes from, and how often it deceives.

    Attributes:
        distance: in the units of the collection's metric.
        words: where it comes from, in a sentence.
        false_match: share of pairs of different classes that lie within it, or None where the distance was named.
    """

    distance: float
    words: str
    false_match: float | None


def nearness(
    run: RunDirectory,
    *,
    metric: Metric = "euclidean",
    distance: float | None = None,
    rate: float | None = None,
    usual: float = DUPLICATE_RATE,
    device: torch.device | None = None,
) -> Nearness:
    """The distance that was named, or that of a false-match rate on the run's validation classes.

    Args:
        run: whose validation classes calibrate.
        metric: of the collection.
        distance: takes the place of a calibration.
        rate: of false matches; None is ``usual``, or the least rate that so many validation pairs can tell.
        usual: the rate where none is named.
        device: where to embed the validation classes, which happens once for each model.
    """
    if distance is not None and rate is not None:
        raise ConfigError("--distance and --max-false-match both say how near is near enough. Give one of them.")
    if distance is not None:
        if not 0 <= distance < float("inf"):
            raise ConfigError(f"a distance is 0 or more, but --distance {distance} came.")
        return Nearness(distance, "The distance was named.", None)
    counted = calibration(run, device=device)
    found = counted.threshold(max(usual, 1 / int(counted.different.sum())) if rate is None else rate)
    words = (
        f"At {found.distance:.4f}, {found.false_match:.2g} of {found.pairs:,} pairs of different classes among the "
        f"{found.classes} validation classes would be taken for the same, and {found.true_match:.0%} of the pairs of "
        f"one class are."
    )
    # Calibrated on Euclidean distances; of rows of length 1, |a - b|² = 2 (1 - cos).
    scaled = found.distance**2 / 2 if metric == "cosine" else found.distance
    return Nearness(scaled, words, found.false_match)

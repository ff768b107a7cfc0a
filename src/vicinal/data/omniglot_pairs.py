"""Omniglot (Lake et al., Science 2015) across drawers: find a character in another hand, turned by any angle."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Int, UInt8
from PIL import Image

from vicinal.data.draws import uniform
from vicinal.data.omniglot import Omniglot
from vicinal.data.published import Missing
from vicinal.data.records import GALLERY, QUERY, ImageArray, Records
from vicinal.errors import ConfigError

WHITE = 255


@dataclass(frozen=True)
class OmniglotPairs:
    """A stand-in for two views of a place: drawers 1 to 10 ask, upright; drawers 11 to 20 answer, turned.

    Of every character the first ten drawers' drawings are queries. The other ten's are the gallery, each turned
    counter-clockwise by an angle of its own between 0 and 360 degrees, which is the column ``angle`` (0 for queries).
    The alphabets of the background set train and those of the evaluation set test, so test alphabets are unseen. So
    they are in validation: whole alphabets are held out, for a character's ``kin`` is its alphabet. The test gallery
    holds ``galleries`` drawings of each character, 1 by default: then each query has one answer, as a ground view has
    one aerial view. Validation characters, cut from the training ones, keep all ten.

    Args:
        path: the folder of the archives; ``$VICINAL_DATA`` and ``~`` are expanded.
        missing: whether a set that lacks drawings is refused or used; its name then says what it lacks.
        size: side of the pictures.
        galleries: gallery drawings of each test character, 1 to 10.
        seed: of the angles.
    """

    drawers: ClassVar[int] = 10  # that ask; the other ten answer
    path: str = "$VICINAL_DATA/omniglot"
    missing: Missing = "refuse"
    size: int = 32
    galleries: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.galleries <= self.drawers:
            raise ConfigError(
                f"a test character has 1 to {self.drawers} gallery drawings, but galleries = {self.galleries} came."
            )

    def load(self, *, strict: bool = True) -> Records:
        """Decode, turn and reduce the drawings. With ``strict=False`` it is Omniglot's own check that reads them."""
        fine = min(105, 2 * self.size)  # turned at twice the final size, so that strokes stay sharp
        whole = Omniglot(self.path, self.missing, fine).load(strict=strict)
        drawer = whole.columns["drawer"]
        kept = np.flatnonzero((whole.splits != "test") | (drawer <= self.drawers + self.galleries))
        records = whole.take(kept)
        roles = np.where(records.columns["drawer"] <= self.drawers, QUERY, GALLERY)
        # By a drawing's place in the whole set: `galleries` changes which are there, not how they are turned.
        angles = np.where(roles == GALLERY, 360 * uniform(self.seed, 0, kept, 1)[:, 0], 0.0)
        names = [records.source.name(row) for row in range(len(records))]
        source = records.source
        if strict and isinstance(whole.source, ImageArray):
            source = ImageArray(_turned(whole.source.pixels, kept, angles, self.size), names)
        return Records(
            name=whole.name.replace("Omniglot", "Omniglot pairs", 1),
            source=source,
            labels=records.labels,
            classes=records.classes,
            splits=records.splits,
            columns={
                **records.columns,
                "kin": records.columns["alphabet"],
                "role": roles.astype(np.int64),
                "angle": angles,
            },
        )


def _turned(
    drawings: UInt8[np.ndarray, "all s s"], rows: Int[np.ndarray, "n"], angles: Float[np.ndarray, "n"], size: int
) -> UInt8[np.ndarray, "n size size"]:
    """Drawings with a margin of an eighth, in which what turns may move, each turned by its angle and reduced."""
    side = drawings.shape[1]
    margin = side // 8
    pixels = np.empty((len(rows), size, size), dtype=np.uint8)
    for place, (row, angle) in enumerate(zip(rows.tolist(), angles.tolist(), strict=True)):
        sheet = Image.new("L", (side + 2 * margin,) * 2, WHITE)
        sheet.paste(Image.fromarray(drawings[row]), (margin, margin))
        if angle:
            sheet = sheet.rotate(angle, Image.Resampling.BILINEAR, fillcolor=WHITE)
        pixels[place] = np.asarray(sheet.resize((size, size), Image.Resampling.BILINEAR))
    return pixels

"""`glyphs`, the embedded default set: characters of six scripts, rendered from the fonts that matplotlib ships."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256

import numpy as np

from vicinal.data import alphabet
from vicinal.data.cache import cached
from vicinal.data.distortion import Distortion, distorted
from vicinal.data.draws import uniform
from vicinal.data.records import ImageArray, Records
from vicinal.data.splits import by_class
from vicinal.errors import ConfigError

VERSION = 1  # raised whenever the same settings would render other images: it keys the cache
_DISTORTION = Distortion()


@dataclass(frozen=True)
class Glyphs:
    """Several hundred characters as classes, each in many styles and distortions, split into train and test by class.

    Characters that are drawn alike are one class (see ``alphabet.classes_of_shape``). Images are grey, white on
    black. The same settings give the same images; they are rendered in seconds on first use and then kept in the
    user's cache.

    Args:
        seed: of distortions and of the split.
        per_class: renderings of each class.
        size: side of the images.
        test: share of the classes that are for testing.
    """

    seed: int = 0
    per_class: int = 24
    size: int = 32
    test: float = 0.5

    def __post_init__(self) -> None:
        if self.per_class < 2 or self.size < 8:
            raise ConfigError(
                f"glyphs need at least 2 renderings per class and 8 pixels a side, "
                f"but per_class = {self.per_class} and size = {self.size} came."
            )

    def load(self) -> Records:
        arrays = cached(f"glyphs-{self._key()}", self.render, self._whole)
        labels = np.repeat(np.arange(len(arrays["classes"])), self.per_class)
        classes = tuple(arrays["classes"].tolist())
        return Records(
            name="glyphs",
            source=ImageArray(arrays["pixels"], arrays["names"].tolist()),
            labels=labels,
            classes=classes,
            splits=by_class(labels, classes, self.test, "random", self.seed),
        )

    def render(self) -> dict[str, np.ndarray]:
        """``pixels`` [n h w], ``names`` [n] and ``classes`` [c]; rows stand class by class."""
        codes = np.array(alphabet.characters())
        drawings = alphabet.plain_drawings(codes.tolist())
        drawn = drawings.max(axis=(2, 3)) > 0
        shapes = alphabet.classes_of_shape(drawings)
        chosen_by_class = [self._chosen(label, members, drawn) for label, members in enumerate(shapes)]
        character, font = np.concatenate(chosen_by_class, axis=1)
        chosen = font * len(codes) + character
        flat = drawings.reshape(-1, *drawings.shape[2:])
        number = np.arange(len(chosen)) % self.per_class
        names = [
            f"U+{code:04X} {alphabet.FONTS[style]} {place:02d}"
            for code, style, place in zip(codes[character], font, number, strict=True)
        ]
        return {
            "pixels": distorted(flat, chosen, self.size, self.seed, _DISTORTION),
            "names": np.array(names),
            "classes": np.array([alphabet.title(codes[members].tolist()) for members in shapes]),
        }

    def _chosen(self, label: int, members: list[int], drawn: np.ndarray) -> np.ndarray:
        """Character and font [2, per_class] of each rendering of a class: fonts take turns, characters are drawn."""
        draws = uniform(self.seed, 2 + label, np.arange(self.per_class), 1)[:, 0]
        usable = np.flatnonzero(drawn[:, members].any(axis=1))
        fonts = usable[np.arange(self.per_class) % len(usable)]
        characters = []
        for font, draw in zip(fonts, draws, strict=True):
            known = [member for member in members if drawn[font, member]]
            characters.append(known[int(draw * len(known))])
        return np.stack([np.array(characters), fonts])

    def _whole(self, arrays: Mapping[str, np.ndarray]) -> bool:
        return len(arrays["pixels"]) == len(arrays["names"]) == len(arrays["classes"]) * self.per_class

    def _key(self) -> str:
        """A hash of everything that the images depend on."""
        settings = {"version": VERSION, "seed": self.seed, "per_class": self.per_class, "size": self.size}
        digest = sha256(json.dumps(settings | asdict(_DISTORTION)).encode())
        for name in alphabet.FONTS:
            digest.update((alphabet.font_folder() / f"{name}.ttf").read_bytes())
        return digest.hexdigest()[:16]

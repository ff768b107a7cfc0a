"""Dealing classes and their samples into batches, as from shuffled decks of cards: nothing comes twice before all came.

Every sampler here is made of two deals, each a few array operations however many classes there are: which classes
form each batch, and which samples of a class it shows each time that it comes up.
"""

import numpy as np
from jaxtyping import Float, Int

from vicinal.errors import ConfigError

MASK = 2**63 - 1


def generator(seed: int, epoch: int) -> np.random.Generator:
    """Random numbers that depend on (seed, epoch) alone."""
    return np.random.default_rng([seed & MASK, epoch])


class Members:
    """The rows of each class that has enough of them.

    Attributes:
        total: number of classes, with enough rows or not.
        excluded: number of classes that have fewer than ``least`` rows and are left out.
        sizes: number of rows of each class that stays.
    """

    def __init__(self, labels: np.ndarray, *, least: int) -> None:
        _, numbers, sizes = np.unique(np.asarray(labels), return_inverse=True, return_counts=True)
        stays = sizes >= least
        order = np.argsort(numbers, kind="stable")
        self._rows = order[stays[numbers[order]]]
        self.sizes: np.ndarray = sizes[stays]
        self._starts = np.cumsum(self.sizes) - self.sizes
        self.total, self.excluded = len(sizes), int((~stays).sum())

    def __len__(self) -> int:
        """Number of classes that stay."""
        return len(self.sizes)

    def strata(self, of_rows: np.ndarray) -> Int[np.ndarray, "c"]:
        """The stratum of each class that stays, from that of each row; a class in two strata is refused."""
        _, numbers = np.unique(of_rows, return_inverse=True)
        mine = numbers[self._rows]
        of_class = mine[self._starts]
        split = np.unique(np.repeat(np.arange(len(self)), self.sizes)[mine != np.repeat(of_class, self.sizes)])
        if len(split):
            raise ConfigError(
                f"a class lies in one stratum, but {len(split)} classes have rows in several. Mend `strata`."
            )
        return np.asarray(of_class)

    def deal_classes(
        self,
        rng: np.random.Generator,
        *,
        batches: int,
        classes: int,
        strata: Int[np.ndarray, "c"] | None = None,
    ) -> Int[np.ndarray, "batches classes"]:
        """Different classes for each batch; all come up once before one comes up again.

        The classes that are left over when a deck no longer fills a batch wait for the next, differently shuffled deck.
        With strata, each stratum's classes lie evenly spread in a deck, so that every batch mirrors the whole.
        """
        per_deck = len(self) // classes
        chance = rng.random((-(-batches // per_deck), len(self)))
        decks = chance.argsort(axis=1) if strata is None else _spread(chance, strata, rng)
        return decks[:, : per_deck * classes].reshape(-1, classes)[:batches]

    def deal_rows(
        self, rng: np.random.Generator, classes: Int[np.ndarray, "batches classes"], *, per_class: int
    ) -> Int[np.ndarray, "batches classes per_class"]:
        """Different rows of each class; all of its rows come up once before one comes up again.

        The rows that are left over when a deck no longer fills a hand wait for the next, differently shuffled deck.
        """
        flat = classes.ravel()
        hands = self.sizes[flat] // per_class  # that one deck of the class holds
        deck, hand = np.divmod(_occurrence(flat), hands)
        # One shuffle serves all decks: list the rows of each (class, deck) in use and sort each list at random.
        used, place = np.unique(deck * len(self) + flat, return_inverse=True)
        classes_used = used % len(self)
        lengths = self.sizes[classes_used]
        starts = np.cumsum(lengths) - lengths
        owner = np.repeat(np.arange(len(lengths)), lengths)
        within = np.arange(len(owner)) - starts[owner]
        rows = self._rows[self._starts[classes_used][owner] + within]
        shuffled = rows[np.lexsort((rng.random(len(rows)), owner))]
        first = starts[place] + hand * per_class
        return np.asarray(shuffled[first[:, None] + np.arange(per_class)]).reshape(*classes.shape, per_class)


def _spread(
    chance: Float[np.ndarray, "decks c"], strata: Int[np.ndarray, "c"], rng: np.random.Generator
) -> Int[np.ndarray, "decks c"]:
    """Decks in which the i-th of a stratum's m classes, shuffled, lies near the fraction i/m of the deck."""
    shuffled = np.lexsort((chance, np.broadcast_to(strata, chance.shape)), axis=1)  # stratum by stratum
    sizes = np.bincount(strata)
    stratum = np.repeat(np.arange(len(sizes)), sizes)
    within = np.arange(len(strata)) - (np.cumsum(sizes) - sizes)[stratum]
    place = (within + rng.random((len(chance), len(sizes)))[:, stratum]) / sizes[stratum]
    return np.take_along_axis(shuffled, place.argsort(axis=1), axis=1)


def _occurrence(values: np.ndarray) -> np.ndarray:
    """How often each value came before it: 0 for its first place, 1 for its second, ..."""
    order = np.argsort(values, kind="stable")
    grouped = values[order]
    first = np.concatenate([[True], grouped[1:] != grouped[:-1]])
    begins = np.maximum.accumulate(np.where(first, np.arange(len(values)), 0))
    result = np.empty(len(values), dtype=np.int64)
    result[order] = np.arange(len(values)) - begins
    return result

"""The base of all samplers, and batches of classes, pairs, triplets, views and episodes.

An epoch is a function of the seed and its number alone. Classes and samples are dealt as from
shuffled decks of cards: nothing is repeated before all were used. Every sampler is made of two
deals, each a few array operations however many classes there are: which classes form each batch,
and which samples of a class it shows each time that it comes up.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import combinations
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from numpy.random import Generator
from torch.utils.data import Sampler

from vicinal.arguments import Count, Limits, Natural, check_arguments
from vicinal.errors import ConfigError, DataError
from vicinal.tuples import Triplets

Labels = Sequence[Any] | np.ndarray
Plan = Int[np.ndarray, "batches rows"]
Dealt = Int[np.ndarray, "batches classes samples"]
Chosen = Int[np.ndarray, "batches classes"]
Batches = Annotated[int, Limits("[1, 1e6]")]  # of an epoch, which are planned at once
FEWEST = 2  # classes to tell apart, and samples of each to bring together
MASK = 2**63 - 1


def generator(seed: int, epoch: int) -> Generator:
    """Return random numbers that depend on (seed, epoch) alone."""
    return np.random.default_rng([seed & MASK, epoch])


class Members:
    """The rows of each class that has enough of them.

    Attributes:
        total: number of classes, with enough rows or not.
        excluded: number of classes that have fewer than ``least`` rows and are left out.
        classes: those that stay, rising.
        sizes: number of rows of each.
    """

    def __init__(self, labels: np.ndarray, *, least: int) -> None:
        classes, numbers, sizes = np.unique(
            np.asarray(labels), return_inverse=True, return_counts=True
        )
        stays = sizes >= least
        order = np.argsort(numbers, kind="stable")
        self._rows = order[stays[numbers[order]]]
        self.classes: np.ndarray = classes[stays]
        self.sizes: np.ndarray = sizes[stays]
        self._starts = np.cumsum(self.sizes) - self.sizes
        self.total = len(sizes)
        self.excluded = int((~stays).sum())

    def __len__(self) -> int:
        """Return the number of classes that stay."""
        return len(self.sizes)

    def strata(self, of_rows: np.ndarray) -> Int[np.ndarray, "c"]:
        """Return the stratum of each class that stays, from that of each row; a class in two strata
        is an error."""
        _, numbers = np.unique(of_rows, return_inverse=True)
        mine = numbers[self._rows]
        of_class: Int[np.ndarray, "c"] = mine[self._starts]
        if (mine != np.repeat(of_class, self.sizes)).any():
            raise ConfigError("a class lies in one stratum, but some classes have rows in several.")
        return of_class

    def deal_classes(
        self,
        rng: Generator,
        *,
        batches: int,
        classes: int,
    ) -> Chosen:
        """Deal different classes to each batch; all come up once before one comes up again.

        The classes that are left over when a deck no longer fills a batch wait for the next,
        differently shuffled deck.
        """
        per_deck = len(self) // classes
        decks = rng.random((-(-batches // per_deck), len(self))).argsort(axis=1)
        return decks[:, : per_deck * classes].reshape(-1, classes)[:batches]

    def deal_rows(
        self,
        rng: Generator,
        classes: Chosen,
        *,
        per_class: int,
    ) -> Int[np.ndarray, "batches classes per_class"]:
        """Deal different rows of each class; all of its rows come up once before one comes up
        again.

        The rows that are left over when a deck no longer fills a hand wait for the next,
        differently shuffled deck.
        """
        flat = classes.ravel()
        hands = self.sizes[flat] // per_class  # that one deck of the class holds
        # How often each class was drawn before.
        order = np.argsort(flat, kind="stable")
        grouped = flat[order]
        occurrence = np.empty_like(flat)
        occurrence[order] = np.arange(len(flat)) - np.searchsorted(grouped, grouped)
        deck, hand = np.divmod(occurrence, hands)
        # One shuffle serves all decks: list the rows of each (class, deck) in use and sort each
        # list at random.
        used, place = np.unique(deck * len(self) + flat, return_inverse=True)
        classes_used = used % len(self)
        lengths = self.sizes[classes_used]
        starts = np.cumsum(lengths) - lengths
        owner = np.repeat(np.arange(len(lengths)), lengths)
        within = np.arange(len(owner)) - starts[owner]
        rows = self._rows[self._starts[classes_used][owner] + within]
        shuffled = rows[np.lexsort((rng.random(len(rows)), owner))]
        first = starts[place] + hand * per_class
        return np.asarray(shuffled[first[:, None] + np.arange(per_class)]).reshape(
            *classes.shape, per_class
        )


class BatchShape(NamedTuple):
    """What a batch consists of: so many different classes, each with so many samples at least, and
    rows in all."""

    classes: int
    samples: int
    rows: int


@dataclass(eq=False, repr=False)
class BatchSampler(Sampler[list[int]], ABC):
    """Index lists, each a batch; a resumed run sees the very batches that the interrupted one would
    have seen.

    For a method: ``epoch(number)``. For torch: ``DataLoader(data, batch_sampler=sampler)``, where
        each pass is the next
    epoch; a loop that resumes says which one comes with ``set_epoch(number)``.

    >>> sampler: BatchSampler = PKSampler(np.arange(12) // 3, classes=2, per_class=3, seed=0)
    >>> list(sampler.epoch(5)) == list(sampler.epoch(5)), len(sampler)
    (True, 2)

    Attributes:
        labels: class of each row.
        seed: with the epoch it determines every batch.
        batch_size: rows in a batch. Where it is given, sizes that are not follow from it, and all
            of them shrink to what the data fill, which ``note`` says. It is then what a batch has.
        batches: batches per epoch; None for as many as the data fills once.
        layout: what a batch is, by a sampler's name in ``SAMPLERS``; None where methods need not
            know.
        members: the rows of the classes that are used.
    """

    labels: Labels
    _: KW_ONLY
    seed: int
    batch_size: Natural = 0
    batches: Batches | None = None

    layout: ClassVar[str | None] = None
    shrunk: ClassVar[str | None] = None  # how batches differ from what was asked for

    def __post_init__(self) -> None:
        self.labels = np.asarray(self.labels)
        check_arguments(self)
        if self.batch_size:
            self.fit()
        classes, samples, self.batch_size = self.shape()
        if not classes:
            raise ConfigError(
                f"{type(self).__name__} needs its sizes, or a batch_size from which they follow."
            )
        self.members = Members(self.labels, least=samples)
        self._epoch = 0
        if len(self.members) < classes:
            raise ConfigError(
                f"a batch of {type(self).__name__} needs {classes} classes with at least "
                f"{samples} samples each, but only {len(self.members)} of the "
                f"{self.members.total} classes here have that many. Ask for fewer classes or "
                "fewer samples of each, or add data."
            )

    def fit(self) -> None:
        """Set the sizes to what makes ``batch_size`` rows and is there."""

    @abstractmethod
    def shape(self) -> BatchShape:
        """Return what a batch consists of."""

    def plan(self, rng: Generator, batches: int) -> Plan:
        """Draw the rows of so many batches with ``rng``: their classes, then rows of each."""
        chosen = self.choose(rng, batches)
        rows = self.members.deal_rows(rng, chosen, per_class=self.shape().samples)
        return self.arrange(rows)

    def choose(self, rng: Generator, batches: int) -> Chosen:
        """Draw the classes of so many batches."""
        return self.members.deal_classes(rng, batches=batches, classes=self.shape().classes)

    def arrange(self, rows: Dealt) -> Plan:
        """Bring the rows of each class of each batch into the batch's order."""
        return rows.reshape(len(rows), -1)

    def epoch(self, number: int) -> list[list[int]]:
        """Return the batches of epoch ``number``."""
        return self.plan(generator(self.seed, number), len(self)).tolist()

    def set_epoch(self, number: int) -> None:
        """Say which epoch the next pass gives."""
        self._epoch = number

    def __iter__(self) -> Iterator[list[int]]:
        plan = self.epoch(self._epoch)
        # Or a loop that never calls ``set_epoch`` would see the same batches for ever.
        self._epoch += 1
        return iter(plan)

    def __len__(self) -> int:
        """Return the batches in an epoch: as many as were asked for, or as the rows of the classes
        in use fill once."""
        return self.batches or max(1, int(self.members.sizes.sum()) // self.shape().rows)

    def excluded(self) -> tuple[int, int, str]:
        """Return how many classes are left out, of how many, and what it is that they lack."""
        return (
            self.members.excluded,
            self.members.total,
            f"have fewer than {self.shape().samples} samples",
        )

    @property
    def note(self) -> str | None:
        """What a user should know before training, or None."""
        count, total, lack = self.excluded()
        left_out = (
            f"{count} of {total} classes {lack} and are left out of training batches."
            if count
            else None
        )
        return " ".join(note for note in (left_out, self.shrunk) if note) or None

    def noted(self, form: str, got: tuple[int, ...], asked: tuple[int, ...]) -> None:
        """Keep what ``note`` says where batches are smaller than was asked for."""
        less = f"{form.format(*got)} instead of {form.format(*asked)}"
        text = f"batches have {less}: the training part has no more."
        self.shrunk = None if got == asked else text  # type: ignore[misc]

    def units(
        self,
        unit: str,
        asked: int,
        rows: int,
        *,
        there: int | None = None,
        least: int = FEWEST,
        samples: str = "2 samples",
    ) -> int:
        """Return how many ``unit`` of different classes a batch has: as many as were ``asked`` for
        or fill ``batch_size``, but no more than the data fill.

        Args:
            unit: what is counted, for messages.
            asked: how many the settings ask for; 0 for as many as fill ``batch_size``.
            rows: rows of one unit.
            there: how many the data fill; None for the number of classes with 2 samples.
            least: the least that makes sense.
            samples: what a class must have to be counted, for messages.
        """
        asked = asked or self.batch_size // rows
        there = fillable(self.labels) if there is None else there
        if asked < least:
            raise ConfigError(
                f"a batch needs at least {least} {unit} of {rows} rows, got {asked} with "
                f"batch_size={self.batch_size}. Set training.batch_size={least * rows} or more."
            )
        if there < least:
            raise DataError(
                f"a batch needs at least {least} {unit} of different classes, but the training "
                f"classes that have {samples} are enough for {there}. Add data, or hold fewer "
                "classes out (training.validation)."
            )
        got = min(asked, there)
        self.noted(f"{{}} {unit}", (got,), (asked,))
        return got

    def fill(self, classes: int, per_class: int) -> tuple[int, int]:
        """Return P and K that the data fill.

        >>> sampler = PKSampler(np.repeat(np.arange(5), [8, 8, 8, 8, 3]), batch_size=20, seed=0)
        >>> sampler.fill(4, 4), sampler.fill(5, 4)
        ((4, 4), (5, 3))
        """
        if per_class < FEWEST:
            raise ConfigError(f"sampler.per_class is at least {FEWEST}, got {per_class}.")
        fits = self.units("classes", classes, per_class)
        enough = (k for k in range(per_class, 1, -1) if fillable(self.labels, k) >= fits)
        return fits, next(enough)


@dataclass(eq=False, repr=False)
class PKSampler(BatchSampler):
    """``classes`` classes with ``per_class`` samples each, class by class (Hermans et al. 2017).

    Classes are dealt from a shuffled deck, and so are the samples of each class, so that all come
    up before one comes up again. A class with fewer than ``per_class`` samples is left out;
    ``note`` says how many are.

    Args:
        labels: class of each row.
        classes: P; 0 for as many as fill ``batch_size``.
        per_class: K.
        seed: with the epoch it determines every batch.
        batches: batches per epoch; None for as many as the data fills once.

    >>> batch = PKSampler([0, 0, 1, 1, 1], classes=2, per_class=2, seed=0).epoch(0)[0]
    >>> sorted(batch)[:2], len(batch)
    ([0, 1], 4)
    """

    _: KW_ONLY
    classes: Natural = 0
    per_class: Count = 4

    layout = "classes"

    def shape(self) -> BatchShape:
        return BatchShape(self.classes, self.per_class, self.classes * self.per_class)

    def fit(self) -> None:
        """Take as many classes as were asked for, or all that have two samples; then as many
        samples of each, up to ``per_class``, as that many classes have."""
        asked = (self.classes or self.batch_size // self.per_class, self.per_class)
        self.classes, self.per_class = self.fill(*asked)
        self.noted("{} classes x {} samples", (self.classes, self.per_class), asked)


@dataclass(eq=False, repr=False)
class CategoryBalancedSampler(PKSampler):
    """A few categories in each batch, with equally many classes of each and ``per_class`` samples
    of each class.

    Classes of one category are harder to tell apart than any classes. Categories, the classes of
    each and the samples of each class are dealt from shuffled decks, so that categories come up
    equally often however large they are.

    Args:
        labels: class of each row.
        strata: the category of each row, in the slot ``sampler`` the name of a column; None: the
            narrowest level of a given hierarchy, or all are of one.
        categories: categories in a batch; None: 2, or as many as there are.
        classes: classes in a batch, as many of each category.
        per_class: K.
        seed: with the epoch it determines every batch.
        batches: batches per epoch; None for as many as the data fills once.

    >>> sampler = CategoryBalancedSampler(
    ...  np.arange(12) // 2, strata=np.arange(12) // 4, categories=1, classes=2, per_class=2, seed=0
    ... )
    >>> sorted(sorted(batch) for batch in sampler.epoch(0))
    [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    """

    _: KW_ONLY
    strata: str | Labels | None = None
    categories: Count | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        stratum = self.members.strata(self._strata())
        there = len(np.unique(stratum))
        self.categories = min(2, there) if self.categories is None else self.categories
        if self.classes % self.categories:
            raise ConfigError(
                f"a batch has as many classes of each category, got {self.classes} classes for "
                f"{self.categories} categories. Set classes to a multiple."
            )
        each = self.classes // self.categories
        self._groups = Members(stratum, least=each)  # whose rows are classes
        if len(self._groups) < self.categories:
            raise ConfigError(
                f"a batch needs {self.categories} categories with {each} classes of "
                f"{self.per_class} samples each, but only {len(self._groups)} of the {there} "
                "categories have that many. Ask for fewer."
            )

    def fit(self) -> None:
        asked = self.classes or self.batch_size // self.per_class
        categories = self.categories
        per_class = self.per_class
        fits, self.per_class = self.fill(asked, per_class)
        of_classes = Members(np.asarray(self.labels), least=self.per_class).strata(self._strata())
        sizes = np.sort(np.bincount(of_classes))[::-1]
        self.categories = min(categories or 2, int((sizes > 0).sum()), fits)
        # What the smallest of the largest categories has.
        each = min(fits // self.categories, int(sizes[self.categories - 1]))
        self.classes = self.categories * each
        got = (self.classes, self.categories, self.per_class)
        wanted = (asked, categories or self.categories, per_class)
        self.noted("{} classes of {} categories x {} samples", got, wanted)

    def _strata(self) -> np.ndarray:
        return np.zeros(len(self.labels)) if self.strata is None else np.asarray(self.strata)

    def choose(self, rng: Generator, batches: int) -> Chosen:
        groups = self.deal_categories(rng, batches, self.categories or 1)
        each = self.classes // groups.shape[1]
        return self._groups.deal_rows(rng, groups, per_class=each).reshape(batches, -1)

    def deal_categories(
        self, rng: Generator, batches: int, categories: int
    ) -> Int[np.ndarray, "batches categories"]:
        """Deal different categories to each batch."""
        return self._groups.deal_classes(rng, batches=batches, classes=categories)


@dataclass(eq=False, repr=False)
class HierarchicalSampler(CategoryBalancedSampler):
    """As `CategoryBalancedSampler`, but every combination of categories comes up before one comes
    up again.

    So each two categories meet equally often, as FastAP's authors (Cakir et al. 2019) sample.

    Args:
        labels: class of each row.
        strata: the category of each row, in the slot ``sampler`` the name of a column; None: the
            narrowest level of a given hierarchy, or all are of one.
        categories: categories in a batch; None: 2, or as many as there are.
        classes: classes in a batch, as many of each category.
        per_class: K.
        seed: with the epoch it determines every batch.
        batches: batches per epoch; None for as many as the data fills once.

    >>> sampler = HierarchicalSampler(
    ...     np.arange(12) // 2, strata=np.arange(12) // 4, classes=4, per_class=2, seed=0, batches=3
    ... )
    >>> sorted(sorted({row // 4 for row in batch}) for batch in sampler.epoch(0))
    [[0, 1], [0, 2], [1, 2]]
    """

    def deal_categories(
        self, rng: Generator, batches: int, categories: int
    ) -> Int[np.ndarray, "batches categories"]:
        every = np.array(list(combinations(range(len(self._groups)), categories)))
        each = Members(np.arange(len(every)), least=1)
        dealt = each.deal_classes(rng, batches=batches, classes=1)
        return np.asarray(every[dealt[:, 0]])


@dataclass(eq=False, repr=False)
class NPairSampler(BatchSampler):
    """``classes`` classes with two samples each, in blocks ``[a; p]``: row i and row N + i are a
    pair (Sohn 2016).

    Args:
        labels: class of each row; classes with one sample are left out.
        classes: N; 0 for half of ``batch_size``.
        seed: with the epoch it determines every batch.
        batches: batches per epoch; None for as many as the data fills once.

    >>> labels = [0, 0, 1, 1, 2]
    >>> (rows,) = NPairSampler(labels, classes=2, seed=0).epoch(0)[:1]
    >>> first, second, third, fourth = (labels[row] for row in rows)
    >>> first == third, second == fourth, first == second
    (True, True, False)
    """

    _: KW_ONLY
    classes: Natural = 0

    layout = "pairs"

    def shape(self) -> BatchShape:
        return BatchShape(self.classes, 2, 2 * self.classes)

    def fit(self) -> None:
        self.classes = self.units("pairs", self.classes, 2)

    def arrange(self, rows: Dealt) -> Plan:
        return super().arrange(rows.swapaxes(1, 2))


@dataclass(eq=False, repr=False)
class TripletSampler(BatchSampler):
    """``triplets`` triplets of 2T different classes, in blocks ``[a; p; n]`` (as HDML's authors
    form them).

    Row t and row T + t are of one class, row 2T + t of another; no class stands in two triplets of
    a batch.

    Args:
        labels: class of each row; classes with one sample are left out.
        triplets: T; 0 for a third of ``batch_size``.
        seed: with the epoch it determines every batch.
        batches: batches per epoch; None for as many as the data fills once.

    >>> labels = [0, 0, 1, 1]
    >>> (rows,) = TripletSampler(labels, triplets=1, seed=0).epoch(0)[:1]
    >>> anchor, positive, negative = (labels[row] for row in rows)
    >>> anchor == positive, anchor == negative
    (True, False)
    """

    _: KW_ONLY
    triplets: Natural = 0

    layout = "triplets"

    def shape(self) -> BatchShape:
        return BatchShape(2 * self.triplets, 2, 3 * self.triplets)

    def fit(self) -> None:
        there = fillable(self.labels) // 2
        self.triplets = self.units("triplets", self.triplets, 3, there=there, least=1)

    def plan(self, rng: Generator, batches: int) -> Plan:
        chosen = self.choose(rng, batches)
        pairs = self.members.deal_rows(rng, chosen[:, : self.triplets], per_class=2)
        negatives = self.members.deal_rows(rng, chosen[:, self.triplets :], per_class=1)
        return np.concatenate([pairs[..., 0], pairs[..., 1], negatives[..., 0]], axis=1)


# In the column ``role`` of records.
QUERY = 1
GALLERY = 2


@dataclass(eq=False, repr=False)
class CrossViewSampler(BatchSampler):
    """``classes`` classes with a query and a gallery image each, pair by pair: ``[q, g, q, g,
    ...]``.

    Pairs stand side by side, so that processes that share a batch share whole pairs. Classes are
    dealt from a shuffled deck, and so are the queries and the gallery images of each; who meets
    whom changes from epoch to epoch. A class without one of the two is left out; ``note`` says how
    many are.

    Args:
        labels: class of each row.
        classes: pairs in a batch, each of another class; 0 for half of ``batch_size``.
        seed: with the epoch it determines every batch.
        roles: 1 for a query, 2 for a gallery image; None lets any two rows of a class be a pair.
        batches: batches per epoch; None for as many as the data fills once.

    >>> CrossViewSampler([0, 0, 1, 1], classes=2, seed=0, roles=[1, 2, 2, 1]).epoch(0)
    [[3, 2, 0, 1]]
    """

    _: KW_ONLY
    classes: Natural = 0
    roles: Labels | None = None

    layout = "cross_view"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.roles is not None:
            labels = np.asarray(self.labels)
            roles = np.asarray(self.roles)
            usable = np.isin(labels, self._seen_from_both(self.classes))
            sides = [np.flatnonzero(usable & (roles == role)) for role in (QUERY, GALLERY)]
            self._sides = [
                (rows, Members(labels[rows], least=1)) for rows in sides
            ]  # the same classes in one order

    def shape(self) -> BatchShape:
        return BatchShape(self.classes, 2, 2 * self.classes)

    def fit(self) -> None:
        there = None if self.roles is None else len(self._seen_from_both(0))
        samples = "2 samples" if self.roles is None else "a query and a gallery image"
        self.classes = self.units("pairs", self.classes, 2, there=there, samples=samples)

    def plan(self, rng: Generator, batches: int) -> Plan:
        if self.roles is None:
            return super().plan(rng, batches)
        chosen = self._sides[0][1].deal_classes(rng, batches=batches, classes=self.classes)
        dealt = [
            rows[members.deal_rows(rng, chosen, per_class=1)[..., 0]]
            for rows, members in self._sides
        ]
        return np.stack(dealt, axis=2).reshape(batches, -1)

    def excluded(self) -> tuple[int, int, str]:
        if self.roles is None:
            return super().excluded()
        total = len(np.unique(self.labels))
        return total - len(self._sides[0][1]), total, "lack a query or a gallery image"

    def _seen_from_both(self, pairs: int) -> Int[np.ndarray, "c"]:
        """Return the classes with a query and a gallery image, enough for a batch of ``pairs``."""
        labels = np.asarray(self.labels)
        roles = np.asarray(self.roles)
        if len(roles) != len(labels):
            raise ConfigError(f"each of {len(labels)} rows has a role, got {len(roles)} roles.")
        both = np.intersect1d(labels[roles == QUERY], labels[roles == GALLERY])
        if len(both) < pairs:
            raise ConfigError(
                f"a batch of {pairs} pairs needs as many classes with a query and a gallery image "
                f"each, but only {len(both)} of the {len(np.unique(labels))} classes here have "
                "both. Ask for fewer pairs, or add data."
            )
        return both


@dataclass(eq=False, repr=False)
class EpisodeSampler(BatchSampler):
    """A training and a validation subset of disjoint labels, two samples of each class (DML-ALA,
    Sect. 3.3).

    Rows lie in blocks ``[a; p]`` of the training classes, then ``[a; p]`` of the validation
    classes; row t and row c + t of a block of c classes are a pair, and ``episode_triplets`` gives
    each pair its negative. The defaults are the paper's 100 and 20 samples; another ``batch_size``
    is shared out as they are. Where there are fewer
    classes than an episode asks for, both subsets shrink in proportion, and ``note`` says so.

    The paper does not say how it forms tuples. One pair of each class fills 100 + 20 samples
    evenly, and makes the "tuples of disjoint labels" on which it trains its baselines.

    Args:
        labels: class of each row; classes with one sample are left out.
        training_classes: half the training subset; 0 for 5 of 6 classes in ``batch_size``.
        validation_classes: half the validation subset; 0 for the sixth.
        disjoint: whether no class comes up twice in an episode; False is the paper's "random"
            (Table 1): every class of both subsets is drawn anew, only neighbors differ, and a small
            class may show a sample twice.
        seed: with the epoch it determines every batch.
        batches: batches per epoch; None for as many as the data fills once.

    >>> labels = np.repeat(np.arange(6), 2)
    >>> sampler = EpisodeSampler(labels, training_classes=4, validation_classes=2, seed=0)
    >>> sampler.training_rows, sampler.batch_size
    (8, 12)
    """

    _: KW_ONLY
    training_classes: Natural = 0
    validation_classes: Natural = 0
    disjoint: bool = True

    layout = "episodes"

    def __post_init__(self) -> None:
        if not self.batch_size:
            self._share_out(60)
        super().__post_init__()

    def fit(self) -> None:
        self.units("pairs", 0, 2, least=2 * FEWEST)
        self._share_out(self.batch_size // 2)

    def _share_out(self, pairs: int) -> None:
        """Set what was not given, and both in proportion to what there is."""
        validation = self.validation_classes or max(FEWEST, round(pairs / 6))
        training = self.training_classes or max(FEWEST, pairs - validation)
        asked = (training, validation)
        if min(asked) < FEWEST:
            raise ConfigError(
                f"training_classes and validation_classes are at least {FEWEST}, got {asked}."
            )
        there = fillable(self.labels)
        if there < sum(asked):  # where even the least does not fit, the least
            validation = max(FEWEST, round(there * validation / sum(asked)))
            training = max(FEWEST, there - validation)
        self.training_classes = training
        self.validation_classes = validation
        got = (training, validation)
        self.noted("{} classes for training and {} for validation", got, asked)

    def shape(self) -> BatchShape:
        classes = self.training_classes + self.validation_classes
        return BatchShape(classes, 2, 2 * classes)

    @property
    def training_rows(self) -> int:
        """Rows of the training subset; the rest of a batch is for validation."""
        return 2 * self.training_classes

    def choose(self, rng: Generator, batches: int) -> Chosen:
        if self.disjoint:
            return super().choose(rng, batches)
        subsets = self.training_classes, self.validation_classes
        walks = [_closed_walks(rng, batches, length, len(self.members)) for length in subsets]
        return np.concatenate(walks, axis=1)

    def arrange(self, rows: Dealt) -> Plan:
        blocks = np.split(rows.swapaxes(1, 2), [self.training_classes], axis=2)
        return np.concatenate([block.reshape(len(rows), -1) for block in blocks], axis=1)


def episode_triplets(rows: int, device: torch.device | None = None) -> Triplets:
    """Return one triplet for each pair of a block ``[a; p]``: its negative is the next pair's
    positive, in a circle.

    The sampler deals classes in random order, so the next class is a random other one: a
    derangement of the subset.

    >>> [part.tolist() for part in episode_triplets(6)]
    [[0, 1, 2], [3, 4, 5], [4, 5, 3]]
    """
    anchors, positives = torch.arange(rows, device=device).view(2, -1)
    return Triplets(anchors, positives, positives.roll(-1))


def _closed_walks(
    rng: Generator, batches: int, length: int, classes: int
) -> Int[np.ndarray, "batches length"]:
    """Draw classes of which no two neighbors are the same, the last and the first being neighbors,
    too."""
    walks = np.empty((batches, length), dtype=np.int64)
    open_ends = np.arange(batches)
    while len(open_ends):
        # Never 0: the next class is another one.
        steps = rng.integers(1, classes, (len(open_ends), length))
        steps[:, 0] = rng.integers(0, classes, len(open_ends))
        walks[open_ends] = steps.cumsum(axis=1) % classes
        open_ends = open_ends[walks[open_ends, 0] == walks[open_ends, -1]]
    return walks


def fillable(labels: Labels, samples: int = FEWEST) -> int:
    """Return how many classes have so many samples."""
    return len(Members(np.asarray(labels), least=samples))

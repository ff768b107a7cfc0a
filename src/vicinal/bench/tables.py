"""Tables as short descriptions: a row is a recipe with its settings, and adding one is one line (``catalogue.py``).

A method's row names its plain twin, which differs from it in the method alone; the page then shows the paired
difference. Every table brings the rows that need no training, made from the network of ``network``: the untrained
features by cosine, their PCA, and their whitened PCA.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from vicinal.bench.findings import FINDINGS
from vicinal.errors import ConfigError, unknown
from vicinal.training.listing import packaged_recipes

Protocol = Literal["validation", "final", "reality_check", "authors"]
PROTOCOLS: dict[Protocol, str] = {
    "validation": "the step is chosen on held-out training classes, then tested once",
    "final": "fixed steps on all training classes, the last step tested once",
    "reality_check": "4 class-disjoint folds, 128 dimensions each and their concatenation (Musgrave et al. 2020)",
    "authors": "the step is chosen on the TEST classes, as in many papers: too high, only beside published numbers",
}
REALITY_FOLDS, REALITY_DIM = 4, 128  # models of reality_check, and the size of each
REALITY_METRICS = ("map@r", "map@r 128-d", "recall@1", "recall@1 128-d")  # concatenated, and the mean of each alone
UNTRAINED, PCA, WHITENED = "untrained", "PCA", "whitened PCA"  # names of the rows without training
BASELINES = (UNTRAINED, PCA, WHITENED)


@dataclass(frozen=True)
class Row:
    """One line of a table.

    Attributes:
        name: what the page calls it.
        recipe: a packaged recipe's name, or a ``.py`` file.
        overrides: settings changed, as on the command line.
        twin: name of the row that differs in nothing but the method.
        trials: tuning trials behind its settings, None where they were not counted.
        published: the paper's numbers, as fractions, by metric.
        quick: whether it is among the rows of ``--quick``.
        held_out: what tuning's folds scored on held-out training classes at these settings; empty if it was not tuned.
    """

    name: str
    recipe: str
    overrides: tuple[str, ...] = ()
    twin: str | None = None
    trials: int | None = None
    published: Mapping[str, float] = field(default_factory=dict)
    quick: bool = False
    held_out: tuple[float, ...] = ()


@dataclass(frozen=True)
class Budget:
    """What each row of a table has for its tuning: the number of trials, on how many folds, cut and drawn by a seed."""

    trials: int
    folds: int = 4
    seed: int = 0


@dataclass(frozen=True)
class Readings:
    """A figure of scores against something that a method reads off itself, such as HDML's λ.

    Attributes:
        reading: the scalar's name in ``metrics.jsonl``; its mean over the middle fifth of the training is what counts.
        axis: what it is called.
        rows: the rows that are its points.
        level: a row drawn as a level line, to compare with.
    """

    reading: str
    axis: str
    rows: tuple[str, ...]
    level: str | None = None


@dataclass(frozen=True)
class Matrix:
    """A figure of differences to the twin: one line for each condition, one column for each method.

    Attributes:
        cells: by condition, then by method, the row's name. Conditions whose last word is the same belong together.
        levels: columns of plain rows, whose own score stands beside: by title, then by condition, the row's name.
    """

    cells: Mapping[str, Mapping[str, str]]
    levels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """Rows, and how they are run and read.

    Attributes:
        name: on the command line and of its files.
        title: above the table.
        says: a sentence on what holds, what does not and why; empty until somebody has looked.
        rows: those that train; ``network`` adds those that do not.
        network: name of the row whose untrained network gives the features of the untrained rows.
        dim: size of the embeddings, to which PCA reduces.
        metrics: columns; the first one is tested.
        seeds: how many, from 0 on; a claim needs 5.
        quick_overrides: settings of ``--quick`` on top of each row's.
        figure: what the page shows besides, drawn from the results.
        best_of: kinds of rows, by name; the best of each is named, chosen by held-out classes and never by the test.
        tuned: how its rows were tuned, where they were (``table_tuning``).
    """

    name: str
    title: str
    rows: tuple[Row, ...]
    network: str
    dim: int
    protocol: Protocol = "validation"
    metrics: tuple[str, ...] = ("recall@1", "map@r", "nmi")
    seeds: int = 5
    says: str = ""
    quick_overrides: tuple[str, ...] = ()
    figure: Readings | Matrix | None = None
    best_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tuned: Budget | None = None

    def row(self, name: str) -> Row:
        found = {row.name: row for row in self.rows}
        if name not in found:
            raise ConfigError(f"in table {self.name!r}: " + unknown("row", name, found))
        return found[name]

    def reduced(self) -> "Table":
        """The table of ``--quick``: few rows, little training, 2 seeds."""
        rows = tuple(
            replace(row, overrides=row.overrides + self.quick_overrides, published={})
            for row in self.rows
            if row.quick or row.name == self.network
        )
        there = {row.name for row in rows}
        rows = tuple(replace(row, twin=row.twin if row.twin in there else None) for row in rows)
        name, title = f"{self.name}-quick", f"{self.title}, reduced"
        return replace(self, name=name, title=title, rows=rows, seeds=2, says="", figure=None, best_of={})

    def under(self, protocol: str) -> "Table":
        """The same rows under another protocol, as a table of its own."""
        if protocol not in PROTOCOLS:
            raise ConfigError(unknown("protocol", protocol, PROTOCOLS))
        if protocol == self.protocol:
            return self
        named = next(name for name in PROTOCOLS if name == protocol)
        name = f"{self.name}-{protocol}"
        other = replace(self, name=name, protocol=named, says=FINDINGS.get(name, ""))
        if named != "reality_check":
            return other
        return replace(other, metrics=REALITY_METRICS, dim=REALITY_FOLDS * REALITY_DIM)  # PCA as wide as the models

    def check(self) -> "Table":
        """Refuse what cannot be run, before anything is."""
        names = [row.name for row in self.rows]
        twice = sorted({name for name in names if names.count(name) > 1 or name in BASELINES})
        if twice:
            raise ConfigError(
                f"table {self.name!r} has rows of one name, or of the name of a row that every table has: "
                f"{', '.join(twice)}. Name them apart."
            )
        if self.protocol not in PROTOCOLS:
            raise ConfigError(f"table {self.name!r}: " + unknown("protocol", self.protocol, PROTOCOLS))
        if self.seeds < 1 or not self.metrics:
            raise ConfigError(f"table {self.name!r} needs a seed and a metric, but has {self.seeds}, {self.metrics}.")
        self.row(self.network)
        known = packaged_recipes()
        for row in self.rows:
            if row.twin is not None:
                self.row(row.twin)
            if not row.recipe.endswith(".py") and row.recipe not in known:
                raise ConfigError(f"row {row.name!r} of table {self.name!r}: " + unknown("recipe", row.recipe, known))
        for name in (*self._drawn(), *(name for names in self.best_of.values() for name in names)):
            self.row(name)
        return self

    def _drawn(self) -> list[str]:
        """The rows that the figure asks for."""
        match self.figure:
            case Readings(rows=rows, level=level):
                return [*rows, *([] if level is None else [level])]
            case Matrix(cells=cells, levels=levels):
                return [name for line in (*cells.values(), *levels.values()) for name in line.values()]
        return []


def with_twin(
    name: str,
    recipe: str,
    overrides: tuple[str, ...] = (),
    *,
    trials: int | None = None,
    published: Mapping[str, float] | None = None,
) -> tuple[Row, Row]:
    """A method's row after that of its plain twin, for recipes whose setting ``variant=plain`` leaves the method out.

    >>> [(row.name, row.overrides, row.twin) for row in with_twin("HDML", "glyphs_hdml", ("epochs=5",))]
    [('HDML: plain', ('epochs=5', 'variant=plain'), None), ('HDML', ('epochs=5',), 'HDML: plain')]
    """
    twin = Row(f"{name}: plain", recipe, (*overrides, "variant=plain"), trials=trials)
    return twin, Row(name, recipe, overrides, twin=twin.name, trials=trials, published=published or {})

"""Which units ANML's Table 2 (Song et al. 2022) is made of: sets, random splits, methods. Loads nothing."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

NAME, TITLE = "anml_linear", "ANML's linear methods on 15 tables (Song et al. 2022, Table 2)"
# By training cost: samples, then features.
SETS = ("iris", "wine", "glass", "solar_flare", "ecoli", "cars", "monk1", "australian", "vehicle", "german", "isolet1",
        "coil20", "usps", "pendigits", "letter")  # fmt: skip


@dataclass(frozen=True)
class Unit:
    """What is measured at a time.

    Attributes:
        budget: configurations that are tried where the training part is small.
        raced: configurations that race where it is large.
    """

    set: str
    split: int
    method: str
    budget: int
    raced: int

    @property
    def key(self) -> tuple[str, int, str]:
        """By which its result is found again."""
        return self.set, self.split, self.method

    def __str__(self) -> str:
        return f"{self.set} {self.split} {self.method}"


@dataclass(frozen=True)
class Plan:
    """Which units a table is made of.

    Attributes:
        name: of the pages.
        command: that makes it.
        kept: the name of its results file.
    """

    name: str
    title: str
    command: str
    kept: str
    sets: tuple[str, ...]
    splits: int
    budget: int
    raced: int

    def units(self, methods: Sequence[str]) -> Iterator[Unit]:
        """Split by split, so that a run that is stopped has whole splits of all sets, and in each the long ones first,
        so that it does not end with one that all wait for."""
        for number in range(self.splits):
            for name in reversed(self.sets):
                for method in reversed(methods):
                    yield Unit(name, number, method, self.budget, self.raced)


FULL = Plan(NAME, TITLE, f"vicinal bench {NAME}", "tabular", SETS, splits=30, budget=30, raced=12)
QUICK = replace(
    FULL,
    name=f"{NAME}-quick",
    title="ANML's linear methods on 9 tables, reduced (Song et al. 2022, Table 2)",
    command=f"{FULL.command} --quick",
    kept="tabular_reduced",
    sets=SETS[:9],
    splits=5,
    budget=8,
    raced=8,
)

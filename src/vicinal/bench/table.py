"""Tables of experiments as data: rows, their baselines, seeds and protocol.

A table lives in a Python file of the user's, which ``vicinal bench FILE.py`` runs::

    TABLE = Table(
        "HDML on CUB-200",
        baseline("N-pair", loss="n_pair"),
        row("HDML", method="hdml", against="N-pair"),
        row("HDML, no hardness", method=("hdml", {"alpha": 0}), against="N-pair"),
        preset="cub",
        steps=5_000,
        seeds=5,
    )

A row has the slots of the table, then those of its baseline, then its own: it differs from its
baseline in what it says itself and in nothing else. Every table also gets three rows without
training: the untrained network's features, their PCA and their whitened PCA.
"""

import copy
import os
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from vicinal.arguments import class_name
from vicinal.config import from_toml, from_words
from vicinal.config import merged as merged_slots
from vicinal.errors import ConfigError, check_known

ProtocolName = Literal["validation", "final", "reality_check"]
PROTOCOLS: dict[ProtocolName, str] = {
    "validation": "the step is chosen on held-out training classes, then tested once",
    "final": "fixed steps on all training classes, the last step tested once",
    "reality_check": "4 class-disjoint folds, 128 dimensions each and their concatenation "
    "(Musgrave et al. 2020)",
}
REALITY_FOLDS = 4  # models of reality_check, and the size of each
REALITY_DIM = 128
# Concatenated, and the mean of each alone.
REALITY_METRICS = (
    "map@r",
    "map@r 128-d",
    "recall@1",
    "recall@1 128-d",
)
UNTRAINED, PCA, WHITENED = UNTRAINED_ROWS = ("untrained", "PCA", "whitened PCA")
# What changes how fast a run is and what its report shows, not what it computes.
NO_MATTER = {
    "training": (
        *("seed", "device", "workers", "resident", "cache"),
        *("compile", "cuda_graph", "checkpoint_seconds", "trackers", "tracker_mode"),
    ),
    "evaluation": ("artifacts", "batch_size"),
}


@dataclass(frozen=True)
class Row:
    """One line of a table; ``row`` and ``baseline`` write it.

    Attributes:
        name: its name on the page.
        own: the slots that it changes.
        against: the row that it is compared with and whose slots it starts from.
        search: what ``--trials`` searches, as ``key=low..high`` and the like; see ``tuning``.
        trials: settings that were tried before these were chosen; None where they were not counted.
        published: numbers that a paper prints for it, as fractions, by metric.
        extra: words on top, of the tuning; rows compared with it do not start from them.
        held_out: scores of its settings on the folds of a tuning.
        former: whether it was recorded with settings that are gone: shown, never run.
    """

    name: str
    own: Mapping[str, Any] = field(default_factory=dict)
    against: str | None = None
    search: tuple[str, ...] = ()
    trials: int | None = None
    published: Mapping[str, float] = field(default_factory=dict)
    extra: tuple[str, ...] = ()
    held_out: tuple[float, ...] = ()
    former: bool = False


def row(
    name: str,
    *words: str,
    against: str | None = None,
    search: Sequence[str] = (),
    trials: int | None = None,
    published: Mapping[str, float] | None = None,
    former: bool = False,
    **slots: Any,
) -> Row:
    """Make a row by words (``"loss.alpha=2"``), by slots (``method=("hdml", {"alpha": 0})``), or
    both.

    >>> row("HDML", "method.alpha=0.5", method="hdml", against="N-pair").own
    {'method': {'name': 'hdml', 'alpha': '0.5'}}
    """
    own = layer(*words, **slots)
    return Row(name, own, against, tuple(search), trials, published or {}, former=former)


baseline = row  # the same, where others are compared with it; it may itself be ``against`` another


def layer(*words: str, **slots: Any) -> dict[str, Any]:
    """Combine slots and words into one dictionary of slots."""
    preset = slots.pop("preset", None)
    base = {"preset": preset} if preset else {}
    if str(preset).endswith(".toml"):
        base = from_toml(Path(preset))
    pairs = {
        slot: {"name": value[0], **value[1]}
        if isinstance(value, tuple) and len(value) == 2
        else value
        for slot, value in slots.items()
    }
    return merged(base, pairs, from_words(words))


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """The later slots over the earlier, as an experiment composes them, and the last preset."""
    preset = next((layer["preset"] for layer in reversed(layers) if "preset" in layer), None)
    return ({"preset": preset} if preset else {}) | merged_slots({}, *layers)


@dataclass(frozen=True)
class Budget:
    """What each row has for its tuning: trials on class-disjoint folds, both drawn by a seed."""

    trials: int
    folds: int = 4
    seed: int = 0


class Table:
    """Rows, how they are run, and what was found.

    Args:
        title: above the table.
        rows: those that train.
        name: of its files; the title in lower case by default.
        slots: what all rows have, as for ``row``.
        words: the same as words.
        steps: number of updates of every row, short for ``training.steps``.
        protocol: one of ``PROTOCOLS``.
        metrics: columns; differences are tested in the first.
        seeds: how many, from 0 on; a claim needs 5.
        network: the row whose untrained network gives the rows without training; the first by
            default.
        finding: what holds and what does not, in a sentence or two.
        findings: the same of its variants, by protocol or ``tuned``.
        remark: from the results (an ``Outcome``) to a sentence that follows from them, such as
            which row held-out classes choose.
        figure: what the page shows besides the table: an object with ``rows()``, the rows that it
            shows; ``draw(summary)``, a figure of matplotlib or None; and ``excerpt(summary)``, the
            lines of Markdown that stand in place of the table, or None.
        search: what ``--trials`` searches for every row, besides the row's own.
        expected: mean and tolerance of the first metric by row; a value outside is a regression,
            and an error.
        tuned: how its rows were tuned, where they were.
    """

    def __init__(
        self,
        title: str,
        *rows: Row,
        name: str = "",
        words: Sequence[str] = (),
        steps: int | None = None,
        protocol: ProtocolName = "validation",
        metrics: Sequence[str] = ("recall@1", "map@r", "nmi"),
        seeds: int = 5,
        network: str = "",
        finding: str = "",
        findings: Mapping[str, str] | None = None,
        remark: Callable[[Any], str] | None = None,
        figure: Any = None,
        search: Sequence[str] = (),
        expected: Mapping[str, tuple[float, float]] | None = None,
        tuned: Budget | None = None,
        **slots: Any,
    ) -> None:
        self.title = title
        self.rows = rows
        self.protocol = protocol
        self.seeds = seeds
        self.name = name or "_".join(
            "".join(c if c.isalnum() else " " for c in title.lower()).split()
        )
        self.common = merged(
            layer(*words, **slots), {"training": {"steps": steps}} if steps else {}
        )
        self.metrics = tuple(metrics)
        self.network = network
        self.finding = finding
        self.findings = dict(findings or {})
        self.remark = remark
        self.figure = figure
        self.tuned = tuned
        self.expected = dict(expected or {})
        self.search = tuple(search)
        self.file = ""  # which file defines it, under which name
        self.origin = self.name
        self._check()
        self.network = network or rows[0].name

    @property
    def source(self) -> str:
        """What names it on a command line."""
        return f"{self.file}::{self.origin}" if self.file else self.origin

    def replace(self, **changes: Any) -> "Table":
        """Copy it with other attributes."""
        changed = copy.copy(self)
        vars(changed).update(changes)
        return changed

    def row(self, name: str) -> Row:
        found = {row.name: row for row in self.rows}
        check_known("row", name, found, f"in table {self.name!r}: ")
        return found[name]

    def layers(self, row: Row) -> list[Mapping[str, Any]]:
        """What a row is composed of: the table's slots, its baseline's, its own."""
        chain = [row.own]
        before = row
        while before.against is not None:
            before = self.row(before.against)
            chain.insert(0, before.own)
        return [self.common, *chain, from_words(row.extra)]

    def under(self, protocol: str) -> "Table":
        """The same rows under another protocol, as a table of its own."""
        check_known("protocol", protocol, PROTOCOLS)
        if protocol == self.protocol:
            return self
        metrics = REALITY_METRICS if protocol == "reality_check" else self.metrics
        finding = self.findings.get(protocol, "")
        return self.replace(
            name=f"{self.name}-{protocol}", protocol=protocol, metrics=metrics, finding=finding
        )

    def _check(self) -> None:
        if not self.rows:
            raise ConfigError(f"table {self.name!r} has no rows.")
        names = [*UNTRAINED_ROWS, *(row.name for row in self.rows)]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigError(
                f"table {self.name!r}: the names {', '.join(twice)} are used twice, or are those "
                "of the rows without "
                f"training that every table has. Rename them."
            )
        check_known("protocol", self.protocol, PROTOCOLS, f"table {self.name!r}: ")
        for row in self.rows:
            seen = [row.name]
            while (other := self.row(seen[-1]).against) is not None:
                if other in seen:
                    raise ConfigError(
                        f"table {self.name!r}: {' against '.join([*seen, other])} is a circle."
                    )
                seen.append(other)
        shown = self.figure.rows() if self.figure else ()
        for name in {*shown, *self.expected, self.network or self.rows[0].name} - {*UNTRAINED_ROWS}:
            self.row(name)


def load_tables(source: str) -> list[Table]:
    """Load the tables of ``FILE.py``, or one of them, ``FILE.py::NAME``.

    The file is run because the user names it; modules beside it can be imported by it.
    """
    text, _, name = source.partition("::")
    path = Path(text)
    if path.suffix != ".py" or not path.is_file():
        raise ConfigError(
            f"a table is a Python file, such as experiments/hdml.py, got {text!r}, which is none."
        )
    folder = str(path.resolve().parent)
    before = set(sys.modules)
    sys.path.insert(0, folder)
    try:
        values = list(runpy.run_path(str(path)).values())
    finally:
        sys.path.remove(folder)
        # Another file may mean another module by the same name.
        for module in set(sys.modules) - before:
            if str(getattr(sys.modules[module], "__file__", None) or "").startswith(
                folder + os.sep
            ):
                del sys.modules[module]
    nested = [
        one for value in values for one in (value if isinstance(value, (list, tuple)) else (value,))
    ]
    found = {one.name: one.replace(file=text) for one in nested if isinstance(one, Table)}
    if not found:
        raise ConfigError(f"{path} defines no Table at its top level.")
    if not name:
        return list(found.values())
    check_known("table", name, found, f"in {path}: ")
    return [found[name]]


def slots_hash(slots: Mapping[str, Any]) -> str:
    """A short hash of what a row sets, by which its results are found again.

    Spelling does not count (``1e-4`` or ``0.0001``, words or numbers), nor does what only changes
    speed. What a row leaves to presets and defaults belongs to the version of vicinal, which
    results name by commit.
    """
    counted = {}
    for slot, value in slots.items():
        if isinstance(value, Mapping):
            value = {key: part for key, part in value.items() if key not in NO_MATTER.get(slot, ())}
        if value != {}:
            counted[slot] = value
    return sha256(repr(canonical(counted)).encode()).hexdigest()[:10]


def canonical(value: Any) -> Any:
    if isinstance(value, Mapping):
        return sorted((key, canonical(part)) for key, part in value.items())
    if isinstance(value, str) and "," in value:
        value = value.strip("()[] ").split(",")
    if isinstance(value, (list, tuple)):
        return [canonical(part) for part in value]
    if value is None or isinstance(value, (bool, int, float, str, Path)):
        text = str(value).strip().lower()
        try:
            return repr(float(text))
        except ValueError:
            return str(value).strip() if text not in ("true", "false", "none") else text
    return class_name(type(value))

"""Progress of a run for its user: a bar in a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from rich.console import Console as RichConsole
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

PLAIN_SECONDS = 10.0  # between two lines when nobody watches a bar


def spell(seconds: float) -> str:
    """Return a time as one says it.

    >>> spell(42), spell(750), spell(9000)
    ('42 s', '12 min', '2 h 30 min')
    """
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def sparkline(values: Sequence[float]) -> str:
    """Draw the last 20 numbers, from their lowest to their highest.

    >>> sparkline([0.1, 0.4, 0.3, 0.8])
    '▁▄▃█'
    """
    last = values[-20:]
    low = min(last, default=0.0)
    span = max(last, default=0.0) - low
    return "".join("▁▂▃▄▅▆▇█"[round(7 * (value - low) / span) if span else 0] for value in last)


class Console:
    """Prints lines and follows training; silent when ``quiet``."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self._rich = RichConsole(file=sys.stderr, quiet=quiet, soft_wrap=True, highlight=False)

    def line(self, text: str, *, warning: bool = False) -> None:
        """One line of plain text; nothing in it is taken for markup."""
        self._rich.print(f"[bold yellow]{escape(text)}[/]" if warning else escape(text))

    @contextmanager
    def following(self, total: int, done: int, title: str) -> "Iterator[Follower]":
        """Follow ``total`` items of which ``done`` are already behind us."""
        if not self._rich.is_terminal:
            yield Follower(self, total, done, title)
            return
        progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[facts]}"),
            TimeRemainingColumn(compact=True),
            console=self._rich,
            transient=True,
            expand=True,
            # Over an hour: jobs may take longer than the half minute that rich looks back.
            speed_estimate_period=3600,
        )
        with progress:
            progress.add_task(escape(title), total=total, completed=done, facts="")
            yield Follower(self, total, done, title, progress)


@dataclass
class Follower:
    """Progress through a known number of items."""

    console: Console
    total: int
    first: int
    title: str
    progress: Progress | None = None

    def __post_init__(self) -> None:
        self._start = self._last = time.monotonic()

    def advance(self, done: int, facts: str = "", run_left: float | None = None) -> None:
        """Report that ``done`` items are behind us, with what is worth seeing now.

        ``run_left`` are the seconds until the end of the run, of which these items are a part.
        """
        if run_left is not None:
            facts += (
                f"  run {spell(run_left)} left, until "
                f"{datetime.now() + timedelta(seconds=run_left):%H:%M}"
            )
        if self.progress is not None:
            (task,) = self.progress.task_ids
            self.progress.update(task, completed=done, facts=escape(facts))
            return
        now = time.monotonic()
        since = self._start if done == self.total else self._last
        if now - since >= PLAIN_SECONDS:
            self._last = now
            words = [f"{self.title} {done}/{self.total}", facts]
            if done > self.first:
                left = (now - self._start) / (done - self.first) * (self.total - done)
                words.append(f"{'' if run_left is None else 'epoch '}{spell(left)} left")
            self.console.line("  ".join(words))

"""Ctrl-C between steps: ask to stop once, and the run stops where it can be resumed."""

import os
import signal
import threading
import time
from types import FrameType, TracebackType

from vicinal.parallel import Agreement, ContactError, first, processes

HEADSTART_SECONDS = 0.5  # most errors meet all processes: the first one reports those
ECHO_SECONDS = 1.0  # a terminal and a launcher may both pass on one and the same Ctrl-C


class Interrupted(KeyboardInterrupt):
    """Every process has stopped after the same step, as was asked for."""


class Interruption:
    """While entered, the first SIGINT or SIGTERM asks to stop; a later SIGINT interrupts at once.

    A signal that cut a step in half would leave weights and optimizer out of step, so the step is finished first.
    """

    def __init__(self) -> None:
        self._asked_at: float | None = None
        self._agreement = Agreement()
        self._launcher = os.getppid()
        self._before: dict[int, object] = {}

    def __enter__(self) -> "Interruption":
        if threading.current_thread() is threading.main_thread():  # Python delivers signals nowhere else
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        if error is None:
            self._agreement.answer()  # nothing is left on its way

    def requested(self) -> bool:
        """Whether to stop after this step, asked once in each; all processes answer alike, whichever was signalled."""
        orphaned = processes() > 1 and os.getppid() != self._launcher
        return self._agreement(orphaned or self._asked_at is not None)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._asked_at is None:
            self._asked_at = now
        elif number == signal.SIGINT and now - self._asked_at > ECHO_SECONDS:
            raise KeyboardInterrupt


def await_turn(error: BaseException) -> None:
    """Before several processes report an error: let the one speak that knows most, and nothing interrupt it."""
    for number in (signal.SIGINT, signal.SIGTERM):  # which a launcher sends to those that are left
        signal.signal(number, signal.SIG_IGN)
    if not first() and not isinstance(error, ContactError):
        time.sleep(HEADSTART_SECONDS)

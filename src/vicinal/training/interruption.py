"""Ctrl-C between steps: ask to stop once, and the run stops where it can be resumed."""

import signal
import threading
import time
from types import FrameType, TracebackType

from vicinal.parallel import Agreement

ECHO_SECONDS = 1.0  # a terminal and a launcher may both pass on one and the same Ctrl-C


class Interrupted(KeyboardInterrupt):
    """Every process has stopped after the same step, as was asked for."""


class Interruption:
    """While entered, the first SIGINT or SIGTERM asks to stop; a later SIGINT interrupts at once.

    A signal that cut a step in half would leave weights and optimiser out of step, so the step is finished first.
    """

    def __init__(self) -> None:
        self._asked_at: float | None = None
        self._agreement = Agreement()
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
        return self._agreement(self._asked_at is not None)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._asked_at is None:
            self._asked_at = now
        elif number == signal.SIGINT and now - self._asked_at > ECHO_SECONDS:
            raise KeyboardInterrupt

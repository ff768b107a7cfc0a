"""Ctrl-C between steps: ask to stop once, and the run stops where it can be resumed."""

import signal
import threading
from types import FrameType, TracebackType


class Interruption:
    """While entered, the first SIGINT or SIGTERM sets ``requested``; a second SIGINT interrupts at once.

    A signal that cut a step in half would leave weights and optimiser out of step, so the step is finished first.
    """

    def __init__(self) -> None:
        self.requested = False
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

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested = True

"""A process that ends with the one that started it, even if that was killed and could not say so."""

import os
import signal
import threading
import time
from collections.abc import Callable


def _interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def stop_with_parent(stop: Callable[[], None] = _interrupt) -> None:
    """Call ``stop`` when this process's parent is gone; by default as Ctrl-C would, so that it saves its run."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        stop()

    threading.Thread(target=watch, daemon=True).start()

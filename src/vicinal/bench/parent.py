"""A process that ends with the one that started it, even if that was killed and could not say so."""

import os
import signal
import threading
import time


def stop_with_parent() -> None:
    """Interrupt this process as Ctrl-C would, so that it saves its run, when its parent is gone."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=watch, daemon=True).start()

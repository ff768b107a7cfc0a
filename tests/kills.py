"""Kills at chosen operations on files, without a process for each."""

import os
import sys

EVENTS = (
    "open",
    "os.mkdir",
    "os.rename",
    "os.remove",
    "os.rmdir",
    "os.truncate",
    "os.chmod",
    "os.listdir",
)


class Killed(BaseException):
    """Not caught anywhere, like a signal."""


class Kills:
    """An audit hook that ends work at its n-th operation on files in a folder, and all later ones:
    it is dead."""

    def __init__(self):
        self.folder = None
        self.count = 0
        self.at = sys.maxsize
        sys.addaudithook(self)  # which stays until the end of the process

    def __call__(self, event, arguments):
        if self.folder is None or event not in EVENTS:
            return
        name = arguments[0]
        if isinstance(name, str | os.PathLike) and os.fspath(name).startswith(self.folder):
            self.count += 1
            if self.count >= self.at:
                raise Killed

    def run(self, folder, work, at=sys.maxsize):
        """Do some work, killed at operation ``at``; return the number of operations."""
        self.folder = str(folder)
        self.count = 0
        self.at = at
        try:
            work()
        except Killed:
            pass
        finally:
            self.folder = None
        return self.count

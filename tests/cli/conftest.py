"""Commands run as the shell would run them, in this process."""

import sys
from typing import NamedTuple

import pytest

from vicinal.cli.main import run


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def vicinal(monkeypatch, capsys, tmp_path):
    """Run a command in this process, as the shell would: ``vicinal("train", ...)``, in
    ``tmp_path``."""

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["vicinal", *words])
        monkeypatch.chdir(tmp_path)
        capsys.readouterr()
        try:
            run()
            code = 0
        except SystemExit as exit:
            code = exit.code or 0
        return Done(code, *capsys.readouterr())

    return call

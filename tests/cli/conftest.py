"""Commands run as the shell would run them, in this process."""

import csv
import shlex
import sys
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image

from vicinal.cli.main import run


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def vicinal(monkeypatch, capsys, tmp_path):
    """Run a command in this process, as the shell would: ``vicinal("train glyphs", ...)``, in
    ``tmp_path``; words may follow the line."""

    def call(line, *words):
        monkeypatch.setattr(sys, "argv", ["vicinal", *shlex.split(line), *words])
        monkeypatch.chdir(tmp_path)
        capsys.readouterr()
        try:
            run()
            code = 0
        except SystemExit as exit:
            code = exit.code or 0
        return Done(code, *capsys.readouterr())

    return call


@pytest.fixture
def paint(tmp_path):
    """``paint(names, each)``: a folder of noisy pictures for each of these classes."""

    def call(names, each):
        rng = np.random.default_rng(0)
        for name in names:
            folder = tmp_path / "pictures" / name
            folder.mkdir(parents=True)
            for number in range(each):
                pixels = rng.integers(0, 256, (36, 40 + number, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{number}.png")
        return tmp_path / "pictures"

    return call


@pytest.fixture
def works(vicinal):
    """``works("train", ...)`` is what a command said that must not fail."""

    def call(*words):
        done = vicinal(*words)
        assert done.returncode == 0, done.stderr
        return done

    return call


@pytest.fixture
def rejected(vicinal):
    """``rejected("train", ...)`` is the one message of a command that must be rejected."""

    def call(*words):
        done = vicinal(*words)
        assert done.returncode == 2 and "Traceback" not in done.stderr
        return done.stderr

    return call


def table(path):
    with path.open() as file:
        return list(csv.DictReader(file))

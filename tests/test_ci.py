"""In CI a data or browser test that cannot run is a failure, elsewhere a skip with its reason."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

INNER = """
import pytest

@pytest.mark.data
def test_needs_data():
    pytest.skip("absent")

def test_needs_nothing():
    pytest.skip("as it likes")
"""


@pytest.mark.slow
@pytest.mark.parametrize(("ci", "outcome"), [("true", "1 failed, 1 skipped"), ("", "2 skipped")])
def test_a_skip_that_would_hide_something_fails_in_ci(ci, outcome, tmp_path):
    (tmp_path / "conftest.py").write_text((Path(__file__).parent / "conftest.py").read_text())
    (tmp_path / "test_inner.py").write_text(INNER)
    environment = {**os.environ, "CI": ci, "VICINAL_DATA": str(tmp_path)}
    plugins = ["-p", "no:cacheprovider", "-p", "no:schemathesis"]
    command = [sys.executable, "-m", "pytest", "-q", *plugins, "-W", "ignore", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert outcome in done.stdout, done.stdout

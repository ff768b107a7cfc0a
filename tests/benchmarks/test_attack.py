"""The attack with a tiny budget: every row tries something and nothing fails; a failure would be
told."""

import subprocess
import sys

import pytest


@pytest.mark.slow(32)
def test_nothing_fails_under_a_small_attack(attack):
    command = [sys.executable, attack.__file__, "--budget", "0.004"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in attack.ROWS:
        assert f"| {name} | " in done.stdout


def test_a_traceback_and_changed_bytes_are_failures_and_our_errors_are_not(attack, tmp_path):
    (tmp_path / "outside").mkdir()
    row = attack.Row("images", tmp_path, seed=0, budget=1)

    def reject():
        raise attack.VicinalError("no")

    assert row.attempt("fine", lambda: None) and not row.attempt("rejected", reject)
    assert (row.tried, row.accepted, row.rejected, row.failures) == (2, 1, 1, [])
    row.attempt("broken", lambda: {}["x"])
    row.attempt("outside", lambda: (tmp_path / "outside" / "new").touch())
    row.attempt("ended", lambda: sys.exit(1))
    assert [failure.split(", ")[1].split(":")[0] for failure in row.failures] == [
        "broken",
        "outside",
        "ended",
    ]

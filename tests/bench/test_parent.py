"""A bench that was killed cannot ask its jobs to stop; they notice, and save as at Ctrl-C."""

import subprocess
import sys
import time

CHILD = """
import pathlib, sys, time
from vicinal.bench.parent import stop_with_parent
folder = pathlib.Path(sys.argv[1])
try:
    stop_with_parent()
    (folder / "began").write_text("")
    time.sleep(60)
except KeyboardInterrupt:
    (folder / "saved").write_text("")
"""
PARENT = """
import pathlib, subprocess, sys, time
subprocess.Popen([sys.executable, "-c", sys.argv[2], sys.argv[1]], start_new_session=True)
while not (pathlib.Path(sys.argv[1]) / "began").exists():
    time.sleep(0.02)
"""


def test_a_job_stops_when_its_bench_is_gone(tmp_path):
    subprocess.run([sys.executable, "-c", PARENT, str(tmp_path), CHILD], check=True, timeout=60)
    limit = time.monotonic() + 40
    while not (tmp_path / "saved").exists() and time.monotonic() < limit:
        time.sleep(0.02)
    assert (tmp_path / "saved").exists()

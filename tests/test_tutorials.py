"""The tutorials: what is kept of them has pictures and no errors, and they run from top to
bottom."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "tutorials"
NAMES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
SIZE = 400_000  # bytes of a notebook with its pictures


def outputs(path: Path) -> list[dict]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [output for cell in cells if cell["cell_type"] == "code" for output in cell["outputs"]]


def text(output: dict) -> str:
    return "".join(output.get("text", output.get("data", {}).get("text/plain", "")))


@pytest.mark.parametrize("name", NAMES)
def test_a_kept_notebook_shows_its_output(name):
    path = FOLDER / f"{name}.ipynb"
    found = outputs(path)
    assert sum("image/png" in output.get("data", {}) for output in found) >= 1
    assert all(
        output["output_type"] != "error" and output.get("name") != "stderr" for output in found
    )
    assert not any(
        os.sep + "tmp" + os.sep in text(output) or str(ROOT) in text(output) for output in found
    )
    assert path.stat().st_size < SIZE


@pytest.mark.parametrize("name", NAMES)
def test_links_of_a_notebook_lead_somewhere(name):
    cells = json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    written = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    for target in re.findall(r"\]\((?!http)([^)#]+)[^)]*\)", written):
        assert (FOLDER / target).exists(), target


@pytest.mark.slow(40)
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs(name, tmp_path):
    pytest.importorskip("nbclient")
    command = [sys.executable, str(ROOT / "docs" / "notebooks.py"), name, "--out", str(tmp_path)]
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    kept = outputs(FOLDER / f"{name}.ipynb")
    fresh = outputs(tmp_path / f"{name}.ipynb")
    pictures = [
        sum("image/png" in output.get("data", {}) for output in found) for found in (kept, fresh)
    ]
    assert pictures[0] == pictures[1]

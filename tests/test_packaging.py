"""What is published: version, extras, and a wheel that runs by itself and holds nothing but the package."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]


def test_one_version_in_all_places():
    version = PROJECT["version"]
    assert f"version: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"## [{version}] - " in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_extra_all_has_every_extra_for_users():
    (listed,) = EXTRAS["all"]
    assert set(re.fullmatch(r"vicinal\[(.*)\]", listed)[1].split(",")) == set(EXTRAS) - {
        "all",
        "test",
        "lint",
        "docs",
        "dev",
    }


def test_extras_that_the_source_and_documentation_name_exist():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]
    named = {name for page in pages for name in re.findall(r"vicinal\[([a-z-]+)\]", page.read_text(encoding="utf-8"))}
    assert named and named <= set(EXTRAS)


@pytest.mark.slow
def test_the_wheel_holds_the_package_alone_and_trains(tmp_path):
    """Dependencies are those of this environment: what is tested is that no file of the package is missing."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        tmp_path,
        ROOT,
    ]
    subprocess.run(command, check=True, cwd=tmp_path)
    (wheel,) = tmp_path.glob("vicinal-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}
        archive.extractall(tmp_path / "site")
    assert tops == {"vicinal", f"vicinal-{PROJECT['version']}.dist-info"}
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "OMP_NUM_THREADS": "1"}
    words = [
        "train",
        "glyphs",
        "training.steps=3",
        "evaluation.restarts=1",
        "evaluation.artifacts=false",
        "--run",
        "demo",
    ]
    subprocess.run([sys.executable, "-m", "vicinal", *words], check=True, cwd=tmp_path, env=environment)
    assert (tmp_path / "demo" / "report.html").is_file()
    place = "import vicinal; print(vicinal.__file__)"
    found = subprocess.run(
        [sys.executable, "-c", place], check=True, cwd=tmp_path, env=environment, capture_output=True
    )
    assert str(tmp_path) in found.stdout.decode()

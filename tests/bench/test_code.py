"""Results belong to the code that computes them, not to documents, commands or other recipes."""

import shutil

import pytest

from vicinal.bench import code


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """A copy of the package, without a repository."""
    shutil.copytree(code._PACKAGE, tmp_path / "vicinal", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(code, "_PACKAGE", tmp_path / "vicinal")
    recipes = {path.stem: path for path in (tmp_path / "vicinal" / "recipes").glob("*.py")}
    monkeypatch.setattr(code, "packaged_recipes", lambda: recipes)
    code._shared.cache_clear()
    yield tmp_path / "vicinal"
    code._shared.cache_clear()


def changed(path):
    path.write_text(path.read_text() + "\n# changed\n")
    code._shared.cache_clear()


def test_a_copy_elsewhere_has_the_same_fingerprint(copied, monkeypatch):
    there = code.fingerprint("glyphs_triplet")
    monkeypatch.undo()
    code._shared.cache_clear()
    assert code.fingerprint("glyphs_triplet") == there


@pytest.mark.parametrize("name", ["cli/train.py", "bench/page.py", "reports/plots.py", "recipes/glyphs_n_pair.py"])
def test_what_computes_no_number_does_not_matter(name, copied):
    before = code.fingerprint("glyphs_triplet")
    changed(copied / name)
    assert code.fingerprint("glyphs_triplet") == before


@pytest.mark.parametrize(
    "name",
    ["losses/triplet.py", "training/trainer.py", "tuples.py", "recipes/glyphs_triplet.py", "bench/baselines.py"],
)
def test_what_computes_numbers_does(name, copied):
    before = code.fingerprint("glyphs_triplet")
    changed(copied / name)
    assert code.fingerprint("glyphs_triplet") != before


def test_every_file_of_the_bench_that_matters_is_there():
    assert {path.name for path in (code._PACKAGE / "bench").glob("*.py")} >= code._OF_BENCH

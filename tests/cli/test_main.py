"""The command line from outside: quick help, refusals without tracebacks, a whole walk on a user's own data."""

import json
import resource
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image


def test_help_answers_at_once():
    """Half a second is the promise, of processor time: how long others keep us waiting is not ours."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-m", "vicinal", "--help"], capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0 and "train" in done.stdout
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.5


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["data", "check", "--help"], ["recipes"]])
def test_nothing_heavy_is_imported_before_a_command_needs_it(words):
    code = (
        f"import sys; sys.argv = ['vicinal', *{words!r}]\n"
        "from vicinal.cli.main import app\n"
        "try: app()\n"
        "except SystemExit: pass\n"
        "heavy = {'torch', 'numpy', 'matplotlib', 'sklearn', 'PIL'} & set(sys.modules)\n"
        "sys.exit('imported ' + str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "glyphs_multi_similarty"], "did you mean 'glyphs_multi_similarity'"),
        (["train", "glyphs_multi_similarity", "epoch=3"], "did you mean 'epochs'"),
        (["train", "images"], "data="),
        (["train", "images", "data=nowhere"], "nowhere"),
        (["report", "nowhere"], "not a run"),
        (["train", "--resume", "nowhere"], "not a run"),
        (["train", "a", "b"], "one recipe at a time"),
        (["train", "--data", "nowhere"], "nowhere"),
        (["train", "--data", "x", "data=y"], "say the same thing"),
        (["train", "--data", "x", "--resume", "nowhere"], "leave out KEY=VALUE, --data"),
    ],
)
def test_a_refusal_is_one_message_not_a_traceback(words, message, vicinal):
    done = vicinal(*words)
    assert done.returncode == 2
    assert message in done.stderr and "Traceback" not in done.stderr


def test_recipes_are_listed_with_cost_and_number(vicinal):
    done = vicinal("recipes")
    assert "glyphs_multi_similarity" in done.stdout and "cost:" in done.stdout and "expect:" in done.stdout


@pytest.fixture
def pictures(tmp_path):
    """Sixteen classes of noisy gradients; one class is named like a script tag."""
    rng = np.random.default_rng(0)
    folder = tmp_path / "pictures"
    for label in range(16):
        name = "<script>alert(1)<" if label == 3 else f"class {label}"
        (folder / name).mkdir(parents=True)
        direction = rng.normal(size=2)
        ramp = np.add.outer(np.linspace(-1, 1, 32) * direction[0], np.linspace(-1, 1, 32) * direction[1])
        for number in range(6):
            grey = 128 + 60 * ramp[..., None] + 20 * rng.normal(size=(32, 32, 3)) + rng.normal(size=3) * 5
            Image.fromarray(grey.clip(0, 255).astype(np.uint8)).save(folder / name / f"{number}.png")
    return folder


def test_a_walk_with_pictures_of_ones_own(pictures, tmp_path, vicinal):
    settings = ["epochs=2", "classes=4", "per_class=3", "transform.size=32", "transform.resize=32", "widths=8,16"]
    done = vicinal("train", "images_from_scratch", f"data={pictures}", *settings, "workers=0", "--run", "run")
    assert done.returncode == 0, done.stderr
    assert "trained" in done.stdout and "untrained" in done.stdout and "report.html" in done.stdout
    page = (tmp_path / "run" / "report.html").read_text()
    assert "<script>alert(1)" not in page

    done = vicinal("evaluate", "run", "--json")
    again = json.loads(done.stdout)["rows"][-1]["metrics"]
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert again["recall@1"] == results["rows"][-1]["metrics"]["recall@1"]

    done = vicinal("embed", "run", str(pictures), "--out", "vectors.npz")
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "vectors.npz", allow_pickle=False) as found:
        assert found["embeddings"].shape == (96, 128) and len(found["names"]) == 96
        np.testing.assert_allclose(np.linalg.norm(found["embeddings"], axis=1), 1, rtol=1e-5)

    assert vicinal("report", "run").returncode == 0


def test_a_corrupt_picture_stops_by_name_or_is_skipped_on_request(pictures, tmp_path, vicinal):
    broken = pictures / "class 5" / "2.png"
    broken.write_bytes(broken.read_bytes()[:200])
    settings = ["epochs=2", "classes=4", "per_class=3", "transform.size=32", "transform.resize=32", "widths=8,16"]
    walk = ["train", "images_from_scratch", f"data={pictures}", *settings, "workers=0"]
    done = vicinal(*walk, "--run", "stops")
    assert done.returncode == 2 and "2.png" in done.stderr
    done = vicinal(*walk, "skip_corrupt=true", "--run", "skips")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "skips" / "results.json").read_text())["skipped"] == 1
    done = vicinal("data", "check", str(pictures))
    assert done.returncode == 1 and "2.png" in done.stdout

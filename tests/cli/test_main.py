"""The command line from outside: quick help, errors without tracebacks, a whole walk on a user's
own data."""

import errno
import io
import json
import os
import resource
import subprocess
import sys
from unittest.mock import Mock

import numpy as np
import pytest
import typer
from typer.main import get_command

from vicinal.cli import main
from vicinal.cli.main import app
from vicinal.models import custom
from vicinal.run_directory import RunDirectory


@pytest.mark.parametrize("words", ["--help", "train --help", "data check --help", "bench"])
def test_nothing_heavy_is_imported_before_a_command_needs_it(words):
    code = (
        f"import sys; sys.argv = ['vicinal', *{words.split()!r}]\n"
        "from vicinal.cli.main import COMMANDS, app\n"
        "try: app()\n"
        "except SystemExit: pass\n"
        "others = {name for name in sys.modules if name.startswith('vicinal.cli.')}\n"
        "own = COMMANDS.get(sys.argv[1], '').partition(':')[0]\n"
        "others -= {'vicinal.cli.main', 'vicinal.cli.' + own}\n"
        "if others and sys.argv[1] != '--help': sys.exit(f'imported {others}')\n"
        "heavy = {'torch', 'fastapi', 'numpy', 'scipy', 'sklearn', 'matplotlib', 'PIL'}\n"
        "heavy &= set(sys.modules)\n"
        "sys.exit('imported ' + str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert words != "--help" or "train" in done.stdout


@pytest.mark.parametrize("words", [["-c", "import vicinal"], ["-m", "vicinal", "--help"]])
def test_an_import_and_help_take_a_quarter_second(words):
    """Of a processor's time, which other work on the machine delays least."""

    def seconds():
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *words], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(seconds() for _ in range(5)) < 0.25


SHOWN = {name: command for name, command in get_command(app).commands.items() if not command.hidden}
COMMANDS = {"vicinal": get_command(app), **SHOWN, **SHOWN["data"].commands}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_argument_and_option_is_described(name):
    assert not [parameter.name for parameter in COMMANDS[name].params if not parameter.help]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_examples_that_parse(name):
    """Below its options: command lines that are accepted as they stand."""
    lines = COMMANDS[name].epilog.splitlines()[2:]
    assert lines
    for line in lines:
        assert name in line
        command = COMMANDS["vicinal"]
        words = line.split()[1:]
        while hasattr(command, "commands"):
            command = command.commands[words[0]]
            words = words[1:]
        command.make_context(line, words)


def test_errors_are_colored_unless_one_asks_for_no_color(vicinal, monkeypatch):
    """As https://no-color.org has it: any value that is not empty."""
    said = []
    monkeypatch.setattr(typer, "secho", lambda message, **style: said.append(style["color"]))
    for value in ("", "1"):
        monkeypatch.setenv("NO_COLOR", value)
        assert vicinal("report nowhere").returncode == 2
    assert said == [None, False]


def test_what_the_system_rejects_is_one_message_too(vicinal, monkeypatch):
    for error, message in (
        (
            PermissionError(errno.EACCES, "Permission denied", "/locked/run"),
            "/locked/run cannot be used: Permission",
        ),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            "the disk cannot be used: No space left on device",
        ),
    ):
        monkeypatch.setattr(main, "app", Mock(side_effect=error))
        done = vicinal("train")
        assert done.returncode == 2 and message in done.stderr and "room" in done.stderr
    for mistake in (OSError("a mistake of our own"), RuntimeError("another mistake")):
        monkeypatch.setattr(main, "app", Mock(side_effect=mistake))
        with pytest.raises(type(mistake), match="mistake"):
            vicinal("train")
    allocator = RuntimeError(
        "DefaultCPUAllocator: can't allocate memory: you tried to allocate 24 bytes.\nMore"
    )
    for full in (MemoryError("Unable to allocate 43.7 TiB."), allocator):
        monkeypatch.setattr(main, "app", Mock(side_effect=full))
        done = vicinal("train")
        assert done.returncode == 2 and done.stderr.startswith("error: out of memory: ")
        assert "training.batch_size" in done.stderr and "More" not in done.stderr


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("train glyhps", "did you mean 'glyphs'"),
        ("train glyphs training.epoch=3", "did you mean 'epochs'"),
        ("train images", "Give --data"),
        ("report nowhere", "not a run"),
        ("train --resume nowhere", "not a run"),
        ("train a b", "one preset at a time"),
        ("train --data nowhere", "nowhere"),
        ("train --data x data=y", "say the same thing"),
        ("train 'my pictures'", "should hold one folder of images per class"),
        ("train --data x --resume nowhere", "leave out presets, --data"),
        ("embed run pictures --out vectors.csv", "Let the name end in .npz"),
    ],
)
def test_a_error_is_one_message_not_a_traceback(line, message, rejected, tmp_path):
    (tmp_path / "my pictures").mkdir()
    assert message in rejected(line)


SMALL = [
    *("sampler.classes=4", "sampler.per_class=3", "model.widths=8,16", "training.workers=0"),
    *("transform.size=32", "transform.resize=32"),
]


@pytest.fixture
def pictures(paint):
    """Sixteen classes, one of which is named like a script tag."""
    return paint(["<script>alert(1)<", *(f"class {label}" for label in range(1, 16))], 6)


@pytest.mark.slow
def test_a_walk_with_pictures_of_ones_own(pictures, tmp_path, vicinal, works):
    settings = [*SMALL, "training.epochs=2"]
    done = works("train images_from_scratch", f"data={pictures}", *settings, "--run", "run")
    assert "trained" in done.stdout and "untrained" in done.stdout and "report.html" in done.stdout
    page = (tmp_path / "run" / "report.html").read_text()
    assert "<script>alert(1)" not in page

    works("embed run", str(pictures), "--out", "vectors.npz")
    with np.load(tmp_path / "vectors.npz", allow_pickle=False) as found:
        assert found["embeddings"].shape == (96, 128) and len(found["names"]) == 96
        np.testing.assert_allclose(np.linalg.norm(found["embeddings"], axis=1), 1, rtol=1e-5)

    works("embed run", str(pictures), "--out", "shards")
    for words in (
        "evaluate run --data",
        "cluster run --groups 2",
        "clean run",
        "suggest run --k 3",
    ):
        works(words, "shards")
    works("dedupe run shards --embeddings --distance 0.1")

    loose = tmp_path / "unsorted"
    (pictures / "class 5").rename(loose)
    works("embed run unsorted --out loose.npz")
    with np.load(tmp_path / "loose.npz", allow_pickle=False) as found:
        assert len(found["embeddings"]) == 6 and found["classes"].tolist() == ["unsorted"]
    assert "1 embeddings" in vicinal("embed run unsorted/0.png --out one.npz").stdout
    loose.rename(pictures / "class 5")

    assert "Known: all, test" in vicinal("evaluate run --split tests").stderr
    works("report run")


def test_a_corrupt_picture_stops_by_name_or_is_skipped_on_request(
    pictures, tmp_path, vicinal, works
):
    broken = pictures / "class 5" / "2.png"
    broken.write_bytes(broken.read_bytes()[:200])
    settings = [*SMALL, "training.epochs=2"]
    walk = ["train", "images_from_scratch", f"data={pictures}", *settings]
    done = vicinal(*walk, "--run", "stops")
    assert done.returncode == 2 and "2.png" in done.stderr
    works(*walk, "training.skip_corrupt=true", "--run", "skips")
    assert json.loads((tmp_path / "skips" / "results.json").read_text())["skipped"] == 1
    # As it was trained, without saying so once more.
    again = works("evaluate skips --no-clustering")
    assert "1 unreadable left out" in again.stdout
    done = vicinal("data check", str(pictures))
    assert done.returncode == 1 and "2.png" in done.stdout


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_a_class_of_ones_own_is_trusted_in_any_place(vicinal, tmp_path, monkeypatch, place):
    (tmp_path / "mine.py").write_text("class Net: pass\n")
    monkeypatch.setattr(custom, "TRUSTED", {})
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    words = ["evaluate", "nowhere", "--json"]
    done = vicinal(*words[:place], "--trust", "mine:Net", *words[place:])
    assert (
        done.returncode == 2 and "not a run" in done.stderr and set(custom.TRUSTED) == {"mine:Net"}
    )


def test_smaller_embeddings_are_measured_or_rejected_before_work(
    vicinal, tmp_path, works, rejected
):
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(24), 15)
    features = rng.standard_normal((24, 12))[labels] + 0.5 * rng.standard_normal((360, 12))
    np.savez(tmp_path / "table.npz", features=features.astype(np.float32), labels=labels)
    works("train features data=table.npz model.dim=8 training.steps=2 --run run")
    elsewhere = "evaluate run --data nowhere.npz"
    for dims in ("0", "9", "two", "4,,8"):
        said = rejected(elsewhere, "--dims", dims)
        assert "nowhere" not in said and "dims" in said
    assert "Known: binary, int8" in rejected(elsewhere, "--quantize", "int4")
    line = "evaluate run --split all --dims 4 --quantize int8,binary --rerank --no-clustering"
    out = works(line).stdout
    lines = map(str.split, out.splitlines())
    (row,) = (line for line in lines if line[:3] == ["4", "binary,", "rescored"])
    assert row[3:6] == ["1", "+", "16"] and "ms" in row and "8 float32, re-ranked" in out, out
    rows = json.loads(works(line, "--json").stdout)
    whole = next(row for row in rows["compact"] if (row["stored"], row["dims"]) == ("float32", 8))
    trained = rows["rows"][0]["metrics"]
    assert (whole["recall_at_1"], whole["map_at_r"]) == (trained["recall@1"], trained["map@r"])


def test_a_closed_or_narrow_output_stops_no_command(monkeypatch, capfd):
    explain = ["vicinal", "explain", "loss=multi_similarity"]
    monkeypatch.setattr(sys, "argv", explain)
    narrow = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    for stream in (None, narrow):
        monkeypatch.setattr(sys, "stdout", stream)
        with pytest.raises(SystemExit) as end:
            main.run()
        assert not end.value.code
        if stream is None:
            sys.stdout.close()
    narrow.flush()
    assert rb"\u03b1" in narrow.buffer.getvalue()


def test_the_command_alone_says_what_to_do_next_with_the_runs_here(tmp_path):
    for name, state in (("old", "interrupted"), ("new", "finished"), ("shown", "finished")):
        run = RunDirectory.create(tmp_path / "runs" / name)
        run.write_status(state)
    (tmp_path / "runs" / "shown" / "collection").mkdir()
    (tmp_path / "runs" / "spoilt").mkdir()
    (tmp_path / "runs" / "spoilt" / "status.json").write_text("{")
    os.utime(tmp_path / "runs" / "spoilt" / "status.json", (0, 0))
    shown = subprocess.run(
        [sys.executable, "-m", "vicinal"], cwd=tmp_path, capture_output=True, text=True
    ).stdout
    said = " ".join(shown.split())
    for line in (
        "vicinal train --resume runs/old",
        "vicinal index runs/new --split test",
        "vicinal serve runs/shown",
    ):
        assert line in said

"""An attack on the library with what users, strangers and power cuts do to it; run it before every
release.

    python benchmarks/attack.py                              # everything
    python benchmarks/attack.py --budget 0.01                # a hundredth of each row
    python benchmarks/attack.py --only images --seed 3       # one row, other draws
    python benchmarks/attack.py --write                # and writes the rows into docs/benchmarks.md

A try ends well (accepted), or in an error of ours that names what to do (rejected). Everything else
is a failure, and
is printed: a traceback, more than ``SECONDS`` or ``MEMORY``, bytes changed outside of the folder
that was worked in, a killed command that, given again, ends in other bytes than one that was not
killed, and an answer 5xx other than 503. The same seed and budget try the same things in the same
order.
"""

import argparse
import contextlib
import io
import json
import os
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from measuring import ROOT, commit, provenance, write_between
from vicinal.errors import VicinalError

SECONDS, MEMORY = 120, 8 * 2**30
DOCUMENT = ROOT / "docs" / "benchmarks.md"
EVENTS = (
    "open",
    "os.mkdir",
    "os.rename",
    "os.remove",
    "os.rmdir",
    "os.truncate",
    "os.chmod",
    "os.listdir",
)
Draw = np.random.Generator


class Killed(BaseException):
    """Not caught anywhere, like a signal."""


class Hung(BaseException):
    """A try took too long."""


class Kills:
    """An audit hook that ends work at its n-th operation on files in a folder, and all later ones:
    it is dead."""

    def __init__(self) -> None:
        self.folder: str | None = None
        self.count, self.at = 0, sys.maxsize
        sys.addaudithook(self)  # which stays until the end of the process

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.folder is None or event not in EVENTS:
            return
        name = arguments[0]
        if isinstance(name, str | os.PathLike) and os.fspath(name).startswith(self.folder):
            self.count += 1
            if self.count >= self.at:
                raise Killed

    def run(self, folder: Path, work: Callable[[], object], at: int = sys.maxsize) -> int:
        """Do some work, killed at operation ``at``; return the number of operations."""
        self.folder, self.count, self.at = str(folder), 0, at
        try:
            work()
        except Killed:
            pass
        finally:
            self.folder = None
        return self.count


class Row:
    """What was tried of one kind, and how it ended."""

    def __init__(self, name: str, folder: Path, seed: int, budget: float) -> None:
        self.name, self.folder, self.budget = name, folder / name, budget
        self.tried = self.accepted = self.rejected = 0
        self.failures: list[str] = []
        self.draw = np.random.default_rng([seed, *name.encode()])
        self.outside = folder / "outside"
        self.folder.mkdir()

    def times(self, count: int) -> range:
        return range(max(1, round(count * self.budget)))

    def attempt(self, label: str, action: Callable[[], object]) -> bool:
        """Try something; return whether it was accepted."""
        self.tried += 1
        before, accepted, said = _content(self.outside), False, io.StringIO()
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        try:
            with silence(said):
                action()
            accepted = True
        except (VicinalError, SystemExit) as error:
            code = error.code if isinstance(error, SystemExit) else 2
            accepted = code in (0, None)
            self.rejected += not accepted
            if code not in (0, None, 2):
                self.fail(label, f"exit status {code}: {said.getvalue()[-300:]}")
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            place = traceback.extract_tb(error.__traceback__)[-6:]
            where = " < ".join(
                f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(place)
            )
            self.fail(label, f"{type(error).__name__}: {str(error)[:300]} at {where}")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        self.accepted += accepted
        if _content(self.outside) != before:
            self.fail(label, "bytes changed outside")
            _make_outside(self.outside)
        return accepted

    def fail(self, label: str, reason: str) -> None:
        self.failures.append(f"{self.name} {self.tried}, {label}: {reason}")
        print(self.failures[-1], flush=True)


@contextlib.contextmanager
def silence(said: io.StringIO) -> Iterator[None]:
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        yield


def _content(folder: Path, *patterns: str) -> dict[str, bytes]:
    found = [path for pattern in patterns or ("*",) for path in folder.rglob(pattern)]
    return {str(path): path.read_bytes() for path in sorted(found) if path.is_file()}


def _make_outside(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "photos").mkdir(parents=True)
    Image.new("RGB", (9, 9)).save(folder / "photos" / "mine.png")
    (folder / "notes.txt").write_text("mine")


def command(*words: object) -> None:
    """Run ``vicinal`` in this process, as a shell would."""
    from vicinal.cli.main import run

    sys.argv = ["vicinal", *map(str, words)]
    run()


def done(*words: object) -> None:
    """Run a command that must succeed."""
    try:
        command(*words)
    except SystemExit as error:
        if error.code:
            raise RuntimeError(f"vicinal {' '.join(map(str, words))} failed") from error


# -- what is attacked -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Targets:
    """Small data, and a finished run on images with a collection."""

    photos: Path
    vectors: Path
    run: Path

    @classmethod
    def make(cls, folder: Path) -> "Targets":
        draw = np.random.default_rng(0)
        for number in range(48):
            path = folder / "photos" / f"class {number % 8}" / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            pixels = draw.integers(0, 60, (20, 24, 3)) + 25 * (number % 8)
            Image.fromarray(pixels.astype(np.uint8)).save(path)
        labels = np.repeat(np.arange(16), 12)
        rows = draw.normal(size=(16, 8))[labels] + 0.8 * draw.normal(size=(192, 8))
        splits = np.where(labels < 8, "train", "test")
        np.savez(
            folder / "vectors.npz", features=rows.astype(np.float32), labels=labels, splits=splits
        )
        own = cls(folder / "photos", folder / "vectors.npz", folder / "run")
        done("train", "--data", own.photos, "--run", own.run, "-q", *SMALL_IMAGES)
        done("index", own.run, own.photos)
        return own


SMALL_IMAGES = (
    "model=small",
    "model.widths=[4,8]",
    "model.dim=4",
    "transform.size=16",
    "transform.resize=16",
)
SMALL_IMAGES += (
    "training.workers=0",
    "training.steps=2",
    "training.batch_size=8",
    "training.checkpoint_seconds=0",
)
SMALL_VECTORS = (
    "model.dim=4",
    "model.start=random",
    "training.validation=0.2",
    "training.checkpoint_seconds=0",
)
SMALL_VECTORS += (
    "training.steps=3",
    "training.ema=0.9",
    "evaluation.artifacts=false",
    "evaluation.restarts=1",
)
TABLE = """
from vicinal.bench import Table, row
TABLE = Table("Small", row("triplet", loss="triplet"), name="small", seeds=1, data={data!r}, words={words!r})
"""


def bent(data: bytes, draw: Draw) -> bytes:
    """Damage bytes as disks, networks and strangers do."""
    data = data or b"\0"
    changed, place = bytearray(data), int(draw.integers(len(data) + 1))
    match int(draw.integers(6)):
        case 0:
            return bytes(changed[:place])
        case 1:
            changed[place : place + int(draw.integers(1, 64))] = draw.bytes(int(draw.integers(64)))
        case 2:
            changed[place : place + 512] = bytes(min(512, len(data) - place))
        case 3:
            changed[place:place] = changed[: int(draw.integers(1, 200))]
        case _:  # most often, so that most of the format still holds
            for _ in range(int(draw.integers(1, 12))):
                near = int(draw.integers(min(64, len(data)) if draw.random() < 0.4 else len(data)))
                changed[near] = int(draw.integers(256))
    return bytes(changed)


# -- the rows -------------------------------------------------------------------------------------


def kills(row: Row, targets: Targets, scene: str) -> None:
    """Kill a command at every one of its file operations, and give it again."""
    from vicinal.losses import MultiSimilarityLoss
    from vicinal.models.custom import TRUSTED
    from vicinal.run_directory import RunDirectory

    class Noisy(MultiSimilarityLoss):
        """Draws from torch's generator, so that a resume which forgot its state would show."""

        def forward(self, embeddings: Any, labels: Any, *rest: Any) -> Any:
            from torch.nn.functional import dropout

            return super().forward(dropout(embeddings, 0.1), labels, *rest)

    TRUSTED["attack:Noisy"] = Noisy
    folder, hook, table = row.folder / "work", Kills(), row.folder / "table.py"
    table.write_text(TABLE.format(data=str(targets.vectors), words=SMALL_VECTORS))
    fresh = (
        "train",
        "--data",
        targets.vectors,
        "--run",
        folder,
        "-q",
        "--no-report",
        *SMALL_VECTORS,
    )

    def train() -> None:
        begun = (folder / "run.json").exists()
        done(
            *(
                ("train", "--resume", folder, "-q", "--no-report")
                if begun
                else (*fresh, "loss=attack:Noisy")
            )
        )

    def trained() -> object:
        run = RunDirectory.open(folder)
        results = {name: value for name, value in (run.results or {}).items() if name != "notes"}
        return (
            run.metrics_path.read_bytes(),
            run.weights_path.read_bytes(),
            results,
            run.status["state"],
        )

    def pack() -> None:
        if not (folder / "packed").exists():  # a whole set is not written again
            done("data", "pack", targets.photos, folder / "packed")

    def measured() -> object:
        lines = map(json.loads, (folder / "results" / "small.jsonl").read_text().splitlines())
        return [(line["row"], line["seed"], line["slots"], line["metrics"]) for line in lines]

    def copied(*without: str) -> Callable[[], object]:
        return lambda: shutil.copytree(
            targets.run, folder, ignore=shutil.ignore_patterns("report.html", *without)
        )

    def files(*patterns: str) -> Callable[[], object]:
        return lambda: _content(folder, *patterns)

    empty, bare = folder.mkdir, copied("collection")
    scenes: dict[str, tuple[Callable[[], object], Callable[[], object], Callable[[], object]]] = {
        "train": (lambda: None, train, trained),
        "bench": (empty, lambda: bench_here(table, folder), measured),
        "index": (
            bare,
            lambda: done("index", folder, targets.photos),
            files("items.jsonl", "vectors.npy"),
        ),
        "dedupe": (copied(), lambda: done("dedupe", folder), files("duplicates.*")),
        "embed": (
            empty,
            lambda: done("embed", targets.run, targets.photos, "--out", folder / "e.npz"),
            files("*.npz"),
        ),
        "report": (bare, lambda: done("report", folder), files("*.html")),
        "pack": (empty, pack, files("*")),
    }
    prepare, work, content = scenes[scene]
    prepare()
    with silence(io.StringIO()):
        total = hook.run(folder, work)
    expected = content()
    points = np.unique(
        np.linspace(1, total, max(1, round(total * min(1, row.budget)))).round().astype(int)
    )
    for at in map(int, points):
        shutil.rmtree(folder)
        prepare()

        def killed(at: int = at) -> None:
            hook.run(folder, work, at)
            work()

        label = f"killed at operation {at} of {total}"
        if row.attempt(label, killed) and (content() != expected or list(folder.rglob("*.part"))):
            row.fail(label, "unequal, or parts left")


def bench_here(table: Path, folder: Path) -> None:
    """Run a table as ``vicinal bench`` does, but in this process, where the hook sees what its
    workers do."""
    from vicinal.bench.page import write_pages
    from vicinal.bench.pool import Pool, do
    from vicinal.bench.run import Bench, run_tables
    from vicinal.bench.summary import summarize
    from vicinal.bench.table import load_tables
    from vicinal.training.console import Console

    class Here(Pool):
        def run(self, tasks: Any, done: Any, **_: Any) -> int:
            for task in tasks:
                self.end(task, do(self.prepare(task)), done)
            return 0

    bench = Bench(folder / "results", folder / "runs", Console(quiet=True), make_pool=Here)
    for outcome in run_tables(load_tables(str(table)), bench):
        if outcome.failures:
            raise RuntimeError(f"jobs failed: {outcome.failures}")
        write_pages(summarize(outcome), bench.folder)


def images(row: Row, targets: Targets) -> None:
    """Damage images of every format, or let them claim extreme sizes; read and embed them."""
    from vicinal.retrieval.model import load

    model, draw, whole = load(targets.run, device="cpu"), row.draw, []
    exif = Image.Exif()
    exif[0x0112] = 6  # turned
    for kind in ("jpeg", "png", "gif", "bmp", "webp", "tiff"):
        for mode in ("RGB", "L", "P", "CMYK", "RGBA", "I;16", "1"):
            file, gray = (
                io.BytesIO(),
                Image.fromarray(draw.integers(0, 256, (30, 40), dtype=np.uint8)),
            )
            with contextlib.suppress(OSError, ValueError):  # modes that a format does not know
                gray.convert(mode).save(file, kind, exif=exif)
                whole.append((kind, file.getvalue()))
    for number in row.times(5_000):
        kind, data = whole[number % len(whole)]
        if number % 10:
            data = bent(data, draw)
        else:
            width, height = (
                int(draw.choice([0, 1, 99, 20_000, 2**16, 2**31 - 1])) for _ in range(2)
            )
            kind, data = "png", _png(width, height)
        path = row.folder / f"image.{kind}"
        path.write_bytes(data)
        row.attempt(kind, lambda path=path: model.embed([path]))


def _png(width: int, height: int) -> bytes:
    """A PNG of gray zeros that may claim more than it has."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    pixels = zlib.compress(bytes(min((width + 1) * height, 2**22)))
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    )


def tables(row: Row, targets: Targets) -> None:
    """Damage tables and array files; open them as data."""
    import pyarrow
    from pyarrow import csv, parquet

    from vicinal.data import open_path

    lines = ["path,label,split,camera"]
    for number, path in enumerate(sorted(targets.photos.rglob("*.png"))):
        lines.append(
            f'"{path}",{path.parent.name},{"train" if number % 2 else "test"},{number % 3}'
        )
    text, arrays = "\n".join(lines), dict(np.load(targets.vectors))
    columns = {"label": arrays["labels"], "features": list(arrays["features"])}
    writers: dict[str, Callable[[Any], object]] = {
        "csv": lambda file: file.write(text.encode()),
        "tsv": lambda file: file.write(text.replace(",", "\t").encode()),
        "npz": lambda file: np.savez(file, **arrays),
        "compressed.npz": lambda file: np.savez_compressed(file, **arrays),
        "parquet": lambda file: parquet.write_table(csv.read_csv(io.BytesIO(text.encode())), file),
        "vectors.parquet": lambda file: parquet.write_table(pyarrow.table(columns), file),
    }
    whole = {}
    for kind, write in writers.items():
        file = io.BytesIO()
        write(file)
        whole[kind] = file.getvalue()
    for number in row.times(2_000):
        kind = list(whole)[number % len(whole)]
        path = row.folder / f"table.{kind}"
        path.write_bytes(bent(whole[kind], row.draw))
        row.attempt(kind, lambda path=path: open_path(path).load())


VALUES = (
    "inf -inf nan -1 0 1 2 0.5 -0.5 1e308 1e-320 18446744073709551616 -9223372036854775809 "
    "1000000000000 x true none"
)
WORDS = (
    *VALUES.split(),
    *["[]", "{}", "[1,2]", "[inf]", "'", "../x", "\x00", "é", "1_0", "0x10"],
    "",
    "[1, 2]",
)
NUMBERS = [
    "0",
    "1",
    "2",
    "0.5",
    "1e-320",
    "1e308",
    "1000000000000",
    "true",
    "false",
]  # types are right more often


def settings(row: Row, targets: Targets) -> None:
    """Train with one or two random settings; what is accepted must train a step."""
    from vicinal.arguments import parameters
    from vicinal.config import REGISTRIES, Evaluation, Training
    from vicinal.methods.optimizer import OptimizerConfig
    from vicinal.models import ModelConfig

    slots = ("loss", "sampler", "method", "transform")
    kinds: list[tuple[str, str, Any]] = [
        (slot, name, kind) for slot in slots for name, kind in REGISTRIES[slot].items()
    ]
    singles = {
        "model": ModelConfig,
        "optimizer": OptimizerConfig,
        "training": Training,
        "evaluation": Evaluation,
    }
    kinds += [(slot, "", kind) for slot, kind in singles.items()] * 8
    for number in row.times(1_000):
        slot, name, kind = kinds[int(row.draw.integers(len(kinds)))]
        words = [f"{slot}={name}"] if name else []
        names = row.draw.choice(list(parameters(kind)) or ["none"], int(row.draw.choice([1, 1, 2])))
        values = [row.draw.choice(WORDS if row.draw.random() < 0.5 else NUMBERS) for _ in names]
        words += [
            f"{slot}.{argument}={value}" for argument, value in zip(names, values, strict=True)
        ]
        folder = row.folder / str(number)
        small = [
            word
            for word in SMALL_VECTORS
            if not word.startswith(tuple(w.partition("=")[0] + "=" for w in words))
        ]
        given = (
            "train",
            "--data",
            targets.vectors,
            "--run",
            folder,
            "-q",
            "--no-report",
            *small,
            *words,
        )
        row.attempt(" ".join(map(ascii, words)), lambda given=given: command(*given))
        shutil.rmtree(folder, ignore_errors=True)


def runs(row: Row, targets: Targets) -> None:
    """Damage one file of a run, finished or interrupted, and give the commands that read it."""
    half, hook, target = row.folder / "half", Kills(), row.folder / "run"

    def train() -> None:
        done("train", "--data", targets.photos, "--run", half, "-q", "--no-report", *SMALL_IMAGES)

    with silence(io.StringIO()):
        total = hook.run(half, train)
        shutil.rmtree(half)
        hook.run(half, train, at=int(total * 0.6))
    commands = (
        ("report", target),
        ("embed", target, targets.photos, "--out", row.folder / "out.npz"),
        ("search", target, "--id", "0"),
        ("index", target, targets.photos),
    )
    for number in row.times(250):
        base = half if number % 3 == 0 else targets.run
        files = sorted(path.relative_to(base) for path in base.rglob("*") if path.is_file())
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(base, target)
        path = target / files[int(row.draw.integers(len(files)))]
        label = f"{path.relative_to(target)} {_damage(path, row)}"
        for words in (
            (("train", "--resume", target, "-q", "--no-report"),) if base is half else commands
        ):
            row.attempt(f"{words[0]} after {label}", lambda words=words: command(*words))


def _damage(path: Path, row: Row) -> str:
    data, kind = path.read_bytes(), int(row.draw.integers(10))
    if kind < 3:
        path.unlink()
        (os.mkfifo, Path.mkdir, lambda place: place.symlink_to(row.outside / "notes.txt"))[kind](
            path
        )
        return ("a pipe", "a folder", "a link")[kind]
    if kind < 6 and path.suffix == ".json":
        text = ("[" * 100_000, "[]", "{}", "null", "\xff")
        value = json.loads(data)
        if isinstance(value, dict) and value:
            key = str(row.draw.choice(list(value)))
            value[key] = (None, -1, "x", [], {}, 1e300, "../..")[int(row.draw.integers(7))]
            text += (json.dumps(value),) * 5
        path.write_bytes(text[int(row.draw.integers(len(text)))].encode("latin-1"))
        return f"rewritten as {path.read_bytes()[:60]!r}"
    path.write_bytes(bent(data, row.draw))
    return "bent"


def requests(row: Row, targets: Targets) -> None:
    """Ask the server, in this process, whatever strangers may ask."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from fastapi.testclient import TestClient

    from vicinal.retrieval.serve.library import open_library
    from vicinal.retrieval.serve.server import create_application

    draw, png = row.draw, next(targets.photos.rglob("*.png")).read_bytes()
    application = create_application(open_library(targets.run, device="cpu"))
    paths = [path for path in application.openapi()["paths"] if path != "/api/map"]
    paths += ["/", "/docs", "/static/{id}", "/{id}"]
    odd = (
        "0",
        "47",
        "-1",
        "9" * 20,
        "nan",
        "1.5",
        "..%2f..%2foutside",
        "%00",
        "%ff",
        "'\"<b>",
        "a" * 5000,
        "é",
        "",
    )
    names = (
        "k",
        "label",
        "where",
        "offset",
        "limit",
        "max_distance",
        "max_false_match",
        "id",
        "q",
        "size",
        "x",
    )
    kinds = ("application/json", "image/png", "multipart/form-data", "x", "")
    with TestClient(
        application, base_url="http://localhost", raise_server_exceptions=True
    ) as client:

        def ask(method: str, path: str, **given: Any) -> None:
            answer = client.request(method, path, **given)
            if answer.status_code >= 500 and answer.status_code != 503:
                raise RuntimeError(f"{answer.status_code}: {answer.text[:200]}")
            if str(row.folder.parent) in answer.text or "Traceback" in answer.text:
                raise RuntimeError(f"a path or a traceback leaks: {answer.text[:300]}")
            if answer.status_code >= 400:
                raise VicinalError(answer.text)

        for _ in row.times(5_000):
            path = str(draw.choice(paths)).replace("{id}", str(draw.choice(odd)))
            query = "&".join(
                f"{draw.choice(names)}={draw.choice(odd)}" for _ in range(int(draw.integers(4)))
            )
            method = str(draw.choice(["GET", "POST", "POST", "PUT", "DELETE", "HEAD", "OPTIONS"]))
            vector = json.dumps(
                {"vector": [float(value) for value in draw.normal(size=4)], "k": 3}
            ).encode()
            body = (
                bent((png, vector)[int(draw.integers(2))], draw) if draw.random() < 0.8 else vector
            )
            headers = {"content-type": str(draw.choice(kinds))}
            if draw.random() < 0.1:
                name = str(
                    draw.choice(["host", "origin", "range", "sec-fetch-site", "content-length"])
                )
                headers[name] = str(draw.choice(["evil", "-1", "bytes=9-1", "cross-site"]))
            given = {"headers": headers} | ({"content": body} if method in ("POST", "PUT") else {})
            asked = (method, f"{path}?{query}")
            row.attempt(
                f"{method} {path[:60]}?{query[:80]}",
                lambda asked=asked, given=given: ask(*asked, **given),
            )


KILLED = ("train", "bench", "index", "dedupe", "embed", "report", "pack")
ROWS: dict[str, Callable[[Row, Targets], None]] = {
    f"kill-{scene}": partial(kills, scene=scene) for scene in KILLED
}
ROWS |= {function.__name__: function for function in (images, tables, settings, runs, requests)}


@contextlib.contextmanager
def workshop() -> Iterator[Path]:
    """A folder for all that is written, which is gone in the end, and bounds on time and memory."""

    def hung(*_: object) -> None:
        raise Hung(f"took more than {SECONDS} s")

    signal.signal(signal.SIGALRM, hung)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="attack-") as name:
        os.environ["XDG_CACHE_HOME"] = str(Path(name, "cache"))
        _make_outside(Path(name, "outside"))
        os.chdir(name)
        yield Path(name).resolve()


def write(lines: dict[str, str]) -> None:
    """Put rows into the table in the documentation; those of other rows stay."""
    kept = dict.fromkeys(ROWS, "")
    for line in (
        DOCUMENT.read_text(encoding="utf-8").partition("<!-- attack:start -->")[2].splitlines()
    ):
        name = line.removeprefix("| ").partition(" ")[0]
        kept |= {name: line} if name in kept else {}
    rows = [line for line in (kept | lines).values() if line]
    head = [
        "| attack | tried | accepted | rejected | failed | seconds | budget, seed, commit |",
        "|---|---|---|---|---|---|---|",
    ]
    write_between(
        DOCUMENT,
        "attack",
        "\n".join([*head, *rows, "", f"On {provenance(('torch',)).rpartition(';')[0]}."]),
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--budget", type=float, default=1.0, help="scales the tries of all rows")
    parser.add_argument(
        "--only", choices=ROWS, action="append", help="only this row; may be given again"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--write", action="store_true", help="write the rows into docs/benchmarks.md"
    )
    options = parser.parse_args()
    failed, lines = 0, dict[str, str]()
    with workshop() as folder:
        with silence(io.StringIO()):
            targets = Targets.make(folder)
        for name in options.only or ROWS:
            row, began = Row(name, folder, options.seed, options.budget), time.monotonic()
            ROWS[name](row, targets)
            failed += len(row.failures)
            numbers = (
                row.tried,
                row.accepted,
                row.rejected,
                len(row.failures),
                round(time.monotonic() - began),
            )
            how = f"{options.budget:g}, {options.seed}, {commit()}"
            lines[name] = f"| {name} | {' | '.join(f'{number:,}' for number in numbers)} | {how} |"
            print(lines[name], flush=True)
    if options.write:
        write(lines)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())

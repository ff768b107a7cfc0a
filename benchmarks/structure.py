"""How large the library is and how far a reader walks in it: the bars of its structure, measured.

    python benchmarks/structure.py

Tokens are those of code: without comments, docstrings and line ends. A packed assignment gives
several values to several names at once. Files touched by a step, and switches between them, are
counted over the calls of vicinal's functions during one training step on glyphs on the CPU. The
rooms of a configuration are the files that pass it on or read it between the command line and the
first step, a climb is a call from one of them back to one that was entered before it.
"""

import ast
import inspect
import io
import re
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Callable
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src" / "vicinal"
SILENT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
PASSING = {"config.py", "api.py", "cli", "training"}  # that hold or read a configuration


def tokens(path: Path) -> int:
    """Count the tokens of code."""
    text = path.read_text(encoding="utf-8")
    documented = set[int]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(
            node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        ) and ast.get_docstring(node, clean=False):
            documented.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return sum(
        token.type not in SILENT
        and not (token.type == tokenize.STRING and token.start[0] in documented)
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
    )


def packed(path: Path) -> int:
    """Count the assignments of several values to several names."""
    return sum(
        isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Tuple)
        and isinstance(node.value, ast.Tuple)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    )


def imported(path: Path) -> set[Path]:
    """Return the files of vicinal that a file imports, wherever in it the import stands."""
    names = set[str]()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
            names.add(node.module)
    places = (SRC.parent / name.replace(".", "/") for name in names if name.startswith("vicinal."))
    return {place.with_suffix(".py") for place in places if place.with_suffix(".py").exists()}


def circle() -> list[str]:
    """Return files that import each other in a circle, or nothing."""
    try:
        TopologicalSorter({path: imported(path) for path in SRC.rglob("*.py")}).prepare()
    except CycleError as error:
        return [str(path.relative_to(SRC)) for path in error.args[1]]
    return []


SMALL = {
    "model": {"name": "small", "widths": [4, 8], "dim": 8},
    "transform": {"size": 16, "resize": 16},
}


def entered(function: Callable[[], object], *, until: str = "") -> list[tuple[str, str]]:
    """Call ``function`` and return the files of vicinal that its calls enter, with the caller's."""
    passed = list[tuple[str, str]]()

    def note(frame: FrameType, event: str, _: object) -> None:
        name = frame.f_code.co_filename
        if event != "call" or not name.startswith(str(SRC)):
            return
        if until and frame.f_code.co_qualname.endswith(until):
            raise StopIteration
        caller = frame.f_back.f_code.co_filename if frame.f_back else ""
        passed.append((caller, name))

    sys.setprofile(note)
    try:
        function()
    except StopIteration:
        pass
    finally:
        sys.setprofile(None)
    return passed


def step(words: list[str]) -> tuple[int, int]:
    """Return the files that one training step passes, and the switches between them."""
    from vicinal.config import compose, from_words
    from vicinal.training.experiment import prepare

    settings = {"preset": "glyphs", **SMALL, "training": {"steps": 2}}
    experiment = prepare(compose(settings, from_words(words)))
    first, second, *_ = list(experiment.batches(experiment.plan(0)[:2], epoch=0, start=0))
    method = experiment.method
    method.embedder.train()
    method(first)
    files = [name for _, name in entered(lambda: method.step(second))]
    return len(set(files)), sum(one != two for one, two in pairwise(files))


def configuration() -> tuple[int, int]:
    """Return the rooms of a configuration up to the first step, and the climbs between them."""
    from vicinal.api import train

    settings = {**SMALL, "training": {"steps": 2}}
    with tempfile.TemporaryDirectory() as folder:
        calls = entered(
            lambda: train(preset="glyphs", run=Path(folder) / "run", quiet=True, **settings),
            until="Method.step",
        )
    rooms = list[str]()
    climbs = set[tuple[str, str]]()
    for caller, name in calls:
        if not PASSING & set(Path(name).relative_to(SRC).parts[:1]):
            continue
        if name not in rooms:
            rooms.append(name)
        elif caller in rooms and rooms.index(caller) > rooms.index(name):
            climbs.add((caller, name))
    return len(rooms), len(climbs)


def modules_of_search() -> int:
    """Return how many modules of vicinal the command `vicinal search` imports, within its function
    as well.

    ``tests/retrieval/test_loading.py`` counts those that a whole search loads.
    """
    tree = ast.parse((SRC / "cli" / "search.py").read_text(encoding="utf-8"))
    command = next(node for node in tree.body if getattr(node, "name", "") == "search")
    wanted = {node.module for node in ast.walk(command) if isinstance(node, ast.ImportFrom)}
    own = sorted(name for name in wanted if name.startswith("vicinal"))
    program = (
        f"import sys, importlib\nfor name in {['vicinal.cli.main', 'vicinal.cli.search', *own]}: "
        "importlib.import_module(name)\n"
        "print(sum(name.split('.')[0] == 'vicinal' for name in sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def settings(cls: type) -> int:
    """Count what a user of a method can set, beside its embedder and loss."""
    return len(
        set(inspect.signature(cls).parameters) - {"embedder", "loss", "classes", "optimizer"}
    )


def main() -> None:
    from vicinal.methods.ala.method import ALA
    from vicinal.methods.hdml.method import HDML
    from vicinal.methods.loop import LoOp

    source = sorted(SRC.rglob("*.py"))
    everything = [
        path for part in ("src", "tests", "experiments") for path in (ROOT / part).rglob("*.py")
    ]
    similarity = step(["loss=multi_similarity"])
    hdml = step(["loss=multi_similarity", "method=hdml"])
    rooms, climbs = configuration()
    rows = [
        ("tokens in src/", sum(map(tokens, source)), 190_000),
        ("tokens in tests/", sum(map(tokens, (ROOT / "tests").rglob("*.py"))), 260_000),
        ("packed assignments in src/", sum(map(packed, source)), 60),
        (
            "lines over 100 columns in Python files",
            sum(
                len(re.sub(r"  # (type: ignore|noqa).*", "", line)) > 100
                for path in everything
                for line in path.read_text(encoding="utf-8").splitlines()
            ),
            0,
        ),
        ("files in src/", len(source), 160),
        ("files in a circle of imports", len(circle()), 0),
        ("settings of HDML", settings(HDML), 12),
        ("settings of ALA", settings(ALA), 8),
        ("settings of LoOp", settings(LoOp), 4),
        ("rooms of a configuration", rooms, 10),
        ("climbs between them", climbs, 5),
        ("files touched by one step: multi-similarity", similarity[0], 9),
        ("switches between files in it", similarity[1], 15),
        ("files touched by one step: HDML", hdml[0], 12),
        ("switches between files in it", hdml[1], 35),
        (
            "words on the pages of experiments",
            sum(
                len(page.read_text(encoding="utf-8").split())
                for page in (ROOT / "experiments").rglob("*.md")
            ),
            25_000,
        ),
        ("modules imported by `vicinal search`", modules_of_search(), 60),
    ]
    for name, value, bar in rows:
        print(f"{name:45} {value:9,}  bar {bar:9,}{'' if value <= bar else '  missed'}")


if __name__ == "__main__":
    main()

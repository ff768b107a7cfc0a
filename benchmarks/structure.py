"""How large the library is and how far a reader walks in it: the bars of its structure, measured.

    python benchmarks/structure.py

Lines are code lines: without blanks, comments and docstrings. Files touched by a step, and switches
between them, are counted over the calls of vicinal's functions during one training step on glyphs
on the CPU. A module with one importer in its own package is one that could live in that importer.
"""

import ast
import io
import subprocess
import sys
import tokenize
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "vicinal"


def code_lines(text: str) -> int:
    """Count the lines that hold code."""
    documented = set[int]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(
            node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        ) and ast.get_docstring(node, clean=False):
            documented.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines = set[int]()
    empty = {
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    }
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in empty:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - documented)


def module_of(path: Path) -> str:
    parts = path.relative_to(SRC.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path: Path, modules: set[str], *, at_import_time: bool) -> set[str]:
    """Return the modules of vicinal that a file imports."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    lazy = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))
        for inner in ast.walk(node)
    }
    found = set[str]()
    for node in ast.walk(tree):
        if at_import_time and id(node) in lazy:
            continue
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found.update(names & modules or {node.module})
    return (found & modules) - {module_of(path)}


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return groups of modules that import each other (Tarjan's strongly connected components)."""
    index, low, stack, found = dict[str, int](), dict[str, int](), list[str](), list[list[str]]()

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph[node]:
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            group = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(group) > 1:
                found.append(group)

    for node in graph:
        if node not in index:
            visit(node)
    return found


def walk(words: list[str]) -> tuple[int, int]:
    """Return the files that one training step passes, and the switches between them."""
    from vicinal.config import compose, from_words
    from vicinal.training.experiment import prepare

    small = {
        "model": {"name": "small", "widths": [4, 8], "dim": 8},
        "transform": {"size": 16, "resize": 16},
    }
    experiment = prepare(
        compose({"preset": "glyphs", **small, "training": {"steps": 2}}, from_words(words))
    )
    first, second, *_ = list(experiment.batches(experiment.plan(0)[:2], epoch=0, start=0))
    method = experiment.method
    method.embedder.train()
    method(first)
    passed = list[str]()

    def note(frame, event, _):  # type: ignore[no-untyped-def]
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(str(SRC)) and (not passed or passed[-1] != name):
            passed.append(name)

    sys.setprofile(note)
    method.step(second)
    sys.setprofile(None)
    return len(set(passed)), len(passed) - 1


def modules_of_search() -> int:
    """Return how many modules of vicinal the command `vicinal search` imports, within its function
    as well.

    ``tests/retrieval/test_loading.py`` counts those that a whole search loads.
    """
    tree = ast.parse((SRC / "cli" / "search.py").read_text(encoding="utf-8"))
    wanted = {
        node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module
    }
    own = sorted(name for name in wanted if name.startswith("vicinal"))
    program = (
        f"import sys, importlib\nfor name in {['vicinal.cli.main', *own]}: "
        "importlib.import_module(name)\n"
        "print(sum(name.split('.')[0] == 'vicinal' for name in sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def told_by_class(path: Path) -> int:
    """Count ``isinstance`` over classes of losses; whether something is a loss of ours at all does
    not count."""
    calls = (
        node
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
    )
    kinds = (call.args[1] for call in calls if getattr(call.func, "id", "") == "isinstance")
    names = ({n.id for n in ast.walk(kind) if isinstance(n, ast.Name)} - {"Loss"} for kind in kinds)
    return sum(any(name.endswith("Loss") for name in found) for found in names)


def main() -> None:
    paths = sorted(SRC.rglob("*.py"))
    modules = {module_of(path) for path in paths}
    graph = {module_of(path): imported(path, modules, at_import_time=True) for path in paths}
    importers = defaultdict[str, set[str]](set)
    for path in paths:
        for name in imported(path, modules, at_import_time=False):
            if path.name != "__init__.py":
                importers[name].add(module_of(path))
    alone = [
        name
        for name, users in importers.items()
        if len(users) == 1
        and next(iter(users)).rpartition(".")[0] == name.rpartition(".")[0] != "vicinal"
    ]
    similarity, hdml = (
        walk(["loss=multi_similarity"]),
        walk(["loss=multi_similarity", "method=hdml"]),
    )
    rows = [
        (
            "code lines in src/",
            sum(code_lines(path.read_text(encoding="utf-8")) for path in paths),
            18_000,
        ),
        ("files in src/", len(paths), 230),
        ("files touched by one step: multi-similarity", similarity[0], 9),
        ("files touched by one step: HDML", hdml[0], 12),
        ("switches between files in it: multi-similarity", similarity[1], 15),
        ("switches between files in it: HDML", hdml[1], 35),
        ("modules with one importer in their own package", len(alone), 20),
        (
            "`isinstance` over losses outside losses/",
            sum(
                told_by_class(path) for path in paths if path.relative_to(SRC).parts[0] != "losses"
            ),
            0,
        ),
        ("import cycles", len(cycles(graph)), 0),
        ("modules imported by `vicinal search`", modules_of_search(), 60),
    ]
    for name, value, bar in rows:
        print(f"{name:50} {value:7,}  bar {bar:7,}")


if __name__ == "__main__":
    main()

"""The Python in the README and in the documents runs as printed, their commands compose, their
tables are generated."""

import re
import shlex
import shutil
import subprocess
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from inspect import isclass
from pathlib import Path
from runpy import run_path

import numpy as np
import pytest
from tests.pictures import paint
from torch import nn
from typer.main import get_command

from vicinal.bench.table import load_tables
from vicinal.cli.main import app
from vicinal.cli.train import KINDS
from vicinal.config import compose, from_words, presets
from vicinal.documentation import explanation
from vicinal.errors import ConfigError
from vicinal.losses import LOSSES
from vicinal.methods import Plain
from vicinal.training import experiment

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
ELSEWHERE = {
    "docs/howto/export.md"
}  # its Python needs a trained model: tests/retrieval/test_export.py
# the loss of adding_a_loss.md also runs in the losses' contract suite
DOCUMENTS = [
    name
    for name in (page.relative_to(ROOT).as_posix() for page in PAGES)
    if name not in ELSEWHERE and "```python\n" in (ROOT / name).read_text(encoding="utf-8")
]


@pytest.fixture
def beside_data(tmp_path, monkeypatch):
    """A folder with the ``pictures/`` and ``vectors.npz`` that pages speak of, as the working
    directory."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(20), 6)
    paint(tmp_path / "pictures", 8, 4, side=36)
    features = rng.normal(size=(20, 8))[labels] + rng.normal(size=(len(labels), 8))
    np.savez(tmp_path / "vectors.npz", features=features.astype(np.float32), labels=labels)
    monkeypatch.chdir(tmp_path)
    # Processes cost more than 32 files.
    monkeypatch.setattr(experiment, "pick_workers", lambda *given: 0)


def test_the_readme_counts_losses_as_they_are():
    """Ours by class; the peer's without its base classes, mixins, wrappers and memory."""
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    others = re.compile("Base|Mixin|MultipleLosses|SelfSupervised|CrossBatchMemory|GenericPair")
    theirs = [
        name for name, each in vars(losses).items() if isclass(each) and not others.search(name)
    ]
    counts = re.search(
        r"\*\*(\d+) losses\*\*, \d+ linear \| (\d+) losses", (ROOT / "README.md").read_text()
    )
    assert counts is not None and [int(each) for each in counts.groups()] == [
        len(set(LOSSES.values())),
        len(theirs),
    ]


def test_the_readme_has_the_speed_of_the_benchmarks():
    benchmarks = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    ours, theirs = re.search(
        r"batch-all triplet, B = 1024, K = 4 \| (.+?) ms \| (\d+) ms", benchmarks
    ).groups()
    memory = re.search(r"K = 4: extra memory \| (.+?) \| (.+?) \|", benchmarks).groups()
    row = next(
        line
        for line in (ROOT / "README.md").read_text().splitlines()
        if "speed of all triplets" in line
    )
    assert (
        f"**{ours} ms**" in row
        and f"{int(theirs):,} ms" in row
        and all(part in row for part in memory)
    )


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_python_in_a_document_runs(document, beside_data):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.S)
    names: dict[str, object] = {
        "__name__": "document"
    }  # one page, one program: later blocks may use earlier ones
    for block in blocks:
        exec(compile(block, document, "exec"), names)  # noqa: S102 - our own text


class Net(nn.Module):
    """The network of one's own that pages speak of as ``mynet:Net``."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.width = width


@dataclass(eq=False)
class Noise(Plain):
    """The method of one's own that a page speaks of."""

    noise: float = 0.1


TRUSTED = {"mynet:Net": Net, "my_method:Noise": Noise}


def commands(text: str) -> list[str]:
    """The ``vicinal ...`` lines of code blocks, and whole commands inside a sentence."""
    blocks = re.findall(r"^```\n(.*?)^```", text, re.S | re.M)
    lines = [
        line.removeprefix("$ ")
        for block in blocks
        for line in block.replace("\\\n", " ").splitlines()
    ]
    inline = re.findall(
        r"`(vicinal (?:train|bench|list|explain) [^`]+)`",
        re.sub(r"```.*?```", "", text, flags=re.S),
    )
    return [
        line
        for line in (*lines, *(" ".join(words.split()) for words in inline))
        if line.startswith("vicinal ")
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_commands_on_a_page_are_understood(page):
    """Command and options are known, slots compose, tables and files are there; nothing is run."""
    lines = commands(page.read_text())
    for line in lines:
        command = get_command(app)
        words = shlex.split(line, comments=True)[1:]
        named = []
        while "--trust" in words:  # from any place, as the command line does
            place = words.index("--trust")
            named.append(words[place + 1])
            del words[place : place + 2]
        while hasattr(command, "commands"):
            assert words[0] in command.commands, line
            command = command.commands[words[0]]
            words = words[1:]
        if any(
            word.isupper() and word.isalpha() for text in words for word in re.split("[=.]", text)
        ):
            continue  # a placeholder such as SLOT=NAME; RUN is one, too
        given = command.make_context(line, words).params
        try:
            check(command.name, given, named)
        except ConfigError as error:
            pytest.fail(f"{page.name}: {line}: {error}")
    assert lines or page.name != "README.md"


@pytest.mark.parametrize("name", ["Containerfile", "vicinal.service"])
def test_a_deployed_server_is_started_as_the_command_line_has_it(name, tmp_path):
    text = (ROOT / "deploy" / name).read_text()
    (words,) = re.findall(r" serve (/.*)", text)
    get_command(app).commands["serve"].make_context("serve", words.split())
    if name == "vicinal.service" and shutil.which("systemd-analyze"):
        unit = tmp_path / name
        unit.write_text(text.replace("/opt/vicinal/bin/vicinal", "/bin/true"))
        verified = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True)
        assert (verified.returncode, verified.stderr) == (0, b"")


def check(command: str, given: dict, named: list[str]) -> None:
    if command == "train":
        words = given["arguments"] or []
        names = [word for word in words if "=" not in word and not word.endswith((".toml", ".csv"))]
        if find_spec("timm") is None:
            words = [word.replace("timm:vit_small_patch16_224", "resnet18") for word in words]
        layer = from_words(word for word in words if "=" in word)
        assert set(names) <= set(presets())
        layer.pop("data", None)  # which may not be on this machine
        composed(*names, layer=layer, trust={name: TRUSTED[name] for name in named})
    elif command == "bench":
        for source in given["tables"] or ():
            file, _, name = source.partition("::")
            found = tables(file) if file != "mine.py" else []  # which the page itself defines
            assert not name or name in found, f"{file} has {', '.join(found)}"
    elif command == "explain":
        explanation(given["what"])
    elif command == "list":
        assert given["kind"] in KINDS


def composed(
    preset: str = "images_from_scratch", *, layer: dict, trust: dict | None = None
) -> None:
    compose(
        {"preset": preset}, {"data": "glyphs", "training": {"validation": 0.0}}, layer, trust=trust
    )


@cache
def tables(file: str) -> list[str]:
    return [table.name for table in load_tables(str(ROOT / file))]


@pytest.mark.parametrize("page", ["README.md", "docs/howto/compose.md"])
def test_the_files_on_a_page_compose(page):
    blocks = re.findall(r"```toml\n(.*?)```", (ROOT / page).read_text(), re.S)
    assert blocks
    for block in blocks:
        layer = tomllib.loads(block)
        layer.pop("data", None)
        composed(layer=layer)


def test_generated_tables_are_those_of_the_code():
    generate = run_path(str(ROOT / "docs/generate.py"))
    marked = ""
    for name in ("compose", "losses"):
        page = (ROOT / "docs/howto" / f"{name}.md").read_text(encoding="utf-8")
        marked += page
        assert generate["renewed"](page) == page, (
            f"run `python docs/generate.py docs/howto/{name}.md`"
        )
    assert all(f"<!-- generated:{name}:start -->" in marked for name in generate["GENERATED"])


def test_links_between_documents_lead_somewhere():
    for path in PAGES:
        for target in re.findall(r"\]\((?!http)([^)#]+)\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"

"""Commands killed at their operations on files go on, by the same command, to the same bytes."""

import json
import shutil
from pathlib import Path

import pytest
from tests.runs import run_here

pytestmark = [pytest.mark.slow(10), pytest.mark.filterwarnings("ignore")]

TABLE = """
from vicinal.bench import Table, row
TABLE = Table(
    "Small", row("triplet", loss="triplet"), name="small", seeds=1, data={data!r}, words={words!r}
)
"""


def bench_here(table, folder):
    """Run a table as ``vicinal bench`` does, but in this process, where the hook sees what its
    workers do."""
    from vicinal.bench.page import write_page
    from vicinal.bench.run import Bench, run_tables
    from vicinal.bench.summary import summarize
    from vicinal.bench.table import load_tables
    from vicinal.training.console import Console

    bench = Bench(folder / "results", folder / "runs", Console(quiet=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vicinal.bench.pool.Pool.run", run_here)
        for outcome in run_tables(load_tables(str(table)), bench):
            assert not outcome.failures
            write_page(summarize(outcome), bench.folder)


@pytest.fixture
def scenes(attack, targets, tmp_path):
    """What is prepared, what is killed, and the files that count."""
    folder = tmp_path / "work" / "scene"
    table = tmp_path / "table.py"
    table.write_text(TABLE.format(data=str(targets.vectors), words=attack.vectors))

    def copied(*without):
        ignored = shutil.ignore_patterns("report.html", *without)
        return lambda: shutil.copytree(targets.run, folder, ignore=ignored)

    def measured():
        lines = map(json.loads, (folder / "results" / "small.jsonl").read_text().splitlines())
        return [(line["row"], line["seed"], line["slots"], line["metrics"]) for line in lines]

    def run(*words):
        return lambda: attack.done(*words)

    def files(*patterns):
        return lambda: attack.content(folder, *patterns)

    bare = copied("collection")
    whole = copied()
    empty = folder.mkdir
    embed = run("embed", targets.run, targets.photos, "--out", folder / "e.npz")
    indexed = files("items.jsonl", "vectors.npy")
    return folder, {
        "bench": (empty, lambda: bench_here(table, folder), measured),
        "index": (bare, run("index", folder, targets.photos), indexed),
        "dedupe": (whole, run("dedupe", folder), files("duplicates.*")),
        "embed": (empty, embed, files("*.npz")),
    }


@pytest.mark.parametrize("scene", ["bench", "index", "dedupe", "embed"])
def test_a_killed_command_goes_on_to_the_same_bytes(attack, kills, scenes, scene):
    folder, known = scenes
    prepare, work, result = known[scene]
    prepare()
    total = kills.run(folder, work)
    expected = result()
    for at in attack.points(total):
        shutil.rmtree(folder)
        prepare()

        def killed(at=at):
            kills.run(folder, work, at)
            work()

        label = f"killed at operation {at} of {total}"
        attack.attempt(label, killed)
        assert result() == expected and not list(Path(folder).rglob("*.part")), label

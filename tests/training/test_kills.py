"""A run killed at any operation on its files goes on, or starts again, to the same bytes."""

import shutil

import pytest
from tests.kills import Kills

from vicinal.errors import RunError
from vicinal.run_directory import RunDirectory
from vicinal.training.run import resume, start

# Small, and with a loss that draws from torch's generator, so that a resume which forgot its state
# would show.
SMALL = ["loss.noisy=true", "training.steps=3", "training.ema=0.9", "evaluation.artifacts=false"]


@pytest.fixture(scope="module")
def kills():
    return Kills()


def finish(path, begin, tiny, console):
    """Do what a user does after a kill: resume, or begin again where the run had not begun."""
    if (path / "run.json").exists():
        return resume(path, trust=tiny.trust, console=console)
    with pytest.raises(RunError, match=r"no run\.json|no such folder"):
        resume(path, trust=tiny.trust, console=console)
    begin()
    return RunDirectory.open(path)


def content(run):
    results = {name: value for name, value in run.results.items() if name != "notes"}
    return (
        run.metrics_path.read_bytes(),
        run.weights_path.read_bytes(),
        results,
        run.status["state"],
    )


@pytest.mark.slow(25)
# The dead close no files.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_run_killed_at_every_file_operation_ends_in_the_same_bytes(
    tiny, tmp_path, console, kills
):
    config = tiny.config(*SMALL)
    path = tmp_path / "run"

    def begin():
        start(config, path, command="test", console=console)

    total = kills.run(path, begin)
    assert total > 50
    expected = content(RunDirectory.open(path))
    for at in range(1, total + 1):
        shutil.rmtree(path)
        kills.run(path, begin, at=at)
        assert content(finish(path, begin, tiny, console)) == expected, (
            f"killed at operation {at} of {total}"
        )
        assert not list(path.rglob("*.part")), f"left by a kill at operation {at}"

"""What a person sees of long work where there is no terminal: plain lines, and a time left once it
can be known."""

import re

import pytest

from vicinal.training import console as module
from vicinal.training.console import Console


@pytest.fixture
def clock(monkeypatch):
    """Time that stands still until it is set."""
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def test_times_left_of_epoch_and_run_are_told_apart(clock, capsys):
    with Console().following(10, 0, "epoch 1/9") as follower:
        clock[0] = 20.0
        follower.advance(2, "loss 0.5", 4000.0)
    until = r"run 67 min left, until \d\d:\d\d"
    assert re.fullmatch(
        rf"epoch 1/9 2/10  loss 0.5  {until}  epoch 80 s left\n", capsys.readouterr().err
    )


def test_the_time_left_is_told_once_something_is_done(clock, capsys):
    with Console().following(10, 4, "runs") as follower:
        clock[0] = module.PLAIN_SECONDS
        follower.advance(4, "2 at work")
        clock[0] = 2 * module.PLAIN_SECONDS
        follower.advance(6, "2 at work")
    first, second = capsys.readouterr().err.splitlines()
    assert first == "runs 4/10  2 at work"
    assert second == f"runs 6/10  2 at work  {2 * module.PLAIN_SECONDS / 2 * 4:.0f} s left"

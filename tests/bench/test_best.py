"""The best settings for data: found within the budget, by training classes alone, and the simplest
of equals."""

import json
import time

import numpy as np
import pytest

import vicinal
from vicinal.bench import best
from vicinal.bench.best import Search, Trial, simplest
from vicinal.errors import DataError

RATE = ("optimizer.learning_rate=0.01",)


@pytest.fixture
def few(monkeypatch):
    """Three candidates: the default, a start and one that learns faster."""
    monkeypatch.setattr(best, "candidates", lambda *_, **__: [(), best._STARTS[1], RATE])


@pytest.fixture
def make(tmp_path, console):
    """``make(tested=1.0)``: data of 16 training classes and test vectors of that scale."""

    def data(tested=1.0, classes=16):
        rng = np.random.default_rng(0)
        labels = np.repeat(np.arange(classes + 4), 5)
        features = rng.normal(size=(classes + 4, 6))[labels] + rng.normal(size=(len(labels), 6))
        splits = np.where(labels < classes, "train", "test")
        features[splits == "test"] *= tested
        path = tmp_path / "vectors.npz"
        np.savez(path, features=features.astype(np.float32), labels=labels, splits=splits)
        return str(path)

    def made(tested=1.0, *words, classes=16, minutes=30.0):
        return Search(data(tested, classes), words, minutes, tmp_path / "out", console, 1)

    return made


def lines(tmp_path):
    return [
        json.loads(line) for line in (tmp_path / "out" / "trials.jsonl").read_text().splitlines()
    ]


def test_a_run_a_page_and_a_command_are_left_and_a_search_goes_on(few, make, tmp_path):
    path = make().data
    run = vicinal.best(path, run=tmp_path / "out", quiet=True)
    assert run.directory.status["state"] == "finished" and run.path == tmp_path / "out" / "run"
    page = (run.path / "best.md").read_text()
    assert "`vicinal train --data" in page and "Left untried: nothing" in page
    assert "| default | heads | 4 |" in page and "seed = 0" in (run.path / "best.toml").read_text()
    before = lines(tmp_path)
    assert {len(line["scores"]) for line in before if line["level"] == "heads"} == {4}
    (tmp_path / "out" / "trials.jsonl").write_text(
        "".join(json.dumps(x) + "\n" for x in before[:5])
    )
    again = make()
    again.race("heads", again.candidates, time.monotonic() + 1e4)
    key = ("words", "fold", "scores")
    assert [[x[k] for k in key] for x in lines(tmp_path)] == [[x[k] for k in key] for x in before]


def test_test_classes_change_nothing(few, make, tmp_path):
    one = make()
    one.race("heads", one.candidates, time.monotonic() + 1e4)
    other = make(tested=50.0)
    other.race("heads", other.candidates, time.monotonic() + 1e4)
    assert other.key == one.key and other.choose() == one.choose()
    assert len(other.records) == 16 * 5 and other.tested == 4 * 5


def test_of_what_cannot_be_told_apart_the_simplest_is_chosen():
    def trial(word, *scores):
        return Trial((word,), {0: list(scores[:3]), 1: list(scores[3:])})

    plain = trial("plain", 0.5, 0.6, 0.7, 0.8)
    noisy = trial("noisy", 0.7, 0.5, 0.6, 0.9)  # +0.025, as likely by chance
    better = trial("better", 0.6, 0.7, 0.8, 0.9)
    assert simplest([plain, noisy]) is plain
    assert simplest([plain, better]) is better


def test_what_is_below_the_start_is_not_chosen():
    """Of three held-out classes a default 11 points below the start could not be told from it."""
    start = Trial(best._STARTS[0], {0: [0.9, 0.3, 0.4]})
    default = Trial((), {0: [0.4, 0.35, 0.45]})
    assert simplest([default, start]) is start
    assert simplest([Trial((), {0: [0.9, 0.3, 0.41]}), start]).words == ()


def test_no_trial_starts_when_time_is_up(few, make, monkeypatch, tmp_path):
    now = [0.0]
    monkeypatch.setattr(best.time, "monotonic", lambda: now[0])

    def train(config):
        now[0] += 10
        return [0.5]

    monkeypatch.setattr(best, "trained", train)
    found = make(minutes=1.0)
    found.race("heads", found.candidates, found.until - 15)
    assert now[0] == 40 and found.choose().words == ()
    assert {len(one.scores) for one in found.ranked("heads")} == {1, 2}, "not all had the second"
    assert found.choose().scores.keys() == {0}, "what all had decides"
    assert make(minutes=1.0).until == now[0] + 20, "what was spent before a stop counts"


def test_a_short_look_tells_which_heads_run_where_not_all_can(make, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(best.time, "monotonic", lambda: now[0])

    def train(config):
        """As good as its rate, in seconds as many as its steps."""
        now[0] += config.training.steps or 16
        rate = config.optimizer.learning_rate
        return [0.1 if config.training.head_only else min(0.9, 38 * rate)] * 4

    monkeypatch.setattr(best, "trained", train)
    found = make(minutes=10.0)
    rates = [(f"optimizer.learning_rate={factor}e-4",) for factor in range(2, 60)]
    found.candidates = [(), *best._STARTS, *rates]
    found.race("heads", found.candidates, 480.0)
    looked = {one.words for one in found.ranked("short")}
    tried = {one.words for one in found.ranked("heads")}
    assert len(looked) > 2 * len(tried) and 450 < now[0] <= 480
    assert rates[0] in tried, "beside the default it tells what a candidate costs"
    assert found.choose().words == rates[-1], "the last and best"
    page = found.page(found.choose(), "")
    assert page.count("| short |") == len(looked)


def test_ranges_replace_the_candidates(make):
    found = make(1.0, "loss=triplet,n_pair", "model.dim=3")
    assert found.fixed[0] == "model.dim=3" and found.candidates[0] == ()
    assert set(found.candidates[4:]) == {("loss=triplet",), ("loss=n_pair",)}


def test_what_is_fixed_stays_as_it_is(make):
    """Candidates once took the place of a loss that the user had fixed."""
    found = make(1.0, "loss=triplet", "model.dim=3")
    rates = [f"optimizer.learning_rate={rate}" for rate in ("0.0003", "3e-05", "0.001")]
    methods = [("method=hdml",), ("method=loop",)]
    longer = ("training.epochs=20",)
    starts = best._STARTS
    assert found.candidates == [(), *starts, *((rate,) for rate in rates), longer, *methods]
    assert len(make().candidates) == 114, "what was not fixed by the user is tried"


def test_no_network_starts_that_would_not_end_before_the_last_run(make, monkeypatch):
    """What the longest so far took is left; what still trains then is stopped."""
    asked = []

    class Watched(best.Pool):
        def run(self, tasks, done, **how):
            asked.append((len(list(tasks)), how["until"], how["stop"]))
            return 1

    monkeypatch.setattr(best, "Pool", Watched)
    found = make()
    found.guess = 70.0
    assert not found.on_pool([*best._PROXIES], 0, "t", 100.0)
    found.note("whole", (), 0, [0.5], 40.0)
    assert not found.on_pool([*best._PROXIES], 1, "t", 100.0)
    assert asked == [(7, 30.0, 100.0), (7, 60.0, 100.0)]


def test_too_little_time_is_said_and_keeps_a_start(make, monkeypatch):
    found = make(minutes=0.001)
    monkeypatch.setattr(found, "measure", None)  # nothing is trained
    found.note("features", (), 0, [], 5.0)
    found.search()
    assert found.choose().words == best._STARTS[-1]


def test_networks_of_pictures_are_tried_with_other_pooling_and_crops(make):
    found = make()
    found.base = found.base.replace(model={"name": "efficientnet_lite0", "pooling": "generalized"})
    assert ("model.pooling=average",) in found.of_pictures()
    assert not any("transform" in word for words in found.of_pictures() for word in words)


def test_the_last_training_ends_while_there_is_time_to_measure_it(few, make, monkeypatch):
    asked = {}

    def stop(config, folder, **how):
        asked.update(how)
        raise KeyboardInterrupt

    monkeypatch.setattr(best, "train_run", stop)
    found = make()
    with pytest.raises(KeyboardInterrupt):
        found.run()
    assert found.began < asked["until"] == found.measured < found.until


def test_records_are_held_out_where_classes_are_too_few(few, make):
    found = make(classes=3)
    found.race("heads", found.candidates, time.monotonic() + 1e4)
    assert found.folds == 2 and len(found.choose().scores[0]) == 3, "each class is in each fold"
    assert "of records held out" in found.page(found.choose(), "")


def test_a_single_class_is_an_error(make):
    with pytest.raises(DataError, match="2 training classes"):
        make(classes=1)

"""Batches: in the plan's order, the same for any number of workers, honest about what cannot be
read."""

import multiprocessing
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from numpy.testing import assert_array_equal
from tests.reading import broken, load, same
from torch.testing import assert_close

from vicinal.data import loader
from vicinal.data import records as records_module
from vicinal.data.folder import Folder
from vicinal.data.loader import Loader, load_all
from vicinal.data.records import FeatureArray, ImageArray, Records
from vicinal.data.transforms import FeatureTransform, ImageTransform
from vicinal.errors import ConfigError, DataError

RANDOM = ImageTransform(size=8, pad=1, crop="random", mirror=True)
PLAN = [[0, 5, 3], [11, 7], [1, 2, 3, 4]]


@pytest.fixture
def images(class_folders):
    """Classes a, b, c, d hold rows 0-2, 3-5, 6-8, 9-11."""
    return Folder(str(class_folders), test=0.0).load()


@pytest.fixture
def features():
    values = np.random.default_rng(0).normal(size=(20, 5)).astype(np.float16)
    columns = {"angle": np.linspace(0, 1, 20), "camera": np.arange(20)}
    return records_of(FeatureArray(values, [str(row) for row in range(20)]), columns)


def records_of(source, columns=()):
    rows = np.arange(len(source))
    splits = np.array(["train", "test"])[rows % 2]
    return Records("f", source, rows % 4, tuple("abcd"), splits, dict(columns))


def test_augmentation_depends_on_seed_epoch_and_index_alone(images):
    def batch(rows, seed=0, epoch=0):
        return next(load(images, [rows], RANDOM, seed=seed, epoch=epoch)).inputs

    assert_close(batch([4, 7])[1], batch([7, 1, 2])[0], rtol=0, atol=0)
    assert not batch(range(12)).equal(batch(range(12), epoch=1))
    assert not batch(range(12)).equal(batch(range(12), seed=1))


@pytest.mark.parametrize(
    ("lost", "plan", "indices"),
    [
        ([4], [1, 2, 3, 4], [1, 2, 3, 5]),  # 5 comes next, and 3 is there already
        ([3], [3, 4], [5, 4]),
        ([3, 5], [3, 4, 5], [4, 4, 4]),  # twice only in need
    ],
)
def test_an_unreadable_image_is_replaced_by_another_of_its_class(images, lost, plan, indices):
    for row in lost:
        broken(images, row)
    plans = [[0, 1], plan]
    first, batch = load(images, plans, RANDOM, seed=0, epoch=0, skip_corrupt=True)
    assert first.skipped == () and batch.skipped == tuple(lost)
    assert batch.indices.tolist() == indices
    assert batch.labels.tolist() == [row // 3 for row in indices]


def test_an_image_that_the_transform_rejects_is_named(images):
    with pytest.raises(ConfigError, match=r"a/0.jpg: a square of 99 pixels"):
        list(load(images, [[0]], ImageTransform(size=99), seed=0, epoch=0, skip_corrupt=True))


def test_workers_change_nothing_and_pass_on_the_error(images):
    """One test for all, since starting the processes takes seconds."""
    alone = list(load(images, PLAN, RANDOM, seed=3, epoch=1))
    state = torch.get_rng_state()
    same(load(images.take(np.arange(12)), iter(PLAN), RANDOM, seed=3, epoch=1, workers=2), alone)
    assert torch.get_rng_state().equal(state)
    staying = Loader(images, RANDOM, seed=3, workers=1)
    # And the rest of this epoch is never asked for.
    assert len(next(staying.batches(PLAN, 0)).labels)
    before = {process.pid for process in multiprocessing.active_children()}
    same(staying.batches(PLAN, 1), alone)
    assert before and {process.pid for process in multiprocessing.active_children()} == before
    name = broken(images, 4)
    batches = load(images, PLAN[1:], RANDOM, seed=3, epoch=1, workers=1)
    same([next(batches)], alone[1:2])
    with pytest.raises(
        DataError, match=rf"^image .*/{name} cannot be read: .* --skip-corrupt elsewhere\.$"
    ):
        next(batches)
    alone, apart = (
        load_all(images, RANDOM, batch_size=5, workers=workers, skip_corrupt=True)
        for workers in (0, 1)
    )
    same(alone, apart)


def test_unreadable_rows_are_left_out_of_an_evaluation_and_reported(images):
    name = broken(images, 6)
    broken(images, 7)
    with pytest.raises(DataError, match=name):
        list(load_all(images, RANDOM))
    batches = list(load_all(images, RANDOM, batch_size=2, skip_corrupt=True))
    assert [batch.skipped for batch in batches] == [(), (), (), (6, 7), (), ()]
    assert batches[3].inputs.shape == (0, 3, 8, 8) and batches[3].labels.dtype == torch.int64
    rows = torch.cat([batch.indices for batch in batches]).tolist()
    assert rows == [row for row in range(12) if row not in (6, 7)]


def test_features_come_by_one_indexing_with_their_extras(features):
    part = features.part("test")  # odd rows
    (batch,) = load(part, [[0, 9, 4]], FeatureTransform(), seed=0, epoch=0, workers=2)
    assert_array_equal(batch.inputs, features.source.features[[1, 19, 9]].astype(np.float32))
    assert batch.labels.tolist() == [1, 3, 1] and batch.indices.tolist() == [0, 9, 4]
    assert batch.extras["camera"].tolist() == [1, 19, 9]
    assert batch.extras["angle"].dtype == torch.float32
    (whole,) = load_all(features, FeatureTransform(normalize=True))
    assert_close(whole.inputs.norm(dim=1), torch.ones(20))


PROGRAM = """
import os, signal, sys
from vicinal.data import Folder, ImageTransform
from vicinal.data.loader import Loader

class Own(ImageTransform):
    pass

records = Folder(sys.argv[1], test=0.0).load()
for transform in (Own, ImageTransform):
    batches = Loader(records, transform(size=8), workers=2).batches([[0], [5], [11]])
    print("read", len(next(batches).labels), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow(10)
def test_a_program_without_a_guard_reads_by_processes_which_end_with_it(
    class_folders, tmp_path_factory
):
    """They import nothing from the current folder, and hold its output open no longer than it."""
    program = tmp_path_factory.mktemp("program") / "mine.py"
    program.write_text(PROGRAM)
    here = tmp_path_factory.mktemp("here")
    (here / "torch.py").write_text("open('ran', 'w')")
    command = [sys.executable, str(program), str(class_folders)]
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "read 1\nread 1\n"), done.stderr
    assert "Traceback" not in done.stderr and not (here / "ran").exists()


def test_images_in_memory_need_no_workers(monkeypatch):
    pixels = np.random.default_rng(0).integers(0, 256, (4, 8, 8), dtype=np.uint8)
    records = records_of(ImageArray(pixels, list("abcd")))
    monkeypatch.setattr(
        "vicinal.data.loader.ProcessPoolExecutor", lambda *_: pytest.fail("started processes")
    )
    (batch,) = load(
        records, [[2, 0]], ImageTransform(size=8, channels=1), seed=0, epoch=0, workers=4
    )
    assert batch.inputs.shape == (2, 1, 8, 8)
    # By other strides torch chooses kernels with other last bits.
    assert batch.inputs.stride() == (64, 64, 8, 1)


def test_what_does_not_fit_is_rejected_at_once(images, features):
    with pytest.raises(ConfigError, match="holds images, but FeatureTransform takes features"):
        load(images, PLAN, FeatureTransform(), seed=0, epoch=0)
    with pytest.raises(ConfigError, match="holds features, but ImageTransform takes images"):
        load_all(features, RANDOM)


def test_contents_of_many_files_are_read_again_only_where_they_changed(
    class_folders, images, monkeypatch, tmp_path
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(loader, "WORTH_KEEPING", 4)
    read = []

    def told():
        read.clear()
        return loader.contents(images, read.append)

    first = told()
    assert read == [12] and len(set(first.tolist())) == 12
    assert_array_equal(told(), first)
    assert read == [12]  # files this new may change without another time
    monkeypatch.setattr(records_module, "_TICK", 0)
    told()
    assert_array_equal(told(), first)
    assert not read
    changed = class_folders / images.source.paths[5]
    changed.write_bytes((class_folders / images.source.paths[0]).read_bytes())
    now = told()
    assert read == [12] and now[5] == first[0]
    (class_folders / images.source.paths[5]).unlink()
    assert told()[5] == 0
    next((tmp_path / "cache").rglob("contents-*.npz")).write_bytes(b"damaged")
    assert_array_equal(np.delete(told(), 5), np.delete(first, 5))

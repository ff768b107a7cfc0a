"""Small runs whose networks are drawn, not trained, and folders of pictures to index with them."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch
from PIL import Image
from tests.runs import drawn_run

from vicinal.data import Arrays, FeatureTransform, Folder, ImageTransform
from vicinal.models import Embedder, Identity, SmallConvNet
from vicinal.retrieval.collection import Access, CollectionDirectory, publish
from vicinal.retrieval.indexing import index
from vicinal.retrieval.items import Item, Place


class Listener:
    """An audience that remembers what it was told; ``stop_after`` plays the user who presses
    Ctrl-C."""

    def __init__(self):
        self.lines = []
        self.titles = []
        self.stop_after = None

    def line(self, text, *, warning=False):
        self.lines.append(text)

    @contextmanager
    def following(self, total, done, title):
        self.titles.append((title, total, done))
        self._title = title
        yield self

    def advance(self, done, facts=""):
        if self._title == "embedding" and self.stop_after is not None and done >= self.stop_after:
            raise KeyboardInterrupt


@pytest.fixture
def listener():
    return Listener()


@pytest.fixture
def draw():
    """``draw(path, seed)``: a small picture of its own at ``path``, by its seed."""

    def draw(path, seed):
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(seed).integers(0, 256, (20, 24, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path)
        return path

    return draw


@pytest.fixture
def photographs(tmp_path, draw):
    """Twelve pictures of four classes in class folders."""
    root = tmp_path / "photographs"
    for number in range(12):
        draw(root / "abcd"[number % 4] / f"{number:02d}.png", number)
    return root


@pytest.fixture
def image_run(tmp_path, photographs):
    """A run on ``photographs``, all of whose classes are for training and half of these held
    out."""
    torch.manual_seed(0)
    return drawn_run(
        tmp_path / "run",
        Embedder(SmallConvNet(3, (4, 8)), 6),
        ImageTransform(size=16, resize=16),
        Folder(str(photographs), test=0.0),
        0.5,
    )


@pytest.fixture
def indexed(image_run, photographs, listener):
    """The run, with a collection of its photographs."""
    index(image_run, [str(photographs)], console=listener)
    return image_run


@pytest.fixture
def vectors_file(tmp_path):
    """Forty feature vectors of five classes with names and a further column."""
    rng = np.random.default_rng(0)
    path = tmp_path / "vectors.npz"
    np.savez(
        path,
        features=rng.standard_normal((40, 8)).astype(np.float32),
        labels=np.arange(40) % 5,
        names=np.array([f"{'abcde'[row % 5]}/{row:02d}.png" for row in range(40)]),
        camera=np.arange(40) % 3,
    )
    return path


@pytest.fixture
def feature_run(tmp_path, vectors_file):
    torch.manual_seed(0)
    return drawn_run(
        tmp_path / "feature_run",
        Embedder(Identity(8), 4),
        FeatureTransform(),
        Arrays(str(vectors_file), test=0.4),
        0.0,
    )


@pytest.fixture
def collect(tmp_path):
    """``collect(vectors, labels)``: a collection of these, and its snapshot; settings are those of
    the items, a list each."""

    def call(vectors, labels, *, root=None, folder="collection", **settings):
        settings = {
            "id": range(len(labels)),
            "path": [f"{row}.png" for row in range(len(labels))],
            "label": [None if label is None else str(label) for label in labels],
            **settings,
        }
        rows = zip(*settings.values(), strict=True)
        items = [Item(**dict(zip(settings, row, strict=True))) for row in rows]
        vectors = np.asarray(vectors, np.float32)
        where = root and str(root)
        places = [Place(where or "x.npz", where)]
        publish(tmp_path / folder, items, vectors, dim=vectors.shape[1], places=places)
        return CollectionDirectory.open(tmp_path / folder, Access(images=["/"])).snapshot()

    return call

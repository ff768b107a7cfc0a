"""A small run with a real model, and a collection of drawn pictures in it: discs of one color for
each class."""

import warnings
from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw
from tests.runs import drawn_run

from vicinal.data.transforms import FeatureTransform, ImageTransform, TextTransform
from vicinal.evaluation.encoder import Encoder
from vicinal.models import NGrams
from vicinal.models.embedder import Embedder
from vicinal.models.small import Identity, SmallConvNet
from vicinal.retrieval.collection import CollectionDirectory, publish
from vicinal.retrieval.items import Item, Place
from vicinal.retrieval.library import Library
from vicinal.retrieval.model import EmbeddingModel, load
from vicinal.retrieval.overview import CollectionMap
from vicinal.retrieval.serve.server import create_application
from vicinal.run_directory import Journal

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it would rather have another HTTP client than httpx
    from fastapi.testclient import TestClient

HOSTILE = "<img src=x onerror='window.injected = true'>"
COLORS = {"disc": "blue", "square": "orange", HOSTILE: "green"}
PER_CLASS = 12
DIM = 16


def _drawn(name, rng):
    """A picture of a class: the color is the class's, place and size are chance."""
    image = Image.new("RGB", (96, 96), "white")
    x, y, radius = rng.integers((34, 34, 14), (62, 62, 30)).tolist()
    ImageDraw.Draw(image).circle((x, y), radius, COLORS[name])
    return image


def _as_bytes(image, kind="png"):
    file = BytesIO()
    image.save(file, kind)
    return file.getvalue()


def _write_run(path, *, features=False):
    """A finished run, its model as it was drawn; what is served does not depend on how good it
    is."""
    torch.manual_seed(0)
    if features:
        run = drawn_run(path, Embedder(Identity(8), DIM), FeatureTransform())
    else:
        transform = ImageTransform(size=32, resize=32, channels=3)
        run = drawn_run(path, Embedder(SmallConvNet(3, widths=(8, 16)), DIM), transform)
    config = {"preset": "shapes", "title": "Shapes never seen before.", "slots": {}}
    run.write_info({"name": "shapes", "config": config, "data": {"name": "shapes"}})
    run.write_status("finished", epoch=1, step=60, seconds=3.0)
    journal = Journal(run.metrics_path)
    for step in range(60):
        scalars = dict.fromkeys(("loss", "active", "hardness/lambda"), step / 60)
        journal.append({"kind": "step", "step": step, "epoch": step // 30, **scalars})
    scores = {"split": "validation", "metrics": {"recall@1": 0.9}}
    journal.append({"kind": "evaluation", "step": 59, "epoch": 1, **scores})
    journal.close()
    run.write_results({"format": 1, "split": "test", "rows": [], "selected": {"step": 50}})
    run.write_document("captions", {"hardness": "lambda is how hard the negatives are."})
    records = [{"id": id, "name": f"{id}", "class": "disc"} for id in range(2)]
    run.write_document("records", {"records": records})
    worst = [{"class": name, "records": 12, "recall@1": 0.5} for name in ("disc", HOSTILE)]
    pair = {"class": "disc", "taken_for": "square", "share": 0.4, "queries": 12, "example": [0, 1]}
    run.write_document("classes", {"worst": worst, "confused": [pair]})
    return run


def _write_pictures(root):
    """Pictures below ``root``; their paths and classes."""
    rng = np.random.default_rng(0)
    written = []
    for number, name in enumerate(COLORS):
        for place in range(PER_CLASS):
            path = f"class_{number}/{place:02d}.jpg"
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            exif = Image.Exif()
            exif[0x010E] = "a secret place"  # ImageDescription
            _drawn(name, rng).save(root / path, quality=90, exif=exif)
            written.append((path, name))
    return written


def _index(run, root, written):
    """What ``vicinal index`` does, in few words."""
    model = load(run, device="cpu")
    items = [
        Item(i, path, label, {"camera": str(i % 2)}, 0, digest=f"{i:064x}")
        for i, (path, label) in enumerate(written)
    ]
    vectors = model.embed([root / path for path, _ in written])
    places = [Place(str(root), str(root))]
    return publish(run / "collection", items, vectors, dim=DIM, places=places)


def _spiral(snapshot):
    """A map in no time."""
    ids = np.array([item.id for item in snapshot.items])
    turn = np.pi * ids / 18
    positions = np.stack([np.cos(turn), np.sin(turn)], axis=1) * (ids + 5)[:, None]
    return CollectionMap(ids, positions)


def _library_of(run):
    collection = CollectionDirectory.of(run, images=[str(run.path.parent)])
    return Library(run, collection, load(run.path, device="cpu"), layout=_spiral)


def _client_of(library, **settings):
    application = create_application(library, **settings)
    return TestClient(application, "http://localhost", raise_server_exceptions=False)


# Tests are imported as single files, so what they share comes to them as fixtures.


def _given(value):
    return pytest.fixture(scope="session")(lambda: value)


drawn = _given(_drawn)
as_bytes = _given(_as_bytes)
write_run = _given(_write_run)
write_pictures = _given(_write_pictures)
index = _given(_index)
spiral = _given(_spiral)
library_of = _given(_library_of)
client_of = _given(_client_of)


@pytest.fixture
def chance():
    return np.random.default_rng(3)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A run's folder with its collection, written once for a module."""
    path = tmp_path_factory.mktemp("served")
    run = _write_run(path / "run")
    _index(run.path, path / "pictures", _write_pictures(path / "pictures"))
    return run


@pytest.fixture(scope="module")
def library(served):
    return _library_of(served)


@pytest.fixture(scope="module")
def client(library):
    with _client_of(library) as client:
        yield client


@pytest.fixture(scope="module")
def featured(tmp_path_factory):
    """A client of a run on feature vectors, whose items have no pictures."""
    run = _write_run(tmp_path_factory.mktemp("featured") / "run", features=True)
    items = [Item(i, f"row {i}", "ab"[i % 2]) for i in range(8)]
    vectors = load(run.path, device="cpu").embed(np.eye(8))
    places = [Place("/rows.npz", None)]
    publish(run.path / "collection", items, vectors, dim=DIM, places=places)
    with _client_of(_library_of(run)) as client:
        yield client


@pytest.fixture(scope="session")
def png():
    return _as_bytes(_drawn("disc", np.random.default_rng(7)))


@pytest.fixture(scope="session")
def reader():
    """A text encoder, as it was drawn."""
    embedder = Embedder(NGrams(buckets=64), DIM).eval()
    return EmbeddingModel(Encoder(embedder, TextTransform(), torch.device("cpu")))

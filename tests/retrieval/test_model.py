"""``vicinal.load``: whatever holds images gives the same embeddings; what does not is rejected by
what came."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image
from tests.runs import drawn_run

import vicinal
from vicinal.data import FeatureTransform, ImageTransform
from vicinal.errors import ConfigError, DataError, RunError
from vicinal.models import Embedder, Identity, SmallConvNet, TwoStreamEmbedder


def loaded(path, embedder, transform):
    return vicinal.load(drawn_run(path, embedder, transform).path)


@pytest.fixture
def color(tmp_path):
    torch.manual_seed(0)
    transform = ImageTransform(size=16, resize=20)
    return loaded(tmp_path / "run", Embedder(SmallConvNet(3, (4, 8)), 6), transform)


@pytest.fixture
def gray(tmp_path):
    transform = ImageTransform(size=16, resize=20, channels=1)
    return loaded(tmp_path / "gray", Embedder(SmallConvNet(1, (4,)), 6), transform)


@pytest.fixture
def features(tmp_path):
    transform = FeatureTransform(normalize=True)
    return loaded(tmp_path / "features", Embedder(Identity(8), 4), transform)


@pytest.fixture
def pictures(tmp_path):
    """Five images as files and as arrays."""
    arrays = np.random.default_rng(0).integers(0, 256, (5, 24, 30, 3), dtype=np.uint8)
    paths = [tmp_path / f"{place}.png" for place in range(5)]
    for path, pixels in zip(paths, arrays, strict=True):
        Image.fromarray(pixels).save(path)
    return paths, arrays


def test_paths_pictures_and_arrays_give_the_same_rows(color, pictures):
    paths, arrays = pictures
    rows = color.embed(paths)
    assert rows.shape == (5, 6) and rows.dtype == np.float32
    named = np.array([*map(str, paths)])
    for same in (
        named,
        arrays,
        list(arrays),
        torch.from_numpy(arrays),
        map(Image.fromarray, arrays),
    ):
        assert_array_equal(color.embed(same), rows)
    for one in (paths[0], str(paths[0]), arrays[0], Image.fromarray(arrays[0]), [arrays[0]]):
        assert_allclose(color.embed(one), rows[:1], atol=1e-6)
    assert_allclose(color.embed(paths, batch_size=2), rows, atol=1e-6)
    assert color.embed([]).shape == (0, 6)


def test_photographs_are_upright_whether_named_or_opened(color, pictures, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 3  # orientation: upside down
    paths, _ = pictures
    with Image.open(paths[0]) as image:
        image.rotate(180).save(tmp_path / "turned.png", exif=exif)
    with Image.open(tmp_path / "turned.png") as opened:
        rows = color.embed([paths[0], tmp_path / "turned.png", opened])
    assert_allclose(rows[1:], np.stack([rows[0]] * 2), atol=1e-6)


def test_gray_models_take_stacks_of_gray_images(gray):
    stack = np.random.default_rng(0).integers(0, 256, (3, 20, 20), dtype=np.uint8)
    rows = gray.embed(list(stack))
    assert_array_equal(gray.embed(stack), rows)
    assert_array_equal(gray.embed(stack[..., None]), rows)
    for one in (stack[0], np.zeros((20, 20, 3), np.uint8)):
        assert gray.embed(one).shape == (1, 6)


def test_features_come_as_arrays_lists_or_tensors(features):
    rows = np.random.default_rng(0).normal(size=(5, 8))
    vectors = features.embed(rows)
    assert vectors.shape == (5, 4) and features.kind == "features"
    for same in (list(rows), rows.tolist(), torch.from_numpy(rows), iter(rows)):
        assert_allclose(features.embed(same), vectors, atol=1e-6)
    for one in (rows[0], rows[0].tolist()):
        assert_allclose(features.embed(one), vectors[:1], atol=1e-6)


@pytest.mark.parametrize(
    ("came", "message"),
    [
        (7, "got int 7"),
        (None, "got NoneType None"),
        (["nowhere.png"], "nowhere.png is missing"),
        ([3.5], "image 0 should be a path, .* got float 3.5"),
        (np.zeros((20, 20, 3)), r"a float64 array \[20, 20, 3\]"),
        (np.zeros((2, 3, 20, 20), np.uint8), r"image 0 .* a uint8 array \[3, 20, 20\]"),
        (np.zeros((0, 20, 3), np.uint8), r"a uint8 array \[0, 20, 3\]"),
        (np.array(3, np.uint8), r"a uint8 array \[\]"),
        (Image.new("F", (20, 20)), "decimal numbers"),
    ],
)
def test_what_is_no_image_is_rejected_by_what_it_is(came, message, color):
    with pytest.raises(DataError, match=message):
        color.embed(came)


@pytest.mark.parametrize(
    ("came", "message"),
    [
        ("features.npz", "feature vector 0 should be 8 numbers; got str 'features.npz'"),
        (3.0, "got float 3.0"),
        (np.zeros((2, 2, 8)), r"feature vector 0 should .* got a float64 array \[2, 8\]"),
        ([np.zeros(8), "x"], "feature vector 1 should be 8 numbers; got str 'x'"),
        ([np.zeros(8), np.full(8, np.nan)], "feature vector 1 must be finite"),
    ],
)
def test_what_is_no_vector_is_rejected_by_what_it_is(came, message, features):
    with pytest.raises(DataError, match=message):
        features.embed(came)


def test_distances_are_euclidean(color, pictures):
    rows = color.embed(pictures[0])
    found = color.distance(rows[:2], rows)
    assert found.shape == (2, 5) and found[0, 0] == 0 and color.metric == "euclidean"
    assert_allclose(found, np.linalg.norm(rows[:2, None] - rows[None], axis=2), atol=1e-6)
    with pytest.raises(DataError, match=r"\[6\] and \[5, 6\]"):
        color.distance(rows[0], rows)


def test_two_streams_are_loaded_by_their_role(tmp_path):
    streams = [Embedder(Identity(8), 4), Embedder(Identity(8), 4)]
    drawn_run(tmp_path / "run", TwoStreamEmbedder(*streams), FeatureTransform())
    rows = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    for role, stream in zip(("query", "gallery"), streams, strict=True):
        found = vicinal.load(tmp_path / "run", role=role).embed(rows)
        assert_allclose(found, stream(rows).detach().numpy(), atol=1e-6)
    with pytest.raises(ConfigError, match="have no role"):
        vicinal.load(tmp_path / "run")


def test_errors_at_loading(tmp_path, color):
    with pytest.raises(RunError, match="not a run"):
        vicinal.load(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="did you mean 'cuda'"):
        vicinal.load(tmp_path / "run", device="cudda")
    with pytest.raises(ConfigError, match="batch_size = 0"):
        color.embed([], batch_size=0)

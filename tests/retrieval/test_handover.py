"""The steps of preprocessing.json, followed with Pillow and numpy alone, give a transform's own
pixels."""

import numpy as np
import pytest
from PIL import Image

from vicinal.data.transforms import FeatureTransform, ImageTransform
from vicinal.models import Embedder, Identity, SmallConvNet
from vicinal.retrieval.asking import prepared
from vicinal.retrieval.export import handover, image_steps


@pytest.fixture
def picture():
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (37, 50, 3), dtype=np.uint8))


@pytest.mark.parametrize(
    "transform",
    [
        ImageTransform(size=24),
        ImageTransform(size=24, resize=28, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
        ImageTransform(size=24, resize=25, fit="squash", crop="random", mirror=True),
        ImageTransform(size=24, resize=30, canvas=26, channels=1),
        ImageTransform(size=32, resize=28, canvas=28, pad=2, fill=200),
        ImageTransform(size=27, resize=24, pad=3, fill=9, channels=1, mean=(0.2,), std=(0.3,)),
        ImageTransform(
            size=24, resize=24, order="BGR", scale=255.0, mean=(104.0, 117.0, 128.0), std=(1.0,)
        ),
        ImageTransform(size=21, resize=30, crop="resized"),
    ],
    ids=str,
)
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_following_the_steps_gives_the_transforms_pixels(transform, mode, picture):
    image = picture.convert(mode)
    expected = transform.evaluation().batch([image])[0].numpy()
    found = prepared(image, image_steps(transform))
    assert found.shape == expected.shape and found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, atol=2e-6 * transform.scale)


def test_no_step_is_listed_that_does_nothing():
    names = [step["step"] for step in image_steps(ImageTransform(size=24, resize=24, fit="squash"))]
    assert names == ["decode", "resize", "normalize", "layout"]


def test_input_and_output_are_described():
    found = handover(Embedder(SmallConvNet(1, (4,)), 6), ImageTransform(size=12, channels=1))
    assert found["kind"] == "images" and found["input"]["shape"] == ["batch", 1, 12, 12]
    known = {"dim": 6, "unit_length": True, "metric": "euclidean"}
    assert known.items() <= found["output"].items()
    found = handover(Embedder(Identity(8), normalize=False), FeatureTransform())
    assert found["kind"] == "features" and found["input"]["shape"] == ["batch", 8]
    assert found["output"]["dim"] == 8 and not found["output"]["unit_length"]
    assert found["steps"] == []

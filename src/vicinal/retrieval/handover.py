"""How to feed an exported model, in numbers and words that a programmer in another language can
follow."""

from typing import Any

from vicinal.data.transforms import FeatureTransform, ImageTransform, TextTransform, Transform
from vicinal.models.embedder import Embedder

Step = dict[str, Any]  # its name (``step``), its numbers, and ``words`` that say how


def handover(embedder: Embedder, transform: Transform, *, metric: str) -> dict[str, Any]:
    """Describe the input, the steps that make it from an image file, a feature vector or a text,
    and the output."""
    shape: list[str | int]
    if isinstance(transform, TextTransform):
        steps = [_step("bytes", "Write the text as UTF-8; zeros fill up shorter ones.")]
        shape = ["batch", "bytes"]
    elif isinstance(transform, ImageTransform):
        steps = image_steps(transform)
        shape = ["batch", transform.channels, transform.size, transform.size]
    else:
        steps = feature_steps(transform, embedder)
        shape = ["batch", embedder.input_width]
    kind = "uint8" if isinstance(transform, TextTransform) else "float32"
    length = "of length 1" if embedder.normalize else "of any length"
    compared = f"{metric} distance of their vectors"
    if metric == "poincare":
        length = "shorter than 1, a point of the Poincaré ball"
        compared += ", arcosh(1 + 2 |x - y|² / ((1 - |x|²)(1 - |y|²)))"
    return {
        "kind": transform.kind,
        "input": {
            "name": "inputs",
            "type": kind,
            "shape": shape,
            "words": "The batch may have any size.",
        },
        "steps": steps,
        "output": {
            "name": "embeddings",
            "type": "float32",
            "dim": embedder.embedding_dim,
            "unit_length": embedder.normalize,
            "metric": metric,
            "words": f"One vector for each input, {length}. Two inputs are the more alike the "
            f"smaller the {compared}.",
        },
    }


def image_steps(transform: ImageTransform) -> list[Step]:
    """List the steps from an image file to one ``[channel, row, column]`` input, as evaluation does
    it."""
    steps = [_decode(gray=transform.channels == 1)]
    if transform.resize is not None:
        steps.append(
            _resize(
                transform.resize, squash=transform.fit == "squash", filter=transform.interpolation
            )
        )
    if transform.canvas is not None:
        steps.append(_crop(transform.canvas))
    if transform.pad:
        words = (
            f"Add {transform.pad} pixels of value {transform.fill} (of 255) on each of the "
            "four sides."
        )
        steps.append(_step("pad", words, pixels=transform.pad, value=transform.fill))
    if transform.prepared_side != transform.size:
        steps.append(_crop(transform.size))
    if transform.order == "BGR":
        steps.append(_step("reorder", "Swap the channels: blue first, red last.", order="BGR"))
    words = (
        "For each channel, in the order it has now: value = (pixel * scale / 255 - mean) / "
        "std, as float32."
    )
    mean, std = (
        [float(value) for value in (values if len(values) > 1 else values * transform.channels)]
        for values in (transform.mean, transform.std)
    )
    steps.append(_step("normalise", words, scale=transform.scale, mean=mean, std=std))
    words = "Put the channels first: all of the first channel row by row, then the next channel."
    return [*steps, _step("layout", words, layout="channel, row, column")]


def feature_steps(transform: FeatureTransform, embedder: Embedder) -> list[Step]:
    """List the steps from a feature vector, of the kind the run was trained on, to one input."""
    words = (
        "Take a feature vector made by the same network as those the run was trained on, as "
        "float32."
    )
    steps = [_step("vector", words, width=embedder.input_width)]
    if transform.normalize:
        words = "Divide the vector by its Euclidean length; leave a vector of zeros as it is."
        steps.append(_step("unit_length", words))
    return steps


def _step(name: str, words: str, **numbers: Any) -> Step:
    return {"step": name, **numbers, "words": words}


def _decode(*, gray: bool) -> Step:
    words = (
        "Decode the image to RGB, 8 bits a channel, first row at the top, turned upright by its "
        "EXIF orientation. Drop "
        "an alpha channel without blending. Bring 16-bit pixels to 8 bits by whole division by "
        "256. "
    )
    words += (
        "Make it gray: (299 R + 587 G + 114 B) / 1000, rounded to a whole number (ITU-R 601-2); a "
        "gray file stays as "
        "it is."
        if gray
        else "A gray file gets three equal channels."
    )
    return _step("decode", words, channels="grey" if gray else "RGB")


def _resize(length: int, *, squash: bool, filter: str) -> Step:
    words = (
        f"Resize to {length} x {length} pixels, whatever the aspect was. "
        if squash
        else f"Resize so that the shorter side has {length} pixels and the aspect stays: the "
        "longer side becomes "
        f"longer * {length} / shorter, rounded to a whole number, a half to the even one. "
    )
    words += (
        f"The filter is {filter} with antialiasing: when shrinking, it is widened by the factor "
        "of shrinking "
        f"(Pillow's {filter.upper()}, torchvision's antialias=True; OpenCV's differs). Round to 8 "
        "bits."
    )
    fit = {"width": length, "height": length} if squash else {"shorter_side": length}
    return _step("resize", words, **fit, filter=filter, antialias=True)


def _crop(side: int) -> Step:
    words = (
        f"Keep a square of {side} pixels from the middle: left = floor((width - {side}) / 2), top "
        "= "
        f"floor((height - {side}) / 2). Reject an image that is smaller."
    )
    return _step("crop", words, width=side, height=side, place="center")

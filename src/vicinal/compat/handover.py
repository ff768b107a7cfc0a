"""How to feed an exported model, in numbers and words that another language's programmer can follow."""

from typing import Any

from vicinal.data.transforms import FeatureTransform, ImageTransform, Transform
from vicinal.models.embedder import Embedder


def handover(embedder: Embedder, transform: Transform, *, metric: str) -> dict[str, Any]:
    """What goes in, the steps that make it from an image file or a feature vector, and what comes out.

    Steps are done in their order; each has a name (``step``), its numbers, and ``words`` that say how.
    """
    steps = image_steps(transform) if isinstance(transform, ImageTransform) else feature_steps(transform, embedder)
    shape = (
        ["batch", transform.channels, transform.size, transform.size]
        if isinstance(transform, ImageTransform)
        else ["batch", embedder.width]
    )
    length = "of length 1" if embedder.normalize else "of any length"
    return {
        "kind": transform.kind,
        "input": {"name": "inputs", "type": "float32", "shape": shape, "words": "The batch may have any size."},
        "steps": steps,
        "output": {
            "name": "embeddings",
            "type": "float32",
            "dim": embedder.dim or embedder.width,
            "unit_length": embedder.normalize,
            "metric": metric,
            "words": f"One vector for each input, {length}. Two inputs are the more alike the smaller the {metric} "
            f"distance of their vectors.",
        },
    }


def image_steps(transform: ImageTransform) -> list[dict[str, Any]]:
    """From an image file to one ``[channel, row, column]`` input, as evaluation does it: nothing is drawn by chance."""
    grey = transform.channels == 1
    steps = [_decode(grey)]
    if transform.resize is not None:
        steps.append(_resize(transform.resize, squash=transform.fit == "squash", filter=transform.interpolation))
    if transform.canvas is not None:
        steps.append(_crop(transform.canvas))
    if transform.pad:
        steps.append(_pad(transform.pad, transform.fill))
    if transform.prepared_side != transform.size:
        steps.append(_crop(transform.size))
    if transform.order == "BGR":
        steps.append({"step": "reorder", "order": "BGR", "words": "Swap the channels: blue first, red last."})
    steps.append(_normalise(transform))
    steps.append(
        {
            "step": "layout",
            "layout": "channel, row, column",
            "words": "Put the channels first: all of the first channel row by row, then the next channel.",
        }
    )
    return steps


def feature_steps(transform: FeatureTransform, embedder: Embedder) -> list[dict[str, Any]]:
    """From a feature vector, of the kind the run was trained on, to one input."""
    steps: list[dict[str, Any]] = [
        {
            "step": "vector",
            "width": embedder.width,
            "words": "Take a feature vector made by the same network as those the run was trained on, as float32.",
        }
    ]
    if transform.normalize:
        steps.append(
            {
                "step": "unit_length",
                "words": "Divide the vector by its Euclidean length; leave a vector of zeros as it is.",
            }
        )
    return steps


def _decode(grey: bool) -> dict[str, Any]:
    words = (
        "Decode the image to RGB, 8 bits a channel, first row at the top, turned upright by its EXIF orientation. Drop "
        "an alpha channel without blending. Bring 16-bit pixels to 8 bits by whole division by 256. "
    )
    words += (
        "Make it grey: (299 R + 587 G + 114 B) / 1000, rounded to a whole number (ITU-R 601-2); a grey file stays as "
        "it is."
        if grey
        else "A grey file gets three equal channels."
    )
    return {"step": "decode", "channels": "grey" if grey else "RGB", "words": words}


def _resize(length: int, *, squash: bool, filter: str) -> dict[str, Any]:
    words = (
        f"Resize to {length} x {length} pixels, whatever the aspect was. "
        if squash
        else f"Resize so that the shorter side has {length} pixels and the aspect stays: the longer side becomes "
        f"longer * {length} / shorter, rounded to a whole number, a half to the even one. "
    )
    words += (
        f"The filter is {filter} with antialiasing: when shrinking, it is widened by the factor of shrinking "
        f"(Pillow's {filter.upper()}, torchvision's antialias=True; OpenCV's differs). Round to 8 bits."
    )
    fit = {"width": length, "height": length} if squash else {"shorter_side": length}
    return {"step": "resize", **fit, "filter": filter, "antialias": True, "words": words}


def _crop(side: int) -> dict[str, Any]:
    return {
        "step": "crop",
        "width": side,
        "height": side,
        "place": "centre",
        "words": f"Keep a square of {side} pixels from the middle: left = floor((width - {side}) / 2), top = "
        f"floor((height - {side}) / 2). Refuse an image that is smaller.",
    }


def _pad(pixels: int, value: int) -> dict[str, Any]:
    words = f"Add {pixels} pixels of value {value} (of 255) on each of the four sides."
    return {"step": "pad", "pixels": pixels, "value": value, "words": words}


def _normalise(transform: ImageTransform) -> dict[str, Any]:
    mean, std = (
        [float(value) for value in (values if len(values) > 1 else values * transform.channels)]
        for values in (transform.mean, transform.std)
    )
    return {
        "step": "normalise",
        "scale": transform.scale,
        "mean": mean,
        "std": std,
        "words": "For each channel, in the order it has now: value = (pixel * scale / 255 - mean) / std, as float32.",
    }

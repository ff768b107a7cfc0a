"""How to feed an exported model, in steps that a programmer in another language can follow;
``docs/howto/export.md`` says what each step does."""

from typing import Any

from vicinal.data.transforms import ImageTransform, TextTransform, Transform
from vicinal.models.embedder import Embedder

Step = dict[str, Any]  # its name (``step``) and its numbers


def handover(embedder: Embedder, transform: Transform) -> dict[str, Any]:
    """Describe the input, the steps that make it from an image file, a feature vector or a text,
    and the output."""
    kind = "float32"
    shape: list[str | int]
    if isinstance(transform, TextTransform):
        kind = "uint8"
        shape = ["batch", "bytes"]
        steps = [{"step": "utf8"}]
    elif isinstance(transform, ImageTransform):
        shape = ["batch", transform.channels, transform.size, transform.size]
        steps = image_steps(transform)
    else:
        shape = ["batch", embedder.input_width]
        steps = [{"step": "unit_length"}] if transform.normalize else []
    return {
        "kind": transform.kind,
        "input": {"name": "inputs", "type": kind, "shape": shape},
        "steps": steps,
        "output": {
            "name": "embeddings",
            "type": "float32",
            "dim": embedder.embedding_dim,
            "unit_length": embedder.normalize,
            "metric": embedder.metric,
        },
    }


def image_steps(transform: ImageTransform) -> list[Step]:
    """List the steps from an image file to one ``[channel, row, column]`` input, as evaluation does
    it."""
    steps: list[Step] = [
        {"step": "decode", "channels": "gray" if transform.channels == 1 else "RGB"}
    ]
    if transform.resize is not None:
        squash = {"width": transform.resize, "height": transform.resize}
        size = squash if transform.fit == "squash" else {"shorter_side": transform.resize}
        steps.append({"step": "resize", **size, "filter": transform.interpolation})
    if transform.canvas is not None:
        steps.append({"step": "crop", "side": transform.canvas})
    if transform.pad:
        steps.append({"step": "pad", "pixels": transform.pad, "value": transform.fill})
    if transform.prepared_side != transform.size:
        steps.append({"step": "crop", "side": transform.size})
    if transform.order == "BGR":
        steps.append({"step": "reorder", "order": "BGR"})
    mean, std = (
        [float(value) for value in (values if len(values) > 1 else values * transform.channels)]
        for values in (transform.mean, transform.std)
    )
    steps.append({"step": "normalize", "scale": transform.scale, "mean": mean, "std": std})
    return [*steps, {"step": "layout", "layout": "channel, row, column"}]

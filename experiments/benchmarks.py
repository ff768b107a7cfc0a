"""The data sets and networks on which methods are compared, and the losses and batches with the
numbers of all tables.

A table states all of its settings itself: another preset or default of a later version does not
change what it means.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from findings import FINDINGS
from published import ByData, Scores
from vicinal.bench import Table, row
from vicinal.bench.table import Row

SOFTMAX = "normalized softmax"
Slot = dict[str, Any]

# The papers' numbers where they print them. α, β, λ1 and λ2 of DANML are the middle of Song et
# al.'s grids, and multi-similarity has the same.
LOSSES: dict[str, Slot] = {
    "contrastive": {"name": "contrastive", "margin": 1.0, "normalize": True},
    "triplet": {"name": "triplet", "margin": 0.2, "squared": False, "normalize": True},
    "triplet, squared": {"name": "triplet", "margin": 0.2, "squared": True, "normalize": True},
    "triplet, authors": {
        "name": "triplet",
        "margin": 1.0,
        "squared": True,
        "normalize": False,
        "reduction": "sum",
    },
    "batch-all": {"name": "batch_all_triplet", "margin": 0.2, "normalize": True},
    "batch-hard": {"name": "batch_hard_triplet", "margin": 0.2, "normalize": True},
    "semi-hard": {"name": "semi_hard_triplet", "margin": 0.2},
    "hierarchical": {"name": "hierarchical_triplet", "margin": 0.2},
    "soft margin": {"name": "hard_exemplar", "margin": 0.15, "scale": 5.0, "weighted": False},
    "HPHN": {"name": "hphn", "margin": 0.2},
    "lifted": {"name": "lifted_structure", "margin": 1.0, "form": "smooth", "similarity": "cosine"},
    "lifted, min form": {"name": "lifted_structure", "margin": 0.2, "form": "min"},
    "improved lifted": {
        **{"name": "improved_lifted_structure", "margin": 1.0, "gamma1": 2.0, "gamma2": 30.0},
        **{"lambda1": 0.55, "lambda2": 0.57},
    },
    "margin": {"name": "margin", "margin": 0.2, "beta": 0.9},
    "N-pair": {"name": "n_pair", "similarity": "dot", "l2": 3e-3, "normalize": False},
    "improved N-pair": {
        "name": "improved_n_pair",
        "gamma": 2.0,
        "offset": 0.5,
        "l2": 3e-3,
        "normalize": False,
    },
    "Proxy-NCA": {"name": "proxy_nca"},
    "improved Proxy-NCA": {"name": "improved_proxy_nca", "gamma": 9.0, "offset": 0.5},
    "circle": {"name": "circle", "relaxation": 0.4, "gamma": 80.0},
    "multi-similarity": {
        "name": "multi_similarity",
        "alpha": 2.0,
        "beta": 30.0,
        "base": 0.55,
        "epsilon": 0.1,
    },
    "DANML": {
        **{
            "name": "danml",
            "alpha": 2.0,
            "beta": 30.0,
            "lambda1": 0.55,
            "lambda2": 0.57,
            "epsilon": 0.1,
        },
        **{"outer": "logistic", "scale": 1.0, "radius": "gamma"},
    },
    SOFTMAX: {"name": "normalized_softmax", "temperature": 0.05},
}
# Losses that compare by inner products, to which the length matters.
PRODUCTS = (
    "n_pair",
    "improved_n_pair",
)
HINGES = (
    *(
        "triplet",
        "contrastive",
        "margin",
        "batch_all_triplet",
        "semi_hard_triplet",
        "batch_hard_triplet",
    ),
    *("hphn", "hierarchical_triplet", "hard_exemplar"),
)
HDML = {
    "name": "hdml",
    "form": "ours",
    "window": 16,
    "hardest": 8,
    "generator_rate": 3e-3,
}  # fit short runs
HDML_PAIRS = {
    **HDML,
    "hardest": None,
}  # the paper's N-pair tuples: every negative has a synthetic one
ALA = {"name": "ala", "assessor": "lstm", "rate": 4e-4, "updates": 3}
_INNER_HDML, _INNER_ALA = (
    {key: part for key, part in one.items() if key != "name"} for one in (HDML, ALA)
)
HDML_ALA = {"name": "hdml_ala", "hdml": _INNER_HDML, "ala": _INNER_ALA}
HDML_ON_EPISODES = {
    "name": "hdml_ala",
    "hdml": _INNER_HDML,
    "ala": {"assessor": "constant", "weight": 1.0},
}
HTL = {"name": "htl", "beta": 0.1, "levels": 16}
HTL_HDML = {"name": "htl_hdml", "hdml": _INNER_HDML, "htl": {"beta": 0.1, "levels": 16}}
# As published but for the mean, which is over the loss's terms in the place of 1/|P|.
LOOP = {"name": "loop", "overlap": "arcs", "anchors": "pairs", "wait": 0}
EXPANSION = {"name": "expansion", "points": 2}

# What `--trials` searches: where a loss begins to let go, its margin or what it has in place of
# one; then what only the method has. Grids of α, β and λ are Song et al.'s, with a little more of
# the last.
MARGIN = ("loss.margin=0.1..0.4:log",)
SHARP = ("loss.alpha=1.0..3.0", "loss.beta=25.0..35.0")
LAMBDAS = ("loss.lambda1=0.4..0.7", "loss.lambda2=0.4..0.8")
SEARCHED: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("triplet", "batch_all_triplet", "batch_hard_triplet", "semi_hard_triplet", "hphn"), MARGIN
    ),
    **dict.fromkeys(("hierarchical_triplet", "margin"), MARGIN),
    "contrastive": ("loss.margin=0.5..1.5",),
    "lifted_structure": ("loss.margin=0.5..2.0:log",),
    "improved_lifted_structure": (
        *("loss.margin=0.5..2.0:log", "loss.gamma1=1.0..3.0", "loss.gamma2=25.0..35.0"),
        *LAMBDAS,
    ),
    "improved_n_pair": ("loss.gamma=1.0..4.0:log",),
    "improved_proxy_nca": ("loss.gamma=4.0..16.0:log",),
    "multi_similarity": (*SHARP, "loss.base=0.4..0.7"),
    "danml": (*SHARP, *LAMBDAS),
    "circle": ("loss.relaxation=0.2..0.6", "loss.gamma=40.0..160.0:log"),
    "normalized_softmax": ("loss.temperature=0.025..0.1:log",),
    # Λ of about 0.7 to 0.05 once the loss has fallen to a third.
    "hdml": ("method.alpha=0.1..1.0:log",),
    "ala": ("method.rate=1e-4..4e-3:log",),
    "htl": ("method.beta=0.03..0.3:log",),
    "expansion": ("method.points=1,2,4",),
    # of former rows, which were searched, too
    "hdml_ala": ("method.hdml.alpha=0.1..1.0:log", "method.ala.rate=1e-4..4e-3:log"),
    "htl_hdml": ("method.htl.beta=0.03..0.3:log", "method.hdml.alpha=0.1..1.0:log"),
}


@dataclass(frozen=True)
class Benchmark:
    """One data set and network.

    Attributes:
        name: behind the dash in a table's name.
        title: in the table's title.
        slots: of all rows.
        batch: classes and samples of each in a batch, classes of HTL's batches, pairs, triplets.
        products: words of rows whose loss compares by inner products.
        hinges: words of rows whose loss is a hinge, or a soft one, over triplets and pairs.
        epochs_at_hdmls_cost: of a plain row that takes as long as HDML's, on a GPU.
        trials: behind each row's settings.
        papers: whose numbers are about these very images, by the name of a data set in
            ``published``.
        seeds: that were run.
    """

    name: str
    title: str
    slots: Mapping[str, Any]
    batch: tuple[int, int, int, int, int]
    products: str = ""
    hinges: str = ""
    epochs_at_hdmls_cost: int = 0
    trials: int = 1
    papers: str = ""
    protocol: Any = "validation"
    metrics: tuple[str, ...] = ("recall@1", "map@r", "nmi")
    seeds: int = 5

    @property
    def epochs(self) -> int:
        return int(self.slots["training"]["epochs"])

    @property
    def classes(self) -> Slot:
        return {"name": "classes", "classes": self.batch[0], "per_class": self.batch[1]}

    @property
    def wide(self) -> Slot:
        """Batches of as many classes as neighborhoods of 4 fill."""
        return {"name": "classes", "classes": self.batch[2], "per_class": self.batch[1]}

    @property
    def neighbors(self) -> Slot:
        anchors = self.batch[2] // 4
        return {
            "name": "anchor_neighbors",
            "anchors": anchors,
            "neighborhood": 4,
            "per_class": self.batch[1],
        }

    @property
    def pairs(self) -> Slot:
        return {"name": "pairs", "classes": self.batch[3]}

    @property
    def triplets(self) -> Slot:
        return {"name": "triplets", "triplets": self.batch[4]}

    def episodes(self, *, disjoint: bool = True) -> Slot:
        sizes = {"training_classes": 50, "validation_classes": 10}
        return {"name": "episodes", **sizes, "disjoint": disjoint}

    def printed(self, tables: ByData, name: str) -> Scores:
        """What a paper prints for a row, where these are its images."""
        return tables.get(self.papers, {}).get(name, {})


@dataclass
class Rows:
    """The rows of a table, collected; the first is a normalized-softmax classifier at the same
    budget."""

    benchmark: Benchmark
    tables: ByData = field(default_factory=dict)
    found: list[Row] = field(default_factory=list)

    def begun(self, *words: str) -> "Rows":
        self.plain(SOFTMAX, SOFTMAX, self.benchmark.classes, *words)
        return self

    def plain(
        self, name: str, loss: str, sampler: Slot, *words: str, search: Sequence[str] | None = None
    ) -> None:
        """A row over a loss alone."""
        slot = LOSSES[loss]
        ours = self.benchmark
        own = ours.products if slot["name"] in PRODUCTS else ours.hinges if _hinge(loss) else ""
        one = row(name, *own.split(), *words, loss=slot, sampler=sampler, search=search or ())
        self._add(one, searched=search is None)

    def add(
        self,
        name: str,
        against: str,
        *words: str,
        search: Sequence[str] | None = None,
        **slots: Any,
    ) -> None:
        """A row that differs from its baseline in these words and slots."""
        self._add(
            row(name, *words, against=against, search=search or (), **slots),
            searched=search is None,
        )

    def _add(self, one: Row, *, searched: bool = True) -> None:
        known = {row.name: row for row in self.found}
        before = known.get(one.against or "")
        names = {"loss": SOFTMAX, "method": "plain"}
        chain = [one]
        while before is not None:
            chain.insert(0, before)
            before = known.get(before.against or "")
        epochs = self.benchmark.epochs
        for part in chain:
            for slot in names:
                names[slot] = part.own.get(slot, {}).get("name", names[slot])
            epochs = int(part.own.get("training", {}).get("epochs", epochs))
        ranges = (
            (*SEARCHED.get(names["loss"], ()), *SEARCHED.get(names["method"], ()))
            if searched
            else one.search
        )
        if "alpha" in one.own.get("method", {}):  # a sweep of α has its own
            ranges = tuple(word for word in ranges if not word.startswith("method.alpha="))
        steps = ",".join(map(str, sorted({max(1, epochs // 2), epochs, 2 * epochs})))
        self.found.append(
            Row(
                one.name,
                one.own,
                one.against,
                (f"training.epochs={steps}", *ranges),
                self.benchmark.trials,
                self.benchmark.printed(self.tables, one.name),
                former=one.former,
            )
        )

    def table(self, name: str, title: str, **options: Any) -> Table:
        """The table ``NAME-BENCHMARK``, with its findings."""
        ours = self.benchmark
        name = f"{name}-{ours.name}" if ours.name else name
        rate = float(ours.slots["optimizer"]["learning_rate"])
        variants = {
            key.removeprefix(f"{name}-"): text
            for key, text in FINDINGS.items()
            if key.startswith(f"{name}-")
        }
        settings: dict[str, Any] = {
            "protocol": ours.protocol,
            "metrics": columns(ours.metrics, self.found),
            "seeds": ours.seeds,
            "finding": FINDINGS.get(name, ""),
            "findings": {
                key: text for key, text in variants.items() if key in ("tuned", "reality_check")
            },
            "search": (f"optimizer.learning_rate={rate / 10:g}..{rate * 10:g}:log",),
        }
        return Table(title, *self.found, name=name, **(settings | options), **ours.slots)


def _hinge(loss: str) -> bool:
    return LOSSES[loss]["name"] in HINGES or loss == "lifted, min form"


def columns(metrics: Sequence[str], rows: Sequence[Row]) -> tuple[str, ...]:
    """The benchmark's metrics, and Recall@K for every other K that the paper prints of these
    rows."""
    printed = {metric for row in rows for metric in row.published}
    recalls = {metric for metric in (*metrics, *printed) if metric.startswith("recall@")}
    others = (metric for metric in metrics if metric not in recalls)
    return (*sorted(recalls, key=lambda metric: int(metric.partition("@")[2])), *others)


def _optimizer(rate: float, loss_factor: float = 10.0, weight_decay: float = 1e-4) -> Slot:
    return {
        **{
            "learning_rate": rate,
            "head_factor": 1.0,
            "loss_factor": loss_factor,
            "weight_decay": weight_decay,
        },
        **{"schedule": "cosine", "warmup": 0},
    }


def photographs(
    name: str,
    title: str,
    data: Slot,
    papers: str,
    *,
    epochs: int,
    model: str = "efficientnet_lite0",
    seeds: int = 5,
) -> Benchmark:
    """Photographs with a network that was trained on ImageNet."""
    return Benchmark(
        name,
        title,
        {
            "preset": "cub",
            "data": data,
            "transform": {
                **{
                    "size": 224,
                    "resize": 256,
                    "canvas": 256,
                    "crop": "resized",
                    "area": [0.2, 1.0],
                    "mirror": True,
                }
            },
            "model": {
                **{"name": model, "weights": "imagenet", "pooling": "average", "dim": 512},
                **{"start": "discriminant", "start_length": 1.0},
            },
            "optimizer": _optimizer(2e-5, 100.0, 0.01),
            "method": "plain",
            "training": {"epochs": epochs, "evaluate_every": 1},
            "evaluation": {"recalls": [1, 2, 4, 8, 16, 32], "restarts": 3},
        },
        (26, 5, 24, 64, 40),
        products="model.start_length=6",
        epochs_at_hdmls_cost=epochs + 1,
        papers=papers,
        protocol="final",
        metrics=("recall@1", "recall@2", "recall@4", "recall@8", "map@r", "nmi", "f1"),
        seeds=seeds,
    )


_SMALL = {"name": "small", "widths": [16, 32, 64, 128], "dim": 64, "start": "random"}
_GLYPHS_TRANSFORM = {"size": 32, "pad": 2, "crop": "random", "channels": 1}
GLYPHS = Benchmark(  # half of the epochs of the preset: a table of sixty rows has to end
    "glyphs",
    "Glyphs",
    {
        "preset": "glyphs",
        "data": "glyphs",
        "transform": _GLYPHS_TRANSFORM,
        "model": _SMALL,
        "optimizer": _optimizer(2e-3),
        "method": "plain",
        "training": {"epochs": 5, "evaluate_every": 1},
        "evaluation": {"recalls": [1, 2, 4, 8], "restarts": 3},
    },
    (16, 4, 16, 32, 20),
    epochs_at_hdmls_cost=8,
)
CUB_FEATURES = Benchmark(
    "cub_features",
    "CUB-200 features, a linear head",
    {
        "preset": "cub_features",
        "data": {"name": "arrays", "path": "$VICINAL_DATA/features/cub_efficientnet_lite0.npz"},
        "model": {"name": "identity", "dim": 512, "start": "discriminant", "start_length": 1.0},
        "optimizer": _optimizer(1e-4),
        "method": "plain",
        "training": {"epochs": 10, "evaluate_every": 1},
        "evaluation": {"recalls": [1, 2, 4, 8, 16, 32], "restarts": 1},
    },
    (26, 5, 24, 16, 40),
    products="model.start_length=6",
    hinges="optimizer.learning_rate=3e-5",
    epochs_at_hdmls_cost=16,
    trials=2,
)
OMNIGLOT = Benchmark(
    "omniglot",
    "Omniglot",
    {
        "preset": "omniglot",
        "data": {"name": "omniglot", "size": 28},
        "transform": {"size": 28, "pad": 2, "fill": 255, "crop": "random", "channels": 1},
        "model": _SMALL,
        "optimizer": _optimizer(1e-3),
        "method": "plain",
        "training": {"epochs": 2, "evaluate_every": 1},
        "evaluation": {"recalls": [1, 2, 4, 8], "restarts": 1},
    },
    (16, 4, 16, 32, 20),
    epochs_at_hdmls_cost=3,
    seeds=3,
)
CUB = photographs("cub", "CUB-200, EfficientNet-Lite0", {"name": "cub"}, "cub", epochs=5)
CUB_LITE2 = photographs(
    *("cub_lite2", "CUB-200, EfficientNet-Lite2", {"name": "cub"}, "cub"),
    epochs=5,
    model="efficientnet_lite2",
    seeds=3,
)
HERE = (GLYPHS, CUB_FEATURES, OMNIGLOT, CUB)  # every table

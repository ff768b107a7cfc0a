"""When does hardness help? Methods that look for hard tuples, on data whose faults are known
(``corrupted.py``).

    vicinal bench experiments/hardness.py::when_does_hardness_help --jobs 14
    vicinal bench experiments/hardness.py::wrong_labels-glyphs --jobs 14 --seeds 5 --minutes 6
    vicinal bench experiments/hardness.py::wrong_labels-cub_features --jobs 14 --seeds 5 --minutes 6
"""

from collections.abc import Mapping
from dataclasses import replace

from benchmarks import (
    ALA,
    CUB_FEATURES,
    GLYPHS,
    HDML,
    LOOP,
    LOSSES,
    SOFTMAX,
    Benchmark,
    Rows,
    Slot,
)
from corrupted import Corrupted
from figures import Matrix
from findings import FINDINGS
from vicinal.bench import Table, row

CORRUPTED = Benchmark(
    "",
    "Glyphs with known faults",
    {
        **GLYPHS.slots,
        "data": {"name": Corrupted.name, "data": {"name": "glyphs", "per_class": 12}},
        "training": {"epochs": 6, "evaluate_every": 1},
        "evaluation": {"recalls": [1, 2, 4, 8], "restarts": 1},
    },
    GLYPHS.batch,
)
# Few classes make short epochs: more of them keep the number of steps, and as many evaluations of
# held-out classes.
CONDITIONS = {
    "clean": "",
    "10 % wrong labels": "data.label_noise=0.1",
    "20 % wrong labels": "data.label_noise=0.2",
    "40 % wrong labels": "data.label_noise=0.4",
    "2 clusters a class": "data.clusters=2",
    "4 clusters a class": "data.clusters=4",
    "20 % of classes inseparable": "data.inseparable=0.2",
    "50 % of classes inseparable": "data.inseparable=0.5",
    "60 classes": "data.classes=60 training.epochs=23 training.evaluate_every=4",
    "24 classes": "data.classes=24 training.epochs=70 training.evaluate_every=12",
}
BASELINES = {
    "plain": ("plain", "batch-all", CORRUPTED.classes),
    "plain, episodes": (
        "plain, episodes (ALA's baseline)",
        "triplet, squared",
        CORRUPTED.episodes(),
    ),
}
METHODS = {
    "semi-hard mining": ("plain", {"loss": LOSSES["semi-hard"]}),
    "hardest mining": ("plain", {"loss": LOSSES["batch-hard"]}),
    "multi-similarity": ("plain", {"loss": LOSSES["multi-similarity"]}),
    "synthesis (HDML)": ("plain", {"method": HDML}),
    "synthesis (LoOp)": ("plain", {"method": LOOP}),
    "adaptive (DANML)": ("plain", {"loss": LOSSES["DANML"]}),
    "assessment (ALA)": ("plain, episodes", {"method": ALA}),
}

rows = Rows(CORRUPTED)
cells: dict[str, dict[str, str]] = {}
for condition, fault in CONDITIONS.items():
    for name, (_, loss, sampler) in BASELINES.items():
        rows.plain(f"{name}: {condition}", loss, sampler, *fault.split())
    cells[condition] = {method: f"{method}: {condition}" for method in METHODS}
    for method, (against, slots) in METHODS.items():
        rows.add(f"{method}: {condition}", f"{against}: {condition}", **slots)
rows.plain(SOFTMAX, SOFTMAX, CORRUPTED.classes)
levels = {
    title: {condition: f"{name}: {condition}" for condition in CONDITIONS}
    for name, (title, *_) in BASELINES.items()
}
WHEN = rows.table(
    "when_does_hardness_help",
    "When does hardness help?",
    figure=Matrix(cells, levels),
    network=SOFTMAX,
)

# Over proxies. Each loss has rates of its own, of the network and, times a factor, of the proxies,
# chosen by held-out classes of the clean sets among 2 to 9 (one seed); methods have Proxy-Anchor's.
OVER_PROXIES = {"HDML over proxies": {"method": HDML}, "IDML": {"method": "idml"}}
ALONE: dict[str, Slot] = {
    "multi-similarity": LOSSES["multi-similarity"],
    "PFML": {"name": "potential_field", "start": "means"},
    "Proxy-Anchor": {"name": "proxy_anchor", "start": "means"},
}


def wrong_labels(
    benchmark: Benchmark, epochs: int, rates: Mapping[str, tuple[float, int]]
) -> Table:
    """Losses with and without proxies, and methods over Proxy-Anchor, by the share of wrong labels.

    Args:
        benchmark: whose training labels are redrawn.
        epochs: of all rows.
        rates: of the network and how many times that of the proxies, by loss.
    """
    faults = {name: word for name, word in CONDITIONS.items() if "label_noise" in word or not word}
    rows = []
    for fault, word in faults.items():
        for name, loss in ALONE.items():
            rate, factor = rates[name]
            optimizer = {"learning_rate": rate, "loss_factor": factor}
            slots = {"loss": loss, "optimizer": optimizer}
            rows.append(row(f"{name}: {fault}", *word.split(), **slots))
        for name, slots in OVER_PROXIES.items():
            rows.append(row(f"{name}: {fault}", against=f"Proxy-Anchor: {fault}", **slots))
    cells = {fault: {name: f"{name}: {fault}" for name in OVER_PROXIES} for fault in faults}
    levels = {name: {fault: f"{name}: {fault}" for fault in faults} for name in ALONE}
    name = f"wrong_labels-{benchmark.name}"
    every = {
        "data": {"name": Corrupted.name, "data": benchmark.slots["data"]},
        "model": {**benchmark.slots["model"], "start": "random"},
        "sampler": benchmark.classes,
        "training": {"epochs": epochs, "evaluate_every": epochs // 6},
    }
    return Table(
        f"{benchmark.title}: wrong labels over proxies",
        *rows,
        name=name,
        finding=FINDINGS.get(name, ""),
        figure=Matrix(cells, levels),
        **{**benchmark.slots, **every},
    )


FEW = replace(GLYPHS, slots={**CORRUPTED.slots, "data": CORRUPTED.slots["data"]["data"]})
TABLES = [
    wrong_labels(
        FEW, 18, {"multi-similarity": (2e-3, 10), "PFML": (2e-3, 10), "Proxy-Anchor": (1e-3, 100)}
    ),
    wrong_labels(
        CUB_FEATURES,
        12,
        {"multi-similarity": (1e-4, 10), "PFML": (1e-4, 100), "Proxy-Anchor": (1e-4, 100)},
    ),
]

"""When does hardness help? Methods that look for hard tuples, on data whose faults are known
(``corrupted.py``)."""

from benchmarks import ALA, GLYPHS, HDML, LOOP, LOSSES, SOFTMAX, Benchmark, Rows
from corrupted import Corrupted
from figures import Matrix

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
TABLE = rows.table(
    "when_does_hardness_help",
    "When does hardness help?",
    figure=Matrix(cells, levels),
    network=SOFTMAX,
)

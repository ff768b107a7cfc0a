"""When does hardness help? Methods that look for hard tuples, on data whose faults are known (``data.Corrupted``)."""

from vicinal.bench.grounds import Ground, Rows
from vicinal.bench.tables import Matrix, Table

GROUND = Ground("", "rendered characters with known faults", "glyphs_corrupted", 64, 6, overrides=("epochs=6",))
# Few classes make short epochs: more of them keep the number of steps, and looks at the held-out classes as many.
CONDITIONS = {
    "clean": "",
    "10 % wrong labels": "data.label_noise=0.1",
    "20 % wrong labels": "data.label_noise=0.2",
    "40 % wrong labels": "data.label_noise=0.4",
    "2 clusters a class": "data.clusters=2",
    "4 clusters a class": "data.clusters=4",
    "20 % of classes inseparable": "data.inseparable=0.2",
    "50 % of classes inseparable": "data.inseparable=0.5",
    "60 classes": "data.classes=60 epochs=23 evaluate_every=4",
    "24 classes": "data.classes=24 epochs=70 evaluate_every=12",
}
TWINS = {"plain": "", "plain, episodes": "method.batches=episodes method.loss=triplet"}
TITLES = {"plain": "plain", "plain, episodes": "plain, episodes (ALA's twin)"}
METHODS = {
    "semi-hard mining": ("", "method.loss=semi_hard"),
    "hardest mining": ("", "method.loss=batch_hard"),
    "multi-similarity": ("", "method.loss=multi_similarity"),
    "synthesis (HDML)": ("", "method.name=hdml"),
    "synthesis (LoOp)": ("", "method.name=loop"),
    "adaptive (DANML)": ("", "method.loss=danml"),
    "assessment (ALA)": (", episodes", "method.batches=episodes method.loss=triplet method.name=ala"),
}


def hardness() -> Table:
    """Each method against all triplets of the batch; ALA, whose batches are episodes, against triplets of episodes."""
    rows = Rows(GROUND)
    cells: dict[str, dict[str, str]] = {}
    for condition, fault in CONDITIONS.items():
        for twin, words in TWINS.items():
            rows.add(f"{twin}: {condition}", f"{fault} {words}")
        cells[condition] = {}
        for method, (batches, words) in METHODS.items():
            cells[condition][method] = f"{method}: {condition}"
            rows.add(cells[condition][method], f"{fault} {words}", f"plain{batches}: {condition}")
    rows.add("normalised softmax", "method.loss=normalized_softmax")
    levels = {title: {condition: f"{twin}: {condition}" for condition in CONDITIONS} for twin, title in TITLES.items()}
    return Table(
        "when_does_hardness_help",
        "When does hardness help?",
        tuple(rows.found),
        network="normalised softmax",
        dim=GROUND.dim,
        figure=Matrix(cells, levels),
    )

"""Every loss of `vicinal.losses` at equal tuning, from the oldest to the newest.

All rows have the same head, batches and number of steps. `--trials` searches the learning rate and,
for each loss, the one or two numbers on which it depends most; the first trial is the loss as it
stands in `LOSSES` of benchmarks.py or, if it is not there, with the defaults of its class.
"""

from dataclasses import replace

from benchmarks import CUB, CUB_FEATURES, SEARCHED, Benchmark, columns
from benchmarks import LOSSES as STATED
from vicinal.bench import Table, row
from vicinal.bench.table import Row

YEARS = {
    "contrastive": 2006,
    "discriminative_deep_metric": 2014,
    **dict.fromkeys(("triplet", "semi_hard_triplet"), 2015),
    **dict.fromkeys(("lifted_structure", "n_pair"), 2016),
    **dict.fromkeys(
        ("angular", "batch_all_triplet", "batch_hard_triplet", "clustering", "margin", "proxy_nca"),
        2017,
    ),
    **dict.fromkeys(("cosface", "hierarchical_triplet", "info_nce"), 2018),
    **dict.fromkeys(
        ("arcface", "fast_ap", "hard_exemplar", "intra_pair_variance", "multi_similarity"), 2019
    ),
    **dict.fromkeys(
        ("normalized_softmax", "p2s_grad", "ranked_list", "signal_to_noise_contrastive"), 2019
    ),
    **dict.fromkeys(("soft_triple", "tuplet_margin"), 2019),
    **dict.fromkeys(
        ("circle", "instance", "proxy_anchor", "smooth_ap", "sub_center_arcface"), 2020
    ),
    "supervised_contrastive": 2020,
    **dict.fromkeys(("hphn", "roadmap"), 2021),
    **dict.fromkeys(
        ("danml", "improved_lifted_structure", "improved_n_pair", "improved_proxy_nca"), 2022
    ),
    **dict.fromkeys(("pnp", "recall_at_k", "vicreg"), 2022),
    "sigmoid": 2023,
    "threshold_consistent_margin": 2024,
}
# The published form of these two is that of their classes; HER's with its weights.
SETTINGS = {slot["name"]: slot for slot in reversed(STATED.values())}
SETTINGS |= {name: {"name": name} for name in ("lifted_structure", "hard_exemplar")}
# of embeddings, where the loss depends on it and normalizes nothing
LENGTHS = "model.start_length=1,6,20"
SCALE = "loss.scale=16.0..128.0:log"
SHARPNESS = "loss.temperature=0.005..0.05:log"
SEARCH = SEARCHED | {
    "discriminative_deep_metric": ("loss.tau=1.2..4.0:log", LENGTHS),
    "n_pair": (LENGTHS,),
    "improved_n_pair": ("loss.gamma=1.0..4.0:log", LENGTHS),
    "angular": ("loss.angle=35.0..55.0",),
    "clustering": ("loss.gamma=0.3..3.0:log",),
    "proxy_nca": ("loss.temperature=0.05..1.0:log",),
    "cosface": ("loss.margin=0.1..0.5", SCALE),
    "arcface": ("loss.margin=0.1..0.6", SCALE),
    "sub_center_arcface": ("loss.margin=0.1..0.6", SCALE),
    "info_nce": ("loss.temperature=0.03..0.2:log",),
    "fast_ap": ("loss.bins=5,10,20",),
    "hard_exemplar": ("loss.margin=0.05..0.4:log", "loss.scale=2.0..20.0:log"),
    "intra_pair_variance": ("loss.positive_slack+loss.negative_slack=0.003..0.1:log",),
    "ranked_list": ("loss.margin=0.2..0.6", "loss.alpha=0.8..1.4"),
    "signal_to_noise_contrastive": ("loss.margin=0.5..2.0:log",),
    "soft_triple": ("loss.gamma=0.05..0.2:log", "loss.scale=10.0..40.0:log"),
    "tuplet_margin": ("loss.slack=0.0..0.3", SCALE),
    "instance": ("loss.scale=1.0..20.0:log", LENGTHS),
    "proxy_anchor": ("loss.margin=0.05..0.2:log", "loss.alpha=16.0..64.0:log"),
    "smooth_ap": (SHARPNESS,),
    "supervised_contrastive": ("loss.temperature=0.05..0.2:log",),
    "roadmap": (SHARPNESS, "loss.calibration=0.2..0.8"),
    "pnp": (SHARPNESS,),
    "recall_at_k": (SHARPNESS,),
    "vicreg": ("loss.invariance=5.0..50.0:log", LENGTHS),
    "sigmoid": ("loss.temperature=5.0..40.0:log", "loss.bias=-20.0..-2.0"),
    "threshold_consistent_margin": (
        "loss.positive_margin=0.7..0.95",
        "loss.negative_margin=0.3..0.6",
    ),
}


def rows(ours: Benchmark) -> list[Row]:
    """The losses in the order of their years."""
    return [
        row(
            f"{name} ({YEARS[name]})",
            loss=SETTINGS.get(name, {"name": name}),
            sampler=ours.classes,
            search=SEARCH.get(name, ()),
        )
        for name in sorted(YEARS, key=lambda name: (YEARS[name], name))
    ]


def losses(
    ours: Benchmark, *words: str, seeds: int = 3, findings: dict[str, str] | None = None
) -> Table:
    rate = float(ours.slots["optimizer"]["learning_rate"])
    return Table(
        f"Every loss at equal tuning: {ours.title}",
        *(found := rows(ours)),
        name=f"losses-{ours.name}",
        words=words,
        protocol="final",
        metrics=columns(("recall@1", "map@r", "nmi"), found),
        seeds=seeds,
        findings=findings or {},
        search=(f"optimizer.learning_rate={rate / 10:g}..{rate * 10:g}:log",),
        **ours.slots,
    )


TUNED = (
    "Two trials per row, of which held-out classes choose one: 43 losses of 18 years are within 3 "
    "points of Recall@1, "
    "from 54.8 to 57.7, and the newest are no better than the oldest (contrastive 57.0, "
    "threshold-consistent margin "
    "57.0). Losses over pairs and ranks lead in MAP@R (up to 19.7); those with proxies, the "
    "instance loss excepted, "
    "end below the untrained features in Recall@1 after five epochs. Two trials are few for a "
    "ranking."
)
PHOTOGRAPHS = (
    "Two trials per row, of which held-out classes choose one, and 225 steps. 37 of 43 losses end "
    "above the untrained "
    "network (54.2 Recall@1), 20 of them from 60.5 to 62.1. Recall@k (2022), Smooth-AP (2020), "
    "InfoNCE (2018), ranked "
    "list (2019) and margin (2017) lead by less than their intervals; age decides nothing "
    "(contrastive of 2006 59.7, "
    "threshold-consistent margin of 2024 61.0). At or below the untrained network: discriminative "
    "deep metric (31.6), "
    "intra-pair variance (45.2), VICReg (52.2), lifted structure (54.1), both N-pair losses "
    "(54.2, 54.3). Two trials "
    "are few for a ranking, and 225 steps are short."
)
# shards of the center squares, as JPEG of quality 60
PACKED = replace(
    CUB,
    name="cub_packed",
    title="CUB-200 as squares of 256 pixels, EfficientNet-Lite0",
    slots=CUB.slots | {"data": {"name": "shards", "path": "cub_packed"}},
)
TABLES = [
    losses(CUB_FEATURES, "model.dim=128", "training.epochs=5", findings={"tuned": TUNED}),
    # On an H200 301 runs take 22 minutes, eight at a time.
    losses(PACKED, findings={"tuned": PHOTOGRAPHS}),
]

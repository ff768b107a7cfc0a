"""Long runs for ``learning_curves.py``, the most important first: a deadline cuts off the last ones.

``DONE`` are complete and in ``results/learning_curves.jsonl``; they come last, to be repeated by ``--only``.
"""

from learning_curves import STEPS, Run

TRIPLET = "loss=triplet loss.margin=1 loss.normalize=false loss.reduction=sum sampler=triplets sampler.triplets=40"
COMPILED = "training.compile=on"
PENALTY = "method=plain optimizer.weight_decay=1e-3"  # of the baseline; HDML has it within J_m


def authors(name: str, words: str, seed: int, hold_out: float = 0.0) -> list[Run]:
    """HDML and its baseline in the setting of its authors."""
    return [
        Run(f"{name}, authors", "cub", "cub_paper", f"{words} {PENALTY} {COMPILED}".strip(), seed, 8000, hold_out),
        Run(f"{name} + HDML, authors", "cub", "cub_paper", f"{words} {COMPILED}".strip(), seed, 8000, hold_out),
    ]


SHARP = "loss=multi_similarity loss.alpha=2 loss.beta=30 loss.base=0.55 sampler.classes=26 sampler.per_class=5"
SAMPLES, WAIT, NEAREST = "LoOp, samples where arcs overlap", "LoOp, after 300 steps", "LoOp, nearest pairs"
LOOP = {
    "multi-similarity": "",
    "LoOp": "method=loop method.overlap=arcs",
    SAMPLES: "method=loop method.overlap=samples",
    WAIT: "method=loop method.overlap=arcs method.wait=300",
    NEAREST: "method=loop method.overlap=arcs method.pairing=nearest",
}


def loop(name: str, seed: int, hold_out: float = 0.0) -> Run:
    """LoOp over multi-similarity loss."""
    words = " ".join(f"{SHARP} {LOOP[name]} {COMPILED}".split())
    return Run(name, "cars", "cars", words, seed, 900, hold_out, (0, 100, 250, 500))


# ALA's paper: a random head, rate 1e-4 and ten times that for the head. Plain descent on the sum over tuples is
# what its equations print, here with ten times these rates: with theirs it moves the network much less than Adam does.
EPISODES = (
    "model.pooling=average model.start=random loss=triplet sampler=episodes optimizer.learning_rate=1e-4 "
    "optimizer.head_factor=10 optimizer.schedule=constant"
)
DESCENT = (
    "optimizer.name=sgd optimizer.momentum=0 optimizer.weight_decay=0 optimizer.learning_rate=1e-3 "
    "method=ala method.relative=false method.over=sum"
)
ALA = {
    "triplets of episodes": "",
    "ALA": "method=ala method.relative=false",
    "ALA, relative": "method=ala method.relative=true",
    "weight 1, descent": f"{DESCENT} method.assessor=constant method.weight=1",
    "ALA, descent": DESCENT,
}
OURS = {
    "N-pair": "loss=n_pair loss.l2=3e-3 model.start_length=6",
    "N-pair + HDML": "loss=n_pair loss.l2=3e-3 model.start_length=6 method=hdml method.generator_rate=3e-3",
    "multi-similarity": SHARP,
    "multi-similarity + HDML": f"{SHARP} method=hdml method.generator_rate=3e-3",
}


def cub(name: str, words: str, seed: int, steps: int, evaluated: tuple[int, ...] = STEPS) -> Run:
    """A run of the preset ``cub``."""
    return Run(name, "cub", "cub", f"{words} {COMPILED}".strip(), seed, steps, evaluated=evaluated)


def episodes(name: str) -> Run:
    """ALA, its baseline or a variant of it, over triplets of episodes."""
    return cub(name, f"{EPISODES} {ALA[name]}".strip(), 0, 3000, (0, 250, 500, 1000, 2000))


def without(part: str, words: str, seed: int) -> Run:
    """HDML over N-pair in the setting of its authors, without a part of it."""
    return Run(f"N-pair + HDML {part}, authors", "cub", "cub_paper", f"{words} {COMPILED}", seed)


NO_HARDNESS = "without hardness", "method.alpha=0"  # negatives stay where they are, and pass the generator
NO_SYNTHETICS = "with w = 1", "method.real_share=1"  # J_syn has no weight: N-pair and the penalty on weights

DONE = [  # 8,000, 900 and 3,000 steps; the runs on Cars196 were not compiled
    *(run for seed in (0, 1) for run in authors("N-pair", "", seed)),
    *authors("N-pair", "", 0, 0.3),
    *authors("triplet", TRIPLET, 0),
    *authors("N-pair", "", 2),
    *authors("triplet", TRIPLET, 1),
    *(loop(name, 0, 0.3) for name in ("multi-similarity", "LoOp", SAMPLES, WAIT)),
    loop("multi-similarity", 0),
    *(run for seed in (3, 4) for run in authors("N-pair", "", seed)),
    *(without(*NO_HARDNESS, seed) for seed in (0, 1, 2)),
    without(*NO_SYNTHETICS, 0),
    *(episodes(name) for name in ("triplets of episodes", "ALA")),
]
RUNS = [
    *(cub(name, words, seed, 5000) for seed in (0, 1, 2) for name, words in OURS.items()),
    *(episodes(name) for name in ("ALA, relative", "weight 1, descent", "ALA, descent")),
    *(run for seed in (3, 4) for run in authors("triplet", TRIPLET, seed)),
    *authors("triplet", TRIPLET, 2),  # five seeds
    *(without(*NO_HARDNESS, seed) for seed in (3, 4)),
    *(run for seed in (1, 2) for run in authors("N-pair", "", seed, 0.3)),
    *(loop(name, seed) for seed in (1, 2) for name in ("multi-similarity", "LoOp", SAMPLES)),
    *(loop(name, seed, 0.3) for seed in (1, 2) for name in ("multi-similarity", SAMPLES, WAIT)),
    *(without(*NO_SYNTHETICS, seed) for seed in (1, 2)),
    *(loop(name, 0) for name in ("LoOp", SAMPLES, WAIT, NEAREST)),  # the first two were cut off
    loop(NEAREST, 0, 0.3),
    *DONE,
]

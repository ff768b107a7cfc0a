"""Long runs for ``learning_curves.py``, the most important first: a deadline cuts off the last
ones.

``DONE`` are complete in ``results/learning_curves.jsonl``; they come last, to be repeated by
``--only``.
"""

from pathlib import Path

from learning_curves import STEPS, Run, read

TRIPLET = (
    "loss=triplet loss.margin=1 loss.normalize=false loss.reduction=sum sampler=triplets "
    "sampler.triplets=40"
)
COMPILED = "training.compile=on"
PENALTY = "method=plain optimizer.weight_decay=1e-3"  # of the baseline; HDML has it within J_m
# The authors' setting as these runs had it, then called cub_paper: photographs keep their aspect,
# and embeddings have the paper's 512 dimensions.
AUTHORS = "hdml-npair-cub-authors"
ASPECT = "transform.fit=shorter transform.canvas=256 model.dim=512"


def authors(name: str, words: str, seed: int, hold_out: float = 0.0) -> list[Run]:
    """HDML and its baseline in the setting of its authors."""
    return [
        Run(
            f"{name}, authors",
            "cub",
            AUTHORS,
            f"{ASPECT} {words} {PENALTY} {COMPILED}",
            seed,
            8000,
            hold_out,
        ),
        Run(
            f"{name} + HDML, authors",
            "cub",
            AUTHORS,
            f"{ASPECT} {words} {COMPILED}",
            seed,
            8000,
            hold_out,
        ),
    ]


BATCH = "sampler.classes=26 sampler.per_class=5"
SHARP = f"loss=multi_similarity loss.alpha=2 loss.beta=30 loss.base=0.55 {BATCH}"
SAMPLES = "LoOp, samples where arcs overlap"
WAIT = "LoOp, after 300 steps"
ARCS = "method.overlap=arcs method.anchors=pairs"  # as published, its mean over the loss's terms
LOOP = {
    "multi-similarity": "",
    # samples where arcs overlap
    "multi-similarity + LoOp": "method=loop method.wait=0 method.anchors=pairs",
    "LoOp": f"method=loop {ARCS} method.wait=0",
    SAMPLES: "method=loop method.overlap=samples method.wait=0 method.anchors=pairs",
    WAIT: f"method=loop {ARCS} method.wait=300",
}


def loop(name: str, seed: int, hold_out: float = 0.0) -> Run:
    """LoOp over multi-similarity loss."""
    words = " ".join(f"{SHARP} {LOOP[name]} {COMPILED}".split())
    return Run(name, "cars", "cars", words, seed, 900, hold_out, (0, 100, 250, 500))


# ALA's paper: a random head, rate 1e-4 and ten times that for the head. Plain descent on the sum
# over tuples is what its equations print, here with ten times these rates: with theirs it moves the
# network much less than Adam does.
EPISODES = (
    "model.start=random loss=triplet sampler=episodes optimizer.learning_rate=1e-4 "
    "optimizer.head_factor=10 optimizer.schedule=constant"
)
DESCENT = (
    "optimizer.name=sgd optimizer.momentum=0 optimizer.weight_decay=0 optimizer.learning_rate=1e-3 "
    "method=controls:Summed method.relative=false"
)
HALF = f"{DESCENT} method.assessor=constant method.weight=0.5"
# episodes, for all classes of CUB-200
LONGER = "sampler.training_classes=80 sampler.validation_classes=20"
ALA = {
    "triplets of episodes": "",
    "ALA": "method=ala method.relative=false",
    "ALA, relative": "method=ala method.relative=true",
    "weight 1, descent": f"{DESCENT} method.assessor=constant method.weight=1",
    "weight 1/2, descent": HALF,
    "weight 1/2, cosine, descent": f"{HALF} optimizer.schedule=cosine",
    "random weights, descent": DESCENT.replace("Summed", "RandomWeights") + " method.form=paper",
    "ALA, descent": DESCENT,
    "ALA, relative, descent": f"{DESCENT} method.relative=true",
    "ALA, rate 4e-3, descent": f"{DESCENT} method.rate=4e-3",
    "ALA, 80 + 20 classes, descent": f"{DESCENT} {LONGER}",
    "weight 1/2, 80 + 20 classes, descent": f"{HALF} {LONGER}",
}
N_PAIR = "loss=n_pair loss.l2=3e-3 model.start_length=6"
GENERATOR = "method=hdml method.generator_rate=3e-3"
RANDOM = "sampler=classes sampler.classes=24 sampler.per_class=5"
NEAR = "sampler=anchor_neighbors sampler.anchors=6 sampler.neighborhood=4 sampler.per_class=5"
OURS = {  # the numbers of benchmarks.py
    "N-pair": N_PAIR,
    "N-pair + HDML": f"{N_PAIR} {GENERATOR}",
    "multi-similarity": SHARP,
    "multi-similarity + HDML": f"{SHARP} {GENERATOR}",
    "multi-similarity + LoOp": f"{SHARP} method=loop method.wait=0 method.anchors=pairs",
    # after a third of the steps
    "multi-similarity + LoOp later": f"{SHARP} method=loop method.anchors=pairs",
    "multi-similarity + LoOp of samples": f"{SHARP} method=loop",  # the default
    "DANML": f"loss=danml loss.alpha=2 loss.beta=30 loss.lambda1=0.55 loss.lambda2=0.57 {BATCH}",
    "lifted": f"loss=lifted_structure loss.form=smooth loss.similarity=cosine {BATCH}",
    "improved lifted": f"loss=improved_lifted_structure {BATCH}",
    "improved N-pair": "loss=improved_n_pair loss.offset=0.5 model.start_length=6",
    "Proxy-NCA": f"loss=proxy_nca {BATCH}",
    "improved Proxy-NCA": f"loss=improved_proxy_nca loss.offset=0.5 {BATCH}",
    "soft margin": f"loss=hard_exemplar loss.weighted=false {BATCH}",
    "HER weights": f"loss=hard_exemplar loss.weighted=true {BATCH}",
    "triplets, margin 0.2": f"loss=hierarchical_triplet {RANDOM}",
    "HTL": f"loss=hierarchical_triplet method=htl {NEAR}",
    "HTL, sampling alone": f"loss=hierarchical_triplet method=htl method.form=ours {NEAR}",
}
PAPERS = [name for name in OURS if " + " not in name]


def ours(name: str, seed: int, steps: int = 2000, data: str = "cub", hold_out: float = 0.0) -> Run:
    """A run of our setting, the preset of the data set."""
    words = f"{OURS[name]} {COMPILED}"
    preset = data.split("_")[0]
    return Run(name, data, preset, words, seed, steps, hold_out, evaluated=(0, 500, 1000))


def features(name: str, seed: int) -> Run:
    """A linear head on features of CUB-200, whose steps take a few milliseconds; 50,000 of them."""
    words = (
        f"{OURS[name]} model.start=discriminant optimizer.learning_rate=1e-4 "
        "optimizer.schedule=constant"
    )
    evaluated = (0, 250, 500, 1000, 2000, 4000, 8000, 16_000, 32_000)
    return Run(name, FEATURES, "cub_features", words, seed, 50_000, evaluated=evaluated)


def over_trained(name: str, seed: int, hold_out: float = 0.0) -> Run:
    """A linear head on features at the rate of its preset, at which multi-similarity soon
    over-fits."""
    words = f"{OURS[name]} model.start=discriminant"
    return Run(
        name, FEATURES, "cub_features", words, seed, 1500, hold_out, evaluated=(0, 500, 1000)
    )


def fast(name: str, seed: int) -> Run:
    """A run of our setting at 2.5 times its learning rate, at which it over-fits."""
    words = f"{OURS[name]} optimizer.learning_rate=5e-5 {COMPILED}"
    return Run(f"{name}, rate 5e-5", "cub", "cub", words, seed, 2000, evaluated=(0, 500, 1000))


def episodes(name: str, seed: int = 0, steps: int = 3000, data: str = "cub") -> Run:
    """ALA, its baseline or a variant of it, over triplets of episodes."""
    words = " ".join(f"model.pooling=average {EPISODES} {ALA[name]} {COMPILED}".split())
    return Run(name, data, "cub", words, seed, steps, evaluated=(0, 250, 500, 1000, 2000, 4000))


def episodes_of_features(name: str, seed: int) -> Run:
    """ALA, its baseline or a variant of it, with a linear head on features."""
    return Run(name, FEATURES, "cub_features", " ".join(f"{EPISODES} {ALA[name]}".split()), seed)


def ala_authors(seed: int) -> list[Run]:
    """ALA and its baseline as its paper describes them, with Adam, which fits its learning
    rates."""
    words = f"{ASPECT} model.head_norm=false training.batch_size=120 {EPISODES} {COMPILED}"
    return [
        Run("triplets of episodes, authors", CUB_288, AUTHORS, f"{words} method=plain", seed),
        Run(
            "triplets of episodes + ALA, authors",
            CUB_288,
            AUTHORS,
            f"{words} {ALA['ALA']}",
            seed,
        ),
    ]


def without(part: str, words: str, seed: int) -> Run:
    """HDML over N-pair in the setting of its authors, without a part of it."""
    name = f"N-pair + HDML {part}, authors"
    return Run(name, "cub", AUTHORS, f"{ASPECT} {words} {COMPILED}", seed)


def as_published(form: str, seed: int) -> list[Run]:
    """HDML over N-pair and its baseline, each number as in the paper or in its authors' code."""
    preset = "hdml-npair-cub" + ("" if form == "paper" else f"-{form}")
    return published("N-pair", SQUASHED, preset, form, seed, 8000)


def published(loss: str, data: str, preset: str, form: str, seed: int, steps: int) -> list[Run]:
    """HDML and its baseline by a preset of the paper or of its authors' code."""
    decay = "5e-3" if "cars" in preset else "1e-3"
    plain = "method=plain" + (f" optimizer.weight_decay={decay}" if form == "authors" else "")
    evaluated = (*STEPS, 12_000)
    return [
        Run(f"{loss} + HDML, {form}", data, preset, COMPILED, seed, steps, 0.0, evaluated),
        Run(f"{loss}, {form}", data, preset, f"{plain} {COMPILED}", seed, steps, 0.0, evaluated),
    ]


def cars_as_published(form: str, seed: int) -> list[Run]:
    """HDML over N-pair on Cars196."""
    preset = "hdml-npair-cars" + ("" if form == "paper" else f"-{form}")
    return published("N-pair", CARS_256, preset, form, seed, 12_000)


def triplets_as_published(form: str, seed: int) -> list[Run]:
    """HDML over triplets on CUB-200."""
    preset = "hdml-triplet-cub" + ("" if form == "paper" else f"-{form}")
    return published("triplet", CUB_256, preset, form, seed, 8000)


# Negatives stay where they are, and pass the generator.
NO_HARDNESS = (
    "without hardness",
    "method.alpha=0",
)
# J_syn has no weight: N-pair and the penalty on weights.
NO_SYNTHETICS = (
    "with w = 1",
    "method.beta=0",
)

BOTH = ("multi-similarity + LoOp", "multi-similarity")
# Packed as squares of 384 pixels, JPEG quality 72, or 288, 75 and 70; those of the other runs of
# 256 pixels, 60 and 50.
CUB_384 = "cub_384"
CUB_288 = "cub_288"
CARS_288 = "cars_288"
SQUASHED = "cub_squash"  # whole photographs as squares of 256 pixels, quality 75
# As they are staged: shorter side 256, quality 70.
CUB_256 = "cub_256"
CARS_256 = "cars_256"
FEATURES = "cub_efficientnet_lite0.npz"
DESCENDING = ("ALA, descent", "weight 1/2, descent")
CONTROLS = ("ALA, relative, descent", "random weights, descent")
LATER = "multi-similarity + LoOp later"
THREE = (*BOTH, LATER)
OF_SAMPLES = "multi-similarity + LoOp of samples"
DEFAULT = (OF_SAMPLES, "multi-similarity")
STAGED = "model.weights=resnet50.safetensors model.preprocessing=caffe model.version=v1"
PROXY_ANCHOR = [
    Run(
        "Proxy-Anchor, ResNet-50",
        data,
        f"proxy-anchor-{data}",
        f"{STAGED} {COMPILED}",
        seed,
        steps,
        0.0,
        tuple(range(0, steps, 480)),
    )
    for seed in (0, 1, 2)
    for data, steps in (("cub", 2880), ("cars", 4020))
]
HARDER = {  # over Proxy-Anchor in its authors' setting, nothing else changed
    "Proxy Synthesis": "method=proxy_synthesis",
    "Metrix": "method=metrix method.weight=0.4",
    "IDML": "method=idml",
    "IDML, authors' rates": "method=idml method.form=authors optimizer.learning_rate=6e-4 "
    "optimizer.loss_factor=100",
    "SEE": "method=see",
    "HDML": "method=hdml",
    "LoOp": "method=loop",
    "PFML": "loss=potential_field",
}
ON_RESNET = [
    Run(
        f"multi-similarity{name}, ResNet-50",
        data,
        data,
        f"model=resnet50 {STAGED} {SHARP} model.dim=512{words} {COMPILED}",
        0,
        steps,
        0.0,
        (1000,),
    )
    for data, steps, name, words in (
        ("cub", 2000, "", ""),
        ("cars", 1000, "", ""),
        ("cars", 2000, ", rate 5e-5", " optimizer.learning_rate=5e-5"),
    )
]
HALF_WAY = 1440  # of Proxy-Anchor's 2,880 steps: its rate is a 64th of the first by then


def harder(name: str, seed: int) -> Run:
    """A descendant, or a dial, over Proxy-Anchor with ResNet-50, half as long."""
    words = f"{STAGED} {HARDER[name]} {COMPILED}"
    return Run(
        f"Proxy-Anchor + {name}, ResNet-50",
        "cub",
        "proxy-anchor-cub",
        words,
        seed,
        HALF_WAY,
        0.0,
        (480, 960),
    )


_ALL = [
    *(harder(name, seed) for seed in (0, 1, 2) for name in HARDER),
    *(episodes_of_features(name, seed) for seed in range(5) for name in ALA),
    *(episodes(name, seed, 8000, CUB_288) for seed in (0, 1) for name in DESCENDING),
    *(
        run
        for seed in (0, 1, 2)
        for form in ("paper", "authors")
        for run in as_published(form, seed)
    ),
    *PROXY_ANCHOR,
    *ON_RESNET,
    *(
        run
        for seed in (0, 1, 2)
        for form in ("authors", "paper")
        for run in (*cars_as_published(form, seed), *triplets_as_published(form, seed))
    ),
    *(episodes("weight 1/2, cosine, descent", seed, 8000, CUB_288) for seed in (0, 1)),
    *ala_authors(0),
    *(run for seed in (0, 1, 2, 3, 4) for run in authors("triplet", TRIPLET, seed)),
    *(episodes(name, seed, 1000, CUB_288) for seed in (0, 1) for name in CONTROLS),
    *(ours(name, seed, 1000, CARS_288, 0.3) for seed in (1, 2) for name in THREE),
    *(
        ours(name, 1, 1000, CARS_288)
        for name in PAPERS
        if name not in ("N-pair", "multi-similarity")
    ),
    *(ours(OF_SAMPLES, seed, 1000, CARS_288, 0.3) for seed in (1, 2)),
    *(ours(name, seed, 2000, CUB_384, 0.3) for seed in (1, 2) for name in (*THREE, OF_SAMPLES)),
    *(ours(name, seed, data=CUB_384) for seed in (0, 1, 2) for name in (*THREE, OF_SAMPLES)),
    *(ours(name, 0, data=CUB_384) for name in PAPERS if "lifted" not in name),
    *(ours(name, seed, 1000, CARS_288) for seed in (1, 2, 3) for name in (LATER, OF_SAMPLES)),
    *(ours(name, 1, data=CUB_384) for name in PAPERS),
    *(
        ours(name, seed, data=CUB_384)
        for seed in (0, 1, 2, 3, 4)
        for name in ("N-pair + HDML", "N-pair")
    ),
    *(episodes(name, 2, 1000, CUB_288) for name in ("ALA, descent", *CONTROLS)),
    *(ours(name, seed, data=CUB_384) for seed in (3, 4) for name in DEFAULT),
    *(
        ours(name, seed, 1000, CARS_288)
        for seed in (4, 5)
        for name in (*DEFAULT, "N-pair + HDML", "N-pair")
    ),
    *(
        ours(name, 2, 1000, CARS_288)
        for name in PAPERS
        if name not in ("N-pair", "multi-similarity")
    ),
    *(ours(name, 2, data=CUB_384) for name in PAPERS),
    *(over_trained(name, seed) for seed in range(5) for name in (*THREE, OF_SAMPLES)),
    *(over_trained(name, seed, 0.3) for seed in range(5) for name in (*THREE, OF_SAMPLES)),
    *(features(name, 0) for name in ("N-pair + HDML", "N-pair")),
    *(ours(name, seed, 1000, CARS_288) for seed in (1, 2, 3) for name in BOTH),
    *(
        ours(name, seed, 1000, CARS_288)
        for seed in (1, 2, 3)
        for name in ("N-pair + HDML", "N-pair")
    ),
    *(ours(name, 0, data=CUB_384) for name in PAPERS),
    *(features(name, seed) for seed in (1, 2) for name in ("N-pair + HDML", "N-pair")),
    *(episodes("weight 1, descent", seed, 1000, CUB_288) for seed in (0, 1, 2)),
    episodes("weight 1/2, descent", 2, 1000, CUB_288),
    *(
        ours(name, seed, data=CUB_288)
        for seed in (0, 1, 2)
        for name in ("multi-similarity + HDML", *BOTH)
    ),
    *(ours(name, 0, data=CUB_288) for name in ("lifted", "improved lifted")),
    *(
        fast(name, seed)
        for seed in (0, 1)
        for name in ("multi-similarity + HDML", "multi-similarity")
    ),
    *(ours(name, seed) for seed in (3, 4) for name in ("N-pair + HDML", "N-pair")),
    *(without(*NO_HARDNESS, seed) for seed in (3, 4)),
    *(run for seed in (1, 2) for run in authors("N-pair", "", seed, 0.3)),
    *(loop(name, seed, 0.3) for seed in (1, 2) for name in ("multi-similarity", SAMPLES, WAIT)),
    *(without(*NO_SYNTHETICS, seed) for seed in (1, 2)),
    *(loop(name, 0) for name in ("LoOp", WAIT)),  # the first was cut off
    *(run for seed in (0, 1) for run in authors("N-pair", "", seed)),
    *authors("N-pair", "", 0, 0.3),
    *authors("N-pair", "", 2),
    *(loop(name, 0, 0.3) for name in ("multi-similarity", "LoOp", SAMPLES, WAIT)),
    loop("multi-similarity", 0),
    *(run for seed in (3, 4) for run in authors("N-pair", "", seed)),
    *(without(*NO_HARDNESS, seed) for seed in (0, 1, 2)),
    without(*NO_SYNTHETICS, 0),
    *(episodes(name) for name in ("triplets of episodes", "ALA")),
    *(ours(name, seed) for seed in (0, 1, 2) for name in ("N-pair + HDML", "N-pair")),
    *(ours(name, 0) for name in BOTH),
]
_RESULTS = read(Path(__file__).parent / "results" / "learning_curves.jsonl")
_STEPS = {
    (line["data"], line["run"], line["seed"], line["hold_out"]): line["step"] for line in _RESULTS
}  # the last
_ALL = list(dict.fromkeys(_ALL))  # some are named twice
DONE = [
    run for run in _ALL if _STEPS.get((run.data, run.name, run.seed, run.hold_out)) == run.steps
]
RUNS = [*(run for run in _ALL if run not in DONE), *DONE]

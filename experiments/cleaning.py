"""What ``vicinal clean`` finds of planted errors, beside cleanlab; training on the cleaned set;
labels by ``suggest``.

    python experiments/cleaning.py rank --runs FOLDER
    python experiments/cleaning.py outliers --runs FOLDER
    python experiments/cleaning.py retrain --runs FOLDER --seeds 3
    python experiments/cleaning.py label

cleanlab is no dependency: ``pip install cleanlab``, here version 2.9.0. Data lie in
``$VICINAL_DATA``. Runs that FOLDER holds already are not trained again. ``cleaning.md`` has the
results.
"""

import argparse
import json
import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
import torch
from PIL import ImageOps
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import cross_val_predict

import vicinal
from corrupted import Corrupted
from vicinal.data import Arrays, Dataset, Glyphs, Omniglot, Records
from vicinal.evaluation.neighbors import neighbors
from vicinal.models import Embedder, Identity
from vicinal.models.starts import start_as_discriminants
from vicinal.retrieval.cleaning import (
    by_direction,
    class_overlaps,
    judge_labels,
    remoteness,
)
from vicinal.retrieval.suggestions import suggest

RESULTS = Path(__file__).parent / "results" / "cleaning.jsonl"
NOISE = (0.05, 0.1, 0.2)
CUB = Arrays("$VICINAL_DATA/features/cub_efficientnet_lite0.npz")
GLYPHS = Glyphs(per_class=12)
PRESETS = {"glyphs": ("glyphs", GLYPHS, {"epochs": 6}), "cub": ("cub_features", CUB, {})}


def planted(labels: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Give a share of the rows the label of another class, each as likely."""
    rng = np.random.default_rng(seed)
    classes = int(labels.max()) + 1
    rows = rng.permutation(len(labels))[: round(share * len(labels))]
    noisy = labels.copy()
    noisy[rows] = (labels[rows] + rng.integers(1, classes, len(rows))) % classes
    return noisy


# -- ranking --------------------------------------------------------------------------------------


def votes(near: np.ndarray, labels: np.ndarray, k: int) -> np.ndarray:
    """Shares of the classes among the k nearest other rows: the out-of-sample probabilities of
    cleanlab's Datalab."""
    return sum(np.eye(labels.max() + 1)[labels[near[:, place]]] for place in range(k)) / k


def rankings(
    vectors: np.ndarray, near: np.ndarray, labels: np.ndarray, *, regression: bool
) -> Iterator[tuple[str, np.ndarray]]:
    """Scores of all rows by each method, larger for those that are more probably wrong."""
    from cleanlab.classification import CleanLearning
    from cleanlab.filter import find_label_issues
    from cleanlab.rank import get_label_quality_scores

    yield "vicinal clean", judge_labels(vectors, labels).wrong.astype(np.float64)
    yield (
        "share of 10 nearest",
        1 - np.take_along_axis(votes(near, labels, 10), labels[:, None], 1)[:, 0],
    )
    probabilities = {f"{k} nearest": votes(near, labels, k) for k in (10, 20, 50)}
    if regression:
        model = LogisticRegression(C=10, max_iter=200)
        probabilities["logistic regression"] = cross_val_predict(
            model, vectors, labels, cv=5, method="predict_proba"
        )
    for name, found in probabilities.items():
        for by in ("self_confidence", "normalized_margin"):
            ranked = find_label_issues(labels, found, return_indices_ranked_by=by, n_jobs=1)
            score = 1 - get_label_quality_scores(labels, found, method=by)
            # What the filter names comes first, in its order.
            score[ranked] += 1 + np.linspace(1, 0, len(ranked))
            yield f"find_label_issues, {name}, {by}", score
    issues = CleanLearning().find_label_issues(
        labels=labels, pred_probs=probabilities["10 nearest"]
    )
    yield (
        "Datalab (10 nearest)",
        (1 - issues["label_quality"] + issues["is_label_issue"]).to_numpy(),
    )


def found(scores: np.ndarray, wrong: np.ndarray) -> tuple[float, float]:
    """Precision (and recall) of the first n, n as many as were planted; average precision."""
    first = np.argsort(-scores, kind="stable")[: wrong.sum()]
    return float(wrong[first].mean()), float(average_precision_score(wrong, scores))


def rank(runs: Path, seeds: int, *, regression: bool) -> None:
    model = vicinal.load(trained(runs, "glyphs", 0.0, 0).path)
    glyphs = GLYPHS.load().part("test")
    features = CUB.load().part("test")
    sets = {
        "Glyphs, characters never trained on": (model.embed_records(glyphs), glyphs.labels),
        "CUB-200 features, classes 101 to 200": (
            np.stack([*map(features.source.read, range(len(features)))]),
            None,
        ),
    }
    for title, (vectors, labels) in sets.items():
        right = np.unique(features.labels if labels is None else labels, return_inverse=True)[1]
        near = neighbors(torch.from_numpy(vectors), 50).ids.numpy()
        cells = defaultdict[str, dict[float, list[tuple[float, float]]]](lambda: defaultdict(list))
        for share in NOISE:
            for seed in range(seeds):
                noisy = planted(right, share, seed)
                for name, scores in rankings(vectors, near, noisy, regression=regression):
                    cells[name][share].append(found(scores, noisy != right))
        print(
            f"\n{title} ({len(right):,} rows, {right.max() + 1} classes, {seeds} seeds)\n",
            flush=True,
        )
        print("| | " + " | ".join(f"{share:.0%}: first n | AP" for share in NOISE) + " |")
        print("|---|" + "---|" * 2 * len(NOISE))
        for name, by_share in cells.items():
            shown = [
                spread([100 * one[place] for one in by_share[s]]) for s in NOISE for place in (0, 1)
            ]
            print(f"| {name} | " + " | ".join(shown) + " |", flush=True)


def absorbed(runs: Path, seeds: int, share: float) -> None:
    """Rank the training rows of networks that were trained on the wrong labels, by embedding and by
    feature."""
    print(
        f"\n| {share:.0%} wrong labels | by | first n | AP | estimated | listed | of these wrong "
        "|\n|" + "---|" * 7
    )
    for name in PRESETS:
        for features, word in ((False, "embedding"), (True, "feature")):
            rows = []
            for seed in range(seeds):
                noisy, right = training_rows(name, share, seed)
                labels = np.unique(noisy.labels, return_inverse=True)[1]
                wrong = noisy.labels != right
                encoder = trained(runs, name, share, seed).model._encoder
                verdicts = judge_labels(
                    encoder.embed(noisy, features=features).vectors.numpy(), labels
                )
                listed = verdicts.wrong >= 0.5
                shares = (
                    *found(verdicts.wrong, wrong),
                    verdicts.noise,
                    listed.mean(),
                    wrong[listed].mean(),
                )
                rows.append([100 * value for value in shares])
            print(
                f"| {name} | {word} | "
                + " | ".join(spread(each) for each in zip(*rows, strict=True))
                + " |",
                flush=True,
            )


# -- outliers and overlapping classes --------------------------------------------------------------


def measured_sets(
    runs: Path,
) -> Iterator[tuple[str, np.ndarray, np.ndarray, dict[str, np.ndarray]]]:
    """Yield a title, vectors and classes of a set, and foreign vectors by what they are."""
    records = CUB.load()
    features = np.stack([*map(records.source.read, range(len(records)))])
    test = records.splits == "test"
    # Each number from another row.
    mixed = np.random.default_rng(0).permuted(features[test], axis=0)
    birds = {"birds of classes 1 to 100": features[~test], "features with shuffled numbers": mixed}
    yield (
        "CUB-200 features",
        features[test],
        np.unique(records.labels[test], return_inverse=True)[1],
        birds,
    )
    model = vicinal.load(trained(runs, "glyphs", 0.0, 0).path)
    glyphs = GLYPHS.load().part("test")
    vectors = model.embed_records(glyphs)
    labels = np.unique(glyphs.labels, return_inverse=True)[1]
    held = labels % 6 == 5  # characters that are not in the set
    drawn = Omniglot(size=28).load()
    # Light ink.
    drawings = model.embed(
        [ImageOps.invert(drawn.source.read(row)) for row in range(0, len(drawn), 40)]
    )
    others = {"other characters": vectors[held], "drawings of Omniglot": drawings}
    yield "Glyphs", vectors[~held], np.unique(labels[~held], return_inverse=True)[1], others


def outliers(runs: Path, seeds: int, share: float = 0.05) -> None:
    """Plant foreign rows with labels drawn at random; then split five classes into halves of one
    name each."""
    import cleanlab.dataset
    from cleanlab.outlier import OutOfDistribution
    from sklearn.metrics import roc_auc_score
    from sklearn.neighbors import LocalOutlierFactor

    lines = list[dict[str, object]]()
    pairs = list[dict[str, object]]()
    for title, vectors, labels, foreign in measured_sets(runs):
        classes = int(labels.max()) + 1
        for (what, others), seed in product(foreign.items(), range(seeds)):
            rng = np.random.default_rng(seed)
            count = round(share * len(vectors))
            planted_rows = others[rng.permutation(len(others))[:count]]
            rows = np.concatenate([vectors, planted_rows])
            given = np.concatenate([labels, rng.integers(0, classes, len(planted_rows))])
            wrong = np.arange(len(rows)) >= len(vectors)
            verdicts = judge_labels(rows, given)
            # As the command does.
            apart = by_direction(verdicts, rows) if title.startswith("CUB") else verdicts
            local = LocalOutlierFactor(n_neighbors=20).fit(rows)
            scores = {
                "vicinal clean": remoteness(apart),
                "cleanlab OutOfDistribution": -OutOfDistribution().fit_score(
                    features=rows, verbose=False
                ),
                "LocalOutlierFactor": -local.negative_outlier_factor_,
            }
            for name, score in scores.items():
                values = {
                    "first n": found(score, wrong)[0],
                    "auroc": float(roc_auc_score(wrong, score)),
                }
                lines.append({"set": title, "planted": what, "seed": seed, "by": name, **values})
            listed = verdicts.wrong >= 0.5
            seen = float((listed | (len(rows) * norm.sf(remoteness(apart)) <= 0.1))[wrong].mean())
            lines.append(
                {"set": title, "planted": what, "seed": seed, "by": "listed", "first n": seen}
            )
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            halved = rng.permutation(classes)[:5]
            given = labels.copy()
            for new, name in enumerate(halved.tolist(), classes):
                members = rng.permutation(np.flatnonzero(labels == name))
                given[members[: len(members) // 2]] = new
            wanted = {frozenset((name, new)) for new, name in enumerate(halved.tolist(), classes)}
            overlap = class_overlaps(judge_labels(vectors, given), given)
            ranked = {"vicinal clean": sorted(overlap, key=lambda pair: -overlap[pair][0])}
            near = neighbors(torch.from_numpy(vectors), 50).ids.numpy()
            for k in (10, 50):
                table = cleanlab.dataset.find_overlapping_classes(
                    labels=given, pred_probs=votes(near, given, k)
                )
                columns = zip(table["Class Index A"], table["Class Index B"], strict=True)
                ranked[f"find_overlapping_classes, {k} nearest"] = [
                    frozenset(map(int, pair)) for pair in columns
                ]
            for name, order in ranked.items():
                counts = {f"top {n}": len(wanted & set(order[:n])) for n in (5, 10)}
                pairs.append(
                    {"set": title, "planted": "halves", "seed": seed, "by": name, **counts}
                )
    with RESULTS.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in (*lines, *pairs))
    for kept, names in ((lines, ("first n", "auroc")), (pairs, ("top 5", "top 10"))):
        print(f"\n| set | planted | by | {names[0]} | {names[1]} |\n|" + "---|" * 5)
        for key in dict.fromkeys((line["set"], line["planted"], line["by"]) for line in kept):
            alike = [line for line in kept if (line["set"], line["planted"], line["by"]) == key]
            unit = 100 if names[0] == "first n" else 1
            cells = [
                spread([unit * line[name] for line in alike]) if name in alike[0] else ""
                for name in names
            ]
            print(f"| {' | '.join(map(str, key))} | {' | '.join(cells)} |", flush=True)


# -- training again -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reviewed:
    """Another data set in which a person gave some rows their right labels."""

    data: Dataset
    right: Dataset
    rows: tuple[int, ...]

    def load(self) -> Records:
        records = self.data.load()
        labels = self.data.load().labels.copy()
        rows = list(self.rows)
        labels[rows] = self.right.load().labels[rows]
        return replace(records, labels=labels)


@dataclass(frozen=True)
class Without:
    """Another data set without some of its rows."""

    data: Dataset
    rows: tuple[int, ...]

    def load(self) -> Records:
        records = self.data.load()
        return records.take(np.setdiff1d(np.arange(len(records)), self.rows))


def noisy_set(name: str, share: float, seed: int) -> Dataset:
    return Corrupted(PRESETS[name][1], label_noise=share, seed=seed) if share else PRESETS[name][1]


def training_rows(name: str, share: float, seed: int) -> tuple[Records, np.ndarray]:
    """The training rows with their wrong labels, and the right ones."""
    records = noisy_set(name, share, seed).load()
    rows = np.flatnonzero(records.splits != "test")
    return records.take(rows), PRESETS[name][1].load().labels[rows]


def trained(
    runs: Path, name: str, share: float, seed: int, data: Dataset | None = None, word: str = ""
) -> vicinal.Run:
    """A run on these labels, or on ``data``, trained now if it is not there."""
    preset, _, training = PRESETS[name]
    folder = runs / f"{name}-{share:g}-{seed}{word}"
    if (folder / "results.json").is_file():
        return vicinal.Run(folder)
    settings = {**training, "seed": seed, "validation": 0.0}
    evaluation = {"restarts": 1, "artifacts": False}
    found = noisy_set(name, share, seed) if data is None else data
    return vicinal.train(
        found, preset=preset, run=folder, training=settings, evaluation=evaluation, quiet=True
    )


def retrain(runs: Path, seeds: int, share: float, names: list[str]) -> None:
    print(
        f"\n| {share:.0%} wrong labels | "
        + " | ".join(("as they are", "dropped", "reviewed", "all right"))
        + " |\n|"
        + "---|" * 5
    )
    for name in names:
        scores = defaultdict[str, list[float]](list)
        for seed in range(seeds):
            noisy = trained(runs, name, share, seed)
            records, _ = training_rows(name, share, seed)
            labels = np.unique(records.labels, return_inverse=True)[1]
            features = noisy.model._encoder.embed(records, features=True).vectors.numpy()
            # As `vicinal clean` does with what a run was trained on.
            verdicts = judge_labels(features, labels)
            rows = np.flatnonzero(noisy_set(name, share, seed).load().splits != "test")[
                verdicts.wrong >= 0.5
            ]
            noise = noisy_set(name, share, seed)
            found = tuple(rows.tolist())
            runs_of = {
                "as they are": noisy,
                "dropped": trained(runs, name, share, seed, Without(noise, found), "-dropped"),
                "reviewed": trained(
                    runs, name, share, seed, Reviewed(noise, PRESETS[name][1], found), "-reviewed"
                ),
                "all right": trained(runs, name, 0.0, seed),
            }
            for row, run in runs_of.items():
                scores[row].append(100 * run.results["trained"]["recall@1"])
            print(
                f"<!-- {name} seed {seed}: {len(rows)} dropped, "
                f"{[each[-1] for each in scores.values()]} -->",
                flush=True,
            )
        print(f"| {name} | " + " | ".join(map(spread, scores.values())) + " |", flush=True)


# -- labels ---------------------------------------------------------------------------------------


def label(seeds: int, *, begin: int = 100, step: int = 100, rounds: int = 10) -> None:
    """Label pictures of the training classes in rounds; measure R@1 of others of them, and of the
    test classes.

    A picture that was held out is a hit if its nearest labeled one is of its class. The test
    classes, of which nothing is labeled, are embedded by the closed-form head of what is labeled,
    and searched among themselves.
    """
    records = CUB.load()
    features = np.stack([*map(records.source.read, range(len(records)))])
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    training = np.flatnonzero(records.splits == "train")
    test = np.flatnonzero(records.splits == "test")
    curves = defaultdict[str, list[list[float]]](list)
    for seed in range(seeds):
        order = np.random.default_rng(seed).permutation(training)
        asking = order[:1200]
        pool = order[1200:]
        for method in ("random", "suggest", "k-center"):
            rng = np.random.default_rng(seed)
            known = list(range(begin))
            held = list[float]()
            unseen = list[float]()
            for turn in range((rounds if method == "random" else rounds // 2) + 1):
                rows = pool[known]
                held.append(
                    recall(unit[asking], records.labels[asking], unit[rows], records.labels[rows])
                )
                if turn == 4 and method != "k-center" and seed < 3:
                    unseen.append(zero_shot(features, records.labels, rows, test))
                rest = np.setdiff1d(np.arange(len(pool)), known)
                if method == "random":
                    known += rng.permutation(rest)[:step].tolist()
                elif method == "suggest":
                    known += rest[
                        suggest(unit[pool[rest]], unit[rows], records.labels[rows], step).rows
                    ].tolist()
                else:
                    known += k_center(unit[pool], known, step)
            curves[f"{method}: held-out pictures"].append(held)
            if unseen:
                curves[f"{method}: test classes"].append(unseen)
            print(
                f"<!-- seed {seed} {method} {np.round(held, 1)} {np.round(unseen, 1)} -->",
                flush=True,
            )
    for title, turns in (("held-out pictures", range(rounds + 1)), ("test classes", (4,))):
        labels = [begin + step * turn for turn in turns]
        print(
            f"\n| R@1, {title}: labels | "
            + " | ".join(map(str, labels))
            + " |\n|---|"
            + "---|" * len(labels)
        )
        for method in ("random", "suggest", "k-center"):
            if runs := curves[f"{method}: {title}"]:
                print(
                    f"| {method} | "
                    + " | ".join(spread(column) for column in np.array(runs).T)
                    + " |"
                )
    labels = [begin + step * turn for turn in range(rounds + 1)]
    random, ours = (
        np.array(curves[f"{method}: held-out pictures"]) for method in ("random", "suggest")
    )
    shares = [needed(labels, mine, theirs) for mine, theirs in zip(ours, random, strict=True)]
    print(
        "\nLabels for the R@1 of random choice, as a share: "
        f"{[spread(each) for each in 100 * np.array(shares).T]}"
    )


def needed(labels: list[int], ours: np.ndarray, random: np.ndarray) -> list[float]:
    """At each number of random labels after the first, the share of it with which ours first has
    that R@1.

    Ours has fewer rounds; where it does not get there in them, NaN.
    """
    best = np.maximum.accumulate(ours)
    at = [
        float(np.interp(random[turn], best, labels[: len(best)], right=np.nan))
        for turn in range(1, len(labels))
    ]
    return [count / labels[turn] for turn, count in enumerate(at, 1)]


def recall(
    queries: np.ndarray, asked: np.ndarray, gallery: np.ndarray, labels: np.ndarray
) -> float:
    near = (
        neighbors(torch.from_numpy(queries), 1, gallery=torch.from_numpy(gallery)).ids[:, 0].numpy()
    )
    return 100 * float((labels[near] == asked).mean())


def zero_shot(
    features: np.ndarray, labels: np.ndarray, rows: np.ndarray, test: np.ndarray
) -> float:
    """R@1 on the test classes of the closed-form head of these rows (``vicinal train
    --head-only``)."""
    torch.manual_seed(0)
    head = Embedder(Identity(features.shape[1]), 512)
    inputs = torch.from_numpy(features)
    start_as_discriminants(head, inputs[rows], torch.from_numpy(labels[rows]))
    with torch.inference_mode():
        vectors = head.eval()(inputs[test])
    near = neighbors(vectors, 1).ids[:, 0].numpy()
    return 100 * float((labels[test][near] == labels[test]).mean())


def k_center(pool: np.ndarray, known: list[int], count: int) -> list[int]:
    """The row farthest from all labeled ones, again and again (Sener and Savarese 2018, Algorithm
    1)."""
    near = torch.cdist(torch.from_numpy(pool), torch.from_numpy(pool[known])).amin(dim=1).numpy()
    chosen = list[int]()
    for _ in range(count):
        chosen.append(int(near.argmax()))
        near = np.minimum(near, np.linalg.norm(pool - pool[chosen[-1]], axis=1))
    return chosen


def spread(values: object) -> str:
    found = np.asarray(values, dtype=np.float64)
    return (
        f"{found.mean():.1f} ± {found.std(ddof=1):.1f}" if len(found) > 1 else f"{found.mean():.1f}"
    )


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("rank", "outliers", "absorbed", "retrain", "label"))
    parser.add_argument("--runs", type=Path, default=Path("runs/cleaning"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--noise", type=float, default=0.2, help="of `retrain`")
    parser.add_argument(
        "--only", nargs="+", choices=PRESETS, default=list(PRESETS), help="of `retrain`"
    )
    parser.add_argument(
        "--regression",
        action="store_true",
        help="of `rank`: cleanlab with logistic regression, too",
    )
    given = parser.parse_args()
    if given.what == "rank":
        rank(given.runs, given.seeds, regression=given.regression)
    elif given.what == "outliers":
        outliers(given.runs, given.seeds)
    elif given.what == "absorbed":
        absorbed(given.runs, given.seeds, given.noise)
    elif given.what == "retrain":
        retrain(given.runs, given.seeds, given.noise, given.only)
    else:
        label(given.seeds)

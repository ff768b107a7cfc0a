"""Draw the figures of the paper pages with the library's own functions: ``python docs/figures.py
[NAME ...]``.

Each function below draws one file of ``docs/papers/figures``. Everything is seeded;
`when_hardness_helps` reads the learning curves in ``experiments/results``.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.offsetbox import AnnotationBbox, OffsetImage
from matplotlib.patches import Circle
from scipy.cluster.hierarchy import dendrogram, linkage
from scipy.spatial.distance import squareform
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from torch import nn

from vicinal.distances import pairwise_distances
from vicinal.geometry import arcs_among, log_exp_mean
from vicinal.linear import LANML
from vicinal.losses import BatchAllTripletLoss, HardExemplarLoss
from vicinal.methods.hdml.method import interpolation_factor
from vicinal.methods.hdml.synthesis import harder
from vicinal.miners import semi_hard
from vicinal.samplers import ClassTree, PKSampler
from vicinal.tuples import Triplets

ROOT = Path(__file__).resolve().parents[1]
FIGURES = ROOT / "docs" / "papers" / "figures"
CURVES = ROOT / "experiments" / "results" / "learning_curves.jsonl"
BLUE, ORANGE, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
GREY, LIGHT = "#555555", "#C8C8C8"
STYLE = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "svg.hashsalt": "vicinal",
    "figure.constrained_layout.use": True,
}


def hdml() -> Figure:
    """Negatives of one anchor at three interpolation factors, and the factor against the falling
    loss."""
    figure = Figure(figsize=(7.6, 2.7))
    left, right = figure.subplots(1, 2, width_ratios=(1.4, 1))
    anchor, positive = torch.zeros(2), torch.tensor([0.75, 0.35])
    angles = torch.tensor([0.1, 0.28, 0.43, 0.62, 0.8, 0.95]) * 2 * torch.pi
    lengths = torch.tensor([2.3, 1.6, 2.6, 0.6, 2.0, 2.7])
    negatives = torch.stack([lengths * angles.cos(), lengths * angles.sin()], dim=1)
    reference = (positive - anchor).norm()
    left.add_patch(Circle((0, 0), float(reference), fill=False, color=BLUE, linestyle=":"))
    for factor, size in ((1.0, 46), (0.5, 30), (0.0, 16)):
        pulled = harder(anchor, negatives, reference, 1 - factor)
        left.scatter(
            *pulled.T,
            s=size,
            color=ORANGE,
            alpha=0.35 + 0.6 * (1 - factor),
            label=f"negatives, λ = {factor:g}",
        )
    for start, end in zip(negatives, harder(anchor, negatives, reference, 1.0), strict=True):
        left.annotate(
            "",
            end.tolist(),
            start.tolist(),
            arrowprops={"arrowstyle": "->", "color": GREY, "lw": 0.8},
        )
    left.scatter(*anchor, marker="*", s=110, color="black", label="anchor", zorder=3)
    left.scatter(*positive, s=46, color=BLUE, label="positive", zorder=3)
    left.set(
        aspect="equal", xticks=[], yticks=[], title="Pulled, at most to the positive's distance"
    )
    left.spines[:].set_visible(False)
    left.legend(loc="center left", bbox_to_anchor=(1.02, 0.5), fontsize=8)

    fallen = torch.linspace(1, 0.02, 200)
    for alpha, style in ((0.1, ":"), (0.5, "-"), (2.0, "--")):
        factors = interpolation_factor(alpha, fallen)
        right.plot(1 - fallen, factors, style, color=ORANGE)
        right.text(0.01, float(factors[0]) + 0.03, f"α = {alpha:g}", color=ORANGE)
    right.set(
        xlabel="how far the average loss has fallen",
        ylabel="λ",
        ylim=(0, 1),
        title="The better the network, the smaller λ",
    )
    right.xaxis.set_major_formatter(mpl.ticker.PercentFormatter(1.0))
    return figure


def ala() -> Figure:
    """The derivative of the validation loss in each triplet's weight, for right and for wrong
    labels."""
    torch.manual_seed(0)
    digits = load_digits()
    inputs, labels = (
        torch.tensor(digits.data, dtype=torch.float32) / 16,
        torch.tensor(digits.target),
    )
    network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 16))
    loss = BatchAllTripletLoss(0.2, normalize=True)
    optimizer = torch.optim.Adam(network.parameters(), 1e-3)
    sampler = PKSampler(labels.numpy(), classes=10, per_class=8, seed=0)
    for rows in sampler.epoch(0):
        optimizer.zero_grad()
        loss(network(inputs[rows]), labels[rows]).backward()
        optimizer.step()

    rng = np.random.default_rng(0)
    of_class = [np.flatnonzero(digits.target == label) for label in range(10)]

    def triplet(classes: range, *, wrong: bool) -> list[int]:
        own, other = rng.choice(classes, 2, replace=False)
        anchor, positive = rng.choice(of_class[own], 2, replace=False)
        negative = rng.choice(of_class[other])
        return (
            [anchor, negative, positive] if wrong else [anchor, positive, negative]
        )  # a positive called negative

    wrong = torch.arange(300) % 3 == 0
    training = torch.tensor([triplet(range(7), wrong=bool(flag)) for flag in wrong])
    validation = torch.tensor([triplet(range(7, 10), wrong=False) for _ in range(60)])
    losses = BatchAllTripletLoss(0.2, normalize=True, soft=True, average="all", reduction="none")

    def triplet_losses(rows: torch.Tensor) -> torch.Tensor:
        embedded = network(inputs[rows.T.reshape(-1)])
        count = len(rows)
        return losses.on_triplets(
            embedded, Triplets(*(torch.arange(count) + part * count for part in range(3)))
        )[:count]

    leaves = list(network.parameters())
    direction = torch.autograd.grad(triplet_losses(validation).mean(), leaves)
    each = [
        torch.autograd.grad(loss, leaves, retain_graph=True) for loss in triplet_losses(training)
    ]
    pulls = [sum((u * g).sum() for u, g in zip(direction, one, strict=True)) for one in each]
    found = -torch.stack(pulls).detach()

    figure = Figure(figsize=(7.2, 2.5))
    axes = figure.subplots()
    span = float(found.abs().quantile(0.98))
    bins = np.linspace(-span, span, 41)
    axes.hist(
        found[~wrong].numpy(), bins, color=BLUE, alpha=0.75, label="labels right (200 triplets)"
    )
    axes.hist(
        found[wrong].numpy(),
        bins,
        color=ORANGE,
        alpha=0.75,
        label="positive and negative swapped (100)",
    )
    axes.axvline(0, color="black", lw=0.8)
    axes.set(
        xlabel="derivative of the validation loss in the triplet's weight   (right of 0: the "
        "weight should fall)",
        ylabel="triplets",
        title="What the assessor is taught by",
    )
    axes.set_xticks([0.0], ["0"])
    axes.legend()
    return figure


def htl() -> Figure:
    """The class tree of the digits, with its thresholds."""
    digits = load_digits()
    centered = torch.tensor(digits.data - digits.data.mean(axis=0), dtype=torch.float32)
    tree = ClassTree.build(centered, torch.tensor(digits.target), levels=16)
    between = tree.distances(torch.arange(10)).numpy().astype(float)
    np.fill_diagonal(between, 0)
    figure = Figure(figsize=(7.2, 3.4))
    axes = figure.subplots()
    shown = dendrogram(
        linkage(squareform(between, checks=False), "single"),
        ax=axes,
        color_threshold=0,
        above_threshold_color=GREY,
    )
    thresholds = tree.thresholds.numpy()
    top = max(shown["dcoord"], key=max)[1] * 1.03
    for level, height in enumerate(thresholds[thresholds < top]):
        axes.axhline(height, color=BLUE, lw=0.8, linestyle=":")
        axes.text(101.5, height, f"$d_{level}$", color=BLUE, va="center")
    for place, label in enumerate(shown["leaves"]):
        mean = digits.images[digits.target == label].mean(axis=0)
        thumbnail = OffsetImage(mean, zoom=3.0, cmap="gray_r")
        axes.add_artist(
            AnnotationBbox(
                thumbnail,
                (5 + 10 * place, 1.05),
                (0, -20),
                boxcoords="offset points",
                frameon=False,
            )
        )
    axes.set(xticks=[], ylabel="squared distance", ylim=(1.05, top), title="Ten classes as a tree")
    axes.spines["bottom"].set_visible(False)
    figure.get_layout_engine().set(rect=(0, 0.11, 1, 0.89))
    return figure


def her() -> Figure:
    """The weight of a triplet and its pull, against its gap."""
    figure = Figure(figsize=(7.2, 2.6))
    left, right = figure.subplots(1, 2)
    loss = HardExemplarLoss()
    gaps = torch.linspace(-4, 6, 1001)
    weights, pull = loss.weigh(gaps, torch.full_like(gaps, 64.0)), torch.sigmoid(-gaps)
    left.plot(gaps, weights, color=ORANGE)
    left.axhline(1, color=GREY, lw=0.8, linestyle=":")
    left.set(
        xlabel="gap: distance of the negative − of the match",
        ylabel="$w_{hard}$",
        title="Hard triplets weigh more",
    )
    right.plot(gaps, pull, color=GREY, linestyle="--", label="soft margin alone")
    right.plot(gaps, weights * pull, color=ORANGE, label="with $w_{hard}$")
    right.set(
        xlabel="gap",
        ylabel="length of the gradient",
        title="The soft margin does much of it already",
    )
    right.legend()
    for axes in (left, right):
        axes.axvspan(0, loss.scaled_margin, color=LIGHT, alpha=0.35, lw=0)
        axes.set_ylim(bottom=0)
    left.text(loss.scaled_margin / 2, 0.08, "margin", ha="center", color=GREY)
    return figure


def loop() -> Figure:
    """Two positive pairs as arcs of the sphere, their nearest samples and their nearest points."""
    towards, aside, up = torch.tensor(
        [[0.696, 0.543, 0.469], [-0.616, 0.788, 0.0], [-0.370, -0.289, 0.883]]
    ).double()
    ends = torch.stack(
        [
            torch.stack([towards - 0.9 * aside + 0.2 * up, towards + 0.75 * aside + 0.5 * up]),
            torch.stack([towards + 0.15 * aside - 0.1 * up, towards - 0.35 * aside - 1.0 * up]),
        ]
    )
    ends = nn.functional.normalize(ends, dim=-1)
    shares = torch.linspace(0, 1, 401).double()

    def arc(start: torch.Tensor, end: torch.Tensor) -> torch.Tensor:
        angle = torch.arccos((start * end).sum())
        return (
            ((1 - shares) * angle).sin()[:, None] * start + (shares * angle).sin()[:, None] * end
        ) / angle.sin()

    arcs = [arc(*pair) for pair in ends]
    distances = torch.cdist(*arcs)
    nearest = [int(place) for place in np.unravel_index(int(distances.argmin()), distances.shape)]
    pairs = torch.tensor([[0, 2], [1, 3]])
    exact = float(arcs_among(ends.flatten(0, 1), *pairs, squared=False)[0, 1])
    samples = torch.cdist(*ends)
    one, other = np.unravel_index(int(samples.argmin()), samples.shape)

    figure = Figure(figsize=(5.2, 3.4))
    axes = figure.add_subplot(projection="3d")
    u, v = np.mgrid[0 : 2 * np.pi : 25j, 0 : np.pi : 13j]
    axes.plot_wireframe(
        np.cos(u) * np.sin(v), np.sin(u) * np.sin(v), np.cos(v), color=LIGHT, lw=0.4
    )
    for pair, points, color, name in zip(
        ends, arcs, (BLUE, ORANGE), ("class A", "class B"), strict=True
    ):
        axes.plot(
            *points.T.numpy(), color=color, lw=2, label=f"{name}: a positive pair and its arc"
        )
        axes.scatter(*pair.T.numpy(), color=color, s=30)
    between = torch.stack([ends[0][one], ends[1][other]])
    axes.plot(
        *between.T.numpy(),
        color=GREY,
        linestyle=":",
        label=f"nearest samples, {float(samples.min()):.2f}",
    )
    points = torch.stack([arcs[0][nearest[0]], arcs[1][nearest[1]]])
    axes.plot(
        *points.T.numpy(), color="black", marker="o", ms=4, label=f"nearest points, {exact:.2f}"
    )
    axes.view_init(elev=28, azim=38)
    axes.set_box_aspect((1, 1, 1), zoom=1.35)
    axes.set_axis_off()
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
    return figure


def anml_linear() -> Figure:
    """The log-exp mean between maximum and minimum; held-out digits by PCA and by LANML."""
    figure = Figure(figsize=(7.6, 2.7))
    left, middle, right = figure.subplots(1, 3)
    values = torch.tensor([[0.4, 0.7, 0.9, 1.2, 1.4, 2.6]])
    kept = torch.ones_like(values, dtype=torch.bool)
    gammas = np.linspace(-12, 12, 241)
    left.plot(
        gammas, [float(log_exp_mean(values, kept, float(gamma))) for gamma in gammas], color=BLUE
    )
    for value in values[0].tolist():
        left.axhline(value, color=LIGHT, lw=0.8)
    left.set(xlabel="γ", ylabel="radius b(γ)", title="Farthest … mean … nearest")

    features, labels = load_digits(n_class=6, return_X_y=True)
    train, test, of_train, of_test = train_test_split(
        features, labels, test_size=0.5, random_state=0, stratify=labels
    )
    train, test = train / 16, test / 16
    for axes, maker, name in (
        (middle, PCA(2), "PCA"),
        (right, LANML(n_components=2), "LANML"),
    ):
        maker.fit(train, of_train)
        moved = maker.transform(test)
        right_share = (
            KNeighborsClassifier(3).fit(maker.transform(train), of_train).score(moved, of_test)
        )
        for label, color in enumerate((BLUE, ORANGE, GREEN, "#CC79A7", "#E69F00", "#56B4E9")):
            axes.scatter(*moved[of_test == label].T, s=6, color=color)
        axes.set(xticks=[], yticks=[], title=f"{name} to 2-D: 3-NN {100 * right_share:.0f} %")
    return figure


def anml_deep() -> Figure:
    """The two radii of an anchor: hardest samples alone, and soft means."""
    rng = np.random.default_rng(3)
    positives = np.concatenate([rng.normal([0.5, 0.3], 0.28, (7, 2)), [[-1.9, 1.15]]])
    negatives = np.concatenate(
        [
            rng.normal([1.9, -1.2], 0.45, (7, 2)),
            rng.normal([-1.7, -1.4], 0.4, (6, 2)),
            [[0.1, -0.75]],
        ]
    )
    figure = Figure(figsize=(7.2, 3.0))
    left, right = figure.subplots(1, 2)

    def radius(points: np.ndarray, gamma: float) -> float:
        distances = torch.from_numpy(np.linalg.norm(points, axis=1))[None]
        return float(log_exp_mean(distances, torch.ones_like(distances, dtype=torch.bool), gamma))

    settings = (
        (left, -200.0, 200.0, "Hardest alone: γ₁ = −∞, γ₂ = ∞"),
        (right, -1.0, 3.0, "Adaptive: γ₁ = −1, γ₂ = 3"),
    )
    for axes, of_similar, of_dissimilar, title in settings:
        similar, dissimilar = radius(positives, of_similar), radius(negatives, of_dissimilar)
        axes.add_patch(Circle((0, 0), similar, color=BLUE, alpha=0.15, lw=0))
        axes.add_patch(Circle((0, 0), dissimilar, fill=False, color=ORANGE, linestyle="--"))
        axes.scatter(*positives.T, s=18, color=BLUE, label="positives; radius $r$ filled")
        axes.scatter(
            *negatives.T, s=18, color=ORANGE, marker="s", label="negatives; radius $R$ dashed"
        )
        axes.scatter(0, 0, marker="*", s=110, color="black", label="anchor")
        axes.set(aspect="equal", xticks=[], yticks=[], xlim=(-2.9, 2.9), ylim=(-2.4, 2.4))
        axes.set_title(f"{title}\n$r - R$ = {similar - dissimilar:+.2f}")
        axes.spines[:].set_visible(False)
    figure.legend(
        *left.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8
    )
    return figure


def facenet() -> Figure:
    """Hard, semi-hard and easy negatives of one pair."""
    torch.manual_seed(1)
    anchor, positive, margin = torch.zeros(2), torch.tensor([0.55, 0.35]), 0.4
    negatives = torch.randn(60, 2) * 0.75
    rows, labels = (
        torch.cat([anchor[None], positive[None], negatives]),
        torch.tensor([0, 0, *range(1, 61)]),
    )
    mined = semi_hard(rows, labels, margin, rule="all", normalize=False)
    chosen = torch.zeros(len(rows), dtype=torch.bool)
    chosen[mined.negative[mined.anchor == 0]] = True
    distances = negatives.square().sum(dim=1)
    inner = float(positive.square().sum())
    figure = Figure(figsize=(7.2, 3.0))
    axes = figure.subplots()
    axes.add_patch(Circle((0, 0), (inner + margin) ** 0.5, color=ORANGE, alpha=0.18, lw=0))
    axes.add_patch(Circle((0, 0), inner**0.5, color="white", lw=0))
    axes.add_patch(Circle((0, 0), inner**0.5, fill=False, color=BLUE, lw=1, linestyle=":"))
    groups = (
        (chosen[2:], ORANGE, 34, "semi-hard: within the margin"),
        (distances <= inner, "#8B1A1A", 22, "hard: nearer than the positive"),
        ((distances > inner) & ~chosen[2:], LIGHT, 22, "easy: beyond the margin, no loss"),
    )
    for mask, color, size, name in groups:
        axes.scatter(*negatives[mask].T, s=size, color=color, label=f"{name} ({int(mask.sum())})")
    axes.scatter(*anchor, marker="*", s=120, color="black", label="anchor", zorder=3)
    axes.scatter(*positive, s=50, color=BLUE, label="positive", zorder=3)
    axes.set(aspect="equal", xticks=[], yticks=[], xlim=(-1.9, 1.9), ylim=(-1.5, 1.5))
    axes.spines[:].set_visible(False)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
    return figure


def in_defense() -> Figure:
    """The distances of a PK batch with each anchor's hardest pair, and all terms beside the hardest
    ones."""
    digits = load_digits()
    sampler = PKSampler(digits.target, classes=4, per_class=4, seed=2)
    rows = sampler.epoch(0)[0]
    inputs, labels = (
        torch.tensor(digits.data[rows], dtype=torch.float32),
        torch.tensor(digits.target[rows]),
    )
    distances = pairwise_distances(inputs / inputs.norm(dim=1).mean(), squared=False)
    same = labels[:, None] == labels
    positive = distances.masked_fill(~same, -1).argmax(dim=1)
    negative = distances.masked_fill(same, torch.inf).argmin(dim=1)
    figure = Figure(figsize=(7.2, 3.0))
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.25))
    left.imshow(distances.numpy(), cmap="Greys")
    anchors = torch.arange(len(rows))
    left.scatter(
        positive,
        anchors,
        s=26,
        facecolors="none",
        edgecolors=BLUE,
        linewidths=1.6,
        label="farthest positive",
    )
    left.scatter(
        negative,
        anchors,
        s=26,
        marker="s",
        facecolors="none",
        edgecolors=ORANGE,
        linewidths=1.6,
        label="nearest negative",
    )
    ticks = [4 * place + 1.5 for place in range(4)]
    left.set_xticks(ticks, [f"“{labels[4 * place]}”" for place in range(4)])
    left.set_yticks(ticks, [f"“{labels[4 * place]}”" for place in range(4)])
    left.set_title("Distances of P = 4 classes x K = 4")
    left.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2, fontsize=8)

    apart = ~torch.eye(len(rows), dtype=torch.bool)
    terms = torch.stack(
        [
            distances[a, p] - distances[a, n]
            for a in range(len(rows))
            for p in torch.nonzero(same[a] & apart[a]).flatten()
            for n in torch.nonzero(~same[a]).flatten()
        ]
    )
    hardest = distances[anchors, positive] - distances[anchors, negative]
    bins = np.linspace(float(terms.min()), float(hardest.max()) + 0.05, 30)
    right.hist(terms, bins, color=LIGHT, label=f"batch all: {len(terms)} triplets")
    right.hist(hardest, bins, color=ORANGE, label=f"batch hard: {len(hardest)} triplets")
    right.axvline(-0.2, color="black", lw=0.8, linestyle=":")
    right.text(
        -0.22,
        right.get_ylim()[1] * 0.99,
        "beyond the\nmargin: no loss",
        ha="right",
        va="top",
        fontsize=8,
    )
    right.set(xlabel="$D(a, p) - D(a, n)$", ylabel="triplets", title="Which triplets are used")
    right.legend(fontsize=8, loc="upper left", bbox_to_anchor=(0.55, 1.0))
    return figure


def when_hardness_helps() -> Figure:
    """What HDML gains against how its baseline fares, for every pair, seed and step of the learning
    curves."""
    runs = defaultdict(dict)
    for line in CURVES.read_text(encoding="utf-8").splitlines():
        run = json.loads(line)
        on_features = run["data"].endswith(".npz")
        if (on_features or run["data"] in ("cub", "cub_288", "cub_384", "cars_288")) and not run[
            "hold_out"
        ]:
            scores = [100 * run[part]["recall@1"] for part in ("test", "train")]
            name = run["run"] + ", features" * on_features
            runs[run["data"], name, run["seed"]][run["step"]] = scores
    pairs = {
        "N-pair, authors": (ORANGE, "o"),
        "triplet, authors": (GREEN, "s"),
        "N-pair": (BLUE, "^"),
        "N-pair, features": (PURPLE, "v"),
        "multi-similarity": (GREY, "D"),
    }
    settings = {"authors": "authors’ setting", "features": "features", "": "our setting"}
    figure = Figure(figsize=(7.2, 3.5))
    overfit, level = figure.subplots(1, 2, sharey=True)
    for baseline, (color, marker) in pairs.items():
        name, _, setting = baseline.partition(", ")
        method = f"{name} + HDML" + (f", {setting}" if setting else "")
        found = []
        for (data, run, seed), steps in runs.items():
            other = runs.get((data, method, seed), {})
            for step, (test, train) in steps.items():
                if run == baseline and step and step in other:
                    start = steps[0]
                    gain = other[step][0] - test
                    found.append((train - test - (start[1] - start[0]), test - start[0], gain))
        gaps, levels, gains = zip(*found, strict=True)
        shown = {"color": color, "marker": marker, "s": 16, "alpha": 0.75, "linewidths": 0}
        overfit.scatter(gaps, gains, **shown, label=f"{name}, {settings[setting]}")
        level.scatter(levels, gains, **shown)
    overfit.set(
        xlabel="gap of the baseline, train minus test,\nsince it was untrained",
        ylabel="HDML minus baseline",
    )
    level.set(xlabel="baseline minus untrained network,\ntest classes")
    for axes in (overfit, level):
        axes.axhline(0, color=LIGHT, lw=0.8, zorder=0)
        axes.axvline(0, color=LIGHT, lw=0.8, zorder=0)
    figure.legend(
        *overfit.get_legend_handles_labels(), fontsize=8, loc="outside lower center", ncols=3
    )
    figure.suptitle("Recall@1, points; a mark is a seed at a step", fontsize=9)
    return figure


def which_loss() -> Figure:
    """MAP@R of every loss at equal tuning, as a head on features and as a whole network."""

    def scores(data: str) -> dict[str, float]:
        found = defaultdict(list)
        path = CURVES.with_name(f"losses-{data}-tuned.jsonl")
        for line in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
            found[line["row"].partition(" (")[0]].append(100 * line["metrics"]["map@r"])
        return {name: float(np.mean(values)) for name, values in found.items()}

    heads = scores("cub_features")
    whole = scores("cub_packed")
    figure = Figure(figsize=(7.2, 3.4))
    axes = figure.subplots()
    named = {
        **dict.fromkeys(("ranked_list", "margin"), BLUE),
        **dict.fromkeys(("proxy_anchor", "triplet", "n_pair", "instance", "cosface"), GREY),
        "multi_similarity": ORANGE,
        "untrained": "black",
    }
    for name in sorted(heads.keys() & whole.keys() - {"PCA", "whitened PCA"}):
        place = whole[name], heads[name]
        color = named.get(name, LIGHT)
        axes.scatter(*place, s=22, color=color, zorder=2 + (color != LIGHT))
        if name in named:
            text = "multi_similarity (default)" if color == ORANGE else name
            beside = (4, -9 if color == ORANGE else 3)
            axes.annotate(text, place, beside, textcoords="offset points", fontsize=7, color=color)
    axes.axhline(heads["untrained"], color=LIGHT, lw=0.8, zorder=0)
    axes.axvline(whole["untrained"], color=LIGHT, lw=0.8, zorder=0)
    axes.set(
        xlim=(13, 24),
        xlabel="MAP@R of networks trained on photographs (two losses lie further left)",
        ylabel="MAP@R of heads on features",
        title="CUB-200, test classes: each dot a loss, two trials of settings, three seeds",
    )
    return figure


DRAWN: dict[str, Callable[[], Figure]] = {
    drawing.__name__: drawing
    for drawing in (
        hdml,
        ala,
        htl,
        her,
        loop,
        anml_linear,
        anml_deep,
        facenet,
        in_defense,
        when_hardness_helps,
        which_loss,
    )
}


def draw(name: str, folder: Path = FIGURES) -> Path:
    """Write the figure of this name and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.svg"
    with mpl.rc_context(STYLE):
        DRAWN[name]().savefig(path, metadata={"Date": None}, facecolor="white")
    return path


if __name__ == "__main__":
    for name in sys.argv[1:] or DRAWN:
        path = draw(name)
        sys.stdout.write(f"{path.relative_to(ROOT)}: {path.stat().st_size // 1024} KiB\n")

"""vicinal's default beside what users of other libraries run: equal trunk, photographs and epochs.

    python experiments/peers.py DATA OUT.jsonl --together 8 --deadline 1500
    python experiments/peers.py DATA OUT.jsonl --only "cub, Proxy-Anchor, seed 0" --limit 3
    python experiments/peers.py --table OUT.jsonl

``DATA`` holds ``cub``, ``cars`` and ``omniglot``; what is not there is left out. Each job (a set, a
row and a seed) is a process of its own and adds a line to OUT when it has ended; jobs that have a
line are not run again, a deadline cuts off the last seeds. Peers need pytorch-metric-learning 2.9.
Decoded images are kept beside OUT, for all jobs. With CUDA's Multi-Process Service
(``nvidia-cuda-mps-control -d``) eight jobs side by side share an H200; each then takes a minute.

Peers are plain loops with the losses, miners and samplers of pytorch-metric-learning. They train on
all training classes and are measured eight times on the test classes, of which the best counts, by
each score apart. vicinal holds a fifth of the training classes out and chooses its step by them.
All see the central square of a picture. What the recipes leave open is as in vicinal's default.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pytorch_metric_learning import distances, losses, miners, reducers, samplers
from scipy.stats import t as student
from torch import Tensor, nn
from torch.nn import functional

from vicinal.api import train as vicinal_train
from vicinal.bench import results
from vicinal.config import compose
from vicinal.data import ImageTransform, Omniglot, open_path
from vicinal.data.loader import Loader, keep_decoded, open_cache
from vicinal.data.records import Dataset, Records
from vicinal.evaluation.encoder import Encoder
from vicinal.evaluation.measure import measure
from vicinal.files import read_lines
from vicinal.models import ModelConfig
from vicinal.models.embedder import Embedder
from vicinal.training.run import commit, hardware

SEEDS = 5
LOOKS = 8
METRICS = {"recall@1": "R@1", "map@r": "MAP@R"}
PRESETS = {"cub": "images", "cars": "images", "omniglot": "omniglot"}
LITE = {"name": "efficientnet_lite0", "weights": "imagenet", "freeze_norm": False}
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


# -- what the peers minimize ----------------------------------------------------------------------


class Mined(nn.Module):
    """A loss over what a miner of pytorch-metric-learning finds in the batch."""

    def __init__(self, loss: nn.Module, miner: nn.Module) -> None:
        super().__init__()
        self.loss = loss
        self.miner = miner

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        found: Tensor = self.loss(embeddings, labels, self.miner(embeddings, labels))
        return found


def soft_triplets() -> nn.Module:
    """log(1 + exp(d_ap - d_an)) over all triplets, on lengths as they are."""
    return losses.TripletMarginLoss(
        margin=0.0,
        smooth_loss=True,
        distance=distances.LpDistance(normalize_embeddings=False),
        reducer=reducers.MeanReducer(),
    )


class Remembered(nn.Module):
    """The soft triplet loss of open-metric-learning's CUB configuration: all triplets of the batch,
    as many with a random negative from the last 50 batches, and as many with anchor and positive
    from there."""

    batches = 50

    def __init__(self) -> None:
        super().__init__()
        self.inside = soft_triplets()
        self.bank = list[tuple[Tensor, Tensor]]()

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        loss: Tensor = self.inside(embeddings, labels)
        same = labels[:, None] == labels
        count = int((same.sum(1) * (~same).sum(1)).sum())
        if self.bank:
            kept, named = (torch.cat(part) for part in zip(*self.bank, strict=True))
            outer = _triplets(embeddings, labels, kept, named, count)
            inner = _triplets(kept, named, embeddings, labels, count)
            loss = (loss + outer.mean() + inner.mean()) / 3
        self.bank = [*self.bank, (embeddings.detach(), labels)][-self.batches :]
        return loss


def _triplets(pairs: Tensor, labels: Tensor, others: Tensor, named: Tensor, count: int) -> Tensor:
    """Soft triplets with random anchors and positives of the one, random negatives of the other."""
    anchors = torch.randint(len(pairs), (count,), device=pairs.device)
    alike = labels[anchors, None] == labels
    alike[torch.arange(count, device=pairs.device), anchors] = False
    positives = alike.float().multinomial(1).squeeze(1)
    negatives = torch.randint(len(others), (count,), device=pairs.device)
    right = labels[anchors] != named[negatives]
    near = functional.pairwise_distance(pairs[anchors], pairs[positives])
    far = functional.pairwise_distance(pairs[anchors], others[negatives])
    return functional.softplus(near - far)[right]


# -- their recipes --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Peer:
    """A recipe.

    Attributes:
        objective: the loss, for so many classes and dimensions.
        batch: pictures of a batch.
        per_class: of these of a class; None draws them at random.
        rate: of the network.
        head_rate, loss_rate: of the head and of the loss's proxies.
        dim: of the head; None takes the network's feature.
        normalize: whether embeddings are measured on the unit sphere.
        freeze_norm: whether batch norm keeps its statistics.
        warm_up: epochs in which head and proxies train alone.
        clip: of each gradient's value.
        views: of each picture in a batch.
    """

    objective: Callable[[int, int], nn.Module]
    batch: int = 64
    per_class: int | None = 4
    rate: float = 2e-5
    head_rate: float = 2e-4
    loss_rate: float = 1e-2
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    decay: float = 0.0
    dim: int | None = None
    head: Literal["linear", "mlp"] = "linear"
    pooling: Literal["average", "both"] = "average"
    normalize: bool = True
    freeze_norm: bool = True
    warm_up: int = 0
    clip: float | None = None
    views: int = 1

    def on(self, data: str) -> "Peer":
        """On drawings the network begins at random, and trains at the preset's rate."""
        if data != "omniglot":
            return self
        rate = self.rate if self.optimizer == "sgd" else 1e-3
        dim = self.dim and 64
        return replace(self, rate=rate, head_rate=rate, dim=dim, freeze_norm=False, warm_up=0)


def _multi_similarity(classes: int, dim: int) -> nn.Module:
    return Mined(losses.MultiSimilarityLoss(2, 50, 0.5), miners.MultiSimilarityMiner(0.1))


# github.com/OML-Team/open-metric-learning, pipelines/features_extraction/extractor_cub and _cars,
# train_*.yaml: soft triplets, Adam 1e-5, no schedule, features that are not normalized.
_OML = Peer(lambda *_: soft_triplets(), rate=1e-5, normalize=False, freeze_norm=False)
_OML_CARS = replace(_OML, batch=200, per_class=10)
_OML_CUB = replace(_OML, objective=lambda *_: Remembered(), batch=32)
PEERS: dict[str, Callable[[str], Peer]] = {
    # examples/notebooks/MetricLossOnly.ipynb; its pictures have 64 pixels
    "MetricLossOnly notebook": lambda _: Peer(
        lambda *_: Mined(losses.TripletMarginLoss(0.1), miners.MultiSimilarityMiner(0.1)),
        batch=32,
        rate=1e-5,
        head_rate=1e-4,
        decay=1e-4,
        dim=64,
        freeze_norm=False,
    ),
    "multi-similarity + miner": lambda _: Peer(_multi_similarity),
    "multi-similarity + miner, head": lambda _: Peer(_multi_similarity, dim=512),
    # tjddus9597/Proxy-Anchor-CVPR2020, README.md; its rate would fall first after these epochs
    "Proxy-Anchor": lambda _: Peer(
        losses.ProxyAnchorLoss,
        batch=180,
        per_class=None,
        rate=1e-4,
        head_rate=1e-4,
        optimizer="adamw",
        decay=1e-4,
        dim=512,
        pooling="both",
        warm_up=1,
        clip=10.0,
    ),
    # HobbitLong/SupContrast, main_supcon.py; its rate, 0.05, is for 256 pictures. The head is
    # thrown away. Colors are not changed: they tell birds apart.
    "SupCon": lambda _: Peer(
        lambda *_: losses.SupConLoss(0.1),
        batch=128,
        per_class=None,
        rate=0.025,
        head_rate=0.025,
        optimizer="sgd",
        decay=1e-4,
        dim=128,
        head="mlp",
        freeze_norm=False,
        views=2,
    ),
    "open-metric-learning": lambda data: _OML_CUB if data == "cub" else _OML_CARS,
    "batch-hard": lambda _: Peer(
        lambda *_: Mined(losses.TripletMarginLoss(0.1), miners.BatchHardMiner()), rate=1e-5
    ),
}
OURS = {"vicinal": 0.2, "vicinal, all classes": 0.0}  # rows: the share of classes held out


# -- training -------------------------------------------------------------------------------------


def train_peer(peer: Peer, preset: str, data: Dataset, seed: int) -> list[list[Any]]:
    """Train; return step, R@1 and MAP@R on the test classes of each look."""
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002  (the sampler's)
    slots = compose({"preset": preset, "data": data})
    epochs = 1 if isinstance(data, Few) else slots.training.epochs
    records = data.load()
    crops = {"size": 224, "resize": 256, "canvas": 256, "area": (0.08, 1.0), "test_size": None}
    shown: ImageTransform = slots.transform
    model = {"name": "small", "arguments": slots.model.arguments, "weights": "none"}
    if preset == "images":
        shown = replace(shown, **crops)
        model = LITE
    keep_decoded(records, shown, DEVICE, cache=open_cache(None))
    train = records.part("train")
    classes, numbers = np.unique(train.labels, return_inverse=True)
    numbered = torch.from_numpy(numbers).to(DEVICE)
    own = {"pooling": peer.pooling, "dim": peer.dim, "normalize": peer.normalize}
    head = "none" if peer.dim is None else peer.head
    config = ModelConfig(**model, **own, head=head, start="random")
    embedder = config.build(channels=shown.channels, size=shown.size)
    embedder.to(DEVICE, memory_format=torch.channels_last)
    embedder.accelerate(torch.bfloat16 if DEVICE.type == "cuda" else None)
    objective = peer.objective(len(classes), peer.dim or embedder.width).to(DEVICE)
    steps = [rows for _ in range(epochs) for rows in _batches(peer, numbers)]
    looks = {round(len(steps) * look / LOOKS) for look in range(LOOKS + 1)}
    optimizer = _optimizer(peer, embedder, objective)
    falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, len(steps))
    loader = Loader(train, shown, seed=seed, device=DEVICE)
    curve = [[0, *_test(peer, embedder, shown, records)]]
    for step, rows in enumerate(steps, 1):
        _train_mode(peer, embedder)
        embedder.backbone.requires_grad_(step > peer.warm_up * len(steps) / epochs)
        views = [
            next(loader.batches([rows], peer.views * step + view)) for view in range(peer.views)
        ]
        inputs = torch.cat([view.inputs for view in views])
        labels = numbered[torch.cat([view.indices for view in views])]
        loss = objective(embedder.embed(embedder.features(inputs)), labels)
        optimizer.zero_grad()
        loss.backward()
        if peer.clip is not None:
            nn.utils.clip_grad_value_(embedder.parameters(), peer.clip)
        optimizer.step()
        if peer.optimizer == "sgd":
            falling.step()
        if step in looks:
            curve.append([step, *_test(peer, embedder, shown, records)])
    return curve


def _batches(peer: Peer, labels: np.ndarray) -> Iterator[list[int]]:
    """The batches of an epoch."""
    batch = min(peer.batch, len(labels))
    rows = torch.randperm(len(labels)).tolist()
    if peer.per_class is not None:
        batch = min(batch, peer.per_class * len(np.unique(labels)))
        rows = [*samplers.MPerClassSampler(labels, peer.per_class, batch, len(labels))]
    return (rows[first : first + batch] for first in range(0, len(rows) - batch + 1, batch))


def _optimizer(peer: Peer, embedder: Embedder, objective: nn.Module) -> torch.optim.Optimizer:
    parts = (embedder.backbone, embedder.head, objective)
    rates = (peer.rate, peer.head_rate, peer.loss_rate)
    groups = [
        {"params": [*part.parameters()], "lr": rate}
        for part, rate in zip(parts, rates, strict=True)
        if [*part.parameters()]
    ]
    if peer.optimizer == "sgd":
        return torch.optim.SGD(groups, momentum=0.9, weight_decay=peer.decay)
    kind = torch.optim.Adam if peer.optimizer == "adam" else torch.optim.AdamW
    return kind(groups, weight_decay=peer.decay)


def _train_mode(peer: Peer, embedder: Embedder) -> None:
    embedder.train()
    for module in embedder.backbone.modules():
        if peer.freeze_norm and isinstance(module, nn.BatchNorm2d):
            module.eval()


def _test(peer: Peer, embedder: Embedder, shown: ImageTransform, records: Records) -> list[float]:
    """R@1 and MAP@R on the test classes; of an MLP head's network those of its feature."""
    dropped = peer.head == "mlp"
    found = Encoder(embedder, shown, DEVICE).embed(records.part("test"), features=dropped)
    if dropped:
        found = replace(found, vectors=functional.normalize(found.vectors))
    scores = measure(found, recalls=(1,), clustering=False)
    return [round(scores[metric], 5) for metric in METRICS]


@dataclass
class Few:
    """The first training and test classes of a data set, to try all this."""

    data: Dataset
    classes: int
    kind: str = "images"

    def load(self) -> Records:
        records = self.data.load()
        first = [np.unique(records.part(part).labels)[: self.classes] for part in ("train", "test")]
        return records.take(np.flatnonzero(np.isin(records.labels, np.concatenate(first))))


def train_ours(preset: str, data: Dataset, seed: int, hold_out: float) -> dict[str, list[float]]:
    """Train by default; return the test scores of its rows: untrained, head start, trained."""
    length = {"epochs": 1} if isinstance(data, Few) else {}
    with tempfile.TemporaryDirectory() as folder:
        run = vicinal_train(
            data,
            preset=preset,
            run=Path(folder, "run"),
            training={"seed": seed, "validation": hold_out, **length},
            evaluation={"artifacts": False, "restarts": 1},
            quiet=True,
        )
        return {row: [scores[metric] for metric in METRICS] for row, scores in run.results.items()}


# -- jobs -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    data: str
    row: str
    seed: int

    def __str__(self) -> str:
        return f"{self.data}, {self.row}, seed {self.seed}"

    def run(self, data: Path, limit: int | None) -> results.Line:
        """Train and measure; the line of the results."""
        began = time.monotonic()
        place = data / self.data
        found = Omniglot(str(place), size=28) if self.data == "omniglot" else open_path(str(place))
        found = Few(found, limit) if limit else found
        preset = PRESETS[self.data]
        line: results.Line = {"set": self.data, "row": self.row, "seed": self.seed}
        if self.row in OURS:
            rows = train_ours(preset, found, self.seed, OURS[self.row])
            line |= {"rows": rows, "last": rows["trained"], "best": rows["trained"]}
        else:
            peer = PEERS[self.row](self.data).on(self.data)
            curve = train_peer(peer, preset, found, self.seed)
            best = [max(look[score] for look in curve) for score in (1, 2)]
            line |= {"steps": curve[-1][0], "curve": curve, "last": curve[-1][1:], "best": best}
        seconds = round(time.monotonic() - began, 1)
        return line | {"seconds": seconds, "commit": commit(), "hardware": hardware(DEVICE)}


JOBS = [
    Job(data, row, seed) for seed in range(SEEDS) for row in (*OURS, *PEERS) for data in PRESETS
]


def run_all(options: argparse.Namespace) -> None:
    """Run the jobs that have no line yet, so many at a time, until time is up."""
    began = time.monotonic()
    out: Path = options.out
    logs = out.with_suffix("")
    logs.mkdir(parents=True, exist_ok=True)
    done = {(line["set"], line["row"], line["seed"]) for line in read_lines(out)}
    waiting = [
        job
        for job in JOBS
        if (job.data, job.row, job.seed) not in done
        and re.search(options.only, str(job))
        and (options.data / job.data).exists()
    ]
    environment = {"OMP_NUM_THREADS": "2", "VICINAL_CACHE": str(logs / "cache"), **os.environ}
    going = dict[subprocess.Popen[bytes], Job]()
    while (waiting or going) and time.monotonic() - began < options.deadline:
        while waiting and len(going) < options.together:
            job = waiting.pop(0)
            command = [sys.executable, __file__, str(options.data), str(out), "--one", str(job)]
            command += ["--limit", str(options.limit)] if options.limit else []
            with (logs / f"{job}.log").open("wb") as log:
                going[subprocess.Popen(command, stdout=log, stderr=log, env=environment)] = job
        time.sleep(0.2)
        for process in [process for process in going if process.poll() is not None]:
            job = going.pop(process)
            said = "failed, see its log in" if process.returncode else "ended,"
            print(f"{time.monotonic() - began:5.0f} s  {job}: {said} {logs}", flush=True)
    for process in going:
        process.kill()
    print(f"{len(going)} jobs were cut off, {len(waiting)} not begun")


def table(lines: list[results.Line]) -> Iterator[str]:
    """For each set the best test scores of a row, means and spreads over its seeds, and what
    vicinal's Recall@1 is above them, paired by seed, with Student's interval of 95 %."""
    ours = [line for line in lines if line["row"] == "vicinal"]
    rows = [(line, line["rows"]) for line in ours]
    starts = [
        {**line, "row": "start", "best": of.get("head start", of["untrained"])} for line, of in rows
    ]
    found: dict[tuple[str, str], dict[int, list[float]]] = {}
    for line in [*starts, *lines]:
        scores = [100 * score for score in line["best"]]
        found.setdefault((line["row"], line["set"]), {})[line["seed"]] = scores
    titles = (f"{data}: R@1 / MAP@R | default minus it" for data in PRESETS)
    yield f"| | {' | '.join(titles)} |"
    yield "|---|" + "---|---|" * len(PRESETS)
    for row in dict.fromkeys(row for row, _ in found):
        cells = [row]
        for data in PRESETS:
            of = found.get((row, data), {})
            ours = found.get(("vicinal", data), {})
            columns = zip(*of.values(), strict=True)
            recall, *rest = [*columns] or [()]
            cells.append(
                " / ".join([_spread(recall), *(f"{statistics.mean(x):.1f}" for x in rest)])
            )
            apart = [ours[seed][0] - scores[0] for seed, scores in of.items() if seed in ours]
            cells.append("" if row == "vicinal" or not apart else _interval(apart))
        yield f"| {' | '.join(cells)} |"


def _spread(values: Sequence[float]) -> str:
    if not values:
        return ""
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{spread}"


def _interval(values: list[float]) -> str:
    mean = f"{statistics.mean(values):+.1f}"
    if len(values) == 1:
        return mean
    error = statistics.stdev(values) / len(values) ** 0.5
    return f"{mean} ± {student.ppf(0.975, len(values) - 1) * error:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("out", type=Path)
    parser.add_argument("--together", type=int, default=8, help="jobs at a time")
    parser.add_argument("--deadline", type=float, default=float("inf"), help="seconds for all")
    parser.add_argument("--only", default="", help="jobs whose name this expression finds")
    parser.add_argument("--limit", type=int, help="so many classes and one epoch, to try it")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--table", action="store_true", help="print the table of OUT")
    options = parser.parse_args()
    if options.table:
        print("\n".join(table([*read_lines(options.out)])))
    elif options.one:
        job = next(job for job in JOBS if str(job) == options.one)
        results.append(options.out, job.run(options.data, options.limit))
    else:
        run_all(options)


if __name__ == "__main__":
    main()

"""What a program for pytorch-metric-learning has besides a loss: miners, samplers, testers,
accuracies, by its names.

Miners that draw take torch's global generator, as the package's do; samplers are functions of a
seed.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.utils.data import DataLoader, Sampler

from vicinal import miners
from vicinal.compat.pml import MinerForPML
from vicinal.compat.pml_parts import AnyDistance, LpDistance, Number
from vicinal.errors import ConfigError, unknown
from vicinal.evaluation import evaluate
from vicinal.samplers import BatchSampler, FixedTripletSampler, PKSampler
from vicinal.samplers import HierarchicalSampler as Categories
from vicinal.tuples import Triplets

METRICS = {  # by the package's names
    "AMI": "ami",
    "NMI": "nmi",
    "mean_average_precision_at_r": "map@r",
    "precision_at_1": "recall@1",
    "r_precision": "r_precision",
}


def TripletMarginMiner(
    margin: Number = 0.2, type_of_triplets: str = "all", distance: AnyDistance = None
) -> MinerForPML:
    """Triplets by margin."""
    kinds: dict[str, Any] = {"all": "all", "hard": "hard", "semihard": "semi_hard", "easy": "easy"}
    if type_of_triplets not in kinds:
        raise ConfigError(unknown("type_of_triplets", type_of_triplets, kinds))
    chosen = {
        "margin": float(margin),
        "kind": kinds[type_of_triplets],
        "distance": distance or LpDistance(),
    }
    return MinerForPML(partial(miners.triplet_margin, **chosen))


def AngularMiner(angle: Number = 20.0) -> MinerForPML:
    """Triplets by angle; as in the package, of embeddings as they are."""
    return MinerForPML(partial(miners.angular, angle=float(angle), normalize=False))


def PairMarginMiner(
    pos_margin: Number = 0.2, neg_margin: Number = 0.8, distance: AnyDistance = None
) -> MinerForPML:
    """Pairs by margins."""
    chosen: dict[str, Any] = {
        "positive_margin": float(pos_margin),
        "negative_margin": float(neg_margin),
    }
    return MinerForPML(partial(miners.pair_margin, **chosen, distance=distance or LpDistance()))


def BatchEasyHardMiner(
    pos_strategy: str = "easy",
    neg_strategy: str = "semihard",
    allowed_pos_range: Sequence[Number] | None = None,
    allowed_neg_range: Sequence[Number] | None = None,
    distance: AnyDistance = None,
) -> MinerForPML:
    """Pairs by rank."""
    chosen: dict[str, Any] = {
        "positive": pos_strategy.replace("semihard", "semi_hard"),
        "negative": neg_strategy.replace("semihard", "semi_hard"),
        "positive_range": None
        if allowed_pos_range is None
        else tuple(map(float, allowed_pos_range)),
        "negative_range": None
        if allowed_neg_range is None
        else tuple(map(float, allowed_neg_range)),
    }
    return MinerForPML(partial(miners.batch_easy_hard, **chosen, distance=distance or LpDistance()))


def BatchHardMiner(distance: AnyDistance = None) -> MinerForPML:
    """The farthest positive and nearest negative of each anchor, as triplets."""

    def mine(embeddings: Tensor, labels: Tensor, **among: Any) -> Triplets:
        pairs = miners.batch_easy_hard(
            embeddings,
            labels,
            positive="hard",
            negative="hard",
            distance=distance or LpDistance(),
            **among,
        )
        return Triplets(*pairs.positive, pairs.negative.other)

    return MinerForPML(mine)


def MultiSimilarityMiner(epsilon: Number = 0.1) -> MinerForPML:
    """The pairs that the multi-similarity loss should see, by cosine similarity."""
    return MinerForPML(partial(miners.multi_similarity, epsilon=float(epsilon)))


def DistanceWeightedMiner(cutoff: Number = 0.5, nonzero_loss_cutoff: Number = 1.4) -> MinerForPML:
    """Triplets with negatives drawn by distance."""
    chosen: dict[str, Any] = {"cutoff": float(cutoff), "farthest": float(nonzero_loss_cutoff)}
    return MinerForPML(
        partial(miners.distance_weighted, **chosen, generator=torch.default_generator)
    )


def UniformHistogramMiner(
    num_bins: int = 100, pos_per_bin: int = 10, neg_per_bin: int = 10, distance: AnyDistance = None
) -> MinerForPML:
    """Pairs drawn evenly over their distances, none twice."""
    chosen: dict[str, Any] = {
        "bins": num_bins,
        "positives_per_bin": pos_per_bin,
        "negatives_per_bin": neg_per_bin,
    }
    drawing = partial(miners.uniform_histogram, generator=torch.default_generator)
    return MinerForPML(partial(drawing, **chosen, distance=distance or LpDistance()))


def EmbeddingsAlreadyPackagedAsTriplets() -> MinerForPML:
    """Rows 3t, 3t + 1 and 3t + 2 as triplet t."""

    def mine(embeddings: Tensor, labels: Tensor, **among: Any) -> Triplets:
        return Triplets(*torch.arange(len(embeddings), device=embeddings.device).view(-1, 3).T)

    return MinerForPML(mine)


class _Flat(Sampler[int]):
    """The rows of a sampler of ours one after the other, for ``DataLoader(sampler=...)``."""

    def __init__(self, batches: BatchSampler, groups: int = 1) -> None:
        self.batches, self.groups = batches, groups

    def __iter__(self) -> Iterator[int]:
        """Go through the next epoch; blocks ``[a; p; n]`` become ``a, p, n, a, p, n, ...``."""
        for batch in self.batches:
            yield from np.reshape(batch, (self.groups, -1)).T.ravel().tolist()

    def __len__(self) -> int:
        return len(self.batches) * self.batches.batch_size


def MPerClassSampler(
    labels: Any, m: int, batch_size: int | None = None, length_before_new_iter: int = 100000
) -> Sampler[int]:
    """``m`` samples of each class in a batch; classes with fewer are left out."""
    labels = np.asarray(labels)
    rows = m * len(np.unique(labels)) if batch_size is None else batch_size
    batches = max(1, length_before_new_iter // rows)
    return _Flat(PKSampler(labels, classes=rows // m, per_class=m, seed=_seed(), batches=batches))


def FixedSetOfTriplets(labels: Any, num_triplets: int) -> Sampler[int]:
    """A set of triplets that is drawn once."""
    return _Flat(
        FixedTripletSampler(np.asarray(labels), triplets=1, total=num_triplets, seed=_seed()),
        groups=3,
    )


def HierarchicalSampler(
    labels: Any,
    batch_size: int,
    samples_per_class: int,
    batches_per_super_tuple: int = 4,
    super_classes_per_batch: int = 2,
    inner_label: int = 0,
    outer_label: int = 1,
) -> Categories:
    """Batches of a few super-classes, for ``DataLoader(batch_sampler=...)``; every combination of
    them comes up."""
    labels = np.asarray(labels)
    sampler = Categories(
        labels[:, inner_label],
        strata=labels[:, outer_label],
        categories=super_classes_per_batch,
        classes=batch_size // samples_per_class,
        per_class=samples_per_class,
        seed=_seed(),
    )
    sampler.batches = batches_per_super_tuple * sampler.combinations
    return sampler


def _seed() -> int:
    """Draw a seed with torch's global generator."""
    return int(torch.randint(2**62, ()))


class AccuracyCalculator:
    """Scores of embeddings, by the package's names: those in ``METRICS``.

    Args:
        include: the metrics to compute; empty: all.
        exclude: metrics to leave out.
        k: accepted; as many neighbors are looked at as a metric needs.
        seed: of k-means, for NMI and AMI.
    """

    def __init__(
        self,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        k: Any = None,
        *,
        seed: int = 0,
    ) -> None:
        self.names, self.k, self.seed = self._chosen(METRICS, include, exclude), k, seed

    def get_accuracy(
        self,
        query: Any,
        query_labels: Any,
        reference: Any = None,
        reference_labels: Any = None,
        ref_includes_query: bool = False,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
    ) -> dict[str, float]:
        """Return the metrics of queries among the reference, or among each other where there is
        none."""
        names = self._chosen(self.names, include, exclude)
        if ref_includes_query and reference is not None and len(reference) != len(query):
            raise ConfigError(
                f"a reference that includes the queries is the queries here, got {len(query)} "
                "queries and "
                f"{len(reference)} reference rows. Leave `reference` out, or the queries out of it."
            )
        clustering = any(METRICS[name] in ("nmi", "ami") for name in names)
        among: dict[str, Any] = {"gallery": reference, "gallery_labels": reference_labels}
        among = {} if reference is None or ref_includes_query else among
        found = evaluate(
            query, query_labels, **among, recalls=(1,), clustering=clustering, seed=self.seed
        )
        return {name: found[METRICS[name]] for name in names}

    def _chosen(
        self, names: Sequence[str] | dict[str, str], include: Any, exclude: Any
    ) -> list[str]:
        for name in (*include, *exclude):
            if name not in METRICS:
                raise ConfigError(unknown("metric", name, METRICS))
        return [name for name in names if (not include or name in include) and name not in exclude]


@dataclass
class BaseTester:
    """Embed a data set.

    Args:
        normalize_embeddings: whether embeddings are put on the unit sphere.
        batch_size: rows at a time.
        dataloader_num_workers: processes that read.
        data_device: where to compute; None: a GPU where there is one.
        data_and_label_getter: what makes inputs and labels of what the data set gives.
        accuracy_calculator: for ``test``.
    """

    normalize_embeddings: bool = True
    batch_size: int = 32
    dataloader_num_workers: int = 2
    data_device: Any = None
    data_and_label_getter: Callable[[Any], Any] | None = None
    accuracy_calculator: Any = None

    def __post_init__(self) -> None:
        self.data_device = torch.device(
            self.data_device or ("cuda" if torch.cuda.is_available() else "cpu")
        )
        self.accuracy_calculator = self.accuracy_calculator or AccuracyCalculator()

    def get_all_embeddings(
        self, dataset: Any, trunk_model: nn.Module, embedder_model: nn.Module | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the embeddings and, as a column, the labels of a data set; networks are left in
        evaluation mode."""
        networks = nn.Sequential(trunk_model, embedder_model or nn.Identity()).eval()
        loader = DataLoader(
            dataset, batch_size=self.batch_size, num_workers=self.dataloader_num_workers
        )
        embeddings, labels = [], []
        with torch.no_grad():
            for batch in loader:
                inputs, of_inputs = (
                    batch
                    if self.data_and_label_getter is None
                    else self.data_and_label_getter(batch)
                )
                found = networks(inputs.to(self.data_device))
                embeddings.append(normalize(found) if self.normalize_embeddings else found)
                labels.append(of_inputs.to(self.data_device))
        classes = torch.cat(labels)
        return torch.cat(embeddings), classes[:, None] if classes.ndim == 1 else classes


class GlobalEmbeddingSpaceTester(BaseTester):
    """Score the embeddings of data sets."""

    def test(
        self,
        dataset_dict: dict[str, Any],
        epoch: int,
        trunk_model: nn.Module,
        embedder_model: nn.Module | None = None,
        splits_to_eval: Sequence[tuple[str, Sequence[str]]] | None = None,
    ) -> dict[str, dict[str, float]]:
        """Return the metrics of each split among itself, or among the splits that
        ``splits_to_eval`` names."""
        found = {}
        pairs = splits_to_eval or [(name, [name]) for name in dataset_dict]
        needed = {name for query, references in pairs for name in (query, *references)}
        made = {
            name: self.get_all_embeddings(dataset_dict[name], trunk_model, embedder_model)
            for name in needed
        }
        for query, references in pairs:
            rows, labels = made[query]
            itself = list(references) == [query]
            others = None if itself else torch.cat([made[name][0] for name in references])
            classes = None if itself else torch.cat([made[name][1] for name in references])[:, 0]
            score = self.accuracy_calculator.get_accuracy(
                rows, labels[:, 0], others, classes, itself
            )
            found[query] = {
                "epoch": float(epoch),
                **{f"{name}_level0": value for name, value in score.items()},
            }
        return found

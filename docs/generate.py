"""Renew the parts of pages that follow from the code: ``python docs/generate.py
docs/howto/compose.md``."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

from vicinal import config
from vicinal.losses import LOSSES
from vicinal.methods import METHODS, combination

# The columns of `combination_matrix`.
MATRIX = ("plain", "hdml", "loop", "ala", "htl", "cross_batch_memory", "momentum_queue")


def combination_matrix() -> str:
    """Which method trains which loss with default arguments, as Markdown: its sampler, or a note
    why not.

    Losses that go with the same methods share a row.
    """
    methods = [METHODS[name]() for name in MATRIX]
    notes: dict[str, int] = {}
    alike: dict[tuple[str, ...], list[str]] = {}
    for name, loss in LOSSES.items():
        cells = []
        for method in methods:
            reason = combination(method, name)
            if reason is None:
                cells.append(method.sampler_for(loss))
            else:
                general = reason.replace(f", got {loss.__name__}", "").replace(
                    loss.__name__, "this loss"
                )
                general = re.sub(
                    "^.+? needs a loss", "The method needs a loss", general
                )  # one note for all methods
                number = notes.setdefault(general[0].upper() + general[1:], len(notes) + 1)
                cells.append(f"no ({number})")
        alike.setdefault(tuple(cells), []).append(f"`{name}`")
    rows = [[", ".join(names), *cells] for cells, names in alike.items()]
    table = _markdown(["loss", *(f"`{name}`" for name in MATRIX)], rows)
    return "\n".join([table, "", *(f"{number}. {reason}" for reason, number in notes.items())])


def preset_table() -> str:
    """The presets for data, and the names of those of papers, as Markdown."""
    layers = {name: config.preset(name) for name in config.presets()}
    papers = ", ".join(f"`{name}`" for name, layer in layers.items() if "differs" in layer)
    rows = [[f"`{name}`", it["title"]] for name, it in layers.items() if "differs" not in it]
    return f"{_markdown(['preset', 'what it trains'], rows)}\n\nOf papers: {papers}."


# What pytorch-metric-learning 2.9 exports, by module, and what does the same here; "" where nothing
# does.
PEER: dict[str, dict[str, str]] = {
    "losses": {
        "AngularLoss": "`AngularLoss`, all rows normalized",
        "ArcFaceLoss": "`ArcFaceLoss`",
        "BaseLossWrapper": "",
        "BaseMetricLossFunction": "`Loss`",
        "CircleLoss": "`CircleLoss`",
        "ContrastiveLoss": "`ContrastiveLoss`, with squares",
        "CosFaceLoss": "`CosFaceLoss`",
        "CrossBatchMemory": "`CrossBatchMemory`, `method=cross_batch_memory`",
        "DynamicSoftMarginLoss": "",
        "EmbeddingRegularizerMixin": "",
        "FastAPLoss": "`FastAPLoss`",
        "GeneralizedLiftedStructureLoss": '`LiftedStructureLoss(form="smooth")`',
        "GenericPairLoss": "`Loss`",
        "HistogramLoss": "",
        "InstanceLoss": "`InstanceLoss`, with proxies",
        "IntraPairVarianceLoss": "`IntraPairVarianceLoss`",
        "LargeMarginSoftmaxLoss": "",
        "LiftedStructureLoss": "`LiftedStructureLoss`",
        "ManifoldLoss": "",
        "MarginLoss": "`MarginLoss`",
        "MultiSimilarityLoss": "`MultiSimilarityLoss(epsilon=None)`",
        "MultipleLosses": "",
        "NCALoss": "`vicinal.linear.PNCA`, linear",
        "NPairsLoss": "`NPairLoss`",
        "NTXentLoss": "`InfoNCELoss`",
        "NormalizedSoftmaxLoss": "`NormalizedSoftmaxLoss`",
        "P2SGradLoss": "`P2SGradLoss`, scaled by classes / 2",
        "PNPLoss": "`PNPLoss`",
        "ProxyAnchorLoss": "`ProxyAnchorLoss`",
        "ProxyNCALoss": "`ProxyNCALoss`",
        "RankedListLoss": "`RankedListLoss`",
        "SelfSupervisedLoss": "",
        "SignalToNoiseRatioContrastiveLoss": "`SignalToNoiseContrastiveLoss`",
        "SmoothAPLoss": "`SmoothAPLoss(anchor=True)`",
        "SoftTripleLoss": "`SoftTripleLoss`",
        "SphereFaceLoss": "",
        "SubCenterArcFaceLoss": "`SubCenterArcFaceLoss`",
        "SupConLoss": "`SupervisedContrastiveLoss`",
        "ThresholdConsistentMarginLoss": "`ThresholdConsistentMarginLoss`",
        "TripletMarginLoss": "`BatchAllTripletLoss(squared=False, normalize=True)`",
        "TupletMarginLoss": "`TupletMarginLoss`",
        "VICRegLoss": "`VICRegLoss`, variance not halved",
        "WeightRegularizerMixin": "",
    },
    "miners": {
        "AngularMiner": "",
        "BaseMiner": "any function of embeddings and labels",
        "BatchEasyHardMiner": "",
        "BatchHardMiner": "`hardest`",
        "DistanceWeightedMiner": "`distance_weighted`",
        "EmbeddingsAlreadyPackagedAsTriplets": "`blocks=True` of a loss",
        "HDCMiner": "",
        "MultiSimilarityMiner": "`multi_similarity`",
        "PairMarginMiner": "",
        "TripletMarginMiner": "`semi_hard`",
        "UniformHistogramMiner": "",
    },
    "distances": {
        "BaseDistance": "`vicinal.distances.Distance`",
        "BatchedDistance": "",
        "CosineSimilarity": "`Cosine`",
        "DotProductSimilarity": "`DotProduct`",
        "LpDistance": "`Euclidean`",
        "SNRDistance": "`SignalToNoise`",
    },
    "reducers": {
        "AvgNonZeroReducer": "part of a loss",
        "BaseReducer": "",
        "ClassWeightedReducer": "",
        "DivisorReducer": "part of a loss",
        "DoNothingReducer": '`reduction="none"`',
        "MeanReducer": '`reduction="mean"`',
        "MultipleReducers": "",
        "PerAnchorReducer": '`reduction="none"`',
        "SumReducer": '`reduction="sum"`',
        "ThresholdReducer": "",
    },
    "regularizers": dict.fromkeys(
        (
            "BaseRegularizer",
            "CenterInvariantRegularizer",
            "LpRegularizer",
            "RegularFaceRegularizer",
            "SparseCentersRegularizer",
            "ZeroMeanRegularizer",
        ),
        "",
    ),
    "samplers": {
        "FixedSetOfTriplets": "",
        "HierarchicalSampler": "`HierarchicalSampler`",
        "MPerClassSampler": "`PKSampler`",
        "TuplesToWeightsSampler": "",
    },
    "testers": {
        "BaseTester": "`vicinal evaluate`",
        "GlobalEmbeddingSpaceTester": "`vicinal.evaluation.evaluate`",
        "GlobalTwoStreamEmbeddingSpaceTester": "`reidentify`",
        "WithSameParentLabelTester": "",
    },
    "trainers": {
        "BaseTrainer": "`Method`",
        "CascadedEmbeddings": "",
        "DeepAdversarialMetricLearning": "`method=hdml`, also synthetic negatives",
        "MetricLossOnly": "`vicinal.train`",
        "TrainWithClassifier": "",
        "TwoStreamMetricLoss": "`method=her`",
    },
    "datasets": {
        "BaseDataset": "any folder or table",
        "CUB": "`CUB`",
        "Cars196": "`Cars196`",
        "INaturalist2018": "",
        "StanfordOnlineProducts": "`StanfordOnlineProducts`",
    },
    "utils.accuracy_calculator": {"AccuracyCalculator": "`vicinal.evaluation.evaluate`"},
    "utils.inference": {
        "CustomKNN": "`evaluate(metric=)`",
        "FaissKMeans": "`kmeans`",
        "FaissKNN": "`vicinal search`",
        "InferenceModel": "`Run.search`, `vicinal serve`",
        "MatchFinder": "`verify`",
    },
    "utils.distributed": {
        "DistributedLossWrapper": "every loss under `torchrun`",
        "DistributedMinerWrapper": "every miner under `torchrun`",
    },
    "utils.logging_presets": {"EmptyContainer": "", "HookContainer": "run directory and trackers"},
}


def peer_names() -> str:
    """Every name of pytorch-metric-learning with its counterpart.

    A table has the names that differ; those that do not, and those without a counterpart, are
    lists.
    """
    alike: list[str] = []
    missing: list[str] = []
    rows: list[list[str]] = []
    for module, names in PEER.items():
        for name, ours in names.items():
            theirs = f"`{module}.{name}`"
            if ours == f"`{name}`":
                alike.append(theirs)
            elif ours:
                rows.append([theirs, ours])
            else:
                missing.append(theirs)
    return "\n\n".join(
        [
            _markdown(["pytorch-metric-learning", "vicinal"], rows),
            f"The same name: {', '.join(alike)}.",
            f"No counterpart: {', '.join(missing)}.",
        ]
    )


def _markdown(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *rows])


GENERATED: dict[str, Callable[[], str]] = {
    "combinations": combination_matrix,
    "presets": preset_table,
    "peer": peer_names,
}


def renewed(page: str) -> str:
    """A page whose parts between ``<!-- generated:NAME:start -->`` and ``end`` are what the code
    gives now."""
    for name, make in GENERATED.items():
        start, end = f"<!-- generated:{name}:start -->\n", f"<!-- generated:{name}:end -->"
        before, _, rest = page.partition(start)
        _, found, after = rest.partition(end)
        if found:
            page = f"{before}{start}{make()}\n{end}{after}"
    return page


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        path.write_text(renewed(path.read_text(encoding="utf-8")), encoding="utf-8")

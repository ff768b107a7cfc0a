"""HTL: Deep Metric Learning with Hierarchical Triplet Loss (Ge, Huang, Dong and Scott, ECCV 2018)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from vicinal.data.records import Batch, Records
from vicinal.data.resident import Resident
from vicinal.data.transforms import Transform
from vicinal.errors import ConfigError, unknown
from vicinal.evaluation.encoder import Embedded, Encoder
from vicinal.figures import Figure
from vicinal.losses.diagnostics import active_among
from vicinal.methods.htl.figures import describe_margins, tree_figure
from vicinal.methods.method import Parts, StepResult
from vicinal.methods.plain import Plain
from vicinal.models.embedder import Embedder
from vicinal.samplers.class_tree import ClassTree, Linkage
from vicinal.tuples import other_class

CAPTIONS = {
    "margin": (
        "How much farther a negative should be than a positive, in squared distance: the least, mean and largest "
        "margin of the batch's pairs of classes. One line in the first epoch, where all are equal; then they should "
        "part, near classes low and far ones high. A least margin far below 0: some class is wider than its distance "
        "to another, so its triplets ask for nothing. All equal to the end: the tree merges every class at one level, "
        "so `levels` is too small."
    ),
    "tree": (
        "d_0 is the mean squared distance within classes, the threshold below which classes merge first; nearest is "
        "the mean squared distance of a class to its nearest other one, which should rise above d_0 and stay there; "
        "while it is below, most classes have a neighbour that the network does not separate from them."
    ),
}


@dataclass(frozen=True)
class TrainingEmbeddings:
    """Embeddings of the training records as they are now: evaluation mode, no augmentation.

    Attributes:
        records: the training part.
        preprocessing: of evaluation.
        batch_size: rows at a time.
        workers: processes that read images.
        skip_corrupt: leave unreadable records out instead of stopping.
        resident: images already on the device; used where these records are among them.
        progress: told how many records are done.
    """

    records: Records
    preprocessing: Transform
    batch_size: int = 256
    workers: int = 0
    skip_corrupt: bool = False
    resident: Resident | None = None
    progress: Callable[[int], None] | None = None

    def __call__(self, embedder: Embedder, device: torch.device) -> Embedded:
        return Encoder(embedder, self.preprocessing, device).embed(
            self.records,
            batch_size=self.batch_size,
            workers=self.workers,
            skip_corrupt=self.skip_corrupt,
            resident=self.resident,
            progress=self.progress,
        )


@dataclass(eq=False)
class HTL(Plain):
    """HTL (Ge et al. 2018): a tree of all classes chooses neighboring classes and sets a margin for each two.

        α_z = β + d_H(y_a, y_n) - S_{y_a}                                              Ge et al. 2018, Algorithm 1

    The tree is rebuilt from the network every epoch. The first one, of the initial network, samples from the start,
    while every margin is the loss's own; from the second epoch on margins are dynamic.

    Attributes:
        beta: β of the dynamic margin, by which classes should part more than they do.
        levels: L, the number of levels of the tree.
        linkage: what merging nodes of several classes means; see ``ClassTree``.
        margins: ``"dynamic"`` margins of the tree, or ``"fixed"`` at the loss's own, which works with any loss.
        sampling: whether batches consist of neighboring classes; False takes random classes.
    """

    beta: float = 0.1
    levels: int = 16
    linkage: Linkage = "single"
    margins: Literal["dynamic", "fixed"] = "dynamic"
    sampling: bool = True

    default_loss: ClassVar[str] = "hierarchical_triplet"
    own_captions: ClassVar[dict[str, str]] = CAPTIONS

    def __post_init__(self) -> None:
        if self.margins not in ("dynamic", "fixed"):
            raise ConfigError(unknown("margins", str(self.margins), ("dynamic", "fixed")))

    @property
    def title(self) -> str:  # type: ignore[override]
        return f"HTL with method.sampling={str(self.sampling).lower()}"

    @property
    def layouts(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("anchor_neighbors",) if self.sampling else super().layouts

    def sampler_for(self, loss: type[nn.Module]) -> str:
        return "anchor_neighbors" if self.sampling else "classes"

    def check(self, loss: nn.Module, sampler: object) -> None:
        super().check(loss, sampler)
        if self.margins == "dynamic" and not hasattr(loss, "set_margins"):
            raise ConfigError(
                f"HTL sets a margin for each two classes, but {type(loss).__name__} takes none. Set "
                f"loss=hierarchical_triplet, or method.margins=fixed for HTL's batches alone."
            )

    def setup(self, parts: Parts) -> None:
        super().setup(parts)
        self.setup_tree(parts)

    def setup_tree(self, parts: Parts) -> None:
        """Take the training records, which are embedded once per epoch."""
        self.records = TrainingEmbeddings(
            parts.train, parts.preprocessing, parts.batch_size, skip_corrupt=parts.skip_corrupt
        )
        self.tree: ClassTree | None = None
        self.epoch = 0

    def read_by(
        self, resident: Resident | None, *, workers: int, progress: Callable[[int], None] | None = None
    ) -> None:
        self.records = replace(self.records, resident=resident, workers=workers, progress=progress)

    def batches(self, epoch: int) -> Sequence[Sequence[int]]:
        """Embed all training records, rebuild the tree, and draw this epoch's batches."""
        embedded = self.records(self.embedder, next(self.embedder.parameters()).device)
        self.tree = ClassTree.build(embedded.vectors, embedded.labels, levels=self.levels, linkage=self.linkage)
        self.epoch = epoch
        self._take_tree()
        plan: Sequence[Sequence[int]]
        plan = self.sampler.epoch(epoch, self.tree) if self.sampling else self.sampler.epoch(epoch)
        return plan

    def _take_tree(self) -> None:
        """Take from the tree, once an epoch, what steps and diagnostics need."""
        tree = self.tree
        if tree is None:
            return
        self.distances = {"tree/d_0": tree.thresholds[0], "tree/nearest": tree.nearest_distances().mean()}
        if self.epoch > 0 and self.margins == "dynamic":
            self.loss.set_margins(tree.classes, tree.levels(), self.beta + tree.thresholds, tree.spreads)

    @property
    def capturable(self) -> bool:
        return False  # the loss has margins from the second epoch on

    def diagnostics(self, result: StepResult, largest_class: int | None = None) -> dict[str, Tensor]:
        described = super().diagnostics(result, largest_class)
        labels, apart = result.labels, other_class(result.labels)
        if self.margins == "dynamic":
            margins = self.loss.margins_of(labels)
            distances = self.loss.distance(result.embeddings) - margins.masked_fill(~apart, 0)
            described["active"] = active_among(distances, labels, 0.0, largest_class)  # each with its own margin
        else:
            margins = torch.full(apart.shape, getattr(self.loss, "margin", 0.0), device=labels.device)
        described |= describe_margins(margins, apart)
        if self.tree is not None:
            described |= {name: value.to(labels.device) for name, value in self.distances.items()}
        return described

    def figures(self, batch: Batch) -> Sequence[Figure]:
        """Draw the last tree, one record of each class."""
        shown = None if self.tree is None else tree_figure(self.tree, self.records.records)
        return () if shown is None else (shown,)

    def get_extra_state(self) -> dict[str, Any]:
        """A run that goes on in mid-epoch has its plan, but the margins of that epoch come from its tree."""
        return {"epoch": self.epoch, "tree": None if self.tree is None else self.tree.state_dict()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.epoch = state["epoch"]
        self.tree = None if state["tree"] is None else ClassTree.from_state(state["tree"])
        self._take_tree()

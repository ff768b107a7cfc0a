"""HTL: Deep Metric Learning with Hierarchical Triplet Loss (Ge, Huang, Dong and Scott, ECCV 2018)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from vicinal.data.records import Batch, Records
from vicinal.data.resident import Resident
from vicinal.data.transforms import Transform
from vicinal.errors import ConfigError, unknown
from vicinal.evaluation.encoder import Embedded, Encoder
from vicinal.exhibits import Exhibit
from vicinal.losses.activity import active_among
from vicinal.losses.hierarchical_triplet import HierarchicalTripletLoss
from vicinal.methods.hierarchy import MarginTable, describe_margins, tree_shown
from vicinal.methods.method import Parts, Sampler, check_batches
from vicinal.methods.optimizer import OptimizerConfig, fuse
from vicinal.methods.plain import SHARED_READINGS, describe_batch
from vicinal.models.embedder import Embedder
from vicinal.parallel import average_gradients, gather
from vicinal.sampling.anchor_neighbours import AnchorNeighbourSampler
from vicinal.sampling.class_tree import ClassTree, Linkage
from vicinal.tuples import one_batch, other_class

READINGS = {
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
        "while it is below, most classes have a neighbour that the network cannot tell from them."
    ),
}


@dataclass(frozen=True)
class HTL:
    """HTL (Ge et al. 2018): a tree of all classes chooses neighboring classes and sets a margin for each two.

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

    def __post_init__(self) -> None:
        if self.margins not in ("dynamic", "fixed"):
            raise ConfigError(unknown("margins", str(self.margins), ("dynamic", "fixed")))

    def sampler_for(self, loss: type[nn.Module]) -> str:
        return "anchor_neighbors" if self.sampling else "classes"

    def check(self, loss: nn.Module, sampler: object) -> None:
        if self.sampling:
            check_batches("HTL with method.sampling=true", loss, sampler, ("anchor_neighbors",))
        else:
            check_batches("HTL with method.sampling=false", loss, sampler)
        if self.margins == "dynamic" and not hasattr(loss, "with_margins"):
            raise ConfigError(
                f"HTL sets a margin for each two classes, but {type(loss).__name__} takes none. Set "
                f"loss=hierarchical_triplet, or method.margins=fixed for HTL's batches alone."
            )

    def embeddings(self, parts: Parts) -> "TrainingEmbeddings":
        """Return what embeds the training records once per epoch."""
        return TrainingEmbeddings(parts.train, parts.preprocessing, parts.batch_size, skip_corrupt=parts.skip_corrupt)

    def build(self, parts: Parts) -> "HTLTraining":
        self.check(parts.loss, parts.sampler)
        return HTLTraining.from_config(
            parts.embedder,
            parts.loss,
            parts.sampler,
            self.embeddings(parts),
            parts.optimizer,
            self,
            steps=parts.steps,
        )


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


@dataclass
class HTLTraining:
    """A tree of all classes, rebuilt from the network every epoch, chooses the batches and sets the margins.

        α_z = β + d_H(y_a, y_n) - S_{y_a}                                              Ge et al. 2018, Algorithm 1

    The first tree is that of the initial network. It samples from the start, while every margin is the loss's own, 0.2;
    from the second epoch on margins are dynamic. With another sampler, or fixed margins, one half of HTL is left out.

    Attributes:
        embedder: f and g.
        loss: all triplets, squared distances; with fixed margins any loss.
        sampler: neighbourhoods in the tree, or batches that need no tree.
        embed: the training records through the network, asked once per epoch.
        optimizer: of the embedder.
        hierarchy: settings of the tree.
        schedule: of ``optimizer``.
        tree: the tree of this epoch; None before the first.
        epoch: the epoch that the batches are of.
    """

    embedder: Embedder
    loss: nn.Module
    sampler: AnchorNeighbourSampler | Sampler
    embed: TrainingEmbeddings
    optimizer: Optimizer
    hierarchy: HTL = HTL()
    schedule: LRScheduler | None = None
    tree: ClassTree | None = field(default=None, init=False)
    epoch: int = field(default=0, init=False)
    _device: torch.device = field(default=torch.device("cpu"), init=False, repr=False)
    _table: "MarginTable | None" = field(default=None, init=False, repr=False)

    @classmethod
    def from_config(
        cls,
        embedder: Embedder,
        loss: nn.Module,
        sampler: AnchorNeighbourSampler | Sampler,
        embed: TrainingEmbeddings,
        config: OptimizerConfig,
        hierarchy: HTL,
        *,
        steps: int,
    ) -> "HTLTraining":
        """Build the optimizer and its schedule for ``steps`` updates."""
        optimizer, schedule = config.build(embedder, steps=steps, others=loss.parameters())
        return cls(embedder, loss, sampler, embed, optimizer, hierarchy, schedule)

    @property
    def notes(self) -> tuple[str, ...]:
        return () if self.sampler.note is None else (self.sampler.note,)

    @property
    def readings(self) -> Mapping[str, str]:
        return READINGS | SHARED_READINGS

    def to(self, device: torch.device) -> None:
        self._device = device
        self.embedder.to(device)
        self.loss.to(device)
        fuse(self.optimizer, device)
        self._plant(self.tree)

    def read_by(
        self, resident: Resident | None, *, workers: int, progress: Callable[[int], None] | None = None
    ) -> None:
        self.embed = replace(self.embed, resident=resident, workers=workers, progress=progress)

    def batches(self, epoch: int) -> Sequence[Sequence[int]]:
        """Embed all training records, rebuild the tree, and draw this epoch's batches."""
        embedded = self.embed(self.embedder, self._device)
        tree = ClassTree.build(
            embedded.vectors, embedded.labels, levels=self.hierarchy.levels, linkage=self.hierarchy.linkage
        )
        self.epoch = epoch
        self._plant(tree)
        if isinstance(self.sampler, AnchorNeighbourSampler):
            return self.sampler.epoch(epoch, tree)
        return self.sampler.epoch(epoch)

    def step(self, batch: Batch) -> dict[str, Tensor]:
        """Take one optimisation step; return what the step was worth."""
        raw = self.embedder.embed(self.embedder.features(batch.inputs))
        embeddings, labels = gather(raw, batch.labels)
        margins = self._margins(labels)
        with one_batch(batch.largest_class):
            loss = self._score(embeddings, labels, margins)
            described = describe_batch(embeddings.detach(), labels, self.loss)
            if isinstance(self.loss, HierarchicalTripletLoss):
                apart = self.loss.compare(embeddings.detach()) - margins.masked_fill(~other_class(labels), 0)
                described["active"] = active_among(apart, labels, 0.0)  # of triplets, each with its own margin
        self.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        average_gradients([p for group in self.optimizer.param_groups for p in group["params"]])
        self.optimizer.step()
        if self.schedule is not None:
            self.schedule.step()
        described |= describe_margins(margins, other_class(labels))
        if self._table is not None:
            described |= {"tree/d_0": self._table.thresholds[0], "tree/nearest": self._table.nearest}
        return {"loss": loss.detach(), **described}

    def collapsed_loss(self, batch: Batch) -> float:
        """Half of the mean margin of its triplets, those of negative margin aside."""
        same = torch.ones(len(batch.labels), self.embedder.dim or self.embedder.width, device=batch.labels.device)
        with torch.no_grad():
            return float(self._score(same, batch.labels, self._margins(batch.labels)))

    def exhibits(self) -> Sequence[Exhibit]:
        """The last tree, one record of each class."""
        shown = None if self.tree is None else tree_shown(self.tree, self.embed.records)
        return () if shown is None else (shown,)

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {name: part.state_dict() for name, part in self._parts().items()}
        return state | {"epoch": self.epoch, "tree": None if self.tree is None else self.tree.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        self.epoch = state["epoch"]
        # A run that goes on in mid-epoch has its plan, but the margins of that epoch come from its tree.
        self._plant(None if state["tree"] is None else ClassTree.from_state(state["tree"]))

    def _parts(self) -> dict[str, Any]:
        parts = {"embedder": self.embedder, "loss": self.loss, "optimizer": self.optimizer, "schedule": self.schedule}
        return {name: part for name, part in parts.items() if part is not None}

    def _plant(self, tree: ClassTree | None) -> None:
        self.tree, self._table = tree, None if tree is None else MarginTable.of(tree, self._device)

    def _score(
        self, embeddings: Float[Tensor, "n d"], labels: Integer[Tensor, "n"], margins: Float[Tensor, "n n"]
    ) -> Float[Tensor, ""]:
        """The loss with these margins; losses that take none have margins that are fixed."""
        if isinstance(self.loss, HierarchicalTripletLoss):
            return self.loss.with_margins(embeddings, labels, margins)
        return self.loss(embeddings, labels)  # type: ignore[no-any-return]

    def _margins(self, labels: Integer[Tensor, "n"]) -> Float[Tensor, "n n"]:
        """α_z of each anchor and negative of the batch."""
        if self._table is None or self.epoch == 0 or self.hierarchy.margins == "fixed":
            margin = getattr(self.loss, "margin", 0.0)
            return torch.full((len(labels), len(labels)), margin, device=labels.device)
        return self.hierarchy.beta + self._table(labels)

"""HTL + HDML: harder negatives for batches of classes that a tree brings together (Ge et al. 2018, Zheng et al. 2019).

Nobody has published the two together. The tree fits between HDML's own parts: it is a sampler that is asked once per
epoch, and its margins are a table inside the loss; so a step, a checkpoint and a report are those of HDML.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from vicinal.data.records import Batch
from vicinal.data.resident import Resident
from vicinal.errors import ConfigError
from vicinal.exhibits import Exhibit
from vicinal.losses.hierarchical_triplet import HierarchicalTripletLoss
from vicinal.losses.loss import Comparisons, Loss, distances
from vicinal.losses.reduction import Terms
from vicinal.losses.triplet import TripletLoss
from vicinal.methods.hdml import HDML, HDMLTraining
from vicinal.methods.hierarchy import tree_shown
from vicinal.methods.htl import HTL, TrainingEmbeddings
from vicinal.methods.method import Parts, check_batches
from vicinal.methods.optimizer import OptimizerConfig
from vicinal.models.embedder import Embedder
from vicinal.sampling.anchor_neighbours import AnchorNeighbourSampler
from vicinal.sampling.class_tree import ClassTree
from vicinal.synthesis.hardness import HDMLConfig

ROWS = 512  # classes whose margins are looked up at a time: levels that index take eight times their bytes


class TreeTripletLoss(Loss):
    """``HierarchicalTripletLoss`` that keeps its margins, so that any method can use it as it uses other losses.

        α_z = β + d_H(y_a, y_n) - S_{y_a}                                              Ge et al. 2018, Algorithm 1

    The table has one size for the whole training and is filled in place: it is part of the loss's state, so a run that
    goes on in mid-epoch has that epoch's margins. Real negatives meet their margin α_z. A synthetic one, which lies
    between classes, meets ``margin``, as every negative does before the table is filled.

    Args:
        labels: of the training part.
        hierarchy: β and the number of levels.
        margin: α without a table.
    """

    def __init__(self, labels: np.ndarray, hierarchy: HTL, margin: float = 0.2) -> None:
        super().__init__("mean")
        self.labels, self.hierarchy, self.margin = labels, hierarchy, margin
        self.squared, self.normalize = True, True
        classes = torch.from_numpy(np.unique(labels))
        place = torch.zeros(int(classes.max()) + 1, dtype=torch.int64)
        place[classes] = torch.arange(len(classes))
        self.place: Tensor
        self.margins: Tensor
        self.register_buffer("place", place, persistent=False)  # follows from the data
        self.register_buffer("margins", torch.full((len(classes), len(classes)), margin))

    def compare(
        self, anchors: Float[Tensor, "n d"], others: Float[Tensor, "m d"] | Float[Tensor, "n m d"] | None = None
    ) -> Float[Tensor, "n m"]:
        return distances(anchors, others, squared=True, normalize=True)

    def comparisons(
        self,
        embeddings: Float[Tensor, "n d"],
        labels: Integer[Tensor, "n"],
        reference: Float[Tensor, "m d"] | None = None,
        reference_labels: Integer[Tensor, "m"] | None = None,
        own: Integer[Tensor, "n"] | None = None,
    ) -> Comparisons:
        found = super().comparisons(embeddings, labels, reference, reference_labels, own)
        places = self.place[labels.long()]
        others = places if reference_labels is None else self.place[reference_labels.long()]
        # An own margin of each negative is a nearer negative, as in ``HierarchicalTripletLoss``.
        return replace(found, negative=found.negative + self.margin - self.margins[places[:, None], others])

    def core(self, comparisons: Comparisons) -> Terms:
        sums, counts = TripletLoss(self.margin).core(comparisons)
        return Terms(sums / 2, counts)

    def fill(self, tree: ClassTree) -> None:
        """Take the margins of a tree of all training classes."""
        levels = tree.levels()
        for start in range(0, len(levels), ROWS):
            rows = slice(start, start + ROWS)
            found = tree.thresholds[levels[rows].long()] - tree.spreads[rows, None]
            self.margins[rows].copy_(self.hierarchy.beta + found)


class TreeBatches:
    """Batches of neighbouring classes; asked for an epoch, it embeds the training part and rebuilds the tree.

    As in HTL, the first epoch has the tree's batches and one margin for all.

    Args:
        sampler: chooses neighbourhoods in the tree.
        embed: the training records through the network.
        embedder: the network.
        loss: is given the margins, unless ``loss.hierarchy.margins`` is ``"fixed"``.

    Attributes:
        tree: of the last epoch that was asked for; None before.
    """

    def __init__(
        self, sampler: AnchorNeighbourSampler, embed: TrainingEmbeddings, embedder: Embedder, loss: TreeTripletLoss
    ) -> None:
        self.sampler, self.embed, self.embedder, self.loss = sampler, embed, embedder, loss
        self.tree: ClassTree | None = None

    @property
    def note(self) -> str | None:
        return self.sampler.note

    def __len__(self) -> int:
        return len(self.sampler)

    def read_by(
        self, resident: Resident | None, *, workers: int, progress: Callable[[int], None] | None = None
    ) -> None:
        self.embed = replace(self.embed, resident=resident, workers=workers, progress=progress)

    def epoch(self, number: int) -> Sequence[Sequence[int]]:
        hierarchy = self.loss.hierarchy
        embedded = self.embed(self.embedder, self.loss.margins.device)
        tree = ClassTree.build(embedded.vectors, embedded.labels, levels=hierarchy.levels, linkage=hierarchy.linkage)
        self.tree = tree
        if number and hierarchy.margins == "dynamic":
            self.loss.fill(tree)
        return self.sampler.epoch(number, tree)

    def exhibits(self) -> Sequence[Exhibit]:
        """The last tree; none where none was built, as in a run that went on at its very end."""
        shown = None if self.tree is None else tree_shown(self.tree, self.embed.records)
        return () if shown is None else (shown,)


@dataclass(frozen=True)
class HTLHDML:
    """HTL + HDML (Ge et al. 2018, Zheng et al. 2019): harder negatives for batches of neighboring classes.

    Attributes:
        hdml: settings of HDML.
        htl: settings of HTL; ``sampling`` stays on.
    """

    hdml: HDML = HDML()
    htl: HTL = HTL()

    default_loss: ClassVar[str] = "hierarchical_triplet"

    def sampler_for(self, loss: type[nn.Module]) -> str:
        return "anchor_neighbors"

    def check(self, loss: nn.Module, sampler: object) -> None:
        check_batches("HTL + HDML", loss, sampler, ("anchor_neighbors",))
        _hierarchical(loss)
        self.hdml.preset()
        if not self.htl.sampling:
            raise ConfigError("HTL + HDML samples in the tree, got htl.sampling=false. Set method.htl.sampling=true.")

    def build(self, parts: Parts) -> "HTLHDMLTraining":
        self.check(parts.loss, parts.sampler)
        return HTLHDMLTraining.from_config(
            parts.embedder,
            parts.sampler,
            self.htl.embeddings(parts),
            parts.optimizer,
            self.hdml,
            self.htl,
            margin=_hierarchical(parts.loss).margin,
            labels=parts.train.labels,
            steps=parts.steps,
        )


def _hierarchical(loss: nn.Module) -> HierarchicalTripletLoss:
    """Return ``loss`` if it is the one whose margins the tree sets."""
    if not isinstance(loss, HierarchicalTripletLoss) or not (loss.squared and loss.normalize):
        raise ConfigError(
            f"HTL + HDML trains HierarchicalTripletLoss with squared=True and normalize=True, got "
            f"{type(loss).__name__}. Set loss=hierarchical_triplet with its defaults."
        )
    return loss


@dataclass
class HTLHDMLTraining:
    """HDML over ``TreeTripletLoss`` on ``TreeBatches``; besides HDML it is told how the training part is read."""

    hdml: HDMLTraining
    tree_batches: TreeBatches

    @classmethod
    def from_config(
        cls,
        embedder: Embedder,
        sampler: AnchorNeighbourSampler,
        embed: TrainingEmbeddings,
        config: OptimizerConfig,
        settings: HDMLConfig,
        hierarchy: HTL,
        *,
        margin: float,
        labels: np.ndarray,
        steps: int,
    ) -> "HTLHDMLTraining":
        """Build the loss, all optimizers and their schedules for ``steps`` updates."""
        loss = TreeTripletLoss(labels, hierarchy, margin)
        batches = TreeBatches(sampler, embed, embedder, loss)
        return cls(
            HDMLTraining.from_config(embedder, loss, batches, config, settings, labels=labels, steps=steps), batches
        )

    @property
    def embedder(self) -> Embedder:
        return self.hdml.embedder

    @property
    def notes(self) -> tuple[str, ...]:
        return self.hdml.notes

    @property
    def readings(self) -> Mapping[str, str]:
        return self.hdml.readings

    def to(self, device: torch.device) -> None:
        self.hdml.to(device)

    def read_by(
        self, resident: Resident | None, *, workers: int, progress: Callable[[int], None] | None = None
    ) -> None:
        self.tree_batches.read_by(resident, workers=workers, progress=progress)

    def batches(self, epoch: int) -> Sequence[Sequence[int]]:
        return self.hdml.batches(epoch)

    def step(self, batch: Batch) -> dict[str, Tensor]:
        return self.hdml.step(batch)

    def collapsed_loss(self, batch: Batch) -> float:
        return self.hdml.collapsed_loss(batch)

    def exhibits(self) -> Sequence[Exhibit]:
        return (*self.hdml.exhibits(), *self.tree_batches.exhibits())

    def state_dict(self) -> dict[str, Any]:
        return self.hdml.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.hdml.load_state_dict(state)

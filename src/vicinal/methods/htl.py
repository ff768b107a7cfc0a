"""HTL: Deep Metric Learning with Hierarchical Triplet Loss (Ge, Huang, Dong and Scott, ECCV 2018).

| paper | here |
|---|---|
| the class tree, d_H and S | `vicinal.samplers.class_tree.ClassTree` |
| anchor-neighbor sampling | `vicinal.samplers.AnchorNeighborSampler` |
| the loss with dynamic margins α_z | `vicinal.losses.HierarchicalTripletLoss.set_margins` |
| Algorithm 1 | `HTL` |
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from vicinal.arguments import Count, Finite
from vicinal.data.records import Batch
from vicinal.losses.diagnostics import active_among
from vicinal.losses.proxies import has_proxies
from vicinal.losses.triplet import HierarchicalTripletLoss
from vicinal.methods.method import Form, Method, Parts, StepResult
from vicinal.samplers import AnchorNeighborSampler
from vicinal.samplers.class_tree import ClassTree
from vicinal.tuples import Embeddings, Scalar, SingleLabels, other_class


@dataclass(eq=False)
class HTL(Method):
    """HTL (Ge et al. 2018): a tree of all classes chooses neighboring classes and sets a margin for
    each two.

        α_z = β + d_H(y_a, y_n) - S_{y_a}                                Ge et al. 2018, Algorithm 1

    The tree is rebuilt from the network every epoch; where the data have a hierarchy
    (``data.hierarchy``), that is the tree, and only its distances are measured. The first one, of
    the initial network, samples from the start, while every margin is the loss's own; from the
    second epoch on margins are dynamic. With ``sampler=classes`` batches consist of random classes.

    Attributes:
        form: ``"paper"``: dynamic margins. ``"ours"``: the tree chooses batches alone, and margins
            stay the loss's own, which works with any loss.
        beta: β of the dynamic margin, by which classes should part more than they do.
        levels: L, the number of levels of the tree, where none is given.

    Charts:
        margin: How much farther a negative should be than a positive, in squared distance: the
            least, mean and largest margin of the batch's pairs of classes. One line in the first
            epoch, where all are equal; then they should part, near classes low and far ones high. A
            least margin far below 0: some class is wider than its distance to another, so its
            triplets ask for nothing. All equal to the end: the tree merges every class at one
            level, so `levels` is too small.
        tree: d_0 is the mean squared distance within classes, the threshold below which classes
            merge first; nearest is the mean squared distance of a class to its nearest other one,
            which should rise above d_0 and stay there; while it is below, most classes have a
            neighbor that the network does not separate from them.
    """

    form: Form = "paper"
    beta: Finite = 0.1
    levels: Count = 16

    default_loss = "hierarchical_triplet"
    needs = "a loss that takes a margin for each two classes"
    suggests = "hierarchical_triplet, or method.form=ours for HTL's batches alone"
    layouts = ("anchor_neighbors", "classes")
    reads_records = True

    def takes(self, loss: nn.Module) -> bool:
        return self.form == "ours" or hasattr(loss, "set_margins") or has_proxies(loss)

    def setup(self, parts: Parts) -> None:
        super().setup(parts)
        sampled = isinstance(parts.sampler, AnchorNeighborSampler)
        self.acts_from = 0 if sampled else len(parts.sampler)  # the second epoch has margins
        self.tree: ClassTree | None = None
        self.epoch = 0
        own = hasattr(self.loss, "set_margins")
        self.margins = self.loss if own else HierarchicalTripletLoss()

    def step(self, batch: Batch) -> StepResult:
        over_proxies = self.form == "paper" and self.margins is not self.loss
        return self.step_by(self.over_proxies if over_proxies else self.loss, batch)

    def over_proxies(self, embeddings: Embeddings, labels: SingleLabels) -> Scalar:
        """Return the loss with each negative nearer by its class's margin over the mean margin.

        d²_an ← d²_an - (α_an - ᾱ),   of cosines s_an ← s_an + (α_an - ᾱ) / 2
        """
        loss = self.loss
        found = loss.comparisons(embeddings, labels)
        if not self.margins.multi_label:  # has margins
            classes = (labels, loss.proxy_labels)
            margins = self.margins.margins_of(*(classes[::-1] if loss.proxies_first else classes))
            nearer = margins / 2 if loss.distance.larger_is_closer else -margins
            found = replace(found, negative=found.negative + nearer.to(found.negative.dtype))
        return loss.score(found)

    def batches(self, epoch: int) -> Sequence[Sequence[int]]:
        """Embed all training records, rebuild the tree, and draw this epoch's batches."""
        embedded = self.embed_records()
        records = embedded.records
        groups = [torch.from_numpy(records.columns[level]) for level in reversed([*records.levels])]
        self.tree = ClassTree.build(
            embedded.vectors,
            embedded.labels,
            levels=self.levels,
            groups=torch.stack(groups, dim=1) if groups else None,
        )
        self.epoch = epoch
        self._take_tree()
        if isinstance(self.sampler, AnchorNeighborSampler):
            self.sampler.tree = self.tree
        return super().batches(epoch)

    def _take_tree(self) -> None:
        """Take from the tree, once an epoch, what steps and diagnostics need."""
        tree = self.tree
        if tree is None:
            return
        self.distances = {
            "tree/d_0": tree.thresholds[0],
            "tree/nearest": tree.nearest_distances().mean(),
        }
        if self.epoch > 0 and self.form == "paper":
            levels = tree.levels()
            margins = self.beta + tree.thresholds
            if self.margins is not self.loss:  # over proxies: about their mean
                counts = levels.flatten().bincount(minlength=len(margins))
                counts[0] -= len(levels)  # a class and itself
                mean = (counts * margins).sum() / counts.sum().clamp(min=1)
                margins = margins - (mean - tree.spreads.mean())
            self.margins.set_margins(tree.classes, levels, margins, tree.spreads)

    @property
    def phase(self) -> object:
        """The loss has margins from the second epoch on; those of another shape are held
        elsewhere."""
        return [buffer.shape for buffer in self.margins.buffers()]

    def diagnostics(self, result: StepResult) -> dict[str, Tensor]:
        described = super().diagnostics(result)
        labels = result.labels
        apart = other_class(result.labels)
        if self.form == "paper":
            margins = self.margins.margins_of(labels)
            count = apart.sum().clamp(min=1)
            mean = margins.masked_fill(~apart, 0).sum() / count
            # What is not there counts as the mean, so that a batch of one class is no exception.
            formed = torch.where(apart, margins, mean)
            described |= {
                "margin/least": formed.amin(),
                "margin/mean": mean,
                "margin/largest": formed.amax(),
            }
            if self.margins is self.loss:
                distances = self.loss.distance(result.embeddings) - margins.masked_fill(~apart, 0)
                # Each with its own margin.
                described["active"] = active_among(distances, labels, 0.0)
        if self.tree is not None:
            described |= {name: value.to(labels.device) for name, value in self.distances.items()}
        return described

    def get_extra_state(self) -> dict[str, Any]:
        """A run that goes on in mid-epoch has its plan, but the margins of that epoch come from its
        tree."""
        return {"epoch": self.epoch, "tree": None if self.tree is None else dict(vars(self.tree))}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        self.epoch = state["epoch"]
        self.tree = None if state["tree"] is None else ClassTree(**state["tree"])
        self._take_tree()

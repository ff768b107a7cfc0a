"""Hierarchical triplet loss on CUB-200-2011 features: neighbourhoods of classes, margins from a tree, and neither.

    vicinal train cub_features_htl                       # both
    vicinal train cub_features_htl variant=sampling      # neighbourhoods, fixed margin
    vicinal train cub_features_htl variant=margin        # random classes, dynamic margins
    vicinal train cub_features_htl variant=plain         # random classes, fixed margin

Cost: under a minute of training on a busy CPU core, 8 s on an H200; measuring comes on top.
Expected: R@1 57.9 ± 1.1, its plain twin 58.4 ± 0.2 (5 seeds): no gain is shown here, but on characters (docs/htl.md).
"""

from dataclasses import dataclass, replace
from typing import Literal

from vicinal.data.arrays import Arrays
from vicinal.data.records import Dataset, Records
from vicinal.data.transforms import FeatureTransform, Transform
from vicinal.losses import HierarchicalTripletLoss
from vicinal.methods.hierarchy import Hierarchy
from vicinal.methods.htl import HTL, TrainingEmbeddings
from vicinal.methods.method import Method
from vicinal.methods.optimisation import Optimisation
from vicinal.methods.plain import Plain
from vicinal.models import Embedder, Identity
from vicinal.sampling import AnchorNeighbourSampler, PKSampler
from vicinal.training.recipe import Recipe, Start


@dataclass(frozen=True, kw_only=True)
class CubFeaturesHTL(Recipe):
    """All variants start from the same head, with the same loss and as many classes and samples in a batch.

    They are the rows of the table ``survey-cub_features``, with its rate, start and batches.
    """

    data: Dataset = Arrays("$VICINAL_DATA/features/cub_efficientnet_lite0.npz")
    transform: Transform = FeatureTransform()
    optimisation: Optimisation = Optimisation(learning_rate=3e-5)
    start: Start = Start(head="discriminant")
    variant: Literal["htl", "sampling", "margin", "plain"] = "htl"
    tree: Hierarchy = Hierarchy()
    margin: float = 0.2
    squared: bool = True
    dim: int = 512
    anchors: int = 6
    neighbourhood: int = 4
    per_class: int = 5

    def build(self, train: Records) -> Method:
        embedder = Embedder(Identity(train.source.read(0).shape[0]), self.dim)
        loss = HierarchicalTripletLoss(self.margin, squared=self.squared)
        random = PKSampler(
            train.labels, classes=self.anchors * self.neighbourhood, per_class=self.per_class, seed=self.seed
        )
        if self.variant == "plain":
            return Plain.optimised(embedder, loss, random, self.optimisation, epochs=self.epochs)
        near = AnchorNeighbourSampler(
            train.labels,
            anchors=self.anchors,
            neighbourhood=self.neighbourhood,
            per_class=self.per_class,
            seed=self.seed,
        )
        return HTL.optimised(
            embedder,
            loss,
            random if self.variant == "margin" else near,
            TrainingEmbeddings(train, self.transform.evaluation(), self.batch_size, skip_corrupt=self.skip_corrupt),
            self.optimisation,
            replace(self.tree, margins="fixed") if self.variant == "sampling" else self.tree,
            epochs=self.epochs,
        )

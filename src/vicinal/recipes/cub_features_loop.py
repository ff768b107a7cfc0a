"""LoOp on CUB-200-2011 features, with its plain twin and Embedding Expansion between them.

    vicinal train cub_features_loop
    vicinal train cub_features_loop loss=hphn                            # or triplet, lifted, n_pair, multi_similarity
    vicinal train cub_features_loop loss=hphn variant=plain              # the same loss on samples, the same batches
    vicinal train cub_features_loop loss=hphn variant=expansion          # a few points of each arc instead of all

Cost: 2 to 3 minutes of training on a busy CPU core, 8 s on an H200; measuring comes on top.
Expected: over triplets R@1 57.9 ± 0.3, without LoOp 57.6 ± 0.6; over HPHN 58.8 ± 0.2 and 58.1 ± 0.4, the one sure gain
    on features (5 seeds, docs/loop.md).
"""

from dataclasses import dataclass
from typing import Literal

from vicinal.data.arrays import Arrays
from vicinal.data.records import Dataset, Records
from vicinal.data.transforms import FeatureTransform, Transform
from vicinal.losses import HPHNLoss, LiftedStructureLoss, Loss, MultiSimilarityLoss, NPairLoss, TripletLoss
from vicinal.methods.loop import LoOp
from vicinal.methods.method import Method
from vicinal.methods.optimisation import Optimisation
from vicinal.methods.plain import Plain
from vicinal.models import Embedder, Identity
from vicinal.sampling import PKSampler
from vicinal.synthesis import EmbeddingExpansion, OptimalNegatives
from vicinal.training.recipe import Recipe, Start


@dataclass(frozen=True, kw_only=True)
class CubFeaturesLoOp(Recipe):
    """All variants start from the same head and see the same batches.

    Over triplets, HPHN and lifted they are the rows of the table ``survey-cub_features``, with its rate, start and
    batches; for multi-similarity loss it has optimisation.learning_rate=1e-4, N-pair loss wants start.length=6.
    """

    data: Dataset = Arrays("$VICINAL_DATA/features/cub_efficientnet_lite0.npz")
    transform: Transform = FeatureTransform()
    optimisation: Optimisation = Optimisation(learning_rate=3e-5)
    start: Start = Start(head="discriminant")
    variant: Literal["loop", "expansion", "plain"] = "loop"
    loss: Literal["triplet", "hphn", "lifted", "n_pair", "multi_similarity"] = "triplet"
    pairing: Literal["all", "consecutive"] = "all"
    points: int = 2
    margin: float = 0.2
    dim: int = 512
    classes: int = 26
    per_class: int = 5

    def build(self, train: Records) -> Method:
        embedder = Embedder(Identity(train.source.read(0).shape[0]), self.dim)
        sampler = PKSampler(train.labels, classes=self.classes, per_class=self.per_class, seed=self.seed)
        loss = self._loss()
        if self.variant == "plain":
            return Plain.optimised(embedder, loss, sampler, self.optimisation, epochs=self.epochs)
        if self.variant == "expansion":
            expansion = EmbeddingExpansion(loss, points=self.points, pairing=self.pairing)
            return LoOp.optimised(embedder, expansion, sampler, self.optimisation, epochs=self.epochs)
        arcs = OptimalNegatives(loss, pairing=self.pairing)
        return LoOp.optimised(embedder, arcs, sampler, self.optimisation, epochs=self.epochs)

    def _loss(self) -> Loss:
        match self.loss:
            case "triplet":
                return TripletLoss(self.margin, squared=False)
            case "hphn":
                return HPHNLoss(self.margin)
            case "lifted":
                return LiftedStructureLoss(self.margin, form="min")
            case "n_pair":
                return NPairLoss()
            case "multi_similarity":
                return MultiSimilarityLoss(2.0, 30.0, 0.55)  # as in the tables: the middle of DANML's grids

"""DANML on CUB-200-2011 features, with its original form, its rivals and the losses that its paper improves.

    vicinal train cub_features_danml
    vicinal train cub_features_danml variant=original                       # without λ1 and λ2
    vicinal train cub_features_danml variant=multi_similarity               # the same α, β, λ
    vicinal train cub_features_danml anml.outer=identity                    # what does the logistic do?
    vicinal train cub_features_danml anml.sigma=0                           # what does λ1 ≠ λ2 do?
    vicinal train cub_features_danml anml.epsilon=none                      # what does the mining do?
    vicinal train cub_features_danml variant=improved_n_pair anml.gamma=8   # a temperature alone

Cost: as `cub_features`, whose head, batches and steps all variants have.
Expected: R@1 56.7 ± 1.2 (55.3 to 57.6), MAP@R 18.4 ± 0.7, NMI 63.4 ± 1.3 (5 seeds); the features as they are: 56.6,
    16.4, 60.5. With a head that starts as discriminants, `cub_features_methods method.loss=danml`, 58.6 ± 0.1.
"""

from dataclasses import dataclass

from vicinal.data.arrays import Arrays
from vicinal.data.records import Dataset, Records
from vicinal.data.transforms import FeatureTransform, Transform
from vicinal.losses.neighborhood_variants import Neighborhoods, Variant
from vicinal.methods.optimisation import Optimisation
from vicinal.methods.plain import Plain
from vicinal.models import Embedder, Identity
from vicinal.sampling import PKSampler
from vicinal.training.recipe import Recipe


@dataclass(frozen=True, kw_only=True)
class CubFeaturesDANML(Recipe):
    """Song et al. 2022, Eq. (22), on a linear head; all variants start from the same head and see the same batches."""

    data: Dataset = Arrays("$VICINAL_DATA/features/cub_efficientnet_lite0.npz")
    transform: Transform = FeatureTransform()
    optimisation: Optimisation = Optimisation(learning_rate=1e-4, loss_factor=10.0)
    anml: Neighborhoods = Neighborhoods()
    variant: Variant = "danml"
    recalls: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    dim: int = 512
    classes: int = 26
    per_class: int = 5

    def build(self, train: Records) -> Plain:
        embedder = Embedder(Identity(train.source.read(0).shape[0]), self.dim)
        sampler = PKSampler(train.labels, classes=self.classes, per_class=self.per_class, seed=self.seed)
        loss = self.anml.loss(self.variant, train.labels.tolist(), self.dim, self.seed)
        return Plain.optimised(embedder, loss, sampler, self.optimisation, epochs=self.epochs)

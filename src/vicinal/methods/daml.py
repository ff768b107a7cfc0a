"""DAML: Deep Adversarial Metric Learning (Duan, Zheng, Lin, Lu and Zhou, CVPR 2018).

| authors' code (Y. Duan, commit 883aa5a) | here |
|---|---|
| generator of hard negatives | `NegativeGenerator` |
| J_hard + J_reg + J_adv, and J_m | `DAML.step` |
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import relu

from vicinal.arguments import Natural, NonNegative, Positive
from vicinal.data.records import Batch
from vicinal.distances import row_distances
from vicinal.losses.loss import block_layout
from vicinal.methods.method import Method, Parts, StepResult
from vicinal.methods.optimizer import Adam
from vicinal.parallel import gather

PRETRAINED = 0.2  # the authors' share of a run that the loss trains alone: 20 of 100 epochs
SPREAD = 0.02  # of the generator's first weights


class NegativeGenerator(nn.Module):
    """G: the features of anchor, positive and negative to those of a new negative, by two layers as
    wide as one of them.

        ñ = relu(W₂ relu(W₁ (y; y⁺; y⁻)))                           Duan et al. 2018, authors' code

    Args:
        width: size of a feature.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        first = nn.Linear(3 * width, width)
        second = nn.Linear(width, width)
        for layer in (first, second):
            nn.init.normal_(layer.weight, std=SPREAD)
            nn.init.zeros_(layer.bias)
        self.layers = nn.Sequential(first, nn.ReLU(), second, nn.ReLU())

    def forward(self, triplets: Float[Tensor, "t 3y"]) -> Float[Tensor, "t y"]:
        features: Tensor = self.layers(triplets)
        return features


@dataclass(eq=False)
class DAML(Method):
    """DAML (Duan et al. 2018): a generator makes the negative of each triplet, near its anchor and
    near the real negative, and the head learns from it.

        J = J_hard + λ1 J_reg + λ2 J_adv + J_m                      Duan et al. 2018, authors' code
        J_hard = mean ‖ñ - y‖²,  J_reg = mean ‖ñ - y⁻‖²,  J_adv = mean [-u]_+ / 2,  J_m = L / 2
        u = D²(z, z⁺) - D²(z, g(ñ)) + α

    L is the triplet loss of (z, z⁺, g(ñ)), so J_adv is the other side of its hinge. Generator and
    head both descend J, as there.

    First the loss trains network and head on real triplets. Then features stay as they are, and the
    head learns from synthetic negatives alone.

    Differs: there y is the network's normalized embedding, and a second network of two layers, the
    identity at first, takes the place of the head; J is over features of length 1, here over
    features divided by their mean length in the batch. There the network goes on at a thousandth of
    its rate.

    Attributes:
        reg: λ1.
        adv: λ2.
        pretrain: steps of the loss alone; None is a fifth of the run, the authors' 20 of 100
            epochs.
        generator_factor: the generator's learning rate (Adam) in multiples of
            ``optimizer.learning_rate``.

    Charts:
        generator: How far generated negatives are from their anchors (hard) and from the real
            negatives (reg), squared, in units of a feature's mean length. Both should fall and
            stay: a point can be near only one of the two.
    """

    reg: NonNegative = 1.0
    adv: NonNegative = 1.0
    pretrain: Natural | None = None
    generator_factor: Positive = 0.1

    default_loss = "triplet"
    needs = "triplets in blocks [a; p; n], the only tuples of which its authors have published code"
    suggests = "loss=triplet sampler=triplets"
    layouts = ("triplets",)
    indivisible = "it makes tuples of the whole batch"

    def takes(self, loss: nn.Module) -> bool:
        return block_layout(loss) == "triplets"

    def setup(self, parts: Parts) -> None:
        super().setup(parts)
        share = int(PRETRAINED * parts.steps)
        self.acts_from = share if self.pretrain is None else self.pretrain
        self.generator = NegativeGenerator(parts.embedder.width)
        rate = self.generator_factor * parts.optimizer.learning_rate
        self.optimizers["generator"] = Adam(self.generator.parameters(), lr=rate)

    @property
    def phase(self) -> bool:
        """Whether negatives are generated now."""
        return bool(self.schedule.last_epoch >= self.acts_from)

    def step(self, batch: Batch) -> StepResult:
        features, labels = gather(self.embedder.features(batch.inputs), batch.labels)
        if not self.phase:
            embeddings = self.embedder.embed(features)
            return self.update(self.loss(embeddings, labels), embeddings, labels)
        features = features.detach()
        unit = features.norm(dim=1).mean().clamp(min=torch.finfo(features.dtype).tiny)
        anchors, positives, negatives = (features / unit).chunk(3)
        made = self.generator(torch.cat([anchors, positives, negatives], dim=1))
        embeddings = self.embedder.embed(torch.cat([anchors, positives, made]) * unit)
        compared = self.loss.comparisons(embeddings, labels)
        excess = compared.positive - compared.negative + self.loss.margin
        hard = row_distances(made, anchors, squared=True).mean()
        reg = row_distances(made, negatives, squared=True).mean()
        adv = relu(-excess).mean() / 2
        metric = self.loss(embeddings, labels) / 2
        objective = hard + self.reg * reg + self.adv * adv + metric
        scalars = {"generator/hard": hard, "generator/reg": reg, "adversary": adv, "metric": metric}
        generator = self.optimizers["generator"]
        self.differentiate(objective, generator, keep=True)
        return self.update(objective, embeddings, labels, generator, **scalars)

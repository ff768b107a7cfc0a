"""IDML: Introspective Deep Metric Learning (Wang, Zheng, Zhu, Zhou and Lu, TPAMI 2023).

| paper, by its authors' code (wzzheng/IDML, commit c49aaa3) | here |
|---|---|
| the introspective similarity metric | `introspective_similarity` |
| semantic and uncertainty embedding | `vicinal.models.Embedder.embed`, `ambiguity` |
| the loss of a batch and of its mixture | `IDML.step` |
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vicinal import parallel
from vicinal.arguments import NonNegative, Positive
from vicinal.data.records import Batch
from vicinal.distances import cosine_similarity, pairwise_distances, squared_lengths, unit_rows
from vicinal.losses.proxies import has_proxies
from vicinal.methods.method import Method, Parts, StepResult
from vicinal.tuples import Embeddings, Scalar

NEAREST = 1e-6  # below it a sample is at its proxy; keeps the exponent finite


def introspective_similarity(
    semantic: Embeddings,
    uncertain: Embeddings,
    proxies: Float[Tensor, "m d"],
    gamma: float,
    tau: float,
) -> Float[Tensor, "n m"]:
    """Compare samples with proxies by their semantics and by how uncertain the samples are.

        s~(x, p) = 1 - (1 - s(x, p)) exp(-(β + γ) / (τ α))
        s = cos(x_s, p),  α = |x_s / |x_s| - p|²,  β = |x_u|²      Wang et al. 2023, authors' code

    A proxy is certain: its own uncertainty embedding is 0. The more uncertain a sample is beside
    how far it lies, the less it differs from any proxy, and the weaker it pulls and is pushed.
    β + γ = 0 leaves the cosine.

    Args:
        semantic: x_s of each sample.
        uncertain: x_u of each.
        proxies: p; their lengths count.
        gamma: γ, what is uncertain of every sample.
        tau: τ.
    """
    unit = unit_rows(semantic)
    apart = pairwise_distances(unit, proxies, squared=True).clamp(min=NEAREST)
    exponent = (squared_lengths(uncertain)[:, None] + gamma) / (tau * apart)
    return 1 - (1 - cosine_similarity(unit, proxies)) * torch.exp(-exponent)


@dataclass(eq=False)
class IDML(Method):
    """IDML (Wang et al. 2023): a second embedding says how ambiguous an image is, and softens all
    its comparisons while training.

        J = L(x, y) + λ L(x~, y) + (1 - λ) L(x~, y'),   x~ = λ x + (1 - λ) x',   λ ~ U(0, 1)
            Wang et al. 2023, authors' code

    L is a loss over cosines to proxies, by introspective similarities. Search compares the semantic
    embeddings alone; ``vicinal.load(RUN).uncertainty(images)`` gives the length of the other.

    Differs: the authors put the uncertainty embedding, too, on the unit sphere. Against proxies,
    which have none, β is then 1 for every image, and the head that makes it gets no gradient
    (``form="authors"``). Ours leaves it its length.

    Attributes:
        form: ``"ours"``, whose uncertainty has a length, or ``"authors"``, see above.
        gamma: γ, of the authors' code.
        tau: τ, of the authors' code.
        mixup: whether mixtures of two images, which are ambiguous by making, are trained on, too.

    Charts:
        uncertainty: The mean length of the uncertainty embedding, of real images and of mixtures.
            Mixtures should lie above: they are ambiguous by making. Both equal: it says nothing.
    """

    form: Literal["ours", "authors"] = "ours"
    gamma: NonNegative = 4.0
    tau: Positive = 5.0
    mixup: bool = True

    default_loss = "proxy_anchor"
    needs = "a loss over cosines to proxies, the only one of which its authors have published code"
    suggests = "proxy_anchor"
    chunkable = False
    indivisible = "it mixes rows of the whole batch"

    def takes(self, loss: nn.Module) -> bool:
        return has_proxies(loss) and loss.distance.normalize and loss.distance.larger_is_closer

    def setup(self, parts: Parts) -> None:
        """Add the second head; let proxies begin as long as the authors' (Kaiming, by fan-out)."""
        parts.embedder.add_uncertainty()
        super().setup(parts)
        with torch.no_grad():
            proxies = self.loss.proxies
            proxies.mul_(math.sqrt(2 * proxies.shape[-1] / len(proxies)))

    def prepare(self, batch: Batch) -> Batch:
        """Draw λ and who is mixed with whom, by the seed and the step alone."""
        if not self.mixup:
            return batch
        rng = self.draws()
        order = rng.permutation(len(batch.labels) * parallel.processes())
        return self.given(batch, factor=rng.random(), order=order)

    def step(self, batch: Batch) -> StepResult:
        features, labels = parallel.gather(self.embedder.features(batch.inputs), batch.labels)
        loss, length = self.introspect(features, labels)
        scalars = {"uncertainty/real": length}
        if self.mixup:
            factor = batch.extras["factor"].to(batch.inputs.dtype)
            order = batch.extras["order"]
            inputs = parallel.all_rows(batch.inputs)
            mixed = parallel.part(torch.lerp(inputs[order], inputs, factor))
            rows, _ = parallel.gather(self.embedder.features(mixed), batch.labels)
            own, length = self.introspect(rows, labels)
            other, _ = self.introspect(rows, labels[order])
            loss = loss + torch.lerp(other, own, factor)
            scalars["uncertainty/mixed"] = length
        return self.update(loss, self.embedder.embed(features), labels, **scalars)

    def introspect(self, features: Float[Tensor, "n c"], labels: Tensor) -> tuple[Scalar, Scalar]:
        """Return the loss by introspective similarities, and the mean length of the uncertainty."""
        loss = self.loss
        semantic = self.embedder.embed(features)
        uncertain = self.embedder.uncertainty_head(features)
        if self.form == "authors":
            uncertain = unit_rows(uncertain)
        loss.check(semantic, labels)
        similar = introspective_similarity(
            semantic, uncertain, loss.proxies.flatten(end_dim=-2), self.gamma, self.tau
        )
        found = loss.arrange(similar, labels, loss.proxy_labels)
        penalty = loss.compare(semantic, labels, loss.proxies, loss.proxy_labels).penalty
        return loss.score(replace(found, penalty=penalty)), uncertain.norm(dim=1).mean()

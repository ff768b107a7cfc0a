"""SEE: Spherical Embedding Expansion for Improving Deep Metric Learning (Le and Woo, PAKDD 2024;
extended abstract IJCAI 2025).

| authors' code (Leminhbinh0209/PAKDD24-SEE, commit 9c14bfc) | here |
|---|---|
| expansion of a sample around its proxy | `around_proxies` |
| how many samples are expanded | `SEE.prepare` |
| the loss of a batch and of what it is expanded to | `SEE.step` |
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from vicinal import parallel
from vicinal.arguments import Count, NonNegative, Share
from vicinal.data.records import Batch
from vicinal.distances import unit_rows
from vicinal.errors import ConfigError
from vicinal.losses.proxies import has_proxies
from vicinal.methods.method import Method, Parts, StepResult
from vicinal.tuples import Embeddings, SingleLabels


def around_proxies(
    samples: Embeddings, proxies: Embeddings, noise: Float[Tensor, "n m d"]
) -> Float[Tensor, "n m+1 d"]:
    """Return points as near to a sample's proxy as the sample, far from it and from each other.

        z_k = (z·w) w + |r| Σ_j b_kj v_j,   r = z - (z·w) w             Le and Woo, authors' code
        b_0 = (1, 0, ..., 0),   b_k·b_l = -1/n for k ≠ l

    v_1 = r / |r| and the other v_j are orthonormal, orthogonal to the proxy w, and random. So z_0
    is z, and all z_k together are a regular simplex around (z·w) w: the centers of a
    Max-Mahalanobis distribution (Pang et al., ICML 2018).

    Args:
        samples: z, of length 1.
        proxies: w of each sample, of length 1.
        noise: of n - 1 directions of each.
    """
    middle = (samples * proxies).sum(dim=1, keepdim=True) * proxies
    away = samples - middle
    first = unit_rows(away)[:, None]
    directions = torch.cat([proxies[:, None], first, noise], dim=1)
    random = torch.linalg.qr(directions.mT).Q.mT[:, 2:]
    count = 1 + noise.shape[1]
    gram = torch.eye(count, dtype=samples.dtype, device=samples.device) * (1 + 1 / count)
    corners = torch.linalg.cholesky(gram - 1 / count)  # b_0 to b_(n-1); together all are 0
    others = torch.cat([corners[1:], -corners.sum(dim=0, keepdim=True)])
    apart: Tensor = others @ torch.cat([first, random], dim=1)
    lengths: Tensor = away.norm(dim=1)
    return middle[:, None] + lengths[:, None, None] * apart


@dataclass(eq=False)
class SEE(Method):
    """SEE (Le and Woo 2024): the samples nearest to their proxy are expanded to a simplex around
    it, which the proxies learn from, too.

        J = L(Z, P) + w L(Z~, P)                                        Le and Woo, authors' code

    The share of a batch that is expanded rises along a cosine from 0 to ``share`` at the end.
    Gradients of the second term reach the proxies alone.

    Differs: there the share rises by epochs, until the 200th at the latest; here by steps.

    Attributes:
        expansions: n, how many points each sample is expanded to.
        weight: w.
        share: of a batch, at the end.
    """

    expansions: Count = 8
    weight: NonNegative = 0.2
    share: Share = 0.4

    default_loss = "proxy_anchor"
    needs = "a loss with one proxy for each class on the unit sphere"
    suggests = "proxy_anchor, or loss.centers=1"
    chunkable = False
    capturable = False  # ever more rows

    def takes(self, loss: nn.Module) -> bool:
        return has_proxies(loss) and loss.distance.normalize and loss.centers == 1

    def setup(self, parts: Parts) -> None:
        super().setup(parts)
        self.steps = parts.steps
        dim = parts.embedder.embedding_dim
        if dim <= self.expansions:
            raise ConfigError(
                f"method.expansions must be below the embedding's {dim} dimensions, got "
                f"{self.expansions}. Set method.expansions={max(1, dim - 1)}."
            )

    def prepare(self, batch: Batch) -> Batch:
        """Draw directions by the seed and the step alone, for the share that this step expands."""
        done = min(1.0, self.schedule.last_epoch / self.steps)
        share = self.share * (1 - math.cos(math.pi * done)) / 2
        count = round(share * len(batch.labels) * parallel.processes())
        size = count, self.expansions - 1, self.embedder.embedding_dim
        noise = self.draws().standard_normal(size, dtype=np.float32)
        return self.given(batch, noise=noise)

    def step(self, batch: Batch) -> StepResult:
        embeddings, labels = self.embed(batch)
        loss = self.loss(embeddings, labels)
        noise = batch.extras["noise"]
        if len(noise):
            loss = loss + self.weight * self.of_expansions(embeddings.detach(), labels, noise)
        return self.update(loss, embeddings, labels)

    def of_expansions(
        self, embeddings: Embeddings, labels: SingleLabels, noise: Float[Tensor, "m n d"]
    ) -> Float[Tensor, ""]:
        """Return the loss of what the m samples nearest to their proxies are expanded to."""
        loss: Any = self.loss
        samples = unit_rows(embeddings)
        proxies = unit_rows(loss.beside(embeddings).detach())
        own = proxies[torch.searchsorted(loss.proxy_labels, labels)]
        nearest = (samples * own).sum(dim=1).topk(len(noise)).indices
        made = around_proxies(samples[nearest], own[nearest], noise.to(samples.dtype))
        return loss(made.flatten(0, 1), labels[nearest].repeat_interleave(made.shape[1]))

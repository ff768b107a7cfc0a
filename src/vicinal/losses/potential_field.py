"""Potential fields (PFML, Bhatnagar and Ahuja, CVPR 2025)."""

from dataclasses import KW_ONLY, dataclass

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from vicinal.arguments import Count, Positive
from vicinal.losses.loss import Comparisons, Terms
from vicinal.losses.proxies import ProxyLoss
from vicinal.tuples import Embeddings, SingleLabels

# Ours: nearer points of two classes push no harder, so that a gradient's square is a float32.
NEAREST = 0.01


@dataclass(eq=False, repr=False)
class PotentialFieldLoss(ProxyLoss):
    """Potential fields (Bhatnagar and Ahuja 2025): samples and proxies attract near points of their
    class and repel points of other classes that are too near; far ones hardly act.

        ψ_att(r, z) = -1/δ^α        where ‖r - z‖ < δ,    -1/‖r - z‖^α elsewhere         Eq. (1)
        ψ_rep(r, z) = 1/‖r - z‖^α   where ‖r - z‖ < δ,    1/δ^α elsewhere                Eq. (2)
        Ψ_j(r) = Σ_{z of class j} ψ_att(r, z) + Σ_{z of other classes} ψ_rep(r, z)
        U = Σ_i Ψ_{y_i}(z_i) + Σ_j Σ_k Ψ_j(p_jk)             Bhatnagar and Ahuja 2025, Eq. (6)

    Paper to code: z runs over the samples of the batch and the M = ``centers`` proxies p_jk of
        each class, all on the unit sphere; α = ``alpha``, δ = ``delta``.

    Inside δ nothing attracts, so that a class does not collapse, and outside nothing repels. An
    anchor is a point here, so ``"none"`` gives one value per sample and then one per proxy, and
    ``"sum"`` is U. The proxies are the loss's parameters: give them to an optimizer; the paper's
    rate for them is 100 times the network's.

    Differs: U is divided by the number of points, and points of two classes nearer than 0.01
        count as that far apart.

    Args:
        centers: M.
        alpha: α; the larger, the faster a force decays.
        delta: δ.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per sample and proxy.
    """

    _: KW_ONLY
    centers: Count = 15
    alpha: Positive = 3.0
    delta: Positive = 0.2

    samples_beside_proxies = False
    no_tuples = (
        "adds up the fields of all points instead of tuples of them (Bhatnagar and Ahuja 2025)"
    )
    indivisible = "each is compared with all others"

    def compare(
        self,
        embeddings: Embeddings,
        labels: SingleLabels,
        proxies: Float[Tensor, "*m d"],
        proxy_labels: Integer[Tensor, "m"],
    ) -> Comparisons:
        """Compare each sample and each proxy with all samples and all proxies."""
        proxies = proxies.reshape(-1, proxies.shape[-1])
        centers = len(proxies) // max(1, len(proxy_labels))
        classes = torch.cat([labels, proxy_labels.repeat_interleave(centers)])
        same = classes[:, None] == classes
        compared = self.distance(torch.cat([embeddings, proxies]))
        # Masks of the whole matrix: lists of a class would have to be counted.
        return Comparisons(compared, same.clone().fill_diagonal_(False), compared, ~same)

    def core(self, c: Comparisons) -> Terms:
        attraction = -self.field(c.positive.clamp(min=self.delta))
        repulsion = self.field(c.negative.clamp(NEAREST, self.delta))
        energies = c.add_up(attraction, repulsion)
        return Terms(energies, torch.ones_like(energies))

    def field(self, distances: Float[Tensor, "n m"]) -> Float[Tensor, "n m"]:
        """Return 1/d^α."""
        return distances.pow(-self.alpha)

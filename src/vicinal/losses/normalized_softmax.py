"""Normalised softmax (Zhai and Wu, BMVC 2019): a plain classifier on the unit sphere."""

import torch
from jaxtyping import Float, Integer
from torch import Tensor
from torch.nn.functional import softplus

from vicinal.errors import ConfigError, DataError
from vicinal.geometry import cosine_similarity, log_sum_exp
from vicinal.losses.loss import Comparisons, Loss
from vicinal.losses.proxies import beside, columns_of, initial_proxies, refuse_reference
from vicinal.losses.reduction import Reduction, Terms
from vicinal.tuples import being_recorded


class NormalizedSoftmaxLoss(Loss):
    """Tell a sample's class from all others by the cosine to one proxy for each.

        l_i = -log( exp(x_i·p_y / σ) / Σ_z exp(x_i·p_z / σ) )                                 Zhai and Wu 2019

    with x and p on the unit sphere and no bias: the classifier that any metric learning loss should beat. On the sphere
    ‖x - p‖² = 2 - 2 x·p, so it equals ``ProxyNCALoss(full_softmax=True, temperature=2 * temperature)``.

    Differs: the paper normalises x after a layer norm without affine parameters; that belongs to a head, not here.

    The mean is over samples. The proxies are the loss's parameters: give them to an optimiser.

    Args:
        classes: number of classes.
        dim: of the embeddings.
        temperature: σ; the paper's 0.05.
        known: the labels of the classes in growing order, where they are not 0 to ``classes`` - 1: a proxy of a class
            that never comes would only push.
        seed: the first proxies follow from it.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per sample.
    """

    takes_reference: bool = False

    def __init__(
        self,
        classes: int,
        dim: int,
        *,
        temperature: float = 0.05,
        known: tuple[int, ...] | None = None,
        seed: int = 0,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction)
        if known is not None and (len(known) != classes or list(known) != sorted(set(known))):
            raise ConfigError(
                f"`known` names each of {classes} classes once, in growing order, but {len(known)} labels came "
                f"({len(set(known))} different). Sort them and leave out repetitions."
            )
        self.classes, self.dim, self.temperature, self.known, self.seed = classes, dim, temperature, known, seed
        self.proxies = initial_proxies(classes, dim, seed=seed)
        self._labels: Tensor | None
        labels = None if known is None else torch.tensor(known)
        self.register_buffer("_labels", labels, persistent=False)  # follows from `known`

    def compare(
        self, anchors: Float[Tensor, "n d"], others: Float[Tensor, "m d"] | Float[Tensor, "n m d"] | None = None
    ) -> Float[Tensor, "n m"]:
        return cosine_similarity(anchors, others)

    def comparisons(
        self,
        embeddings: Float[Tensor, "n d"],
        labels: Integer[Tensor, "n"],
        reference: Float[Tensor, "m d"] | None = None,
        reference_labels: Integer[Tensor, "m"] | None = None,
        own: Integer[Tensor, "n"] | None = None,
    ) -> Comparisons:
        """Each sample with its own proxy as its positive and all others as its negatives."""
        refuse_reference(self, reference)
        column, there, others = columns_of(self._numbered(labels), self.classes)
        compared = self.compare(embeddings, beside(self.proxies, embeddings))
        return Comparisons(compared.gather(1, column), there, compared, others)

    def core(self, comparisons: Comparisons) -> Terms:
        c = comparisons
        against = log_sum_exp(c.negative / self.temperature, c.keep_negative, c.negative_weights)
        losses = softplus(against[:, None] - c.positive / self.temperature, threshold=40.0)  # log(1 + Σ / p)
        if c.positive_weights is not None:
            losses = losses * c.positive_weights
        rivals = c.keep_negative if c.negative_weights is None else c.keep_negative & (c.negative_weights > 0)
        formed = c.keep_positive & rivals.any(dim=1, keepdim=True)
        return Terms(losses.masked_fill(~formed, 0).sum(dim=1), formed.sum(dim=1).to(losses.dtype))

    def _numbered(self, labels: Integer[Tensor, "n"]) -> Integer[Tensor, "n"]:
        """Each label's place among the known ones."""
        if self._labels is None:
            return labels
        places = torch.searchsorted(self._labels, labels.long()).clamp(max=self.classes - 1)
        strange = self._labels[places] != labels
        if being_recorded(labels):
            return torch.where(strange, self.classes, places)  # out of range: ends the process rather than go wrong
        if bool(strange.any()):
            raise DataError(
                f"label {int(labels[strange][0])} came, but it is none of the {self.classes} that the proxies stand "
                f"for. Name every training class in `known`."
            )
        return places

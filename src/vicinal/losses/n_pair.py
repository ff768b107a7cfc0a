"""N-pair loss (Sohn, NIPS 2016): one positive against many negatives at once."""

from dataclasses import replace
from typing import ClassVar, Literal, get_args

from jaxtyping import Float, Integer
from torch import Tensor
from torch.nn.functional import softplus

from vicinal.distances import DotProduct, Euclidean, Negative, squared_lengths
from vicinal.errors import ConfigError, DataError, unknown
from vicinal.geometry import log_sum_exp
from vicinal.losses.loss import Comparisons, Layout, Loss, Reduction, Terms

Similarity = Literal["dot", "distance"]


class NPairLoss(Loss):
    """N-pair loss (Sohn 2016): each positive more similar to the anchor than all negatives together.

        l_ip = log(1 + Σ_{n ∈ N_i} exp(s_in - s_ip))                Sohn 2016; ANML, Eq. (28); HDML, Eq. (13)
             + r/4 · (|x_i|² + mean_j |x_j|²)

    for each anchor i and each of its positives p; the mean is over these tuples. s is the inner product (Sohn) or
    minus the Euclidean distance, as HDML's Eq. (13) prints it; r = ``l2`` keeps the unnormalised
    embeddings small, j runs over the rows that anchors are compared with.

    With ``blocks`` the batch is taken as the paper lays it, N classes in blocks ``[a; p]`` (``NPairSampler``): only
    the a are anchors, compared with the p, which makes it the softmax cross-entropy of the N x N matrix a·p. Without,
    any labels will do: every row is an anchor, and all rows of other classes are its negatives.

    An anchor without positives or without negatives forms no tuple.

    Args:
        similarity: ``"dot"``, the inner product, or ``"distance"``, minus the Euclidean distance.
        l2: r; HDML's authors use 3e-3 on Cars196 and 1.5e-2 on CUB.
        squared: whether the distance is squared; of no concern to ``"dot"``.
        normalize: whether embeddings are put on the unit sphere first.
        blocks: whether rows lie in blocks ``[a; p]``.
        reduction: as in ``torch.nn``; ``"none"`` gives one value per anchor, the mean over its positives.
    """

    layout: ClassVar[Layout | None] = "pairs"
    pair_rows: ClassVar[Literal["pair", "class"] | None] = "pair"
    pairs_off_sphere: ClassVar[bool] = True

    def __init__(
        self,
        similarity: Similarity = "dot",
        *,
        l2: float = 3e-3,
        squared: bool = False,
        normalize: bool = False,
        blocks: bool = False,
        reduction: Reduction = "mean",
    ) -> None:
        distance = Negative(Euclidean(squared=squared, normalize=normalize))
        super().__init__(DotProduct(normalize) if similarity == "dot" else distance, reduction)
        if similarity not in get_args(Similarity):
            raise ConfigError(unknown("similarity", str(similarity), get_args(Similarity)))
        self.similarity, self.l2, self.squared = similarity, l2, squared
        self.normalize, self.blocks = normalize, blocks

    def comparisons(
        self,
        embeddings: Float[Tensor, "n d"],
        labels: Integer[Tensor, "n"],
        reference: Float[Tensor, "m d"] | None = None,
        reference_labels: Integer[Tensor, "m"] | None = None,
        own: Integer[Tensor, "n"] | None = None,
    ) -> Comparisons:
        if self.blocks and reference is None:
            if len(embeddings) % 2:
                raise DataError(
                    f"a batch in blocks [a; p] has two rows for each pair, got {len(embeddings)} rows. "
                    f"Use NPairSampler, or NPairLoss without `blocks`."
                )
            (embeddings, reference), (labels, others) = embeddings.chunk(2), labels.chunk(2)
            compared, _ = self._pairs(embeddings, labels, reference, others, None, self.largest_class)
        else:
            compared = super().comparisons(embeddings, labels, reference, reference_labels, own)
        return replace(compared, penalty=self.penalty(embeddings, embeddings if reference is None else reference))

    def penalty(self, anchors: Float[Tensor, "n d"], others: Float[Tensor, "*m d"]) -> Float[Tensor, "n"]:
        """What the embeddings' lengths cost each anchor; ``others`` are the rows it is compared with."""
        return self.l2 / 4 * (squared_lengths(anchors) + squared_lengths(others).mean())

    def core(self, comparisons: Comparisons) -> Terms:
        c = comparisons
        against = log_sum_exp(c.negative, c.keep_negative, c.negative_weights)
        losses = softplus(against[:, None] - c.positive, threshold=40.0)
        if c.positive_weights is not None:
            losses = losses * c.positive_weights
        if c.penalty is not None:
            losses = losses + c.penalty[:, None]
        formed = c.keep_positive & c.keep_negative.any(dim=1, keepdim=True)
        return Terms(losses.masked_fill(~formed, 0).sum(dim=1), formed.sum(dim=1).to(losses.dtype))

"""HER: Ground-to-Aerial Geo-Localization With a Hard Exemplar Reweighting Triplet Loss (Cai et al.,
ICCV 2019).

| paper | here |
|---|---|
| w_hard and the weighted soft-margin loss | `vicinal.losses.HardExemplarLoss` |
| FCAM attention, two streams | `vicinal.models` |
| orientation regression | `OrientationHead`, `losses.hard_exemplar.orientation_errors` |
| the whole loss, λ1 and λ2 | `HER.step` |
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from vicinal.arguments import NonNegative
from vicinal.data.draws import uniform
from vicinal.data.records import Batch, to_device
from vicinal.data.transforms import rotate
from vicinal.errors import ConfigError
from vicinal.losses.hard_exemplar import orientation_errors
from vicinal.methods.method import Method, Parts, StepResult
from vicinal.parallel import all_rows, gather
from vicinal.samplers import CrossViewSampler
from vicinal.tuples import Embeddings, other_class


class OrientationHead(nn.Module):
    """(sin, cos) of the angle from both embeddings, before they are put on the sphere.

        [q; g] -> ReLU -> linear, 100 -> ReLU -> linear, 2 -> length 1

    as in the authors' code. It serves training alone and is not deployed.

    Args:
        dim: size of an embedding.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.first = nn.Linear(2 * dim, 100)
        self.second = nn.Linear(100, 2)

    def forward(self, queries: Embeddings, gallery: Embeddings) -> Float[Tensor, "n 2"]:
        inner = self.first(torch.cat([queries, gallery], dim=1).relu()).relu()
        return functional.normalize(self.second(inner), dim=1)


@dataclass(eq=False)
class HER(Method):
    """HER (Cai et al. 2019): match queries with gallery images; hard exemplars weigh more, matches
    are oriented.

        L = λ1 · w_hard · log(1 + exp(d_p - d_n)) + λ2 · w_hard · |(sin^, cos^) - (sin, cos)|²

    Batches are pairs ``[q, g, q, g, ...]`` of different classes. Queries take the one stream of the
    embedder and gallery images the other; an embedder with a single stream serves both. Gallery
    images are turned in every variant, so that a baseline without the regression sees the same
    pictures.

    Differs: AdamW with one schedule instead of SGD whose momentum starts anew each epoch. The
    authors raise λ1 and λ2 together from (1, 0.5) to (5, 2.5) half-way, which under AdamW changes
    nothing. The context block that their code has after the last stage, beyond the paper, is left
    out.

    Attributes:
        form: ``"paper"`` turns gallery images by any angle, ``"authors"`` by quarters of a full
            turn, as their code does. What else their code has is the loss's: ``epsilon_over``,
            ``detach_weights``.
        lambda1: λ1, of the weighted triplets.
        lambda2: λ2, of the orientation; the authors recommend half of λ1.
        turning: whether gallery images are turned at random in training, on top of how they are.
        regression: whether a head learns how far each match is turned.

    Charts:
        triplets_share: Of each query with its match and every other gallery image of the batch:
            hard, where the other image is nearer than the match; easy, where it is farther by the
            margin and more, so that the triplet weighs next to nothing. Hard should fall towards 0
            and easy rise. Easy near 100 % early: the batch is too small to hold hard exemplars.
        weight: The mean weight of a triplet: 1 where its gap is half the margin, at most log2(1 +
            e^(m/2)). It falls with the share of hard triplets; 1 throughout where weighting is off.
        orientation: By how many degrees the head is off about how far the gallery image is turned,
            a mean over the batch. Guessing gives 90.
    """

    form: Literal["paper", "authors"] = "paper"
    lambda1: NonNegative = 1.0
    lambda2: NonNegative = 0.5
    turning: bool = True
    regression: bool = True

    default_loss = "hard_exemplar"
    needs = "the loss whose weights are those of orientations, too"
    suggests = "hard_exemplar"
    layouts = ("cross_view",)
    indivisible = "its matches are those of the whole batch"

    def takes(self, loss: nn.Module) -> bool:
        return hasattr(loss, "with_orientation")

    def setup(self, parts: Parts) -> None:
        """Build the head, too, which learns at ``loss_factor`` times the rate."""
        dim = parts.embedder.embedding_dim
        self.orientation_head = OrientationHead(dim) if self.regression else None
        super().setup(parts)

    def others(self) -> Iterable[nn.Parameter]:
        return () if self.orientation_head is None else self.orientation_head.parameters()

    def prepare(self, batch: Batch) -> Batch:
        """Say by how many degrees each gallery image is to be turned, and how far it is then from
        its query, in radians.

        Seed, epoch and record determine an angle, in any batch and process.
        """
        if len(batch.inputs) % 2:
            raise ConfigError(
                f"HER takes pairs [q, g, q, g, ...], got {len(batch.inputs)} rows in this process. "
                "Choose a number of pairs that the number of processes divides."
            )
        device = batch.labels.device
        angles = batch.extras.get("angle", torch.zeros(len(batch.inputs), device=device))
        apart = angles[1::2] - angles[0::2]
        by = torch.zeros_like(apart)
        if self.turning:
            if batch.inputs.ndim != 4:
                raise ConfigError(
                    f"gallery images are turned, got inputs {list(batch.inputs.shape)}. Set "
                    "method.turning=false."
                )
            epoch = self.schedule.last_epoch // len(self.sampler)
            records = batch.indices[1::2].numpy()
            # Negative epochs, for the numbers of the others have gone into the augmentation of the
            # same records.
            drawn = 360 * uniform(self.seed, -1 - epoch, records, 1)[:, 0]
            if self.form == "authors":
                drawn = drawn // 90 * 90
            by = to_device(torch.from_numpy(drawn).float(), device)
        return self.given(batch, by=by, angles=torch.deg2rad(apart + by))

    def step(self, batch: Batch) -> StepResult:
        query = self.embedder.stream("query")
        gallery = self.embedder.stream("gallery")
        by, angles = (batch.extras[name] for name in ("by", "angles"))
        aerial = rotate(batch.inputs[1::2], by) if self.turning else batch.inputs[1::2]
        views = (
            query.embed(query.features(batch.inputs[0::2])),
            gallery.embed(gallery.features(aerial)),
        )
        rows, labels = gather(torch.stack(views, dim=1).flatten(0, 1), batch.labels)
        queries = rows[0::2]
        matches = rows[1::2]
        classes = labels[0::2]
        turned = all_rows(angles)
        errors = torch.zeros_like(turned)
        described = {}
        if self.orientation_head is not None:
            errors = orientation_errors(self.orientation_head(queries, matches), turned)
            cosine = (1 - errors.detach() / 2).clamp(-1, 1)  # 2 - 2 cos of the difference
            described["orientation/degrees"] = cosine.acos().mean() * (180 / math.pi)
        pairs = self.loss.with_orientation(queries, matches, classes, errors)
        loss = self.lambda1 * pairs.match + self.lambda2 * pairs.orientation
        apart = other_class(classes)
        compared = self.loss.distance(queries.detach(), matches.detach())
        gaps = compared - compared.diagonal()[:, None]  # beyond a query's own match
        count = apart.sum().clamp(min=1)
        described |= {
            "weight/mean": pairs.weight,
            "triplets_share/hard": ((gaps <= 0) & apart).sum() / count,
            "triplets_share/easy": ((gaps >= self.loss.scaled_margin) & apart).sum() / count,
        }
        return self.update(loss, rows, labels, **described)

    @property
    def notes(self) -> tuple[str, ...]:
        if not isinstance(self.sampler, CrossViewSampler) or self.sampler.roles is not None:
            return super().notes
        return (
            *super().notes,
            "the records have no roles: any two of a class are taken as a query and its match.",
        )

"""The picture of one tuple: what became of its negatives."""

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from vicinal.figures import Point, Scatter, Segment
from vicinal.methods.hdml.synthesis import Embed, Synthesis
from vicinal.tuples import Embeddings

NEGATIVES = 12  # of one anchor: more would hide the arrows
CAPTION = (
    "One anchor of the last batch, its positives and its nearest negatives in the plane that "
    "shows most of them. Arrows go from a real negative to where it was pulled, and on to what "
    "generator and head made of it. Arrows of no length: alpha is too small. Pulled negatives as "
    "near as the positives are as hard as they get; if the regenerated ones then mix with the "
    "anchor and its positives, alpha is too large. Regenerated points far from the pulled ones: "
    "the generator does not keep hardness (generator_rate, reconstruction_factor)."
)


@torch.no_grad()
def tuple_scatter(
    synthesis: Synthesis,
    embeddings: Float[Tensor, "b d"],
    labels: Integer[Tensor, "b"],
    lambda_: Float[Tensor, ""],
    embed: Embed,
) -> Scatter | None:
    """Draw the tuple of a middling anchor: half of the anchors have a nearer negative. None where
    there is none."""
    roles = synthesis.roles(embeddings, labels)
    distances = roles.distances(embeddings, labels)
    if roles.chosen is not None:
        distances = distances.gather(1, roles.chosen)
    nearest = distances.amin(dim=1) if distances.numel() else distances.new_full((1,), torch.inf)
    if not nearest.isfinite().any():
        return None
    anchor = int((nearest - nearest[nearest.isfinite()].median()).abs().argmin())
    count = min(NEGATIVES, int(distances[anchor].isfinite().sum()))
    columns = distances[anchor].argsort()[:count]
    rows, there = roles.positives(labels)
    own = rows[anchor][there[anchor]]
    pulled = roles.pulled(embeddings, labels, lambda_)
    real = roles.negatives(embeddings).expand_as(pulled)[anchor, columns]
    theirs = roles.negatives(labels).expand(len(pulled), -1)[anchor, columns]
    pulled = pulled[anchor, columns]
    parts = [
        ("anchor", embeddings[roles.anchors][[anchor]], labels[roles.anchors][[anchor]]),
        ("positive", embeddings[own], labels[own]),
        ("real negative", real, theirs),
        ("pulled negative", pulled, theirs),
        ("regenerated negative", embed(synthesis.generator(pulled)), theirs),
    ]
    plane = _plane(torch.cat([vectors for _, vectors, _ in parts]), parts[0][1]).tolist()
    names = [(group, f"class {label}") for group, _, classes in parts for label in classes.tolist()]
    points = tuple(
        Point(x, y, group, label) for (x, y), (group, label) in zip(plane, names, strict=True)
    )
    begin = 1 + len(own)
    moves = range(begin, begin + 2 * count)  # real to pulled, pulled to regenerated
    segments = tuple(Segment(start, start + count) for start in moves)
    return Scatter("Real and synthetic negatives", CAPTION, points, segments)


def _plane(vectors: Embeddings, origin: Float[Tensor, "1 d"]) -> Float[Tensor, "n 2"]:
    """Return vectors about an origin in the two directions in which they extend most."""
    about = (vectors - origin).double().cpu()
    directions = torch.linalg.svd(about, full_matrices=False).Vh[:2]
    found = about @ directions.T
    found = torch.nn.functional.pad(found, (0, 2 - found.shape[1]))
    sign = found.sum(dim=0).sign()  # of its own, which the decomposition leaves open
    return (found * sign.where(sign != 0, 1)).round(decimals=5)

"""What HDML reports: a picture of one synthetic tuple."""

import torch
from jaxtyping import Float, Integer
from torch import Tensor

from vicinal.figures import Point, Scatter, Segment
from vicinal.methods.hdml.synthesis import Embed, Synthesis
from vicinal.tuples import Embeddings

NEGATIVES = 12  # of one anchor: more would hide the arrows
TUPLE_CAPTION = (
    "One anchor of the last batch, its positives and its nearest negatives in the plane that shows most of them. "
    "Arrows go from a real negative to where it was pulled, and on to what generator and head made of it. Arrows of no "
    "length: alpha is too small. Pulled negatives as near as the positives are as hard as they get; if the regenerated "
    "ones then mix with the anchor and its positives, alpha is too large. Regenerated points far from the pulled ones: "
    "the generator does not keep hardness (generator_rate, reconstruction_factor)."
)


@torch.no_grad()
def tuple_scatter(
    synthesis: Synthesis,
    embeddings: Float[Tensor, "b d"],
    labels: Integer[Tensor, "b"],
    lambda_: Float[Tensor, ""],
    embed: Embed,
    features: Float[Tensor, "b y"],
) -> Scatter | None:
    """Draw the tuple of a middling anchor: half of the anchors have a nearer negative. None where there is none."""
    roles = synthesis.roles(embeddings, labels)
    distances = roles.distances(embeddings, labels)
    if roles.chosen is not None:
        distances = distances.gather(1, roles.chosen)
    nearest = distances.amin(dim=1) if distances.numel() else distances.new_full((1,), torch.inf)
    if not nearest.isfinite().any():
        return None
    anchor = int((nearest - nearest[nearest.isfinite()].median()).abs().argmin())
    one, count = slice(anchor, anchor + 1), min(NEGATIVES, int(distances[anchor].isfinite().sum()))
    columns = distances[anchor].argsort()[:count]
    rows, there = roles.positives(labels)
    own = rows[anchor][there[anchor]]
    pulled = synthesis.mover(embeddings, labels, lambda_, roles)(one)[0][columns]
    parts = [
        ("anchor", embeddings[roles.anchors][one], labels[roles.anchors][one]),
        ("positive", embeddings[own], labels[own]),
    ]
    theirs, begin = roles.negatives(labels, one)[0][columns], 1 + len(own)
    parts += [
        ("real negative", roles.negatives(embeddings, one)[0][columns], theirs),
        ("pulled negative", pulled, theirs),
    ]
    if synthesis.generator is not None:
        changed, seen = synthesis.regenerate(pulled, embed)
        if synthesis.settings.members == "real":
            lost = features - synthesis.generator(embeddings)
            seen = embed(changed + roles.negatives(lost, one)[0][columns])
        parts.append(("regenerated negative", seen, theirs))
    plane = _plane(torch.cat([vectors for _, vectors, _ in parts]), parts[0][1]).tolist()
    names = [(group, f"class {label}") for group, _, classes in parts for label in classes.tolist()]
    points = tuple(Point(x, y, group, label) for (x, y), (group, label) in zip(plane, names, strict=True))
    steps = range(begin, begin + (len(parts) - 3) * count)  # every negative but the last kind goes on to the next
    return Scatter("Real and synthetic negatives", TUPLE_CAPTION, points, tuple(Segment(i, i + count) for i in steps))


def _plane(vectors: Embeddings, origin: Float[Tensor, "1 d"]) -> Float[Tensor, "n 2"]:
    """Return vectors about an origin in the two directions in which they extend most."""
    about = (vectors - origin).double().cpu()
    directions = torch.linalg.svd(about, full_matrices=False).Vh[:2]
    found = about @ directions.T
    found = torch.nn.functional.pad(found, (0, 2 - found.shape[1]))
    return (found * found.sum(dim=0).sign().where(found.sum(dim=0) != 0, 1)).round(decimals=5)  # a sign of its own

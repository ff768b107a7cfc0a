"""A head that starts as the principal components of the features it will read."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vicinal.errors import ConfigError
from vicinal.models.embedder import Embedder


def start_as_principal_components(embedder: Embedder, features: Float[Tensor, "n c"], length: float = 1.0) -> None:
    """Set the head to the projection on the components of largest variance: g(y) = s Vᵀ (y - ȳ).

    Over a pre-trained backbone a random head throws away what the backbone knows, and training spends its steps on
    finding it again. The components keep all of it that so many dimensions can; distances then start as those of the
    centred features.

    Args:
        embedder: whose head is set, in place.
        features: of the training records, as ``Embedder.features`` gives them.
        length: mean length of the embeddings, which sets s. Losses on the sphere do not see it; one over inner products
            (N-pair loss) does, as a temperature.

    >>> from vicinal.models import Identity
    >>> embedder = Embedder(Identity(2), 1, normalize=False)
    >>> line = torch.tensor([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]])
    >>> start_as_principal_components(embedder, line, length=2.0)
    >>> embedder(line).flatten().tolist()
    [-3.0, 0.0, 3.0]
    """
    head, dim = embedder.head, embedder.dim
    if dim is None or not isinstance(head, nn.Linear):
        raise ConfigError("a head was to start as principal components, but this network has none. Set `dim`.")
    if dim > min(features.shape):
        raise ConfigError(
            f"{dim} principal components were asked for, but {features.shape[0]} features of {features.shape[1]} "
            f"numbers have at most {min(features.shape)}. Lower `dim`, or use start.head=random."
        )
    features = features.double().cpu()
    mean = features.mean(dim=0)
    centred = features - mean
    _, vectors = torch.linalg.eigh(centred.T @ centred)
    components = vectors[:, -dim:].T.flip(0)  # the largest first
    largest = components.abs().argmax(dim=1, keepdim=True)
    components = components * components.gather(1, largest).sign()  # an eigenvector has no sign of its own
    scale = length / (centred @ components.T).norm(dim=1).mean().clamp(min=torch.finfo(torch.float64).tiny)
    with torch.no_grad():
        head.weight.copy_(scale * components)
        if head.bias is not None:
            head.bias.copy_(-scale * (components @ mean))

"""Starts of a head: the features that it reads, their principal components or discriminants, or
Glorot's draw."""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from vicinal.errors import ConfigError
from vicinal.models.backbone import Features
from vicinal.models.embedder import Embedder

# of the scatter within classes towards its mean variance; 512 directions are not known from 50 a
# class
SHRINKAGE = 1.0


def start_as_features(embedder: Embedder, features: Features) -> None:
    """Set the head so that embeddings have the directions of the features: g(y) = s y.

    With fewer dimensions than the features have it is their projection on the largest singular
    vectors, with more the others are 0.

    >>> from vicinal.models import Identity
    >>> embedder = Embedder(Identity(2), 3)
    >>> start_as_features(embedder, torch.tensor([[3.0, 4.0], [0.0, 5.0]]))
    >>> [round(value, 3) for value in embedder(torch.tensor([[3.0, 4.0]]))[0].tolist()]
    [0.6, 0.8, 0.0]
    """
    head = _linear(embedder)
    _, width = features.shape
    features = features.double().cpu()
    basis = torch.eye(width, dtype=features.dtype)
    if head.out_features < width:
        basis = torch.linalg.eigh(features.T @ features)[1][:, -head.out_features :].T
    _fill(head, basis / features.norm(dim=1).mean().clamp(min=torch.finfo(features.dtype).tiny))


def start_as_principal_components(
    embedder: Embedder, features: Features, length: float = 1.0
) -> None:
    """Set the head to the projection on the components of largest variance: g(y) = s Vᵀ (y - ȳ).

    Over a pre-trained backbone a random head throws away what the backbone knows, and training
    spends its steps on finding it again. The components keep all of it that so many dimensions can;
    distances then start as those of the centered features.

    Args:
        embedder: whose head is set, in place.
        features: of the training records, as ``Embedder.features`` gives them.
        length: mean length of the embeddings, which sets s. Losses on the sphere do not see it; one
            over inner products (N-pair loss) does, as a temperature.

    >>> from vicinal.models import Identity
    >>> embedder = Embedder(Identity(2), 1, normalize=False)
    >>> line = torch.tensor([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]])
    >>> start_as_principal_components(embedder, line, length=2.0)
    >>> embedder(line).flatten().tolist()
    [-3.0, 0.0, 3.0]
    """
    features = features.double().cpu()
    _set(embedder, features, torch.eye(features.shape[1], dtype=features.dtype), length)


def start_as_discriminants(
    embedder: Embedder,
    features: Features,
    labels: Integer[Tensor, "n"],
    length: float = 1.0,
) -> None:
    """Set the head to the principal components of features whose scatter within classes was
    whitened first.

        g(y) = s Vᵀ A (y - ȳ),   A = (W + σ I)^(-1/2),   W the mean covariance within classes

    Directions in which images of one class differ count less, as in Fisher's discriminants; σ, the
    mean variance of W, keeps those directions in check that the few images of a class cannot tell.

    Args:
        embedder: whose head is set, in place.
        features: of the training records, as ``Embedder.features`` gives them.
        labels: their classes.
        length: mean length of the embeddings; see ``start_as_principal_components``.

    >>> from vicinal.models import Identity
    >>> embedder = Embedder(Identity(2), 1, normalize=False)
    >>> tall = torch.tensor([[0.0, -3.0], [0.0, 3.0], [4.0, -3.0], [4.0, 3.0]])
    >>> start_as_discriminants(embedder, tall, torch.tensor([0, 0, 1, 1]))
    >>> width, height = embedder.head.weight[0].abs()
    >>> bool(width > height)  # the classes lie side by side, though their height varies more
    True
    """
    features = features.double().cpu()
    _, places = torch.unique(labels.cpu(), return_inverse=True)
    sums = torch.zeros(int(places.max()) + 1, features.shape[1], dtype=features.dtype).index_add_(
        0, places, features
    )
    within = features - (sums / places.bincount().unsqueeze(1))[places]
    variances, directions = torch.linalg.eigh(within.T @ within / len(features))
    # Where the rows of each class are equal there is no scatter: A is then a multiple of the
    # identity, whose square stays finite.
    least = torch.finfo(features.dtype).tiny ** 0.5
    scales = (variances.clamp(min=0) + SHRINKAGE * variances.mean()).clamp(min=least).rsqrt()
    _set(embedder, features, (directions * scales) @ directions.T, length)


def start_by_estimator(
    embedder: Embedder,
    features: Features,
    labels: Integer[Tensor, "n"],
    name: str,
    arguments: Mapping[str, Any],
) -> None:
    """Set the head to the linear map that an estimator of ``vicinal.linear`` learns: g(y) = L (y -
    ȳ) / σ.

    Features are standardized first, since columns of a table have units of their own.

    Args:
        embedder: whose head is set, in place. A head that is smaller than the features bounds the
            rank of L; of an estimator without such a bound the longest rows are kept.
        features: of the training records, as ``Embedder.features`` gives them.
        labels: their classes.
        name: a name in ``vicinal.linear.ESTIMATORS``.
        arguments: of its constructor.
    """
    from sklearn.preprocessing import StandardScaler

    from vicinal.linear import ESTIMATORS

    head = _linear(embedder)
    estimator = ESTIMATORS[name](**arguments)
    if head.out_features < features.shape[1] and "n_components" in estimator.get_params():
        estimator.set_params(n_components=head.out_features)
    scaler = StandardScaler()
    samples = scaler.fit_transform(features.double().cpu().numpy())
    estimator.fit(samples, labels.cpu().numpy())
    weight = torch.from_numpy(estimator.components_[: head.out_features] / scaler.scale_)
    _fill(head, weight, -(weight @ torch.from_numpy(scaler.mean_)))


def start_by_glorot(embedder: Embedder, seed: int) -> None:
    """Draw the weights of the head from U(-a, a), a = √(6 / (inputs + outputs)), and set its biases
    to 0.

    This is the start of Glorot and Bengio (2010) and TensorFlow's default, so that of HDML's
    authors; torch draws from U(-b, b), b = 1 / √inputs. The draw depends on ``seed`` alone, and two
    streams get the same one.

    >>> from vicinal.models import Identity
    >>> embedder = Embedder(Identity(2), 4)
    >>> start_by_glorot(embedder, seed=0)
    >>> bool(embedder.head.weight.abs().max() <= 1), embedder.head.bias.abs().max().item()
    (True, 0.0)
    """
    for stream in embedder.streams:
        layers = [module for module in stream.head.modules() if isinstance(module, nn.Linear)]
        generator = torch.Generator().manual_seed(seed)
        for layer in layers:
            weight = nn.init.xavier_uniform_(torch.empty(layer.weight.shape), generator=generator)
            with torch.no_grad():
                layer.weight.copy_(weight)
                layer.bias.zero_()


def _set(
    embedder: Embedder,
    features: Features,
    whitening: Float[Tensor, "c c"],
    length: float,
) -> None:
    """Set the head to the principal components of the features after ``whitening``."""
    head = _linear(embedder)
    mean = features.mean(dim=0)
    centered = (features - mean) @ whitening
    _, vectors = torch.linalg.eigh(centered.T @ centered)
    # The largest first. Of fewer images than dimensions the last ones are any at right angles:
    # other images have something there, too.
    components = vectors[:, -head.out_features :].T.flip(0)
    largest = components.abs().argmax(dim=1, keepdim=True)
    # An eigenvector has no sign of its own.
    components = components * components.gather(1, largest).sign()
    scale = length / (centered @ components.T).norm(dim=1).mean().clamp(
        min=torch.finfo(torch.float64).tiny
    )
    weight = scale * (components @ whitening)
    _fill(head, weight, -(weight @ mean))


def _linear(embedder: Embedder) -> nn.Linear:
    if not isinstance(embedder.head, nn.Linear):
        raise ConfigError(
            "only a linear head can start as computed from features, got "
            f"{type(embedder.head).__name__}. "
            f"Set model.head=linear, model.dim and model.head_norm=false, or model.start=random."
        )
    return embedder.head


def _fill(
    head: nn.Linear, weight: Float[Tensor, "k c"], bias: Float[Tensor, "k"] | None = None
) -> None:
    """Set the first rows of a linear layer, and the others to 0."""
    with torch.no_grad():
        for values, found in ((head.weight, weight), (head.bias, bias)):
            if values is not None:
                values.zero_()
                if found is not None:
                    values[: len(found)] = found.to(values.dtype)

"""The embedder: backbone, pooling and head; and two of them for data of two views."""

import copy
import math
from collections.abc import Callable, Mapping
from typing import Literal, NoReturn, Self, cast

import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.utils.checkpoint import checkpoint

from vicinal.arguments import check_arguments
from vicinal.distances import Metric, exponential_map
from vicinal.errors import ConfigError, few
from vicinal.models.backbone import Features, kernels
from vicinal.models.finetuning import FrozenPart, add_lora, freeze_parameters, merge_lora
from vicinal.tuples import Embeddings

Pooling = Literal["average", "max", "both", "generalized", "token"]
POWER = 3.0
LEAST = 1e-6  # of the generalized mean, as its authors start and clamp it
Role = Literal["query", "gallery"]


class Embedder(nn.Module):
    """z = g(f(x)): a backbone f gives the feature y, a head g the embedding z.

    Methods that need y (HDML's generator maps back to it) call ``features`` and ``embed``
    themselves; what is deployed is ``forward``.

    Args:
        backbone: gives a map ``[n c h w]``, tokens ``[n t c]`` or a vector ``[n c]``; has ``width``
            = c, and ``prefix_tokens`` where tokens that are no patches come first.
        dim: size of the embedding; None leaves the head out, so z = y.
        normalize: whether ``forward`` puts z on the unit sphere. Losses that work on the sphere
            normalize by themselves, so this decides only what is deployed and measured.
        pooling: how a map, or the tokens of the patches, become a vector; ``"both"`` is the sum of
            average and maximum, ``"generalized"`` what lies between them, (mean of x³)^(1/3) (GeM:
            Radenović et al., TPAMI 2019), ``"token"`` the class token.
        hidden: units of a hidden layer with ReLU in the head; None is a linear head.
        head_norm: whether the head begins with a batch norm, as that of HDML's authors (Zheng et
            al. 2019) does; ε and momentum are TensorFlow's.
        freeze: what of the backbone does not train (``finetuning.freeze_parameters``); its batch
            norms stay in evaluation mode.
        lora: rank of the updates to linear layers, the only part of the backbone that then trains
            (``finetuning.add_lora``).
        curvature: c of a hyperbolic head: z is a point of the Poincaré ball of curvature -c and is
            compared by `vicinal.distances.Poincare` (Ermolov et al., CVPR 2022). ``forward`` gives
            √c z, in the ball of radius 1. None is a Euclidean head.
        clip: length to which a hyperbolic head clips its vectors before they enter the ball.
        uncertainty: whether a second head says how ambiguous an input is (``add_uncertainty``).
    """

    def __init__(
        self,
        backbone: nn.Module,
        dim: int | None = None,
        *,
        normalize: bool = True,
        pooling: Pooling = "average",
        hidden: int | None = None,
        head_norm: bool = False,
        freeze: str | None = None,
        lora: int | None = None,
        curvature: float | None = None,
        clip: float = 2.3,
        uncertainty: bool = False,
    ) -> None:
        super().__init__()
        self.prefix_tokens = int(getattr(backbone, "prefix_tokens", 0))
        if pooling == "token" and not self.prefix_tokens:
            raise ConfigError(
                "pooling='token' takes the class token of a transformer, and "
                f"{type(backbone).__name__} has none. Set model.pooling=average."
            )
        self.backbone = backbone
        self.dim = dim
        self.normalize = normalize
        self.pooling = pooling
        self.hidden = hidden
        self.head_norm = head_norm
        self.freeze = freeze
        self.lora = lora
        self.curvature = curvature
        self.clip = clip
        check_arguments(self)
        self.width = int(backbone.width)  # type: ignore[arg-type]
        self.head = self._head()
        self.uncertainty = False
        if uncertainty:
            self.add_uncertainty()
        if lora is not None:
            add_lora(backbone, lora)
        elif freeze is not None:
            freeze_parameters(backbone, freeze)
        if lora is not None or freeze is not None:
            self.train(self.training)  # puts the norms of frozen parts in evaluation mode
        self.precision: torch.dtype | None = None
        self.chunk: int | None = None
        self.frozen: FrozenPart | None = None  # whose outputs come in training
        self.left: list[str] | None = None  # by `take`
        self._compiled: Callable[[Tensor], Tensor] | None = None

    def _head(self) -> nn.Module:
        if self.dim is None:
            return nn.Identity()
        layers: list[nn.Module] = (
            [nn.BatchNorm1d(self.width, eps=1e-3, momentum=0.01)] if self.head_norm else []
        )
        if self.hidden is not None:
            layers += [nn.Linear(self.width, self.hidden), nn.ReLU()]
        layers.append(nn.Linear(self.hidden or self.width, self.dim))
        return layers[0] if len(layers) == 1 else nn.Sequential(*layers)

    def take(self, weights: Mapping[str, Tensor]) -> None:
        """Take network and head from the weights of a run, each where all of it fits; ``left``
        names what does not. A network with LoRA has loaded its own before."""
        self.left = []
        for name in ("backbone", "head") if self.lora is None else ("head",):
            part: nn.Module = getattr(self, name)
            wanted = part.state_dict()
            given = {}
            for key, value in wanted.items():
                found = weights.get(f"{name}.{key}", weights.get(f"gallery.{name}.{key}"))
                if found is not None and found.shape == value.shape:
                    given[key] = found
            if len(given) == len(wanted):
                part.load_state_dict(given)
            else:
                self.left.append(name)

    @property
    def took_head(self) -> bool:
        """Whether the head is that of a run."""
        return self.left is not None and not any(name.startswith("head") for name in self.left)

    def add_uncertainty(self) -> None:
        """Add a head u = h(y) beside g: the longer u is, the more ambiguous the input (IDML). Only
        ``ambiguity`` gives it."""
        self.uncertainty = True
        self.uncertainty_head = nn.Linear(self.width, self.embedding_dim)

    def ambiguity(self, inputs: Tensor) -> Float[Tensor, "n 1"]:
        """Return |u| of each input."""
        heading = self.uncertainty_head(self.features(inputs))
        return heading.norm(dim=1, keepdim=True)

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        if self.freeze is not None or self.lora is not None:
            whole = self.lora is not None or self.freeze == "all"
            for norm in [
                module for module in self.backbone.modules() if isinstance(module, _BatchNorm)
            ]:
                trains = [parameter.requires_grad for parameter in norm.parameters()]
                if whole or (trains and not any(trains)):
                    norm.eval()
        return self

    @property
    def embedding_dim(self) -> int:
        """The size of an embedding: ``dim``, or without a head the backbone's width."""
        return self.dim or self.width

    @property
    def input_width(self) -> int:
        """The size of a feature vector that it takes."""
        return cast(int, self.backbone.input_width)

    @property
    def reads_text(self) -> bool:
        """Whether its inputs are texts."""
        return getattr(self.backbone, "kind", "") == "text"

    @property
    def streams(self) -> tuple["Embedder", ...]:
        """The networks that inputs go through: this one; ``TwoStreamEmbedder`` has two."""
        return (self,)

    def stream(self, role: Role | None) -> "Embedder":
        """Return the network that rows of a role go through: this one, for any role."""
        return self

    def merged(self) -> "Embedder":
        """Return a copy without LoRA layers and with the same embeddings, for deployment."""
        merged = copy.deepcopy(self)
        merge_lora(merged)
        merged.lora = None
        return merged

    def accelerate(self, precision: torch.dtype | None, *, compiled: bool = False) -> None:
        """Train the backbone in a lower precision, or compiled; what is deployed and measured stays
        as it is.

        Precision is set here and nowhere else: ``features`` returns float32 or more, so a head, a
        loss and what a method adds never see half precision.
        """
        self.precision = precision
        # Not a submodule, or its parameters would be listed twice.
        object.__setattr__(self, "_compiled", torch.compile(self.backbone) if compiled else None)

    def features(self, inputs: Tensor) -> Features:
        """Compute y = pooled f(x); while training in chunks, where ``chunk`` is set."""
        if self.chunk is not None and self.training:
            return chunked(self._features, inputs, self.chunk)
        return self._features(inputs)

    def _features(self, inputs: Tensor) -> Features:
        return self.pool(self.maps(inputs))

    def maps(self, inputs: Tensor) -> Tensor:
        """Compute f(x) before pooling."""
        if self.training and self.frozen is not None:
            return self.frozen.rest(inputs.view(-1, *self.frozen.shape))
        if not self.training or (self.precision is None and self._compiled is None):
            return self.backbone(inputs)
        with (
            torch.autocast(inputs.device.type, self.precision, enabled=self.precision is not None),
            kernels(inputs),
        ):
            # Compiled modules have no truth value on torch 2.11.
            network = self.backbone if self._compiled is None else self._compiled
            return network(inputs).float()

    def pool(self, maps: Tensor) -> Features:
        """Turn what the backbone gives into one vector for each input."""
        if maps.ndim == 2:
            return maps
        if maps.ndim == 3:
            if self.pooling == "token":
                return maps[:, 0]
            # Patches as the places of a map.
            maps = maps[:, self.prefix_tokens :].transpose(1, 2).unsqueeze(3)
        if self.pooling == "average":
            return maps.mean(dim=(2, 3))
        if self.pooling == "max":
            return maps.amax(dim=(2, 3))
        if self.pooling == "generalized":
            return maps.clamp(min=LEAST).pow(POWER).mean(dim=(2, 3)).pow(1 / POWER)
        return maps.mean(dim=(2, 3)) + maps.amax(dim=(2, 3))

    def embed(self, features: Features) -> Embeddings:
        """Compute z = g(y), before any normalization; a hyperbolic head's lies in the ball of its
        curvature."""
        embeddings: Tensor = self.head(features)
        if self.curvature is None:
            return embeddings
        return exponential_map(embeddings, self.curvature, self.clip)

    def deploy(self, embeddings: Embeddings) -> Embeddings:
        """Turn z into what is deployed and compared by `metric`: on the unit sphere, or in the ball
        of radius 1."""
        if self.curvature is not None:
            return math.sqrt(self.curvature) * embeddings
        return functional.normalize(embeddings, dim=1) if self.normalize else embeddings

    @property
    def metric(self) -> Metric:
        """By which deployed embeddings are near."""
        return "euclidean" if self.curvature is None else "poincare"

    def forward(self, inputs: Tensor) -> Embeddings:
        return self.deploy(self.embed(self.features(inputs)))


Apply = Callable[[Embedder, Tensor], Tensor]  # from a stream and its inputs to vectors


class TwoStreamEmbedder(Embedder):
    """Queries through one network, gallery images through another (pseudo-siamese: one shape,
    separate weights).

    Queries may also be texts and the gallery pictures: a joint embedding, in which what has no role
    is a picture. ``joined`` embeds both at once.

    Which stream an image takes is its role, a column of the records; ``stream`` returns it. Each
    stream is an
    ``Embedder`` of its own: to index a gallery takes ``stream("gallery")`` alone.

    >>> from vicinal.models import Identity
    >>> embedder = TwoStreamEmbedder(Embedder(Identity(8), 4), Embedder(Identity(8), 4))
    >>> embedder.stream("gallery")(torch.ones(3, 8)).shape
    torch.Size([3, 4])

    Args:
        query: embeds queries.
        gallery: embeds what is searched; its embeddings have the same size.
    """

    def __init__(self, query: Embedder, gallery: Embedder) -> None:
        # Two whole embedders stand where an Embedder has one backbone and one head.
        nn.Module.__init__(self)
        self.query = query
        self.gallery = gallery
        self.dim = query.dim
        self.width = query.width
        self.normalize = query.normalize
        self.head_norm = query.head_norm
        self.curvature = query.curvature
        self.freeze = self.lora = None  # each stream restricts itself
        self.uncertainty = False
        self.left = None
        self.precision = query.precision

    @property
    def backbone(self) -> nn.ModuleList:  # type: ignore[override]
        """Both backbones, for whoever asks for their parameters."""
        return nn.ModuleList([self.query.backbone, self.gallery.backbone])

    @property
    def head(self) -> nn.ModuleList:  # type: ignore[override]
        """Both heads."""
        return nn.ModuleList([self.query.head, self.gallery.head])

    @property
    def streams(self) -> tuple[Embedder, ...]:
        return self.query, self.gallery

    def take(self, weights: Mapping[str, Tensor]) -> None:
        self.left = []
        for role, stream in zip(("query", "gallery"), self.streams, strict=True):
            stream.take({name.removeprefix(f"{role}."): value for name, value in weights.items()})
            self.left += [f"{part} of {role}" for part in stream.left or ()]

    def merged(self) -> "TwoStreamEmbedder":
        return TwoStreamEmbedder(self.query.merged(), self.gallery.merged())

    def stream(self, role: Role | None) -> Embedder:
        if role is None and not self.reads_text:
            self._no_role()
        return self.query if role == "query" else self.gallery

    def joined(
        self,
        apply: Apply,
        texts: UInt8[Tensor, "t bytes"],
        pictures: Tensor,
        asks: Bool[Tensor, "n"],
    ) -> Embeddings:
        """Return what ``apply`` makes of texts with their stream and of pictures with theirs, in
        the batch's order.

        Args:
            apply: from a stream and its inputs to vectors.
            texts: of the rows that ask.
            pictures: of the other rows, images or feature vectors; may be empty.
            asks: which rows are texts.
        """
        rows = [apply(self.query, texts)] + (
            [apply(self.gallery, pictures)] if len(pictures) else []
        )
        return torch.cat(rows)[torch.argsort((~asks).long(), stable=True).argsort()]

    def accelerate(self, precision: torch.dtype | None, *, compiled: bool = False) -> None:
        self.precision = precision
        for stream in (self.query, self.gallery):
            stream.accelerate(precision, compiled=compiled)

    @property
    def reads_text(self) -> bool:
        return self.query.reads_text

    def _no_role(self, inputs: Tensor | None = None) -> NoReturn:
        raise ConfigError(
            "this model embeds queries and gallery images by different networks, and these inputs "
            "have no role. Set `--role query` or `--role gallery`, or give the records a column "
            "`role` (1 query, 2 gallery)."
        )

    features = maps = embed = forward = _no_role  # type: ignore[assignment]


def chunked(function: Callable[[Tensor], Tensor], inputs: Tensor, rows: int) -> Tensor:
    """Apply ``function`` to ``rows`` inputs at a time, with the activations of one chunk in memory:
    gradient caching.

    The forward pass keeps the outputs alone. The backward pass runs ``function`` again on each
    chunk, the random numbers of dropout included, and differentiates it before the next:

        ∂L/∂θ = Σ_chunks (∂L/∂f(chunk)) (∂f(chunk)/∂θ)  Gao, Zhang, Han and Callan 2021, Section 3.2

    Because the loss sees the outputs of all rows, the gradient is that of the whole batch. This
    costs a second forward pass. It holds for a ``function`` that treats each row by itself;
    ``check_chunks`` finds the layers that do not.

    >>> layer, inputs = torch.nn.Linear(3, 2), torch.randn(5, 3)
    >>> (gradient,) = torch.autograd.grad(chunked(layer, inputs, 2).logsumexp((0, 1)), layer.weight)
    >>> (whole,) = torch.autograd.grad(layer(inputs).logsumexp((0, 1)), layer.weight)
    >>> torch.testing.assert_close(gradient, whole)
    """
    if len(inputs) <= rows:
        return function(inputs)
    return torch.cat(
        [checkpoint(function, chunk, use_reentrant=False) for chunk in torch.split(inputs, rows)]
    )


def check_chunks(embedder: Embedder, rows: int) -> None:
    """Raise a ConfigError if chunks of ``rows`` rows would not give the gradient of the whole
    batch.

    Batch norms take their statistics from the rows they are given, and a second forward pass would
    count these rows twice in the running averages. Frozen ones do neither. The head sees the whole
    batch, so it may have any layers.
    """
    training = embedder.training
    whole = set(embedder.head.modules())
    embedder.train()  # a frozen norm shows itself when the network is put in training mode
    names = [
        name
        for name, module in embedder.named_modules()
        if isinstance(module, _NormBase)
        and module not in whole
        and module.training
        and (isinstance(module, _BatchNorm) or module.track_running_stats)
    ]
    embedder.train(training)
    if names:
        raise ConfigError(
            f"training.chunk={rows} embeds {rows} rows at a time, but {len(names)} norms of the "
            f"network take their statistics from a batch ({few(names)}), so its gradients would "
            "not be those of the whole batch. Freeze them with model.freeze_norm=true, take a "
            "model with layer norms, or leave training.chunk out."
        )

"""The embedder: backbone, pooling, head; the feature y and the embedding z are both at hand."""

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from vicinal.errors import ConfigError

Pooling = Literal["average", "max", "both", "generalized"]
POWER, LEAST = 3.0, 1e-6  # of the generalised mean, as its authors start and clamp it
Role = Literal["query", "gallery"]


class Embedder(nn.Module):
    """z = g(f(x)): a backbone f gives the feature y, a linear head g the embedding z.

    Methods that need y (HDML's generator maps back to it) call ``features`` and ``embed`` themselves; what is
    deployed is ``forward``.

    Args:
        backbone: gives a map ``[n c h w]`` or a vector ``[n c]``; has ``width`` = c.
        dim: size of the embedding; None leaves the head out, so z = y.
        normalize: whether ``forward`` puts z on the unit sphere. Losses that work on the sphere normalise for
            themselves, so this decides only what is deployed and measured.
        pooling: how a map becomes a vector; ``"both"`` is the sum of average and maximum, ``"generalized"`` what
            lies between them, (mean of x³)^(1/3) (GeM: Radenović et al., TPAMI 2019).
    """

    def __init__(
        self, backbone: nn.Module, dim: int | None = None, *, normalize: bool = True, pooling: Pooling = "average"
    ) -> None:
        super().__init__()
        if dim is not None and dim < 1:
            raise ConfigError(f"an embedding has at least 1 dimension, but dim={dim} came.")
        self.backbone, self.dim, self.normalize, self.pooling = backbone, dim, normalize, pooling
        self.width = int(backbone.width)  # type: ignore[arg-type]
        self.head = nn.Identity() if dim is None else nn.Linear(self.width, dim)
        self.precision: torch.dtype | None = None
        self.recorded = False
        self._compiled: Callable[[Tensor], Tensor] | None = None

    def stream(self, role: Role | None) -> "Embedder":
        """The network that rows of a role go through: this one, whatever they are (``TwoStreamEmbedder`` has two)."""
        return self

    @property
    def compiled(self) -> bool:
        return self._compiled is not None

    def accelerate(self, precision: torch.dtype | None, *, compiled: bool = False, recorded: bool = False) -> None:
        """Train the backbone in a lower precision, or compiled; what is deployed and measured stays as it is.

        ``recorded`` lets methods record their steps on a GPU and replay them (``methods.recording``).

        Precision is settled here and nowhere else: ``features`` returns float32 or more, so a head, a loss and whatever
        a method adds never meet half precision.
        """
        self.precision, self.recorded = precision, recorded
        # Not a submodule, or its parameters would be listed twice.
        object.__setattr__(self, "_compiled", torch.compile(self.backbone) if compiled else None)

    def features(self, inputs: Tensor) -> Float[Tensor, "n c"]:
        """y = pooled f(x)."""
        if not self.training or (self.precision is None and self._compiled is None):
            return self.pool(self.backbone(inputs))
        run = self.backbone if self._compiled is None else self._compiled
        with torch.autocast(inputs.device.type, self.precision, enabled=self.precision is not None):
            maps = run(inputs)
        return self.pool(maps.float())

    def pool(self, maps: Tensor) -> Float[Tensor, "n c"]:
        """What the backbone gives, as one vector for each input."""
        if maps.ndim == 2:
            return maps
        if self.pooling == "average":
            return maps.mean(dim=(2, 3))
        if self.pooling == "max":
            return maps.amax(dim=(2, 3))
        if self.pooling == "generalized":
            return maps.clamp(min=LEAST).pow(POWER).mean(dim=(2, 3)).pow(1 / POWER)
        return maps.mean(dim=(2, 3)) + maps.amax(dim=(2, 3))

    def embed(self, features: Float[Tensor, "n c"]) -> Float[Tensor, "n d"]:
        """z = g(y), before any normalisation."""
        embeddings: Tensor = self.head(features)
        return embeddings

    def forward(self, inputs: Tensor) -> Float[Tensor, "n d"]:
        embeddings = self.embed(self.features(inputs))
        return functional.normalize(embeddings, dim=1) if self.normalize else embeddings

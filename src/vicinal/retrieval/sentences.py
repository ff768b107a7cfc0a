"""A run's model as a folder that ``SentenceTransformer(folder)`` opens, and ``AutoModel`` of
transformers its network."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from safetensors.torch import save_file
from torch import nn

from vicinal.data.transforms import ImageTransform
from vicinal.errors import ConfigError, RunError
from vicinal.evaluation import encoder as evaluation
from vicinal.files import decoding
from vicinal.models.embedder import Embedder, Role
from vicinal.models.encoders import ACTIVATIONS, FILTERS, Encoder, Normalize
from vicinal.retrieval.export import CARD, Export, handover, model_card
from vicinal.run_directory import RunDirectory

FORMAT = "sentence-transformers"
_MODULES = "sentence_transformers.models"
# What the network gives, and what sentence-transformers calls it, without and with a pooling of its
# own.
_OUTPUTS = (("pooler_output", "sentence_embedding"), ("last_hidden_state", "token_embeddings"))


def export_sentences(
    run: RunDirectory,
    to: Path | None = None,
    *,
    role: Role | None = None,
    license: str = "unknown",
) -> Export:
    """Write the selected model of a run as sentence-transformers and transformers have it.

    The folder is there whole or not at all.

    Args:
        run: a run over an encoder of those libraries.
        to: the folder, empty or missing, by default ``RUN/sentence-transformers``.
        role: which network to export of a run that has two.
        license: as for `export_run`.
    """
    folder = run.path / FORMAT / (role or "") if to is None else to
    if folder.is_dir() and any(folder.iterdir()):
        raise RunError(f"{folder} holds files already. Name another folder with --to.")
    encoder = evaluation.Encoder.load(run).stream(role)
    embedder = encoder.embedder.merged()
    backbone = embedder.backbone
    if not isinstance(backbone, Encoder) or not backbone.reopens or embedder.curvature:
        raise ConfigError(
            f"{FORMAT} cannot open the {type(backbone).__name__} of {run.path}: it opens networks "
            "of model=hf:NAME, st:NAME and minilm (but for SigLIP's of texts), without a "
            "hyperbolic head. Leave out --format."
        )
    network: Any = backbone.network
    document = handover(embedder, encoder.preprocessing)
    info = {"name": run.info.get("name"), "vicinal": run.info.get("vicinal")}
    with decoding(run.path):
        document |= {"run": info, "library": FORMAT}
        card = model_card(run, document, license=license, difference=None)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent, prefix=".", suffix=".part") as part:
        whole = Path(part) / "export"
        network.save_pretrained(whole)
        own = _own_pooling(embedder, backbone)
        if isinstance(encoder.preprocessing, ImageTransform):
            _write(whole / "preprocessor_config.json", _processor(encoder.preprocessing))
        else:
            for name, content in backbone.stated["tokenizer_files"].items():
                _write(whole / name, content)
        listed = [{"idx": 0, "name": "0", "path": "", "type": f"{_MODULES}.Transformer"}]
        for place, (kind, settings, linear) in enumerate(_modules(embedder, backbone, own), 1):
            path = f"{place}_{kind}"
            _write(whole / path / "config.json", settings)
            if linear is not None:
                state = {f"linear.{name}": v for name, v in linear.state_dict().items()}
                save_file(state, whole / path / "model.safetensors")
            module = {"idx": place, "name": str(place), "path": path, "type": f"{_MODULES}.{kind}"}
            listed.append(module)
        _write(whole / "modules.json", listed)
        similarity = "cosine" if embedder.normalize else "euclidean"
        for name, content in _settings(backbone, own, similarity).items():
            _write(whole / name, content)
        (whole / CARD).write_text(card, encoding="utf-8")
        if folder.is_dir():  # empty; Windows replaces no folder
            folder.rmdir()
        os.replace(whole, folder)
    return Export(tuple(sorted(path for path in folder.rglob("*") if path.is_file())), None)


def _own_pooling(embedder: Embedder, backbone: Encoder) -> list[str]:
    """Return how tokens become a vector, or nothing where the network gives one."""
    if backbone.vectors:
        lacking = getattr(backbone.network, "pooler", True) is None
        return backbone.stated["pooling"] or (["cls"] if lacking else [])
    if embedder.pooling == "token":
        return ["cls"]
    if embedder.pooling == "average" and not backbone.prefix_tokens:
        return ["mean"]
    raise ConfigError(f"{FORMAT} has no pooling like model.pooling={embedder.pooling}.")


def _modules(
    embedder: Embedder, backbone: Encoder, own: list[str]
) -> Iterator[tuple[str, dict[str, Any], nn.Linear | None]]:
    """Give each module behind the network: its kind, its settings and its weights."""
    if own:
        width = backbone.network.config.hidden_size  # type: ignore[union-attr]
        modes = {"pooling_mode": own[0] if len(own) == 1 else own, "embedding_dimension": width}
        yield "Pooling", modes, None
    parts = [*(backbone.layers if backbone.vectors else ()), embedder.head]
    layers = [
        each for part in parts for each in (part if isinstance(part, nn.Sequential) else [part])
    ]
    if embedder.normalize:
        layers.append(Normalize())
    for layer, following in zip(layers, [*layers[1:], nn.Identity()], strict=True):
        if isinstance(layer, Normalize):
            yield "Normalize", {}, None
        elif isinstance(layer, nn.Linear):
            known = type(following) in ACTIVATIONS.values()
            activation = type(following) if known else nn.Identity
            settings = {
                "in_features": layer.in_features,
                "out_features": layer.out_features,
                "bias": layer.bias is not None,
                "activation_function": f"{activation.__module__}.{activation.__qualname__}",
            }
            yield "Dense", settings, layer
        elif type(layer) not in ACTIVATIONS.values():
            raise ConfigError(
                f"{FORMAT} has no {type(layer).__name__} in a head. Train with model.head=linear "
                "and model.head_norm=false."
            )


def _settings(backbone: Encoder, own: list[str], metric: str) -> dict[str, Any]:
    """Return the files that say how the network is called and its embeddings are compared."""
    text = backbone.kind == "text"
    method = {"method": "forward", "method_output_name": _OUTPUTS[bool(own)][0]}
    called: dict[str, Any] = {
        "transformer_task": "feature-extraction",
        "modality_config": {"text" if text else "image": method},
        "module_output_name": _OUTPUTS[bool(own)][1],
    }
    asked: dict[str, Any] = {"similarity_fn_name": metric}
    if text:
        stated = backbone.stated
        called |= {"max_seq_length": stated["length"], "do_lower_case": stated["lower"]}
        asked |= {"prompts": {"default": stated["prompt"]}, "default_prompt_name": "default"}
    return {"sentence_bert_config.json": called, "config_sentence_transformers.json": asked}


def _processor(transform: ImageTransform) -> dict[str, Any]:
    """Return what transformers does to a picture where it does what the transform does."""
    if transform.pad or transform.order != "RGB" or transform.resize is None:
        raise ConfigError(f"{FORMAT} can neither pad pictures nor turn them to BGR.")
    squash = transform.fit == "squash"
    both = {"height": transform.resize, "width": transform.resize}
    return {
        "image_processor_type": "CLIPImageProcessor",
        "do_convert_rgb": True,
        "do_resize": True,
        "size": both if squash else {"shortest_edge": transform.resize},
        "resample": next(key for key, name in FILTERS.items() if name == transform.interpolation),
        "do_center_crop": True,
        "crop_size": {"height": transform.size, "width": transform.size},
        "do_rescale": True,
        "rescale_factor": transform.scale / 255,
        "do_normalize": True,
        "image_mean": list(transform.mean),
        "image_std": list(transform.std),
    }


def _write(path: Path, content: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False), encoding="utf-8")

"""Small random encoders of transformers, saved as their folders."""

import json
from pathlib import Path

SIDE = 32
WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "a",
    "red",
    "blue",
    "bird",
    "with",
    "black",
    "wing",
    "##s",
    "song",
    ".",
    "!",
]
SENTENCES = ["A red bird with black wings.", "a song!", "blue " * 40]
_SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
}
_PICTURES = {**_SIZES, "image_size": SIDE, "patch_size": 8}
_TEXTS = {
    **_SIZES,
    "vocab_size": len(WORDS),
    "max_position_embeddings": 24,
    **{f"{name}_token_id": place for place, name in enumerate(("pad", "bos", "bos", "eos"))},
}


def saved(folder: Path, kind: str, **settings):
    """Save a network, its preprocessing and its tokenizer; return the network."""
    import transformers

    build = getattr(transformers, f"{kind}Config")
    if kind in ("CLIP", "Siglip"):
        settings = {"text_config": _TEXTS, "vision_config": _PICTURES, **settings}
        settings |= {"projection_dim": 12} if kind == "CLIP" else {}
    elif kind == "ConvNext":
        settings = {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2, **settings}
    else:
        settings = {**(_TEXTS if kind == "Bert" else _PICTURES), **settings}
    network = getattr(transformers, f"{kind}Model")(build(**settings)).eval()
    network.save_pretrained(folder)
    if kind != "Bert":
        seen = {"image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.25], "resample": 3}
        size = {"size": {"height": SIDE, "width": SIDE}}
        if kind in ("CLIP", "Dinov2"):
            crop = {"height": SIDE, "width": SIDE}
            size = {"size": {"shortest_edge": 36}, "do_center_crop": True, "crop_size": crop}
        name = "Bit" if kind == "Dinov2" else {"ConvNext": "ViT"}.get(kind, kind)
        flags = {"do_resize": True, "do_rescale": True, "do_normalize": True}
        told = {"image_processor_type": f"{name}ImageProcessor", "rescale_factor": 1 / 255}
        (folder / "preprocessor_config.json").write_text(
            json.dumps({**told, **flags, **seen, **size})
        )
    if kind in ("Bert", "CLIP", "Siglip"):
        _save_tokenizer(folder, masked=kind != "Siglip")
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\n# A network\n")
    return network


def as_sentences(folder: Path, modules: dict[str, dict]) -> None:
    """Write what sentence-transformers has beside a network: modules and their settings."""
    kinds = ["Transformer", *modules]
    paths = ["", *(f"{place}_{kind}" for place, kind in enumerate(modules, 1))]
    for path, settings in zip(paths[1:], modules.values(), strict=True):
        (folder / path).mkdir()
        (folder / path / "config.json").write_text(json.dumps(settings))
    listed = [
        {
            "idx": place,
            "name": str(place),
            "path": path,
            "type": f"sentence_transformers.models.{kind}",
        }
        for place, (kind, path) in enumerate(zip(kinds, paths, strict=True))
    ]
    (folder / "modules.json").write_text(json.dumps(listed))


def _save_tokenizer(folder: Path, *, masked: bool) -> None:
    import transformers
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    tokenizer = Tokenizer(
        models.WordPiece({word: place for place, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = ["input_ids", *(["attention_mask"] if masked else [])]
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=24,
        model_input_names=names,
        **{f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep")},
    ).save_pretrained(folder)

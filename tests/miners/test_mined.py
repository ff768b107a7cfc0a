"""A loss over mined triplets: the miner's triplets, the loss's `on_triplets`, draws that follow
from the seed."""

import inspect

import pytest
import torch
from torch.testing import assert_close

from vicinal.errors import ConfigError, DataError
from vicinal.losses import MarginLoss, ProxyAnchorLoss, TripletLoss
from vicinal.miners import MINERS, Mined, hardest, semi_hard


@pytest.fixture
def batch(rng):
    return torch.randn(12, 4, generator=rng), torch.arange(12) // 3


def test_is_the_loss_of_the_mined_triplets(batch):
    loss = TripletLoss(0.3)
    expected = loss.on_triplets(batch[0], semi_hard(*batch, margin=0.5), labels=batch[1])
    assert_close(Mined(loss, "semi_hard", arguments={"margin": 0.5})(*batch), expected)
    own = Mined(loss, lambda embeddings, labels: hardest(embeddings, labels))
    assert_close(own(*batch), Mined(loss, "hardest")(*batch))


@pytest.mark.parametrize("miner", MINERS)
def test_every_miner_trains_a_loss_and_its_parameters(miner, batch):
    loss = Mined(MarginLoss(), miner)
    embeddings = batch[0].requires_grad_()
    loss(embeddings, batch[1]).backward()
    assert embeddings.grad.isfinite().all() and loss.loss.boundary.grad is not None


def test_draws_follow_from_the_seed_and_the_number_of_the_batch(batch):
    loss = Mined(MarginLoss(), "distance_weighted", seed=3)
    first, second = (loss.mine(*batch) for _ in range(2))
    again = Mined(MarginLoss(), "distance_weighted", seed=3)
    assert all(torch.equal(*pair) for pair in zip(again.mine(*batch), first, strict=True))
    assert any(not torch.equal(*pair) for pair in zip(first, second, strict=True))
    random = Mined(TripletLoss(), "semi_hard", arguments={"rule": "random", "margin": 2.0})
    assert not torch.equal(random.mine(*batch).negative, random.mine(*batch).negative)
    resumed = Mined(MarginLoss(), "distance_weighted", seed=3)
    resumed.load_state_dict(again.state_dict())
    assert all(torch.equal(*pair) for pair in zip(resumed.mine(*batch), second, strict=True))
    with torch.no_grad():
        resumed(*batch)
    assert resumed.calls == 2, "a loss that is only measured draws nothing for itself"


def test_a_batch_without_triplets_costs_nothing(batch):
    embeddings = batch[0].requires_grad_()
    value = Mined(TripletLoss(), "hardest")(embeddings, torch.arange(12))
    value.backward()
    assert value == 0 and not embeddings.grad.any()


def test_what_cannot_be_mined_is_rejected():
    with pytest.raises(ConfigError, match="did you mean 'semi_hard'"):
        Mined(TripletLoss(), "semihard")
    with pytest.raises(
        ConfigError, match="mining needs a loss that compares samples with each other"
    ):
        Mined(ProxyAnchorLoss(3, 4), "hardest")
    with pytest.raises(ConfigError, match="Set sampler=classes"):
        Mined(TripletLoss(blocks=True), "hardest")


@pytest.mark.parametrize("miner", MINERS)
def test_a_row_that_is_not_a_number_is_in_the_loss_even_if_it_is_in_no_tuple(miner, batch):
    batch[0][3] = torch.nan
    assert Mined(MarginLoss(), miner)(*batch).isnan()


@pytest.mark.parametrize("miner", MINERS)
def test_labels_that_are_no_integers_are_rejected(miner, batch):
    mine = inspect.unwrap(MINERS[miner])  # without the tests' shape checks, which come first
    given = {"generator": torch.Generator()} if miner == "distance_weighted" else {}
    with pytest.raises(DataError, match=r"must be integers, got torch\.float32"):
        mine(batch[0], batch[1] / 4, **given)

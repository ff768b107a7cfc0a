"""Smart mining: negatives from the graph of the training set, and a hardness that follows
training."""

import pytest
import torch

from vicinal.errors import ConfigError, DataError
from vicinal.miners import SmartMiner
from vicinal.miners.smart import approximate_neighbors


@pytest.fixture
def training_set(rng):
    labels = torch.randint(0, 12, (120,), generator=rng)
    return torch.randn(12, 6, generator=rng)[labels] + 0.5 * torch.randn(
        120, 6, generator=rng
    ), labels


def ranks(embeddings, labels, triplets):
    """The place of each negative among all rows of other classes, nearest first."""
    distances = torch.cdist(embeddings, embeddings)
    for anchor, negative in zip(triplets.anchor.tolist(), triplets.negative.tolist(), strict=True):
        others = (labels != labels[anchor]).nonzero().flatten()
        yield int((distances[anchor, others] < distances[anchor, negative]).sum())


def test_triplets_fit_the_labels_and_negatives_are_neighbors(training_set, rng):
    embeddings, labels = training_set
    miner = SmartMiner(labels, neighbors=10)
    miner.refresh(embeddings)
    found = miner.mine(torch.arange(120), rng)
    assert torch.equal(found.anchor, torch.arange(120))
    assert (labels[found.positive] == labels[found.anchor]).all() and (
        found.positive != found.anchor
    ).all()
    assert (labels[found.negative] != labels[found.anchor]).all()
    assert all(rank < 10 for rank in ranks(embeddings, labels, found))


@pytest.mark.parametrize(("hardness", "place"), [(1.0, 0), (0.0, 9)])
def test_hardness_names_the_place_in_the_list(training_set, rng, hardness, place):
    embeddings, labels = training_set
    miner = SmartMiner(labels, neighbors=10, hardness=hardness, spread=0.0)
    miner.refresh(embeddings)
    assert set(ranks(embeddings, labels, miner.mine(torch.arange(120), rng))) == {place}


def test_draws_spread_about_the_place(training_set, rng):
    embeddings, labels = training_set
    miner = SmartMiner(labels, neighbors=21, hardness=0.5, spread=0.2)
    miner.refresh(embeddings)
    found = {
        rank
        for _ in range(10)
        for rank in ranks(embeddings, labels, miner.mine(torch.arange(120), rng))
    }
    assert found == set(range(6, 15))


def test_equal_seeds_mine_equally_and_positives_vary(training_set):
    embeddings, labels = training_set
    miner = SmartMiner(labels)
    miner.refresh(embeddings)
    first, again, other = (
        miner.mine(torch.arange(120), torch.Generator().manual_seed(s)) for s in (1, 1, 2)
    )
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first.positive, other.positive)


def test_adapts_against_what_training_reports():
    miner = SmartMiner(torch.arange(4) // 2, hardness=0.5, target=0.5, rate=0.2)
    miner.adapt(0.0)
    assert miner.hardness == pytest.approx(0.6)
    miner.adapt(1.0)
    assert miner.hardness == pytest.approx(0.5)
    for _ in range(20):
        miner.adapt(0.0)
    assert miner.hardness == 1.0


def test_rows_without_positive_or_other_class_form_no_triplet(rng):
    lonely = SmartMiner(torch.tensor([0, 0, 1]))
    lonely.refresh(torch.randn(3, 2, generator=rng))
    assert lonely.mine(torch.arange(3), rng).anchor.tolist() == [0, 1]
    for labels in (torch.zeros(3).long(), torch.arange(3)):
        miner = SmartMiner(labels)
        miner.refresh(torch.randn(3, 2, generator=rng))
        assert not len(miner.mine(torch.arange(3), rng).anchor)


def test_a_large_class_does_not_hide_the_others(rng):
    """All 20 nearest neighbors of a row are of its own class; negatives are found beyond them."""
    embeddings = torch.cat(
        [0.01 * torch.randn(50, 2, generator=rng), torch.tensor([[9.0, 9.0], [9.0, 9.1]])]
    )
    miner = SmartMiner(torch.tensor([0] * 50 + [1] * 2), neighbors=20)
    miner.refresh(embeddings)
    assert set(miner.mine(torch.arange(50), rng).negative.tolist()) == {50, 51}


def test_its_state_is_saved_and_restored(training_set):
    embeddings, labels = training_set
    miner, again = SmartMiner(labels, hardness=0.9), SmartMiner(labels)
    miner.refresh(embeddings)
    miner.adapt(0.2)
    again.load_state_dict(miner.state_dict())
    found = (m.mine(torch.arange(50), torch.Generator().manual_seed(0)) for m in (miner, again))
    assert (
        all(torch.equal(a, b) for a, b in zip(*found, strict=True))
        and again.hardness == miner.hardness
    )


def test_any_search_will_do(training_set, rng):
    pytest.importorskip("faiss")
    embeddings, labels = training_set
    graphs = []
    for search in ({}, {"search": approximate_neighbors}):
        miner = SmartMiner(labels, neighbors=5, **search)
        miner.refresh(embeddings)
        graphs.append(miner.graph)
    assert torch.equal(*graphs)


def test_what_cannot_work_is_rejected(training_set, rng):
    embeddings, labels = training_set
    miner = SmartMiner(labels)
    with pytest.raises(ConfigError, match="Call `refresh`"):
        miner.mine(torch.arange(3), rng)
    with pytest.raises(DataError, match="for 120 training rows, got 7 embeddings"):
        miner.refresh(embeddings[:7])
    with pytest.raises(ConfigError, match=r"SmartMiner.neighbors must be at least 1, got 0"):
        SmartMiner(labels, neighbors=0)
    with pytest.raises(
        ConfigError, match=r"SmartMiner.hardness must be at least 0 and at most 1, got 1\.5"
    ):
        SmartMiner(labels, hardness=1.5)

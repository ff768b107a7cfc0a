"""Our parts in pytorch-metric-learning's programs, and its parts in ours, against the package
itself."""

import pytest
import torch
from torch.autograd import grad
from torch.testing import assert_close

from vicinal.compat.pml import FromPML, LossForPML, MinerForPML
from vicinal.errors import ConfigError, DataError
from vicinal.losses import (
    BatchAllTripletLoss,
    CrossBatchMemory,
    MarginLoss,
    MultiSimilarityLoss,
    ProxyNCALoss,
    TripletLoss,
)
from vicinal.miners import hardest

distances = pytest.importorskip("pytorch_metric_learning.distances")
losses = pytest.importorskip("pytorch_metric_learning.losses")
miners = pytest.importorskip("pytorch_metric_learning.miners")
reducers = pytest.importorskip("pytorch_metric_learning.reducers")


@pytest.fixture
def batch(rng):
    return torch.randn(24, 8, generator=rng).requires_grad_(), torch.arange(24) % 6


def same_in_value_and_gradient(ours, theirs, embeddings):
    assert_close(ours, theirs)
    assert_close(*(grad(value, embeddings)[0] for value in (ours, theirs)))


def test_without_tuples_a_loss_is_itself(batch, rng):
    embeddings, labels = batch
    loss = MarginLoss(class_boundaries=6)
    wrapped = LossForPML(loss)
    assert torch.equal(wrapped(embeddings, labels), loss(embeddings, labels))
    assert torch.equal(
        wrapped(embeddings, labels, None, embeddings, labels), loss(embeddings, labels)
    )
    gallery = torch.randn(9, 8, generator=rng), torch.arange(9) % 6
    assert torch.equal(
        wrapped(embeddings, labels, ref_emb=gallery[0], ref_labels=gallery[1]),
        loss(*batch, *gallery),
    )
    assert list(wrapped.parameters()) == list(loss.parameters())


def test_its_triplet_miners_and_our_loss_equal_its_own(batch):
    embeddings, labels = batch
    mined = miners.TripletMarginMiner(margin=0.2, type_of_triplets="hard")(embeddings, labels)
    ours = LossForPML(BatchAllTripletLoss(0.3, normalize=True))(embeddings, labels, mined)
    same_in_value_and_gradient(
        ours, losses.TripletMarginLoss(margin=0.3)(embeddings, labels, mined), embeddings
    )
    assert torch.equal(
        LossForPML(BatchAllTripletLoss(0.3, normalize=True))(embeddings, None, mined), ours
    )


def test_its_pair_miners_and_our_losses_equal_its_own(batch):
    embeddings, labels = batch
    mined = miners.MultiSimilarityMiner(0.1)(embeddings, labels)
    ours = LossForPML(MultiSimilarityLoss(epsilon=None))(embeddings, labels, mined)
    same_in_value_and_gradient(
        ours, losses.MultiSimilarityLoss(2, 50, 0.5)(embeddings, labels, mined), embeddings
    )
    triplets = LossForPML(BatchAllTripletLoss(0.2, normalize=True))(embeddings, labels, mined)
    same_in_value_and_gradient(
        triplets, losses.TripletMarginLoss(margin=0.2)(embeddings, labels, mined), embeddings
    )


def test_tuples_among_reference_rows(batch, rng):
    embeddings, labels = batch
    gallery = torch.randn(15, 8, generator=rng), torch.arange(15) % 6
    three = miners.TripletMarginMiner(margin=0.2)(embeddings, labels, *gallery)
    four = miners.MultiSimilarityMiner()(embeddings, labels, *gallery)
    for mined in (three, four):
        ours = LossForPML(BatchAllTripletLoss(0.2, normalize=True))(
            embeddings, labels, mined, *gallery
        )
        theirs = losses.TripletMarginLoss(margin=0.2)(embeddings, labels, mined, *gallery)
        same_in_value_and_gradient(ours, theirs, embeddings)
    per_class = LossForPML(MarginLoss(class_boundaries=6))(embeddings, labels, three, *gallery)
    assert per_class.isfinite()


@pytest.mark.filterwarnings("ignore:Converting a tensor with requires_grad")
def test_its_trainer_takes_our_loss_and_miner(batch):
    embeddings, labels = batch
    trainers = pytest.importorskip("pytorch_metric_learning.trainers")
    network = torch.nn.Linear(8, 4)
    before = network.weight.detach().clone()
    trainers.MetricLossOnly(
        models={"trunk": network},
        optimizers={"trunk_optimizer": torch.optim.SGD(network.parameters(), lr=0.1)},
        batch_size=12,
        loss_funcs={"metric_loss": LossForPML(BatchAllTripletLoss(0.2, normalize=True))},
        mining_funcs={"tuple_miner": MinerForPML(hardest)},
        dataset=torch.utils.data.TensorDataset(embeddings.detach(), labels),
        dataloader_num_workers=0,
    ).train(num_epochs=1)
    assert not torch.equal(before, network.weight)


def test_our_loss_in_its_memory_equals_our_memory(rng):
    class Memory(losses.CrossBatchMemory):
        @staticmethod
        def supported_losses():
            return [*losses.CrossBatchMemory.supported_losses(), "LossForPML"]

    theirs = Memory(LossForPML(BatchAllTripletLoss(0.2, normalize=True)), 8, memory_size=40)
    its_own = losses.CrossBatchMemory(losses.TripletMarginLoss(margin=0.2), 8, memory_size=40)
    ours = CrossBatchMemory(BatchAllTripletLoss(0.2, normalize=True), size=40, dim=8)
    for _ in range(5):
        embeddings = torch.randn(16, 8, generator=rng).requires_grad_()
        labels = torch.randint(0, 5, (16,), generator=rng)
        value = theirs(embeddings, labels)
        assert_close(its_own(embeddings, labels), value)
        same_in_value_and_gradient(value, ours(embeddings, labels), embeddings)


@pytest.mark.parametrize(
    ("loss", "miner"),
    [
        (losses.TripletMarginLoss(0.2), None),
        (
            losses.TripletMarginLoss(
                0.2, distance=distances.CosineSimilarity(), reducer=reducers.ThresholdReducer(low=0)
            ),
            miners.TripletMarginMiner(0.2, distance=distances.CosineSimilarity()),
        ),
        (
            losses.ContrastiveLoss(
                distance=distances.LpDistance(p=1),
                reducer=reducers.MultipleReducers(
                    {"pos_loss": reducers.SumReducer()}, reducers.PerAnchorReducer()
                ),
            ),
            miners.MultiSimilarityMiner(),
        ),
    ],
)
def test_its_losses_keep_their_distance_reducer_and_miner(loss, miner, batch):
    mined = None if miner is None else miner(*batch)
    same_in_value_and_gradient(FromPML(loss, miner)(*batch), loss(*batch, mined), batch[0])


def test_its_miners_train_our_losses(batch):
    miner = miners.AngularMiner(20)
    adapted = FromPML(LossForPML(BatchAllTripletLoss(0.2, normalize=True)), miner)
    theirs = losses.TripletMarginLoss(margin=0.2)(*batch, miner(*batch))
    same_in_value_and_gradient(adapted(*batch), theirs, batch[0])


def test_its_losses_take_reference_rows_as_ours_do(batch, rng):
    embeddings, labels = batch
    memory = torch.randn(30, 8, generator=rng), torch.arange(30) % 6
    own = torch.arange(24)
    memory[0][:24] = embeddings.detach()
    assert torch.equal(memory[1][:24], labels)
    ours = BatchAllTripletLoss(0.2, normalize=True)
    theirs = FromPML(losses.TripletMarginLoss(margin=0.2))
    for places in ((), (own,)):
        same_in_value_and_gradient(
            theirs(*batch, *memory, *places), ours(*batch, *memory, *places), embeddings
        )
    with_miner = FromPML(
        losses.TripletMarginLoss(margin=0.2), miners.TripletMarginMiner(margin=0.2)
    )
    assert_close(with_miner(*batch, *memory, own), ours(*batch, *memory, own))
    pairs = FromPML(losses.MultiSimilarityLoss(2, 50, 0.5), miners.MultiSimilarityMiner(3.0))
    assert_close(
        pairs(*batch, *memory, own), MultiSimilarityLoss(epsilon=None)(*batch, *memory, own)
    )


def test_its_proxies_are_parameters_and_half_precision_is_computed_in_float32(batch):
    embeddings, labels = batch
    adapted = FromPML(losses.ProxyAnchorLoss(6, 8))
    assert [p.shape for p in adapted.parameters()] == [(6, 8)]
    coarse = embeddings.detach().half().requires_grad_()
    value = adapted(coarse, labels.to(torch.uint8))
    assert value.dtype == torch.float32 and grad(value, coarse)[0].dtype == torch.float16


def test_what_has_no_meaning_raises(batch):
    embeddings, labels = batch
    pairs = (torch.tensor([0]), torch.tensor([6]), torch.tensor([0]), torch.tensor([1]))
    with pytest.raises(ConfigError, match="ProxyNCALoss does not compare rows"):
        LossForPML(ProxyNCALoss(6, 8))(embeddings, labels, pairs)
    with pytest.raises(ConfigError, match="TripletLoss does not see all rows in pairs"):
        LossForPML(TripletLoss(blocks=True))(embeddings, labels, pairs)
    with pytest.raises(DataError, match="contradict the labels"):
        LossForPML(TripletLoss())(embeddings, labels, (*pairs[2:], *pairs[:2]))
    with pytest.raises(DataError, match="needs `labels` or triplets"):
        LossForPML(TripletLoss())(embeddings)

"""The package's names for our losses, distances and reducers: the same arguments, defaults, values
and gradients."""

import inspect

import pytest
import torch

from vicinal.compat.pml import distances, losses, miners, reducers
from vicinal.errors import ConfigError, DataError

pml = pytest.importorskip("pytorch_metric_learning")
from pytorch_metric_learning import distances as peer_distances  # noqa: E402
from pytorch_metric_learning import losses as peers  # noqa: E402
from pytorch_metric_learning import miners as peer_miners  # noqa: E402
from pytorch_metric_learning import reducers as peer_reducers  # noqa: E402

NAMES = [
    name
    for name, each in vars(losses).items()
    if inspect.isfunction(each)
    and inspect.unwrap(each).__module__ == losses.__name__
    and name[0].isupper()
]
TUPLES = [
    name for name in NAMES if "reducer" in inspect.signature(getattr(losses, name)).parameters
]
DISTANCES = [
    ("LpDistance", {}),
    ("LpDistance", {"normalize_embeddings": False, "power": 2.0}),
    ("LpDistance", {"p": 1.0}),
    ("CosineSimilarity", {}),
    ("DotProductSimilarity", {"normalize_embeddings": False}),
    ("SNRDistance", {}),
]
REDUCERS = [
    ("MeanReducer", {}),
    ("SumReducer", {}),
    ("AvgNonZeroReducer", {}),
    ("ThresholdReducer", {"low": 0.1, "high": 0.9}),
    ("ThresholdReducer", {"high": -1.0}),
    ("ClassWeightedReducer", {"weights": torch.tensor([1.0, 2.0, 0.5, 3.0])}),
]
MINERS = [
    ("TripletMarginMiner", {"margin": 0.2, "type_of_triplets": "semihard"}),
    ("MultiSimilarityMiner", {}),
    ("BatchHardMiner", {}),
    ("PairMarginMiner", {"pos_margin": 0.5, "neg_margin": 1.5}),
]


@pytest.fixture
def batch(rng):
    return torch.randn(16, 8, generator=rng, dtype=torch.float64).requires_grad_(), torch.arange(
        16
    ) // 4


def made(name, **given):
    """Our loss and the package's, with equal proxies."""
    make, own = getattr(losses, name), getattr(peers, name)
    sizes = (
        {"num_classes": 4, "embedding_size": 8}
        if "num_classes" in inspect.signature(make).parameters
        else {}
    )
    ours, theirs = make(**sizes, **given), own(**sizes, **given)
    if sizes:
        rows = ours.loss.proxies.detach().double().reshape(-1, 8)
        for own_name, value in (("W", rows.T), ("fc", rows.T), ("proxies", rows)):
            if hasattr(theirs, own_name):
                getattr(theirs, own_name).data = value.clone()
    return ours, theirs


def assert_equal(ours, theirs, embeddings):
    torch.testing.assert_close(ours.double(), theirs.double(), rtol=1e-6, atol=1e-6)
    if theirs.requires_grad:
        gradients = [
            torch.autograd.grad(value, embeddings, retain_graph=True)[0] for value in (ours, theirs)
        ]
        torch.testing.assert_close(*gradients, rtol=1e-6, atol=1e-5)


def pair(module, peer_module, name, given):
    return getattr(module, name)(**given), getattr(peer_module, name)(**given)


@pytest.mark.parametrize("name", NAMES)
def test_equals_the_packages_own(name, batch):
    ours, theirs = made(name)
    assert_equal(ours(*batch), theirs(*batch), batch[0])


@pytest.mark.parametrize("name", NAMES)
def test_takes_the_packages_arguments_with_its_defaults(name):
    ours = inspect.signature(getattr(losses, name)).parameters
    theirs = {}
    for kind in reversed(getattr(peers, name).__mro__):
        theirs |= dict(inspect.signature(kind.__init__).parameters)
    assert set(ours) <= set(theirs)
    for argument, parameter in ours.items():
        assert parameter.default == theirs[argument].default


@pytest.mark.parametrize(("name", "given"), DISTANCES, ids=str)
def test_distances_equal_the_packages(name, given, rng):
    rows, others = (torch.randn(n, 6, generator=rng, dtype=torch.float64) for n in (7, 5))
    ours, theirs = pair(distances, peer_distances, name, given)
    assert (ours.is_inverted, ours.normalize_embeddings) == (
        theirs.is_inverted,
        theirs.normalize_embeddings,
    )
    for reference in (None, others):
        torch.testing.assert_close(
            ours(rows, reference), theirs(rows, reference), rtol=1e-6, atol=1e-6
        )
    torch.testing.assert_close(
        ours.pairwise_distance(rows[:5], others), theirs.pairwise_distance(rows[:5], others)
    )
    x, y = rows[0], rows[1]
    assert torch.equal(ours.margin(x, y), theirs.margin(x, y))
    assert torch.equal(ours.smallest_dist(x, y), theirs.smallest_dist(x, y))
    assert torch.equal(ours.largest_dist(x, y), theirs.largest_dist(x, y))


@pytest.mark.parametrize(
    "name", [name for name in TUPLES if name != "SignalToNoiseRatioContrastiveLoss"]
)
@pytest.mark.parametrize("distance", DISTANCES[:1] + DISTANCES[3:5], ids=str)
def test_losses_over_other_distances_equal_the_packages(name, distance, batch):
    if "distance" not in inspect.signature(getattr(losses, name)).parameters:
        pytest.skip("the package has one distance for it")
    mine, theirs = pair(distances, peer_distances, *distance)
    if name == "GeneralizedLiftedStructureLoss" and mine.is_inverted:
        with pytest.raises(ConfigError, match="Use LpDistance"):
            losses.GeneralizedLiftedStructureLoss(distance=mine)
        return
    ours, own = getattr(losses, name)(distance=mine), getattr(peers, name)(distance=theirs)
    assert_equal(ours(*batch), own(*batch), batch[0])


@pytest.mark.parametrize(
    "name", [name for name in TUPLES if name != "MarginLoss"]
)  # whose losses have a divisor
@pytest.mark.parametrize(("reducer", "given"), REDUCERS, ids=str)
def test_losses_with_other_reducers_equal_the_packages(name, reducer, given, batch):
    mine, theirs = pair(reducers, peer_reducers, reducer, given)
    ours, own = getattr(losses, name)(reducer=mine), getattr(peers, name)(reducer=theirs)
    found, expected = ours(*batch), own(*batch)
    raw = getattr(peers, name)(reducer=peer_reducers.DoNothingReducer())(*batch)
    if "weights" in given and any(part["losses"].ndim == 2 for part in raw.values()):
        # Here the package multiplies a column by a row: the mean of all losses times the mean of
        # all weights.
        anchors = (
            raw["loss"]["indices"]
            if torch.is_tensor(raw["loss"]["indices"])
            else raw["loss"]["indices"][0]
        )
        weights = given["weights"].double()[batch[1][anchors]]
        expected = (raw["loss"]["losses"][:, 0] * weights).mean()
    assert_equal(found, expected, batch[0])


@pytest.mark.parametrize("name", TUPLES)
@pytest.mark.parametrize(("miner", "given"), MINERS, ids=str)
def test_losses_over_mined_tuples_equal_the_packages(name, miner, given, batch, rng):
    mine, theirs = pair(miners, peer_miners, miner, given)
    ours, own = getattr(losses, name)(), getattr(peers, name)()
    gallery = torch.randn(12, 8, generator=rng, dtype=torch.float64), torch.arange(12) % 4
    for reference in ((), gallery):
        found, expected = mine(*batch, *reference), theirs(*batch, *reference)
        assert_equal(ours(*batch, found, *reference), own(*batch, expected, *reference), batch[0])
    for count in ("num_triplets", "num_pos_pairs", "num_neg_pairs"):
        assert getattr(mine, count) == getattr(theirs, count, 0)


def test_reducers_for_several_kinds_of_losses(batch):
    ours = losses.ContrastiveLoss(
        reducer=reducers.MultipleReducers(
            {"pos_loss": reducers.SumReducer()}, reducers.PerAnchorReducer()
        )
    )
    theirs = peers.ContrastiveLoss(
        reducer=peer_reducers.MultipleReducers(
            {"pos_loss": peer_reducers.SumReducer()}, peer_reducers.PerAnchorReducer()
        )
    )
    assert_equal(ours(*batch), theirs(*batch), batch[0])
    per_row = losses.SupConLoss(reducer=reducers.PerAnchorReducer())
    assert_equal(
        per_row(*batch),
        peers.SupConLoss(reducer=peer_reducers.PerAnchorReducer())(*batch),
        batch[0],
    )
    with pytest.raises(DataError, match="got triplets"):
        losses.TripletMarginLoss(reducer=reducers.PerAnchorReducer())(*batch)
    with pytest.raises(ConfigError, match="got neither"):
        reducers.ThresholdReducer()
    kept = losses.ContrastiveLoss(reducer=reducers.DoNothingReducer())(*batch)
    expected = peers.ContrastiveLoss(reducer=peer_reducers.DoNothingReducer())(*batch)
    for kind in ("pos_loss", "neg_loss"):
        torch.testing.assert_close(kept[kind]["losses"], expected[kind]["losses"])
        assert kept[kind]["reduction_type"] == expected[kind]["reduction_type"]


def test_a_reducer_and_a_distance_of_the_users_own(batch):
    class Largest(reducers.BaseReducer):
        def element_reduction(self, losses, loss_indices, embeddings, labels):
            return losses.max()

    class Doubled(distances.LpDistance):
        def __init__(self):
            super().__init__()
            self.factor = 2

        def compute_mat(self, query_emb, ref_emb):
            return self.factor * super().compute_mat(query_emb, ref_emb)

    loss = losses.TripletMarginLoss(0.2, distance=Doubled(), reducer=Largest())
    unit = torch.nn.functional.normalize(batch[0])
    d = 2 * torch.cdist(unit, unit)
    every = [
        d[a, p] - d[a, n]
        for a in range(16)
        for p in range(16)
        for n in range(16)
        if a // 4 == p // 4 != n // 4
    ]
    torch.testing.assert_close(loss(*batch), max(every) + 0.2)


@pytest.mark.parametrize("name", ["TripletMarginLoss", "NTXentLoss", "ContrastiveLoss"])
@pytest.mark.parametrize("mined", [None, "memory", "batch"])
def test_cross_batch_memory_equals_the_packages(name, mined, rng):
    chosen = {"margin": 0.2}
    given = [None, None]
    if mined == "memory":
        given = [miners.TripletMarginMiner(**chosen), peer_miners.TripletMarginMiner(**chosen)]
    ours = losses.CrossBatchMemory(getattr(losses, name)(), 8, memory_size=20, miner=given[0])
    theirs = peers.CrossBatchMemory(getattr(peers, name)(), 8, memory_size=20, miner=given[1])
    for _ in range(4):
        batch = (
            torch.randn(8, 8, generator=rng, dtype=torch.float32).double().requires_grad_(),
            torch.arange(8) // 2,
        )
        tuples = peer_miners.MultiSimilarityMiner()(*batch) if mined == "batch" else None
        expected = theirs(
            *batch, None if tuples is None else (tuples[0], tuples[1], tuples[2], tuples[3])
        )
        if tuples is None:
            assert_equal(ours(*batch), expected, batch[0])
        else:
            assert ours(*batch, tuples).isfinite()


def test_wrappers_equal_the_packages(batch, rng):
    other = torch.randn(16, 8, generator=rng, dtype=torch.float64)
    for symmetric in (True, False):
        ours = losses.SelfSupervisedLoss(losses.NTXentLoss(), symmetric)
        theirs = peers.SelfSupervisedLoss(peers.NTXentLoss(), symmetric)
        assert_equal(ours(batch[0], other), theirs(batch[0], other), batch[0])
    for kind in (list, dict):
        made = []
        for package, mine in ((losses, miners), (peers, peer_miners)):
            chosen = [package.ContrastiveLoss(), package.TripletMarginLoss()]
            mining = [mine.PairMarginMiner(0.5, 1.5), mine.TripletMarginMiner(0.1)]
            names = range(2) if kind is list else "ab"
            parts = [
                list(x) if kind is list else dict(zip(names, x, strict=True))
                for x in (chosen, mining, [2, 0.5])
            ]
            made.append(package.MultipleLosses(*parts)(*batch))
        assert_equal(*made, batch[0])


def test_what_has_nothing_to_compare_is_zero_or_rejected(batch):
    empty = torch.empty(3, 0, dtype=torch.long)
    for name in ("TripletMarginLoss", "NTXentLoss", "ContrastiveLoss", "MultiSimilarityLoss"):
        value = getattr(losses, name)()(*batch, tuple(empty))
        assert value == 0
    with pytest.raises(DataError, match="got neither"):
        losses.TripletMarginLoss()(batch[0])

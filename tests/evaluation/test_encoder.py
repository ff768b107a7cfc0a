"""The encoder: each record through the network of its role, and back from a run's files."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from vicinal.data.records import Batch, FeatureArray, Records
from vicinal.data.transforms import FeatureTransform
from vicinal.errors import ConfigError
from vicinal.evaluation.encoder import Encoder
from vicinal.models import Embedder, Identity, SmallConvNet, TwoStreamEmbedder
from vicinal.run_directory import RunDirectory

CPU = torch.device("cpu")


@pytest.fixture
def two_streams():
    torch.manual_seed(0)
    return TwoStreamEmbedder(Embedder(Identity(4), 3), Embedder(Identity(4), 3))


def records_with(roles, n=11):
    features = np.random.default_rng(0).normal(size=(n, 4)).astype(np.float32)
    columns = {} if roles is None else {"role": np.array(roles)}
    source = FeatureArray(features, [str(row) for row in range(n)])
    return Records("set", source, np.zeros(n, np.int64), ("a",), np.full(n, "test"), columns)


@pytest.mark.parametrize("batch_size", [1, 4, 256])
@pytest.mark.parametrize("features", [False, True])
def test_rows_of_mixed_roles_take_their_own_streams_and_keep_their_order(
    batch_size, features, two_streams
):
    roles = [1, 2, 2, 1, 1, 2, 1, 2, 2, 2, 1]
    records = records_with(roles)
    found = Encoder(two_streams, FeatureTransform(), CPU).embed(
        records, batch_size=batch_size, features=features
    )
    for row, role in enumerate(roles):
        stream = two_streams.query if role == 1 else two_streams.gallery
        inputs = torch.from_numpy(records.source.read(row))[None]
        expected = stream.features(inputs) if features else stream(inputs)
        assert_close(found.vectors[row], expected[0])


@pytest.mark.parametrize("roles", [None, [0] * 11])
def test_two_streams_reject_records_without_a_role(roles, two_streams):
    encoder = Encoder(two_streams, FeatureTransform(), CPU)
    with pytest.raises(ConfigError, match="--role gallery"):
        encoder.embed(records_with(roles))
    vectors = encoder.stream("gallery").embed(records_with(roles)).vectors
    expected = (
        Encoder(two_streams.gallery, FeatureTransform(), CPU).embed(records_with(roles)).vectors
    )
    assert torch.equal(vectors, expected)


def test_a_cpu_takes_few_large_images_at_once():
    """Maps of 256 photographs at once filled 13 GB, and new pages took most of the time."""
    taken = []
    network = Embedder(SmallConvNet(3, (2,)), 2).eval()
    network.register_forward_pre_hook(lambda module, given: taken.append(len(given[0])))
    rows = torch.arange(60)
    batch = Batch(torch.randn(60, 3, 224, 224), rows, rows)
    found = Encoder(network, FeatureTransform(), CPU).vectors(batch)
    assert taken == [27, 27, 6]
    assert_close(found, network(batch.inputs))


def test_a_run_keeps_both_streams(two_streams, tmp_path):
    run = RunDirectory.create(tmp_path / "run")
    encoder = Encoder(two_streams, FeatureTransform(), CPU)
    encoder.save_description(run)
    encoder.save_weights(run)
    again = Encoder.load(run)
    assert isinstance(again.embedder, TwoStreamEmbedder)
    records = records_with([1, 2] * 5 + [1])
    assert torch.equal(again.embed(records).vectors, encoder.embed(records).vectors)

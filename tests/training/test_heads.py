"""Heads that change the space: hyperbolic embeddings and nested sizes, from the slots to results,
search and export."""

import json

import numpy as np
import pytest
import torch
from torch.testing import assert_close
from typer.testing import CliRunner

import vicinal
from vicinal.cli.main import app
from vicinal.distances import Poincare, exponential_map
from vicinal.errors import ConfigError, DataError
from vicinal.evaluation.neighbors import neighbors
from vicinal.losses import InfoNCELoss, MultiSimilarityLoss, NestedLoss, ProxyAnchorLoss

HYPERBOLIC = ["model.head=hyperbolic", "model.dim=4", "loss=info_nce", "loss.temperature=0.2"]


@pytest.fixture
def ball(rng):
    return exponential_map(torch.randn(12, 3, generator=rng, dtype=torch.float64), 1.0, 2.3)


def test_loss_in_the_ball_is_the_cross_entropy_of_the_paper(ball):
    labels = torch.arange(6).repeat(2)
    loss = InfoNCELoss(temperature=0.2, reduction="none").with_distance(Poincare())
    apart = Poincare()(ball)
    by_hand = []
    for i in range(12):
        (j,) = (k for k in range(12) if k != i and labels[k] == labels[i])
        terms = [
            np.exp(-float(apart[i, k]) / 0.2) for k in range(12) if k == j or labels[k] != labels[i]
        ]
        by_hand.append(-np.log(np.exp(-float(apart[i, j]) / 0.2) / sum(terms)))
    assert_close(loss(ball, labels), torch.tensor(by_hand, dtype=torch.float64))


def test_neighbors_in_the_ball_are_those_of_the_distance(ball):
    found = neighbors(ball, 5, metric="poincare")
    apart = Poincare()(ball).fill_diagonal_(torch.inf)
    assert torch.equal(found.ids, apart.argsort(dim=1)[:, :5])
    assert not torch.equal(found.ids, neighbors(ball, 5).ids)  # Euclid's are others
    assert_close(found.distances, apart.sort(dim=1).values[:, :5].float())
    with pytest.raises(DataError, match="shorter than 1"):
        neighbors(10 * ball, 5, metric="poincare")


def test_a_hyperbolic_head_trains_is_measured_searched_and_exported(tiny, begin):
    run = begin("run", *HYPERBOLIC)
    model = vicinal.load(run.path)
    vectors = model.embed(np.load(tiny.folder / "tiny.npz")["features"])
    assert model.metric == "poincare" and (np.linalg.norm(vectors, axis=1) < 1).all()
    invoke = lambda *words: CliRunner().invoke(app, [*words], catch_exceptions=False)  # noqa: E731
    assert invoke("index", str(run.path), "--split", "test").exit_code == 0
    said = invoke("search", str(run.path), "--id", "0", "--k", "3", "--format", "json")
    assert said.exit_code == 0, said.output
    answer = json.loads(said.stdout)
    assert answer["metric"] == "poincare"
    invoke("export", str(run.path), "--no-onnx")
    output = json.loads((run.path / "export" / "preprocessing.json").read_text())["output"]
    assert output["metric"] == "poincare"
    with pytest.raises(ConfigError, match="Euclidean"):
        invoke("cluster", str(run.path))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["loss=multi_similarity"], "only a loss over plain distances"),
        (["loss=proxy_anchor"], "with proxies"),
        (["loss=triplet"], "plain distances"),
        (["loss=n_pair", "method=hdml"], "method=plain"),
        (["model.dim=none"], r"needs model\.dim"),
        (["model.head=linear", "loss.nested=2,8", "model.dim=6"], r"model\.dim=6"),
    ],
)
def test_what_has_no_meaning_in_the_ball_or_no_room_is_rejected(words, said, begin):
    with pytest.raises(ConfigError, match=said):
        begin("run", *HYPERBOLIC[:2], *words)


def test_a_loss_over_distances_takes_those_of_the_ball(begin):
    words = ["loss=triplet", "loss.squared=false", "model.start=principal"]
    begin("run", *HYPERBOLIC[:2], *words)


def test_nested_loss_is_the_sum_over_prefixes(rng):
    z = torch.randn(8, 6, generator=rng, dtype=torch.float64)
    labels = torch.arange(4).repeat(2)
    losses = [MultiSimilarityLoss(), ProxyAnchorLoss(4, 3), MultiSimilarityLoss()]
    total = NestedLoss(losses, [2, 3, 6])(z, labels)
    by_hand = sum(loss(z[:, :size], labels) for loss, size in zip(losses, (2, 3, 6), strict=True))
    assert_close(total, by_hand)
    assert torch.autograd.gradcheck(
        lambda z: NestedLoss(losses, [2, 3, 6])(z, labels), (z.requires_grad_(),)
    )
    for sizes in ([3, 2, 6], [0, 3, 6], [2, 3]):
        with pytest.raises(ConfigError, match="nested sizes increase"):
            NestedLoss(losses, sizes)


def test_nested_sizes_train_and_are_measured(begin):
    words = ["loss=proxy_anchor", "loss.nested=2,4", "model.dim=6"]
    run = begin("run", *words)
    rows = {row["name"]: row["metrics"] for row in run.results["rows"]}
    assert {"trained", "trained, 2 dimensions", "trained, 4 dimensions"} <= rows.keys()
    found = CliRunner().invoke(
        app, ["evaluate", str(run.path), "--dims", "2", "--json"], catch_exceptions=False
    )
    measured = {row["name"]: row["metrics"] for row in json.loads(found.stdout)["rows"]}
    assert measured["trained, 2 dimensions"]["map@r"] == pytest.approx(
        rows["trained, 2 dimensions"]["map@r"]
    )

"""Smaller embeddings: what codes keep, what rescoring restores, and what is counted."""

import numpy as np
import pytest
import torch

from vicinal.errors import ConfigError
from vicinal.evaluation import compact, compact_scores, evaluate
from vicinal.evaluation.compact import binary, check_compact, int8


@pytest.fixture(scope="module")
def data():
    rng = torch.Generator().manual_seed(0)
    labels = torch.arange(300) % 30
    return torch.randn(30, 20, generator=rng)[labels] + torch.randn(
        300, 20, generator=rng
    ) + 1, labels


def test_int8_is_wrong_by_half_a_step_at_most(data):
    rows, _ = data
    stored = int8(rows)
    assert stored.vector_bytes == rows.shape[1]
    step = (rows.amax(0) - rows.amin(0)) / 255
    assert ((stored.rows - rows).abs() <= 0.501 * step).all()
    constant = torch.ones(4, 2)
    assert torch.equal(int8(constant).rows, constant)


@pytest.mark.parametrize("dim", [1, 8, 20])
def test_binary_keeps_a_bit_for_a_number(data, dim):
    rows = data[0][:, :dim]
    stored = binary(rows)
    above = rows > rows.mean(dim=0)
    assert stored.vector_bytes == np.packbits(above.numpy(), axis=1).shape[1]
    for column in range(dim):
        means = [rows[above[:, column] == side, column].mean() for side in (False, True)]
        expected = torch.where(above[:, column], means[1], means[0])
        torch.testing.assert_close(stored.rows[:, column], expected)


@pytest.mark.parametrize("gallery", [False, True])
def test_scores_are_those_of_the_decoded_rows(data, gallery, monkeypatch):
    monkeypatch.setattr(compact, "_CACHE_BYTES", 40_000)
    monkeypatch.setattr(compact, "_LEAST", 10)
    rows, labels = data
    split = {"gallery": rows[90:], "gallery_labels": labels[90:]} if gallery else {}
    asked = (rows[:90], labels[:90]) if gallery else (rows, labels)
    found = {
        (row.dims, row.stored, row.refined): row
        for row in compact_scores(
            *asked, **split, dims=[8, 8], quantize=["int8", "binary"], rerank=True
        )
    }
    stored = [("float32", ""), ("float32", "re-ranked")]
    stored += [(name, again) for name in ("int8", "binary") for again in ("", "rescored")]
    assert list(found) == [(size, *each) for size in (8, 20) for each in stored]
    for size in (20, 8):
        unit = torch.nn.functional.normalize(rows[:, :size], dim=1)
        kept = unit[90:] if gallery else unit
        names = labels[90:] if gallery else labels
        sought = {"gallery": kept, "gallery_labels": names} if gallery else {}
        scores = evaluate(unit[: len(asked[0])], asked[1], **sought, clustering=False)
        whole = found[size, "float32", ""]
        assert (whole.recall_at_1, whole.map_at_r) == (scores["recall@1"], scores["map@r"])
        decoded = binary(kept).rows
        apart = torch.cdist(unit[: len(asked[0])].double(), decoded.double())
        if not gallery:
            apart.fill_diagonal_(torch.inf)
        right = (names[apart.argmin(dim=1)] == asked[1]).double().mean()
        assert found[size, "binary", ""].recall_at_1 == pytest.approx(float(right))
        assert found[size, "binary", ""].recall_at_1 < found[size, "binary", "rescored"].recall_at_1
        assert abs(found[size, "int8", "rescored"].map_at_r - scores["map@r"]) < 1e-3
        assert found[size, "float32", "re-ranked"].map_at_r > scores["map@r"]
    bits = found[20, "binary", "rescored"]
    assert (bits.vector_bytes, bits.rescoring_bytes) == (3, 80)
    assert bits.total_bytes == 3 * len(kept) + 240
    assert all(row.query_seconds > 0 for row in found.values())


def test_a_class_as_large_as_the_gallery_is_scored():
    rows = torch.randn(12, 4, generator=torch.Generator().manual_seed(0))
    found = compact_scores(
        rows, torch.zeros(12, dtype=torch.long), quantize=["int8", "binary"], rerank=True
    )
    assert {row.map_at_r for row in found} == {1.0}


def test_what_cannot_be_measured_is_rejected_at_once():
    for bad in (0, -1, 65):
        with pytest.raises(
            ConfigError, match=f"from 1 to the 64 numbers of an embedding, got {bad}"
        ):
            check_compact([bad], [], dim=64)
    with pytest.raises(ConfigError, match="did you mean 'int8'"):
        check_compact([], ["int9"], dim=64)
    with pytest.raises(ConfigError, match="Poincaré"):
        check_compact([32], [], rerank=True, dim=64, metric="poincare")
    check_compact([32], [], dim=64, metric="poincare")

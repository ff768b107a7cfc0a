"""Records with roles are measured as query against gallery."""

import numpy as np
import pytest
import torch

from vicinal.data.records import FeatureArray, Records
from vicinal.errors import DataError
from vicinal.evaluation.encoder import Embedded
from vicinal.evaluation.measure import measure
from vicinal.evaluation.protocol import evaluate

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # where measure computes, so that equal means equal


def embedded(role, rng):
    labels = np.arange(12) % 3
    columns = {} if role is None else {"role": np.array(role)}
    vectors = torch.randn(12, 4, generator=rng)
    source = FeatureArray(vectors.numpy(), [str(row) for row in range(12)])
    records = Records("set", source, labels, ("a", "b", "c"), np.full(12, "test"), columns)
    return Embedded(vectors, records, ())


def test_without_roles_each_row_is_sought_among_the_others(rng):
    rows = embedded(None, rng)
    expected = evaluate(rows.vectors, rows.labels, recalls=(1, 2), clustering=False, device=DEVICE)
    assert measure(rows, recalls=(1, 2), clustering=False, seed=0) == expected


def test_queries_are_sought_in_the_gallery(rng):
    rows = embedded([1] * 6 + [2] * 6, rng)
    v, l = rows.vectors, rows.labels
    expected = evaluate(
        v[:6],
        l[:6],
        gallery=v[6:],
        gallery_labels=l[6:],
        recalls=(1,),
        top_percent=True,
        clustering=False,
        device=DEVICE,
    )
    assert measure(rows, recalls=(1,), clustering=False, seed=0) == expected


@pytest.mark.parametrize(("queries", "clustered"), [(6, True), (5, False), (3, False)])
def test_queries_are_clustered_only_where_two_of_a_class_could_be_together(queries, clustered, rng):
    """Three classes: of three queries each would be a cluster of its own, and NMI 1 of any network."""
    found = measure(embedded([1] * queries + [2] * (12 - queries), rng), recalls=(1,), clustering=True, seed=0)
    assert ("nmi" in found) == ("f1" in found) == clustered and "recall@1%" in found


def test_mixed_roles_are_refused(rng):
    with pytest.raises(DataError, match="mixes rows"):
        measure(embedded([0] * 6 + [2] * 6, rng), recalls=(1,), clustering=False, seed=0)

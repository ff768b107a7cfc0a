"""The bound on the product's rounding: never exceeded, and not so wide that it settles nothing."""

import pytest
import torch

from vicinal.index.proposal import Proposal


@pytest.mark.parametrize("dim", [1, 16, 512])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_differences_of_values_are_right_within_the_bound(rng, dim, dtype, offset):
    length = torch.rand(300, 1, generator=rng, dtype=dtype)
    gallery = offset + torch.randn(300, dim, generator=rng, dtype=dtype) * length
    queries = offset + torch.randn(20, dim, generator=rng, dtype=dtype)
    proposal = Proposal(gallery)
    values = proposal.buffer(len(queries))
    bound = proposal(queries, out=values).unsqueeze(1)

    unit_queries, unit_gallery = ((rows - proposal.centre) / proposal.scale for rows in (queries, gallery))
    true = unit_gallery.square().sum(dim=1) - 2 * unit_queries @ unit_gallery.T
    error = (values - true).abs()
    assert (2 * error < bound).all()
    assert (bound < 1e-2 * true.std(dim=1, keepdim=True)).all()


def test_equal_rows_need_no_scale():
    proposal = Proposal(torch.full((5, 3), 7.0))
    values = proposal.buffer(1)
    assert proposal(torch.full((1, 3), 7.0), out=values).item() > 0
    assert values.eq(0).all()


def test_a_user_who_lowers_the_precision_of_products_gets_them_in_float64():
    rows = torch.ones(5, 3)
    assert Proposal(rows).rows.dtype == torch.float32
    before = torch.backends.mkldnn.matmul.fp32_precision
    try:
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"
        assert Proposal(rows).rows.dtype == torch.float64
    finally:
        torch.backends.mkldnn.matmul.fp32_precision = before

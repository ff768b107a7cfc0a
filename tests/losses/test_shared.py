"""Each of two processes scores half of the anchors: together they learn what one learns."""

import pytest
import torch
from tests.apart import in_two
from tests.contracts.test_losses import CASES, LABELS, name_of

from vicinal.errors import ConfigError
from vicinal.losses import (
    LOSSES,
    BatchAllTripletLoss,
    CrossBatchMemory,
    NestedLoss,
    NormalizedSoftmaxLoss,
    ProxyLoss,
)
from vicinal.losses.loss import share_anchors
from vicinal.parallel import Shard, average_gradients, gather, join_rows, part, processes
from vicinal.tuples import SizedLabels

# The others say why not.
DIVIDED = [
    kind
    for kind in LOSSES.values()
    if issubclass(kind, ProxyLoss) and not isinstance(kind.indivisible, str)
]


def losses():
    """Every loss with each of its switches turned, and those around others."""
    found = {name_of(case): case[0](**case[1]).double() for case in CASES}
    for kind in DIVIDED:
        for sampled in (1.0, 0.4):
            loss = kind(12, 3, centers=2, divided=True, sampled=sampled)
            found[f"{kind.__name__}, {sampled} of its proxies"] = loss.double()
    found["memory"] = CrossBatchMemory(BatchAllTripletLoss(), size=20, dim=3).double()
    found["nested"] = NestedLoss([BatchAllTripletLoss(), BatchAllTripletLoss()], [2, 3])
    return found


def learned(_=0):
    """Value, gradients and gathered rows of each loss, of this process's rows of two batches."""
    rng = torch.Generator().manual_seed(0)
    batches = torch.randn(2, 12, 3, generator=rng, dtype=torch.float64)
    found = {}
    for name, loss in losses().items():
        share_anchors(loss)
        for rows in batches:
            own = torch.nn.Parameter(part(rows))
            labels = SizedLabels.of(LABELS, 2)
            torch.manual_seed(0)  # of the classes that are sampled
            value = loss(gather(own, part(LABELS))[0], labels)
            loss.zero_grad()
            value.backward()
        learnt = list(loss.parameters())
        if learnt:
            average_gradients(learnt)
        rows = gather(own.grad / processes(), part(LABELS))[0]  # a mean over equal losses
        whole = [join_rows(p.grad) if isinstance(p, Shard) else p.grad for p in learnt]
        found[name] = {"value": value.detach(), "gradients": [rows, *whole]}
    return found


def test_two_processes_learn_what_one_learns(tmp_path):
    alone = learned()
    for found in in_two(learned, tmp_path):
        torch.testing.assert_close(found, alone, rtol=1e-9, atol=1e-9)


def rows_scored(_):
    """How many anchors the core of each loss sees."""
    found = {}
    for name, kind in LOSSES.items():
        (case,) = [arguments for each, arguments in CASES if each is kind][:1]
        loss = kind(**case)
        share_anchors(loss)
        core = loss.core
        loss.core = lambda c, core=core, name=name: (
            found.setdefault(name, len(c.positive)) and core(c)
        )
        loss(torch.randn(12, 3), LABELS)
    return found


def test_a_process_scores_half_of_the_anchors_or_says_why_not(tmp_path):
    assert processes() == 1
    for found in in_two(rows_scored, tmp_path):
        whole = {name for name, rows in found.items() if rows > 6}
        reasons = {name for name, kind in LOSSES.items() if isinstance(kind.indivisible, str)}
        assert whole == reasons | {"proxy_anchor"}, "which divides its proxies or is whole"


@pytest.mark.parametrize("blocks", [False, True])
def test_why_a_loss_is_whole(blocks):
    found = share_anchors(LOSSES["n_pair"](blocks=blocks))
    assert found == (("NPairLoss: its rows lie in blocks",) if blocks else ())


def test_sampling_keeps_the_classes_of_the_batch_and_a_share_of_the_others():
    loss = NormalizedSoftmaxLoss(1000, 2, sampled=0.1)
    torch.manual_seed(0)
    seen = []
    for _ in range(2):
        loss(torch.randn(3, 2), torch.tensor([3, 500, 3])).backward()
        moved = loss.proxies.grad.any(dim=1)
        assert moved[3] and moved[500] and 70 < moved.sum() < 130
        seen.append(moved)
        loss.zero_grad()
    assert not torch.equal(*seen) and not loss.capturable
    loss.eval()(torch.randn(3, 2), torch.tensor([3, 500, 3])).backward()
    assert loss.proxies.grad.any(dim=1).all()


def test_proxies_that_cannot_be_divided_say_why():
    with pytest.raises(ConfigError, match="each is compared with all others"):
        LOSSES["potential_field"](3, 2, divided=True)

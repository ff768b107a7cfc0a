"""The paper's Figure 4 by hand, and an assessor that never told tuples apart."""

import pytest
import torch

from vicinal.losses import TripletLoss
from vicinal.methods.ala.assessment import TripletScoring
from vicinal.methods.ala.method import WeightAnalysis

WEIGHTS = torch.tensor([0.2, 0.5, 0.8])


def test_average_weighted_hardness_is_the_papers_mean(rng):
    embeddings = torch.randn(6, 4, generator=rng)
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    scored = TripletScoring(TripletLoss(normalize=False))(embeddings, labels)
    told = WeightAnalysis().describe(WEIGHTS, scored.hardness)
    weighted = unweighted = 0.0
    for place, (anchor, positive, negative) in enumerate([(0, 3, 4), (1, 4, 5), (2, 5, 3)]):
        ratio = (embeddings[anchor] - embeddings[positive]).norm() / (
            embeddings[anchor] - embeddings[negative]
        ).norm()
        weighted = weighted + float(WEIGHTS[place] * ratio) / 3
        unweighted = unweighted + float(ratio) / 3
    assert float(told["hardness/weighted"]) == pytest.approx(weighted)
    assert float(told["hardness/unweighted"]) == pytest.approx(unweighted)
    assert float(told["hardness/ratio"]) == pytest.approx(weighted / unweighted)
    assert float(told["hardness/preference"]) == pytest.approx(weighted / unweighted / 0.5)
    assert float(told["weight_mean"]) == pytest.approx(0.5)
    assert float(told["weight_deviation"]) ** 2 == pytest.approx(0.06)


@pytest.mark.parametrize("spread", [0.0, 1e-4])
def test_an_assessor_whose_weights_never_spread_is_inert(spread):
    analysis = WeightAnalysis()
    assert analysis.note is None, "nothing was weighed yet"
    analysis.describe(0.5 + spread * torch.tensor([-1.0, 1.0]), torch.ones(2))
    assert analysis.note.startswith(
        f"assessor inert: the weights of an episode never spread by more than {spread:.1e}"
    )
    analysis.describe(torch.tensor([0.49, 0.51]), torch.ones(2))
    analysis.describe(torch.tensor([0.5, 0.5]), torch.ones(2))
    assert analysis.note is None, "they did spread once"

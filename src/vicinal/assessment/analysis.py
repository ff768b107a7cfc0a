"""What became of the weights: the analysis of DML-ALA (Zheng et al., CVPR 2020, Sect. 4.3 and Figure 4)."""

import torch
from jaxtyping import Float
from torch import Tensor

INERT = 1e-3  # standard deviation of an episode's weights below which an assessor tells no tuple from another


class WeightAnalysis:
    """Describes the weights of each episode, and remembers how far they ever spread.

    All is in tensors that change in place, so that a recorded step may do it.

    Attributes:
        widest: standard deviation of an episode's weights, at its largest so far; below 0 before the first.
        mean_weight: of the last episode.
    """

    def __init__(self) -> None:
        self.widest, self.mean_weight = torch.tensor(-1.0), torch.ones(())

    @property
    def note(self) -> str | None:
        """Once trained: that the assessor never told one tuple from another, if so."""
        if not 0 <= float(self.widest) < INERT:
            return None
        return (
            f"assessor inert: the weights of an episode never spread by more than {float(self.widest):.1e} "
            f"(standard deviation), so this run is its plain twin on fewer images. Raise assessing.rate, "
            f"assessing.updates or assessing.virtual_factor."
        )

    def to(self, device: torch.device) -> None:
        self.widest, self.mean_weight = self.widest.to(device), self.mean_weight.to(device)

    def describe(self, weights: Float[Tensor, "t"], hardness: Float[Tensor, "t"]) -> dict[str, Tensor]:
        """Mean and deviation of the weights; average weighted hardness, mean of w d(y, y⁺) / d(y, y⁻), and unweighted.

        ``ratio`` is weighted over unweighted; ``preference``, that over the mean weight, is 1 for equal weights.
        """
        mean, spread = weights.mean(), weights.std(correction=0)
        self.mean_weight.copy_(mean)
        self.widest.copy_(torch.maximum(self.widest, spread))
        weighted, plain = (weights * hardness).mean(), hardness.mean()
        ratio = weighted / plain.clamp(min=torch.finfo(plain.dtype).tiny)
        return {
            "weight_mean": mean,
            "weight_deviation": spread,  # a chart of its own: beside a mean of 0.5 nobody sees 0.01
            "hardness/weighted": weighted,
            "hardness/unweighted": plain,
            "hardness/ratio": ratio,
            "hardness/preference": ratio / mean,
        }

    def state_dict(self) -> dict[str, Tensor]:
        return {"widest": self.widest.clone(), "mean_weight": self.mean_weight.clone()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.widest.copy_(state["widest"])
        self.mean_weight.copy_(state["mean_weight"])

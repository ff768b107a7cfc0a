"""What DML-ALA reports: the analysis of its weights (Zheng et al., CVPR 2020, Sect. 4.3 and Figure 4), and figures."""

import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from vicinal.figures import Figure, record_tuples

INERT = 1e-3  # standard deviation of an episode's weights below which an assessor does not distinguish tuples
SHOWN = 6  # tuples of each kind
ROLES = ("anchor", "positive", "negative")
PAIR_ROLES = ("first", "second")


class WeightAnalysis(nn.Module):
    """Describe the weights of each episode, and remember how far they ever spread, on the device.

    Attributes:
        widest: standard deviation of an episode's weights, at its largest so far; below 0 before the first.
        mean_weight: of the last episode.
    """

    widest: Tensor
    mean_weight: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("widest", torch.tensor(-1.0))
        self.register_buffer("mean_weight", torch.ones(()))

    @property
    def note(self) -> str | None:
        """After training: that the assessor never distinguished tuples, if so."""
        if not 0 <= float(self.widest) < INERT:
            return None
        return (
            f"assessor inert: the weights of an episode never spread by more than {float(self.widest):.1e} "
            f"(standard deviation), so this run is its plain baseline on fewer images. Raise method.rate, "
            f"method.updates or method.virtual_factor."
        )

    def describe(self, weights: Float[Tensor, "t"], hardness: Float[Tensor, "t"]) -> dict[str, Tensor]:
        """Return mean and deviation of the weights, and the mean of w d(y, y⁺) / d(y, y⁻), weighted and unweighted.

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


class Showcase:
    """Collect weighed tuples and show the extremes; nothing is read from the device before it is shown."""

    def __init__(self) -> None:
        self._records: list[Integer[Tensor, "t m"]] = []
        self._weights: list[Float[Tensor, "t"]] = []

    def clear(self) -> None:
        """Forget all: tuples of an epoch long past were weighed by another assessor."""
        self._records, self._weights = [], []

    def add(self, records: Integer[Tensor, "t m"], weights: Float[Tensor, "t"]) -> None:
        """Take in the tuples of an episode."""
        self._records.append(records)
        self._weights.append(weights)

    def figures(self) -> tuple[Figure, ...]:
        """Show two rows of tuples; none where nothing was collected.

        Tuples are ranked by their weight over the mean of their episode. That mean drifts within an epoch, so by the
        weights themselves one would see the last episode and the first.
        """
        if not self._weights:
            return ()
        records, weights = torch.cat(self._records).cpu(), torch.cat(self._weights).cpu()
        relative = torch.cat([episode / episode.mean() for episode in self._weights]).cpu()
        order = relative.argsort(descending=True, stable=True)
        roles = ROLES if records.shape[1] == len(ROLES) else PAIR_ROLES
        kinds = (("Heaviest tuples", order[:SHOWN]), ("Lightest tuples", order.flip(0)[:SHOWN]))
        caption = (
            f"Of {len(weights):,} tuples of the last epoch, weighed {relative.min():.3f} to {relative.max():.3f} times "
            f"the mean of their episode. Does the assessor prefer what a person would call instructive, or mislabeled "
            f"and odd pictures?"
        )

        def shown(place: int) -> tuple[list[int], tuple[str, ...], str]:
            text = f"weight {weights[place]:.3f}, {relative[place]:.3f} times the mean"
            return records[place].tolist(), roles, text

        return tuple(record_tuples(title, caption, map(shown, chosen.tolist())) for title, chosen in kinds)

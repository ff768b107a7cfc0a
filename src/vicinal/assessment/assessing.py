"""How an assessor is taught, as settings of a recipe."""

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float
from torch import Tensor
from torch.optim import SGD, Adam, Optimizer

from vicinal.assessment.assessor import Assessor
from vicinal.assessment.meta_gradient import Route
from vicinal.assessment.metric import Unroll
from vicinal.assessment.scoring import Over
from vicinal.errors import ConfigError


@dataclass(frozen=True)
class Assessing:
    """How an assessor is taught.

    Attributes:
        rate: β of Eq. (12).
        optimiser: ``"adam"``, or the paper's plain gradient descent. The meta-gradient carries the factor α of the
            virtual step and is small: under ``"sgd"`` the weights hardly leave 1/2 unless ``virtual_factor`` is large.
        updates: K.
        recompute: whether θ' follows the assessor within the K updates, so that each descends Eq. (11). Algorithm 1
            computes it once before them: the K updates then share one derivative. With K = 1 both are the same.
        over: ``"mean"`` over tuples, or ``"sum"`` as the paper's equations have it.
        route: how the derivative is taken: exactly, in forward mode or by double backward; or by a central difference.
        unroll: ``"head"`` keeps the backbone out of the virtual step, an approximation.
        virtual_factor: of the learning rates in the virtual step.
        compiled: whether forward mode is compiled; for a GPU.
        relative: whether weights act relative to their mean in the episode. Differs: the paper's act as they are, and
            then the easiest thing to learn is that a longer step in a good direction is better still: all weights
            rise together and none is told from another. An optimiser of Adam's kind ignores a common factor anyway.
    """

    rate: float = 4e-4
    optimiser: Literal["adam", "sgd"] = "adam"
    updates: int = 3
    recompute: bool = False
    over: Over = "mean"
    route: Route = "forward"
    unroll: Unroll = "all"
    virtual_factor: float = 1.0
    compiled: bool = False
    relative: bool = True

    def __post_init__(self) -> None:
        if self.updates < 0 or self.rate < 0:
            raise ConfigError(f"updates and rate are 0 or more, but {self.updates} and {self.rate} came.")

    def factors(self, weights: Float[Tensor, "t"]) -> Float[Tensor, "t"]:
        """What the tuples' losses are multiplied by."""
        return weights / weights.mean() if self.relative else weights

    def build(self, assessor: Assessor) -> Optimizer | None:
        """The assessor's optimiser; None where it has nothing to learn."""
        if not assessor.learns:
            return None
        if self.optimiser == "sgd":
            return SGD(assessor.parameters(), lr=self.rate)
        # Adam's own 1e-8 would swamp meta-gradients, which are as small as the virtual step; float32 squares 1e-15.
        return Adam(assessor.parameters(), lr=self.rate, eps=1e-15)

"""The settings of DML-ALA (Zheng et al., CVPR 2020): which assessor, what it weighs, how it is taught."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Literal, get_args, get_type_hints

from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import SGD, Adam, Optimizer

from vicinal.assessment.assessor import Assessor, ConstantAssessor, LSTMAssessor, MLPAssessor, RandomAssessor
from vicinal.assessment.meta_gradient import Route
from vicinal.assessment.metric import Unroll
from vicinal.assessment.scoring import AnchorScoring, Over, PairScoring, Scoring, TripletScoring
from vicinal.errors import ConfigError, unknown
from vicinal.losses.loss import Loss, tuple_loss


@dataclass(frozen=True)
class ALAConfig:
    """DML-ALA (Zheng et al. 2020): an assessor learns how much each tuple of an episode should weigh.

    Attributes:
        assessor: the paper's ``"lstm"``; ``"mlp"``, which has no memory; or a control that learns nothing:
            ``"constant"``, the same ``weight`` for every tuple, or ``"random"``, weights about ``weight`` by chance.
        weight: mean weight of ``"constant"`` and ``"random"``: what the LSTM has on average.
        spread: standard deviation of ``"random"``.
        units: what is weighed: ``"triplets"``, one positive and one negative of each anchor, for any tuple loss;
            ``"pairs"``, for losses that are sums over pairs; ``"anchors"``, each with all of its subset.
        rate: β of Eq. (12).
        optimizer: ``"adam"``, or the paper's plain gradient descent. The meta-gradient carries the factor α of the
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
            rise together and none differs from another. An optimizer of Adam's kind ignores a common factor anyway.
    """

    assessor: Literal["lstm", "mlp", "constant", "random"] = "lstm"
    weight: float = 0.48
    spread: float = 0.004
    units: Literal["triplets", "pairs", "anchors"] = "triplets"
    rate: float = 4e-4
    optimizer: Literal["adam", "sgd"] = "adam"
    updates: int = 3
    recompute: bool = False
    over: Over = "mean"
    route: Route = "forward"
    unroll: Unroll = "all"
    virtual_factor: float = 1.0
    compiled: bool = False
    relative: bool = True

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for field in fields(self):
            value, choices = getattr(self, field.name), get_args(hints[field.name])
            if choices and value not in choices:
                raise ConfigError(unknown(field.name, str(value), choices))
        if self.updates < 0 or self.rate < 0:
            raise ConfigError(f"updates and rate are 0 or more, but {self.updates} and {self.rate} came.")

    def factors(self, weights: Float[Tensor, "t"]) -> Float[Tensor, "t"]:
        """What the tuples' losses are multiplied by."""
        return weights / weights.mean() if self.relative else weights

    def scoring(self, loss: nn.Module) -> Scoring:
        """Return how the subsets of an episode form tuples of ``loss``."""
        kinds: dict[str, Callable[[Loss], Scoring]] = {
            "triplets": TripletScoring,
            "pairs": PairScoring,
            "anchors": AnchorScoring,
        }
        return kinds[self.units](tuple_loss(loss, "ALA"))

    def build_assessor(self, inputs: int, seed: int) -> Assessor:
        """Build the assessor of tuples with ``inputs`` numbers each."""
        match self.assessor:
            case "lstm":
                return LSTMAssessor(inputs)
            case "mlp":
                return MLPAssessor(inputs)
            case "constant":
                return ConstantAssessor(self.weight)
            case "random":
                return RandomAssessor(self.weight, self.spread, seed=seed)

    def build_optimizer(self, assessor: Assessor) -> Optimizer | None:
        """Build the assessor's optimizer; None where it has nothing to learn."""
        if not assessor.learns:
            return None
        if self.optimizer == "sgd":
            return SGD(assessor.parameters(), lr=self.rate)
        # Adam's own 1e-8 would swamp meta-gradients, which are as small as the virtual step; float32 squares 1e-15.
        return Adam(assessor.parameters(), lr=self.rate, eps=1e-15)

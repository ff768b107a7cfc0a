"""The optimizer slot: optimizer, learning rates of the layers and schedule, the same settings for
every method."""

import inspect
import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Annotated, Literal, TypeVar

import torch
from torch import Tensor, nn, optim
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from vicinal.arguments import Count, Limits, Natural, NonNegative, Positive, Settings
from vicinal.errors import ConfigError
from vicinal.models.embedder import Embedder
from vicinal.parallel import Shard, stacked

T = TypeVar("T", bound=Optimizer)


def _undecorated(kind: type[T]) -> type[T]:
    """Return an optimizer's class without the decorators that hide its methods from torch's
    compiler.

    They import the compiler, which takes as long as torch itself. What is computed is the same.
    """
    names = ("add_param_group", "zero_grad", "step", "state_dict", "load_state_dict")
    methods = {name: inspect.unwrap(getattr(kind, name)) for name in names}
    return type(kind.__name__, (kind,), methods | {"step": torch.no_grad()(methods["step"])})


SGD = _undecorated(optim.SGD)
Adam = _undecorated(optim.Adam)
AdamW = _undecorated(optim.AdamW)


class OptimizerConfig(Settings):
    """One learning rate for the backbone, a multiple of it for new layers, with a schedule.

    Attributes:
        name: ``adamw`` (Loshchilov and Hutter 2019), ``adam`` (Kingma and Ba 2015) or ``sgd`` with
            momentum.
        learning_rate: of the backbone.
        head_factor: the head's rate in multiples of ``learning_rate``; papers use 10 over a
            pre-trained backbone.
        loss_factor: the same for what a loss itself learns (proxies, boundaries); Proxy-Anchor's
            authors use 100.
        weight_decay: decoupled from the gradient with ``adamw``, added to the gradient as an L2
            penalty with ``adam`` and ``sgd``; not applied to vectors (biases, batch norm), where it
            only shrinks scales.
        schedule: ``cosine`` falls to 0 at the last step; ``steps`` multiplies the rate by
            ``factor`` at each of ``milestones``.
        milestones: of ``steps``: the numbers of updates after which the rate falls.
        factor: of ``steps``.
        warmup: steps over which the rate rises linearly from 0.
        frozen: first steps, in which the backbone's rate is 0 and new layers and proxies learn
            alone, as Proxy-Anchor's authors begin.
        momentum: of ``sgd``.
        clip: largest norm of the gradient over all parameters of this optimizer; None does not
            clip.
    """

    slot = "optimizer"

    name: Literal["adamw", "adam", "sgd"] = "adamw"
    learning_rate: Positive = 1e-3
    head_factor: NonNegative = 1.0
    loss_factor: NonNegative = 1.0
    weight_decay: NonNegative = 1e-4
    schedule: Literal["constant", "cosine", "steps"] = "cosine"
    milestones: tuple[Count, ...] = ()
    factor: Annotated[float, Limits("(0, 1)")] = 0.5
    warmup: Natural = 0
    frozen: Natural = 0
    momentum: Annotated[float, Limits("[0, 1)")] = 0.9
    clip: Positive | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.schedule == "steps") != bool(self.milestones):
            raise ConfigError(
                "optimizer.milestones are those of optimizer.schedule=steps, got "
                f"schedule={self.schedule} and milestones={list(self.milestones)}. Set both, such "
                "as optimizer.schedule=steps optimizer.milestones=4000,6000, or neither."
            )

    def build(
        self, embedder: Embedder, *, steps: int, others: Iterable[nn.Parameter] = ()
    ) -> tuple[Optimizer, LambdaLR]:
        """Build optimizer and schedule for ``steps`` updates; ``others`` are what a loss itself
        learns.

        Gradients are clipped at the beginning of ``optimizer.step``, so after any average over
        processes.
        """
        rate = self.learning_rate
        decay = self.weight_decay
        backbone = _groups(embedder.backbone.parameters(), rate, decay)
        held = set(embedder.backbone.parameters())
        heads = [parameter for parameter in embedder.parameters() if parameter not in held]
        new = [
            *_groups(heads, self.head_factor * rate, decay),
            *_groups(others, self.loss_factor * rate, decay),
        ]
        groups = backbone + new
        if not groups:
            raise ConfigError(
                "nothing can be trained: the backbone has no free parameters and there is no head. "
                "Set model.dim, or freeze less of the backbone."
            )
        optimizer: Optimizer
        if self.name == "sgd":
            optimizer = SGD(groups, lr=rate, momentum=self.momentum)
        else:
            optimizer = AdamW(groups) if self.name == "adamw" else Adam(groups)
        if self.clip is not None:
            optimizer.register_step_pre_hook(partial(_clip, self.clip))
        frozen = [self.frozen] * len(backbone) + [0] * len(new)
        rates: list[Callable[[int], float]] = [
            partial(self.rate, steps=steps, frozen=first) for first in frozen
        ]
        return optimizer, LambdaLR(optimizer, rates)

    def rate(self, step: int, steps: int, frozen: int = 0) -> float:
        """Return the share of the full rate at ``step``, 0 before step ``frozen``.

        >>> [round(OptimizerConfig(warmup=2).rate(step, 10), 2) for step in (0, 1, 2, 6, 10)]
        [0.0, 0.5, 1.0, 0.5, 0.0]
        >>> halved = OptimizerConfig(schedule="steps", milestones=(2, 4))
        >>> [halved.rate(step, 10) for step in (1, 2, 3, 4, 10)]
        [1.0, 0.5, 0.5, 0.25, 0.25]
        """
        if step < frozen:
            return 0.0
        if step < self.warmup:
            return step / self.warmup
        if self.schedule == "constant":
            return 1.0
        if self.schedule == "steps":
            passed = sum(milestone <= step for milestone in self.milestones)
            return float(self.factor**passed)
        done = (step - self.warmup) / max(1, steps - self.warmup)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


def _clip(norm: float, optimizer: Optimizer, *_: object) -> None:
    """Scale the gradients of an optimizer before its step, so that their common norm is at most
    ``norm``."""
    # The factor stays on the device: nothing waits for it, and a CUDA graph can hold it.
    shards: list[Tensor] = []
    whole: list[Tensor] = []
    for parameter in (each for group in optimizer.param_groups for each in group["params"]):
        if parameter.grad is not None:
            (shards if isinstance(parameter, Shard) else whole).append(parameter.grad)
    norms = [*torch._foreach_norm(whole)]
    if shards:
        norms.append(stacked(torch.stack(torch._foreach_norm(shards)).norm()).norm())
    total = torch.stack(norms).norm()
    torch._foreach_mul_([*shards, *whole], (norm / (total + 1e-6)).clamp(max=1))


def fit(optimizer: Optimizer, device: torch.device) -> None:
    """Adapt an optimizer to where its parameters are.

    On a GPU all parameters are updated in one kernel, and learning rates are tensors, so that a
    CUDA graph can hold the update and follow the schedule.
    """
    cuda = device.type == "cuda"
    for group in optimizer.param_groups:
        rate = float(group["lr"])
        group["lr"] = torch.tensor(rate, device=device) if cuda else rate
        if "fused" in group:
            group["fused"] = cuda or None
        if "capturable" in group:
            group["capturable"] = cuda
    # torch would warn at the steps before a capture, or where there is none.
    optimizer._warned_capturable_if_run_uncaptured = True


def _groups(
    parameters: Iterable[nn.Parameter], rate: float, decay: float
) -> list[dict[str, object]]:
    learnt = [parameter for parameter in parameters if parameter.requires_grad]
    matrices = [p for p in learnt if p.ndim > 1]
    vectors = [p for p in learnt if p.ndim <= 1]
    groups = [
        {"params": matrices, "lr": rate, "weight_decay": decay},
        {"params": vectors, "lr": rate, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]

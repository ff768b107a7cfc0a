"""The base of all methods, what they are built from (`Parts`), and what a step returns
(`StepResult`)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from vicinal.arguments import docstring_section
from vicinal.data.records import QUERY, Batch, Records, to_device
from vicinal.errors import ConfigError
from vicinal.evaluation.encoder import Embedded
from vicinal.losses.diagnostics import CAPTIONS, describe_batch
from vicinal.losses.loss import SettingsModule, block_layout, share_anchors
from vicinal.methods.optimizer import OptimizerConfig, fit
from vicinal.models.embedder import Embedder, TwoStreamEmbedder
from vicinal.parallel import Shard, average_gradients, averaged_gradients, gather, processes
from vicinal.samplers.sampler import BatchSampler
from vicinal.tuples import Embeddings, Labels

ANY_LAYOUT = ("classes", "pairs", "triplets", "episodes", "cross_view")
EARLY = 64  # steps: the window of HDML's authors

Form = Literal["ours", "paper"]


@dataclass(frozen=True)
class Parts:
    """Everything that a method is built from besides its own settings.

    Attributes:
        embedder: the network, already built, so that one seed gives every method the same weights.
        loss: the loss; methods over tuples need a `vicinal.losses.Loss`.
        sampler: the batches.
        optimizer: settings of the optimizer and its schedule.
        train: the training records.
        steps: total number of updates, for schedules.
        seed: seed of everything that the method draws itself.
    """

    embedder: Embedder
    loss: nn.Module
    sampler: Any  # a BatchSampler, or one of the user's own
    optimizer: OptimizerConfig
    train: Records
    steps: int
    seed: int

    @property
    def early(self) -> int:
        """How many steps a method of ours waits: at most an epoch and a twentieth of the run."""
        return max(1, min(EARLY, len(self.sampler), self.steps // 20))


class StepResult(NamedTuple):
    """What a step returns.

    Attributes:
        scalars: still on the device, ``loss`` among them; ``group/name`` groups the rest.
        embeddings: of the rows that the step trained on, for diagnostics. The next step may
            overwrite them.
        labels: of these rows.
    """

    scalars: Mapping[str, Tensor]
    embeddings: Embeddings
    labels: Labels


class Method(SettingsModule):
    """A way of training an embedder.

    A method is a dataclass (``eq=False``) whose fields are its settings, as in ``HDML(alpha=0.5)``.
    `build` returns a copy with networks and optimizers; calling it with a batch takes one training
    step. A subclass writes `setup` and `step` where they differ from training on the loss alone.
    Its docstring says in a section ``Charts`` how to read the chart of each group of its scalars.
    All that the next step depends on is in modules, buffers, ``optimizers`` and ``schedule``, or in
    ``get_extra_state``.

    Attributes:
        form: which form of its paper it takes, ``"paper"`` or ``"ours"`` (or the authors' code's),
            a setting of methods whose forms differ.
        default_loss: its name in `vicinal.losses.LOSSES`.
        needs: the losses that it `takes`, in a message.
        suggests: what to set instead of another.
        layouts: the samplers on whose batches it can train, keys of `vicinal.samplers.SAMPLERS`,
            the default first.
        title: the method's name in messages; of a class that states none, its own.
        chunkable: whether it trains with ``training.chunk``: it differentiates the network once per
            step.
        scalable: whether `differentiate` computes all its gradients, as loss scaling needs.
        scaler: scales losses where the backbone trains in float16, whose gradients would be 0.
        reads_records: whether it plans an epoch by the embeddings of the training records (HTL).
        embed_records: gives those; set by the trainer, which knows where the records are.
        acts_from: the number of steps that are still those of the loss alone: a model chosen after
            no more than these never met the method.
        undivided: why parts of the loss are computed by each of several processes for the whole
            batch, not for its share of the anchors.
    """

    form: str | None = None
    default_loss: ClassVar[str] = "multi_similarity"
    needs: ClassVar[str]
    suggests: ClassVar[str]
    layouts: ClassVar[tuple[str, ...]] = ANY_LAYOUT
    title: ClassVar[str]
    chunkable: ClassVar[bool] = True
    scalable: ClassVar[bool] = True
    reads_records: ClassVar[bool] = False

    embedder: Embedder
    loss: Any
    sampler: Any
    seed: int
    optimizers: dict[str, Optimizer]
    embed_records: Callable[[], Embedded]
    acts_from: int = 0
    undivided: tuple[str, ...] = ()
    scaler: GradScaler | None = None

    def __init_subclass__(cls) -> None:
        if "title" not in vars(cls):
            cls.title = cls.__name__

    # -- the slot of an experiment ----------------------------------------------------------------

    def sampler_for(self, loss: type[nn.Module]) -> str:
        """Return the name of the default sampler over losses of this class, a key of
        `vicinal.samplers.SAMPLERS`."""
        if self.layouts != ANY_LAYOUT:
            return self.layouts[0]
        return getattr(loss, "layout", None) or "classes"

    def takes(self, loss: nn.Module) -> bool:
        """Return whether a loss is one that this method ``needs``."""
        return True

    def check(self, loss: nn.Module, sampler: object) -> None:
        """Raise a ConfigError with the reason where this method cannot train this loss on these
        batches.

        A sampler of a user's own is not checked; None stands for the default sampler.
        """
        layout = sampler.layout if isinstance(sampler, BatchSampler) else None
        if layout is not None and layout not in self.layouts:
            raise ConfigError(
                f"{self.title} cannot train on batches of sampler={layout}. Set "
                f"sampler={self.layouts[0]}."
            )
        kind = type(loss).__name__
        expected = block_layout(loss)
        if layout is not None and expected is not None and layout != expected:
            raise ConfigError(
                f"{kind} has blocks=True and expects batches of sampler={expected}, got "
                f"sampler={layout}. Set loss.blocks=false, or sampler={expected}."
            )
        if getattr(loss, "reduction", "mean") == "none":  # also of torch's own losses
            raise ConfigError(
                f'training needs one number, but {kind} has reduction="none". Set '
                "loss.reduction=mean."
            )
        if not self.takes(loss):
            raise ConfigError(f"{self.title} needs {self.needs}, got {kind}. Use {self.suggests}.")

    def build(self, parts: Parts) -> Self:
        """Return a copy of this method that is ready to train."""
        self.check(parts.loss, parts.sampler)
        method = replace(self)  # type: ignore[type-var]  # subclasses are dataclasses
        method.setup(parts)
        method.undivided = share_anchors(method)
        return method

    # -- training ---------------------------------------------------------------------------------

    def setup(self, parts: Parts) -> None:
        """Take the parts and build what the method needs besides."""
        self.embedder = parts.embedder
        self.loss = parts.loss
        self.sampler = parts.sampler
        self.seed = parts.seed
        self.processes = processes()
        self.metric_optimizer, self.schedule = parts.optimizer.build(
            self.embedder, steps=parts.steps, others=self.others()
        )
        self.optimizers = {"metric": self.metric_optimizer}

    def others(self) -> Iterable[nn.Parameter]:
        """Return what is trained beside the embedder: what the loss learns."""
        return self.loss.parameters()

    def batches(self, epoch: int) -> Sequence[Sequence[int]]:
        """Return positions in the training records, batch by batch.

        The order inside a batch reaches `step` unchanged, so blocks such as ``[a; p]`` may carry
        meaning. The plan is a function of the seed, the epoch and the method's state alone: a
        resumed run asks again and must get the same.
        """
        return self.sampler.epoch(epoch)

    def forward(self, batch: Batch) -> StepResult:
        """Take one training step."""
        batch = self.prepare(batch)
        result = self.step(batch)
        self.advance(batch)
        return result

    def prepare(self, batch: Batch) -> Batch:
        """Add to a batch what `step` needs and only the host can compute."""
        return batch

    def draws(self) -> np.random.Generator:
        """Return random numbers for a step, by the seed and the step alone."""
        return np.random.default_rng([self.seed % 2**64, self.schedule.last_epoch])

    @staticmethod
    def given(batch: Batch, **drawn: Any) -> Batch:
        """Add numbers to the extras of a batch, as tensors where its labels are."""
        device = batch.labels.device
        placed = {name: to_device(torch.as_tensor(it), device) for name, it in drawn.items()}
        return replace(batch, extras={**batch.extras, **placed})

    def step(self, batch: Batch) -> StepResult:
        """Compute losses and gradients, and update; by default the loss of the batch alone.

        Everything happens on the device: a CUDA graph may replay it.
        """
        return self.step_by(self.loss, batch)

    def step_by(self, loss: Callable[..., Tensor], batch: Batch) -> StepResult:
        """Take the step of one loss, updates included."""
        embeddings, labels = self.embed(batch)
        return self.update(loss(embeddings, labels), embeddings, labels)

    def update(
        self,
        loss: Tensor,
        embeddings: Embeddings,
        labels: Labels,
        *others: Optimizer,
        **scalars: Tensor,
    ) -> StepResult:
        """Update by one loss, and ``others`` by the gradients that they have; return the loss with
        other scalars."""
        self.differentiate(loss, average=True)
        told = {name: value.detach() for name, value in {"loss": loss, **scalars}.items()}
        self.optimize(self.metric_optimizer, *others, averaged=self.metric_optimizer)
        return StepResult(told, embeddings.detach(), labels)

    def advance(self, batch: Batch) -> None:
        """Do after a step what only the host can do: advance the schedule."""
        self.schedule.step()

    def embed(self, batch: Batch) -> tuple[Embeddings, Labels]:
        """Return embeddings before normalization, and labels, of the rows of all processes."""
        if batch.texts is not None and isinstance(self.embedder, TwoStreamEmbedder):
            asks = batch.extras["role"] == QUERY
            rows = self.embedder.joined(_embed, batch.texts, batch.inputs, asks)
        else:
            rows = _embed(self.embedder, batch.inputs)
        return gather(rows, batch.labels)

    def differentiate(
        self,
        loss: Tensor,
        optimizer: Optimizer | None = None,
        *,
        keep: bool = False,
        average: bool = False,
    ) -> None:
        """Put the gradient of ``loss`` into what ``optimizer``, by default ``metric_optimizer``,
        trains, and nowhere else; ``keep`` leaves the graph for another loss, ``average`` averages
        over processes meanwhile."""
        held = trained(optimizer or self.metric_optimizer)
        wanted = [parameter for parameter in held if parameter.requires_grad]
        if self.scaler is not None:
            loss = self.scaler.scale(loss)
        gradients: Sequence[Tensor | None]
        if average and self.processes > 1:
            gradients = averaged_gradients(loss, wanted)
        else:
            gradients = torch.autograd.grad(loss, wanted, retain_graph=keep, allow_unused=True)
        for parameter, gradient in zip(wanted, gradients, strict=True):
            parameter.grad = gradient

    def optimize(self, *optimizers: Optimizer, averaged: Optimizer | None = None) -> None:
        """Average gradients over processes but those that are ``averaged``, then update; default:
        by ``metric_optimizer``."""
        optimizers = optimizers or (self.metric_optimizer,)
        if own := [each for each in optimizers if each is not averaged]:
            average_gradients([parameter for each in own for parameter in trained(each)])
        for optimizer in optimizers:
            if self.scaler is None:
                optimizer.step()
            else:
                self.scaler.step(optimizer)  # not at all where a scaled gradient overflowed
                optimizer._opt_called = True  # type: ignore[attr-defined]  # nor does the schedule warn
        if self.scaler is not None:
            self.scaler.update()

    @property
    def capturable(self) -> bool:
        """Whether a CUDA graph may replay `step`: it depends on tensors alone, on nothing counted
        in Python."""
        may = bool(getattr(self.loss, "capturable", False))
        return may and not self.embedder.reads_text and self.scaler is None

    @property
    def phase(self) -> object:
        """Which of its computations `step` does now; a CUDA graph replays only steps of an equal
        phase."""
        return None

    # -- state ------------------------------------------------------------------------------------

    def place(self, device: torch.device) -> None:
        """Move everything to ``device``, once, before the first step.

        Methods are built on the CPU, also for a GPU, so that a seed draws the same weights
        everywhere.
        """
        self.to(device)
        for optimizer in self.optimizers.values():
            fit(optimizer, device)

    def training_state(self) -> dict[str, Any]:
        """Return all that the next step depends on, as nested dictionaries of tensors and plain
        values; what belongs to a `Shard` is one."""
        return {
            "modules": self.state_dict(keep_vars=True),
            "optimizers": {name: _state(each) for name, each in self.optimizers.items()},
            "schedule": self.schedule.state_dict(),
            "scaler": None if self.scaler is None else self.scaler.state_dict(),
        }

    def load_training_state(self, state: Mapping[str, Any]) -> None:
        """Continue where ``state`` was saved, on any device."""
        self.load_state_dict(state["modules"])
        for name, optimizer in self.optimizers.items():
            device = trained(optimizer)[0].device
            optimizer.load_state_dict(state["optimizers"][name])
            fit(optimizer, device)  # what was saved elsewhere says how it was there
        self.schedule.load_state_dict(state["schedule"])
        if self.scaler is not None:
            self.scaler.load_state_dict(state["scaler"])

    # -- what a user sees --------------------------------------------------------------------------

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the results should know (classes left out of batches, ...)."""
        return () if self.sampler.note is None else (self.sampler.note,)

    @property
    def captions(self) -> Mapping[str, str]:
        """How to read the chart of a group of scalars: one or two sentences by the group's name,
        from the sections ``Charts`` of docstrings."""
        charts = [docstring_section(kind, "Charts") for kind in reversed(type(self).__mro__)]
        return {name: text for chart in (*charts, CAPTIONS) for name, text in chart.items()}

    def diagnostics(self, result: StepResult) -> dict[str, Tensor]:
        """Describe a batch by what a step on it returned; asked every few steps."""
        return describe_batch(result.embeddings, result.labels, self.loss)


def with_tensor_cores(step: Callable[..., StepResult]) -> Callable[..., StepResult]:
    """Let a step of many products in float32 take tensor cores on a GPU (TF32: factors of 10 bits,
    sums in float32), where the network trains in bfloat16."""

    @wraps(step)
    def quicker(method: Method, batch: Batch) -> StepResult:
        backends: tuple[Any, ...] = torch.backends.cuda.matmul, torch.backends.cudnn
        before = [backend.allow_tf32 for backend in backends]
        for backend in backends:
            backend.allow_tf32 |= method.embedder.precision is not None
        try:
            return step(method, batch)
        finally:
            for backend, was in zip(backends, before, strict=True):
                backend.allow_tf32 = was

    return quicker


def _embed(stream: Embedder, inputs: Tensor) -> Tensor:
    return stream.embed(stream.features(inputs))


def _state(optimizer: Optimizer) -> dict[str, Any]:
    """Return what an optimizer has kept, in shards for what is one."""
    found = optimizer.state_dict()
    for place, parameter in enumerate(trained(optimizer)):
        if isinstance(parameter, Shard) and (kept := found["state"].get(place)):
            found["state"][place] = {
                name: Shard(value, requires_grad=False) if value.shape == parameter.shape else value
                for name, value in kept.items()
            }
    return found


def trained(optimizer: Optimizer) -> list[nn.Parameter]:
    """Return all parameters that an optimizer updates."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]

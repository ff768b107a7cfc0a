"""HTL + HDML: harder negatives for batches of classes that a tree brings together (Ge et al. 2018, Zheng et al. 2019).

Nobody has published the two together. HTL plans the batches and sets the margins of the loss; the step is HDML's.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from torch import Tensor, nn

from vicinal.data.records import Batch
from vicinal.data.resident import Resident
from vicinal.errors import ConfigError
from vicinal.figures import Figure
from vicinal.methods.hdml.method import HDML
from vicinal.methods.htl import HTL
from vicinal.methods.method import Method, Parts, StepResult


@dataclass(eq=False)
class HTLHDML(Method):
    """HTL + HDML (Ge et al. 2018, Zheng et al. 2019): harder negatives for batches of neighboring classes.

    Attributes:
        hdml: settings of HDML.
        htl: settings of HTL; ``sampling`` stays on.
    """

    hdml: HDML = field(default_factory=HDML)
    htl: HTL = field(default_factory=HTL)

    default_loss: ClassVar[str] = "hierarchical_triplet"
    layouts: ClassVar[tuple[str, ...]] = ("anchor_neighbors",)
    title: ClassVar[str] = "HTL + HDML"
    reads_records: ClassVar[bool] = True

    def check(self, loss: nn.Module, sampler: object) -> None:
        super().check(loss, sampler)
        if not self.htl.sampling:
            raise ConfigError("HTL + HDML samples in the tree, got htl.sampling=false. Set method.htl.sampling=true.")
        if not hasattr(loss, "set_margins"):
            raise ConfigError(
                f"HTL + HDML sets a margin for each two classes, but {type(loss).__name__} takes none. "
                f"Set loss=hierarchical_triplet."
            )

    def setup(self, parts: Parts) -> None:
        super().setup(parts)
        self.hdml, self.htl = replace(self.hdml), replace(self.htl)
        for method in (self.hdml, self.htl):
            method.share(self)
        self.hdml.steps = parts.steps
        self.hdml.setup_generator(parts)
        self.htl.setup_tree(parts)
        self.optimizers |= self.hdml.optimizers

    def read_by(
        self, resident: Resident | None, *, workers: int, progress: Callable[[int], None] | None = None
    ) -> None:
        self.htl.read_by(resident, workers=workers, progress=progress)

    def batches(self, epoch: int) -> Sequence[Sequence[int]]:
        return self.htl.batches(epoch)

    def step(self, batch: Batch) -> StepResult:
        return self.hdml.step(batch)

    def diagnostics(self, result: StepResult, largest_class: int | None = None) -> dict[str, Tensor]:
        return self.htl.diagnostics(result, largest_class)

    @property
    def capturable(self) -> bool:
        return self.htl.capturable

    @property
    def notes(self) -> tuple[str, ...]:
        return self.hdml.notes

    @property
    def captions(self) -> Mapping[str, str]:
        return {**self.htl.captions, **self.hdml.captions}

    def figures(self, batch: Batch) -> Sequence[Figure]:
        return (*self.hdml.figures(batch), *self.htl.figures(batch))

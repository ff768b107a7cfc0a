"""Methods, by the papers' names: a method's constructor takes its settings, `build` makes it ready
to train."""

from typing import Any

from vicinal.arguments import parameters
from vicinal.errors import ConfigError, unknown
from vicinal.losses import LOSSES
from vicinal.methods.ala import ALA
from vicinal.methods.daml import DAML
from vicinal.methods.gca_hng import GCAHNG
from vicinal.methods.hdml import HDML
from vicinal.methods.her import HER
from vicinal.methods.htl import HTL
from vicinal.methods.idml import IDML
from vicinal.methods.loop import EmbeddingExpansion, LoOp
from vicinal.methods.method import Method, StepResult
from vicinal.methods.metrix import Metrix
from vicinal.methods.plain import CrossBatchMemory, MomentumQueue, Plain
from vicinal.methods.proxy_synthesis import ProxySynthesis
from vicinal.methods.see import SEE

METHODS: dict[str, type[Method]] = {
    "plain": Plain,
    "hdml": HDML,
    "loop": LoOp,
    "expansion": EmbeddingExpansion,
    "ala": ALA,
    "htl": HTL,
    "her": HER,
    "metrix": Metrix,
    "idml": IDML,
    "proxy_synthesis": ProxySynthesis,
    "see": SEE,
    "gca_hng": GCAHNG,
    "daml": DAML,
    "cross_batch_memory": CrossBatchMemory,
    "momentum_queue": MomentumQueue,
}


def combination(method: Method, loss: str) -> str | None:
    """Return why ``method`` does not train the loss of this name with its default arguments; None
    if it does.

    >>> combination(Plain(), "proxy_anchor") is None
    True
    >>> combination(CrossBatchMemory(), "clustering")[:40]
    'cross-batch memory needs a loss that com'
    """
    if loss not in LOSSES:
        raise ConfigError(unknown("loss", loss, LOSSES))
    kind: Any = LOSSES[loss]
    given = {
        "classes": 4,
        "dim": 4,
        "blocks": kind.layout is not None and kind.layout == method.sampler_for(kind),
    }
    arguments = {name: value for name, value in given.items() if name in parameters(kind)}
    try:
        method.check(kind(**arguments), None)
    except ConfigError as error:
        return str(error)
    return None


__all__ = [
    "ALA",
    "DAML",
    "GCAHNG",
    "HDML",
    "HER",
    "HTL",
    "IDML",
    "METHODS",
    "SEE",
    "CrossBatchMemory",
    "EmbeddingExpansion",
]
__all__ += ["LoOp", "Method", "Metrix", "MomentumQueue", "Plain", "ProxySynthesis", "StepResult"]
__all__ += ["combination"]

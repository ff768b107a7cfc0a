"""Train a part of a network: some of its parameters, or low-rank updates (LoRA)."""

import copy
import math
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from vicinal.errors import ConfigError, package


def count_parameters(module: nn.Module) -> tuple[int, int]:
    """Return how many numbers of a module train, and how many it has.

    >>> layer = nn.Linear(3, 2)
    >>> count_parameters(layer.requires_grad_(False)), count_parameters(nn.Linear(3, 2))
    ((0, 8), (8, 8))
    """
    parameters = list(module.parameters())
    return sum(p.numel() for p in parameters if p.requires_grad), sum(p.numel() for p in parameters)


def freeze_parameters(backbone: nn.Module, patterns: str) -> None:
    """Stop the training of some parameters of a backbone.

    Args:
        backbone: whose parameters no longer require gradients.
        patterns: ``"all"``, or patterns that names of parameters match, with commas between, such
            as ``"conv1.*,layer[12].*"``.
    """
    network = trunk(backbone)
    parameters = dict(network.named_parameters())
    for pattern in ["*"] if patterns == "all" else patterns.split(","):
        names = [name for name in parameters if fnmatchcase(name, pattern)]
        if not names:
            parts = dict.fromkeys(name.split(".")[0] for name in parameters)
            raise ConfigError(
                f"no parameter of {type(network).__name__} matches freeze={pattern!r}. Its "
                f"parameters begin with {', '.join(parts)}. Set model.freeze to patterns such as "
                f"'{next(iter(parts), 'layer')}*', or to all."
            )
        for name in names:
            parameters[name].requires_grad_(False)


class FrozenPart:
    """What a network computes before all that trains, which need be computed once for each input.

    It ends with the last module whose output neither requires a gradient nor hangs on chance.

    Args:
        network: in training mode, on the CPU.
        example: some inputs.

    Attributes:
        end: its last module; None where there is no such part.
        shape: of what it makes of one input, as `rest` is given it.
    """

    def __init__(self, network: nn.Module, example: Tensor) -> None:
        self.network = network
        self.example = example
        self.end: Any = None
        self.shape = torch.Size()
        copied = copy.deepcopy(network)  # whose norms take note of the example
        names = {module: name for name, module in copied.named_modules()}

        def note(module: nn.Module, _: object, output: Any) -> None:
            plain = isinstance(output, Tensor) and next(module.parameters(), None) is not None
            if plain and not output.requires_grad and torch.equal(torch.get_rng_state(), before):
                self.end = network.get_submodule(names[module])
                self.expected = output.clone()

        with torch.random.fork_rng(devices=[]):
            before = torch.get_rng_state()
            for module in names:
                module.register_forward_hook(note)
            copied(example)

    def holds(self) -> bool:
        """Whether the example comes out the same in two parts, in evaluation mode as in training:
        nothing leads past the end, and no norm sees the other rows."""
        if self.end is None:
            return False
        maps = self.maps(self.example)
        same = partial(torch.allclose, rtol=1e-4, atol=1e-5)
        return same(maps, self.expected) and same(self.rest(maps), self.network(self.example))

    def maps(self, inputs: Tensor) -> Tensor:
        """Compute the part."""
        found = list[Tensor]()
        with self.end.register_forward_hook(lambda *call: found.append(call[-1].clone())):
            self.network(inputs)
        return found[0]

    def rest(self, maps: Tensor) -> Tensor:
        """Compute what follows the part; what is before it runs on one input, for nothing."""
        with self.end.register_forward_hook(lambda *_: maps):
            return self.network(self.example[:1])


class LoRALinear(nn.Module):
    """A frozen linear layer with a low-rank update that trains.

        h = W x + B A x,  A: r × in,  B: out × r,  B = 0 at the start  Hu et al. 2022, Eq. (3)

    The paper's scale α/r is 1: it sets α to the first r and leaves the rest to the learning rate.
    ``weight`` is W + B A, for networks that read the weight instead of calling the layer.

    Args:
        base: the layer, W.
        rank: r.
    """

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.rank = rank
        self.in_features = base.in_features
        self.out_features = base.out_features
        self.a = nn.Parameter(base.weight.new_empty(rank, base.in_features))
        self.b = nn.Parameter(base.weight.new_zeros(base.out_features, rank))
        nn.init.kaiming_uniform_(self.a, a=math.sqrt(5))  # as the authors' code draws it

    @property
    def weight(self) -> Float[Tensor, "out in"]:
        return self.base.weight + self.b @ self.a

    @property
    def bias(self) -> Tensor | None:
        return self.base.bias

    def forward(self, inputs: Tensor) -> Tensor:
        update = functional.linear(functional.linear(inputs, self.a), self.b)
        return self.base(inputs) + update

    def merged(self) -> nn.Linear:
        """Return the plain layer with the update in its weight."""
        with torch.no_grad():
            self.base.weight.copy_(self.weight)
        return self.base.requires_grad_(True)


def add_lora(backbone: nn.Module, rank: int) -> None:
    """Freeze a backbone and give each of its linear layers a low-rank update, in place: by PEFT
    where the network is of transformers, with the same scale and start.

    Layers no wider than ``rank`` get none. The joint projection inside ``nn.MultiheadAttention`` is
    no linear layer and gets none either; its output projection does. Updates are drawn aside, so
    that what is drawn later stays the same.

    Args:
        backbone: a network with linear layers, such as a transformer.
        rank: r of ``LoRALinear``.
    """
    by_peft = getattr(backbone, "library", "") == "transformers"
    targets = [
        (f"{place}.{name}", parent, name, layer)
        for place, parent in backbone.named_modules()
        for name, layer in parent.named_children()
        if isinstance(layer, nn.Linear) and min(layer.in_features, layer.out_features) > rank
        # whose weight is read, without PEFT's update
        if not (by_peft and isinstance(parent, nn.MultiheadAttention))
    ]
    if not targets:
        raise ConfigError(
            f"LoRA updates linear layers, and {type(trunk(backbone)).__name__} has none wider than "
            f"rank {rank}. Use a transformer (model=timm:vit_small_patch16_224), a smaller rank, "
            "or model.freeze instead of model.lora."
        )
    backbone.requires_grad_(False)
    with torch.random.fork_rng(devices=[]):
        if by_peft:
            peft = package("peft", "text")
            names = [place for place, *_ in targets]
            settings = peft.LoraConfig(r=rank, lora_alpha=rank, target_modules=names)
            peft.inject_adapter_in_model(settings, backbone)
            return
        for _, parent, name, layer in targets:
            setattr(parent, name, LoRALinear(layer, rank))


def merge_lora(module: nn.Module) -> None:
    """Put each low-rank update into the weight that it updates, in place: a plain network with the
    same outputs."""
    for parent in list(module.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, LoRALinear):
                setattr(parent, name, layer.merged())
            elif hasattr(layer, "get_base_layer"):  # PEFT's
                layer.merge()  # type: ignore[operator]
                setattr(parent, name, layer.get_base_layer().requires_grad_(True))  # type: ignore[operator]


def trunk(backbone: nn.Module) -> nn.Module:
    return getattr(backbone, "trunk", backbone)

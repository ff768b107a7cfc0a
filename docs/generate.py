"""Renew the parts of pages that follow from the code: ``python docs/generate.py docs/howto/compose.md``."""

import sys
from collections.abc import Callable
from pathlib import Path

from vicinal import config
from vicinal.losses import LOSSES
from vicinal.methods import METHODS, combination

# The columns of `combination_matrix`.
MATRIX = ("plain", "hdml", "loop", "ala", "htl", "cross_batch_memory", "momentum_queue")


def combination_matrix() -> str:
    """Which method trains which loss with default arguments, as Markdown: its sampler, or a note why not."""
    methods = [METHODS[name]() for name in MATRIX]
    notes: dict[str, int] = {}
    rows = []
    for name, loss in LOSSES.items():
        cells = [f"`{name}`"]
        for method in methods:
            reason = combination(method, name)
            if reason is None:
                cells.append(method.sampler_for(loss))
            else:
                general = reason.replace(f", got {loss.__name__}", "").replace(loss.__name__, "this loss")
                number = notes.setdefault(general[0].upper() + general[1:], len(notes) + 1)
                cells.append(f"no ({number})")
        rows.append(cells)
    table = _markdown(["loss", *(f"`{name}`" for name in MATRIX)], rows)
    return "\n".join([table, "", *(f"{number}. {reason}" for reason, number in notes.items())])


def preset_table() -> str:
    """The presets with their cost, as Markdown."""
    layers = {name: config.preset(name) for name in config.presets()}
    return _markdown(
        ["preset", "what it trains", "cost"],
        [[f"`{name}`", layer["title"], layer["cost"]] for name, layer in layers.items()],
    )


def _markdown(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *rows])


GENERATED: dict[str, Callable[[], str]] = {
    "combinations": combination_matrix,
    "presets": preset_table,
}


def renewed(page: str) -> str:
    """A page whose parts between ``<!-- generated:NAME:start -->`` and ``end`` are what the code gives now."""
    for name, make in GENERATED.items():
        start, end = f"<!-- generated:{name}:start -->\n", f"<!-- generated:{name}:end -->"
        before, _, rest = page.partition(start)
        _, found, after = rest.partition(end)
        if found:
            page = f"{before}{start}{make()}\n{end}{after}"
    return page


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        path.write_text(renewed(path.read_text(encoding="utf-8")), encoding="utf-8")

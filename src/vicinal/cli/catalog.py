"""``vicinal list`` and ``vicinal explain``: what can fill a slot, and what it takes."""

from typing import Annotated

import typer

KINDS = ("losses", "methods", "models", "samplers", "miners", "presets", "datasets")
_EXAMPLES = {
    "losses": "loss=",
    "methods": "method=",
    "models": "model=",
    "samplers": "sampler=",
    "datasets": "data=",
}


def list_(kind: Annotated[str, typer.Argument(metavar="|".join(KINDS))]) -> None:
    """List the losses, methods, models, samplers, miners, presets or data sets.

    Args:
        kind: What to list.

    Examples:
        vicinal list losses
        vicinal list presets
    """
    from vicinal.documentation import summaries

    found = summaries(kind)
    width = max(map(len, found))
    for name, summary in found.items():
        typer.echo(f"{typer.style(name.ljust(width), bold=True)}  {summary}")
    if kind != "miners":
        typer.echo(
            f"\n`vicinal explain {_EXAMPLES.get(kind, '')}{next(iter(found))}` shows what it takes."
        )


def explain(what: Annotated[str, typer.Argument(metavar="SLOT=NAME")]) -> None:
    """Explain a class: what it does, its paper, its arguments and their defaults.

    Args:
        what: Such as loss=triplet, training, or a preset.

    Examples:
        vicinal explain loss=proxy_anchor
        vicinal explain training
    """
    from vicinal.documentation import explanation

    title, text, settings = explanation(what)
    typer.secho(title, bold=True)
    if text:
        typer.echo(f"\n{text}")
    if settings:
        typer.echo("\nsettings, with their defaults:")
    for key, default, words in settings:
        typer.echo(f"  {typer.style(key, bold=True)}={default}{'  ' + words if words else ''}")

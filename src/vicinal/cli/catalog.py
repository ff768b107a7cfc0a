"""``vicinal list`` and ``vicinal explain``: what can fill a slot, and what it takes."""

from typing import Annotated

import typer

KINDS = ("losses", "methods", "models", "samplers", "miners", "presets", "datasets")


def list_(
    kind: Annotated[str, typer.Argument(metavar="|".join(KINDS), help="What to list.")],
) -> None:
    """List what a slot can be filled with, a line each."""
    from vicinal.config import presets
    from vicinal.documentation import summaries
    from vicinal.errors import ConfigError, unknown

    if kind not in KINDS:
        raise ConfigError(unknown("kind", kind, KINDS))
    found = summaries(kind)
    width = max(map(len, found))
    for name, summary in found.items():
        typer.echo(f"{typer.style(name.ljust(width), bold=True)}  {summary}")
    slot = {"presets": "", "datasets": "data="}.get(kind, f"{kind[:-2] if kind == 'losses' else kind[:-1]}=")
    if kind != "miners":
        example = next(iter(presets())) if kind == "presets" else f"{slot}{next(iter(found))}"
        typer.echo(f"\n`vicinal explain {example}` shows what it takes.")


def explain(
    what: Annotated[str, typer.Argument(metavar="SLOT=NAME", help="Such as loss=triplet, training, or a preset.")],
) -> None:
    """Show the arguments of a class with their defaults, what it does and the paper it is from."""
    from vicinal.documentation import explanation

    found = explanation(what)
    typer.secho(found.title, bold=True)
    if found.text:
        typer.echo(f"\n{found.text}")
    if found.arguments:
        typer.echo("\nsettings, with their defaults:")
    for key, default, words in found.arguments:
        typer.echo(f"  {typer.style(key, bold=True)}={default}{'  ' + words if words else ''}")


def recipes() -> None:
    """Replaced by `vicinal list presets`."""
    from vicinal.errors import ConfigError

    raise ConfigError("recipes are presets with slots now: `vicinal list presets`, `vicinal explain loss=triplet`.")

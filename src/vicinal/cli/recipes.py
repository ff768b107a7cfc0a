"""``vicinal recipes``: what can be trained, at what cost, with what to expect, and which settings it has."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from vicinal.training.listing import Listing


def recipes(
    recipe: Annotated[
        str | None, typer.Argument(metavar="[RECIPE]", help="Show this one (or a .py file) with all of its settings.")
    ] = None,
) -> None:
    """List the recipes with their cost and the number to expect; of one, also what can be set."""
    from pathlib import Path

    from vicinal.training.listing import listing, packaged_recipes

    packaged = packaged_recipes()
    if recipe is None:
        for path in packaged.values():
            _print(listing(path))
        return
    from vicinal.training.explanation import explain
    from vicinal.training.recipe import find_recipe

    settings = explain(find_recipe(recipe))
    _print(listing(packaged.get(recipe, Path(recipe))))
    typer.echo("  settings, with their defaults:")
    for setting in settings:
        value = "(to be given)" if setting.value is None else setting.value
        typer.echo(f"    {typer.style(setting.key, bold=True)}={value}{'  ' + setting.words if setting.words else ''}")


def _print(found: "Listing") -> None:
    typer.secho(found.name, bold=True)
    typer.echo(f"  {found.title}")
    for name, fact in (("cost", found.cost), ("expect", found.expected)):
        if fact:
            typer.echo(f"  {name + ':':8}{fact}")

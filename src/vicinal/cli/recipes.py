"""``vicinal recipes``: what can be trained, at what cost, with what to expect."""

import typer


def recipes() -> None:
    """List the recipes with their cost and the number to expect."""
    from vicinal.training.listing import listing, packaged_recipes

    for path in packaged_recipes().values():
        found = listing(path)
        typer.secho(found.name, bold=True)
        typer.echo(f"  {found.title}")
        for name, fact in (("cost", found.cost), ("expect", found.expected)):
            if fact:
                typer.echo(f"  {name + ':':8}{fact}")

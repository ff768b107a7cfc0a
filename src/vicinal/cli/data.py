"""``vicinal data``: look at data before training on it, and carry it to another machine."""

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    no_args_is_help=True,
    help="Check data before training; pack them for another machine.",
    epilog="Example:\n  vicinal data check pictures/",
)


@app.command()
def check(path: str, as_json: Annotated[bool, typer.Option("--json")] = False) -> None:
    """Read every file: counts, unreadable files, duplicates across train and test, sizes. Exit 1 on
    faults.

    Args:
        path: Folder of class folders, table, or array file.
        as_json: Print JSON instead of text.

    Examples:
        vicinal data check pictures/
        vicinal data check pictures.csv --json
    """
    from vicinal.data import check as check_data
    from vicinal.data import open_path
    from vicinal.data.check import load_unchecked
    from vicinal.training.console import Console

    records = load_unchecked(open_path(path))
    with Console(quiet=as_json).following(len(records), 0, "reading") as follower:
        found = check_data(records, progress=follower.advance)
    if as_json:
        typer.echo(json.dumps(found.as_json(), indent=2, ensure_ascii=False))
    else:
        typer.echo("\n".join(found.lines()))
    raise typer.Exit(0 if found.ok else 1)


@app.command()
def pack(
    source: str,
    folder: Path,
    resize: Annotated[int | None, typer.Option(min=1)] = None,
    part_megabytes: Annotated[int, typer.Option(min=1)] = 50,
) -> None:
    """Pack images with labels, splits and columns into tar shards; `--data FOLDER` reads them in
    place.

    Image files are kept byte for byte unless --resize makes them smaller.

    Args:
        source: Images: folder of class folders, table, or set.
        folder: Where the shards go; new or empty.
        resize: Make JPEGs of this shorter side, in pixels; default: keep the files.
        part_megabytes: Largest size of a shard, in millions of bytes.

    Examples:
        vicinal data pack pictures/ packed/ --resize 256
    """
    from vicinal.data import open_path
    from vicinal.data import pack as pack_records
    from vicinal.training.console import Console

    records = open_path(source).load()
    with Console().following(len(records), 0, "packing") as follower:
        files = pack_records(
            records,
            folder,
            resize=resize,
            part_bytes=part_megabytes * 10**6,
            progress=follower.advance,
        )
    total = sum(file.stat().st_size for file in files)
    typer.echo(
        f"{len(records)} images of {records.name}: {len(files)} files, {total / 1e6:.1f} MB in "
        f"{folder}"
    )
    typer.echo(
        "Carry the whole folder; there, name it as data: vicinal train --data "
        f"{shlex.quote(folder.name + '/')}"
    )

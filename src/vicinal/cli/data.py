"""``vicinal data``: look at data before training on it, and carry it to another machine."""

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from vicinal.cli.examples import epilog

app = typer.Typer(
    no_args_is_help=True, help="Check data before training; pack them for another machine.", epilog=epilog("data")
)


@app.command(epilog=epilog("check"))
def check(
    path: Annotated[str, typer.Argument(metavar="PATH", help="Folder of class folders, table, or array file.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Read every file: counts, unreadable files, duplicates across train and test, sizes. Exit 1 on faults."""
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


@app.command(epilog=epilog("pack"))
def pack(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Images: folder of class folders, table, or set.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the parts go.")],
    resize: Annotated[
        int | None, typer.Option(min=1, help="Resize the shorter side to this many pixels; default: keep the files.")
    ] = None,
    canvas: Annotated[
        int | None, typer.Option(min=1, help="Keep only a center square of this many pixels, after --resize.")
    ] = None,
    squash: Annotated[bool, typer.Option("--squash", help="With --resize: resize both sides to it.")] = False,
    gray: Annotated[
        bool, typer.Option("--gray", "--grey", help="With --resize or --canvas: one channel instead of three.")
    ] = False,
    quality: Annotated[
        int | None, typer.Option(min=1, max=100, help="JPEG quality, with --resize or --canvas; default: 90.")
    ] = None,
    part_megabytes: Annotated[int, typer.Option(min=1, help="Largest size of a part, in millions of bytes.")] = 50,
) -> None:
    """Pack images with their labels and splits into a few files; `--data FOLDER` reads them in place.

    Image files are kept byte for byte unless --resize or --canvas makes them smaller.
    """
    from vicinal.data import ImageTransform, open_path
    from vicinal.data import pack as pack_records
    from vicinal.data.transforms import Fit
    from vicinal.errors import ConfigError
    from vicinal.training.console import Console

    size, transform = resize if canvas is None else canvas, None
    if size is not None:
        fit: Fit = "squash" if squash else "shorter"
        transform = ImageTransform(size=size, resize=resize, fit=fit, canvas=canvas, channels=1 if gray else 3)
    elif squash or gray or quality is not None:
        raise ConfigError("--squash, --gray and --quality need --resize or --canvas: without, files are kept as is.")
    if squash and resize is None:
        raise ConfigError("--squash needs --resize. Give it too, or leave --squash out.")
    records = open_path(source).load()
    with Console().following(len(records), 0, "packing") as follower:
        files = pack_records(
            records,
            folder,
            transform=transform,
            quality=90 if quality is None else quality,
            part_bytes=part_megabytes * 10**6,
            progress=follower.advance,
        )
    total = sum(file.stat().st_size for file in files)
    typer.echo(f"{len(records)} images of {records.name}: {len(files)} files, {total / 1e6:.1f} MB in {folder}")
    typer.echo(f"Carry the whole folder; there, name it as data: vicinal train --data {shlex.quote(folder.name + '/')}")


@app.command(epilog=epilog("unpack"))
def unpack(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder that `data pack` wrote.")],
    to: Annotated[Path, typer.Argument(metavar="TO", help="Where the image files go; new or empty.")],
    by_class: Annotated[
        bool, typer.Option("--by-class", help="One folder per class, numbered images; default: their former names.")
    ] = False,
) -> None:
    """Write packed images as files again, with a table of labels and splits. Training reads packed data directly."""
    from vicinal.data import Packed
    from vicinal.data import unpack as unpack_records
    from vicinal.training.console import Console

    records = Packed(str(folder)).load()
    with Console().following(len(records), 0, "unpacking") as follower:
        table = unpack_records(records, to, by="class" if by_class else "name", progress=follower.advance)
    typer.echo(f"{len(records)} images of {records.name}: in {to}, labels and splits in {table}")

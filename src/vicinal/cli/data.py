"""``vicinal data``: look at data before training on it, and carry it to another machine."""

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vicinal.cli.examples import epilog

if TYPE_CHECKING:
    from vicinal.data.transforms import ImageTransform

app = typer.Typer(
    no_args_is_help=True,
    help="Look at data before training on it; carry it to another machine.",
    epilog=epilog("data"),
)


@app.command(epilog=epilog("check"))
def check(
    path: Annotated[str, typer.Argument(metavar="PATH", help="Folder of class folders, table, or array file.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Read a whole set: counts, unreadable files, duplicates across train and test, sizes. Exit 1 if it has faults."""
    from vicinal.data import check as check_data
    from vicinal.data import load_unchecked, open_path
    from vicinal.training.console import Console

    records = load_unchecked(open_path(path))
    with Console(quiet=as_json).following(len(records), 0, "reading") as follower:
        found = check_data(records, progress=follower.advance)
    if as_json:
        typer.echo(json.dumps(found.as_json(), indent=2, ensure_ascii=False))
    else:
        for line in found.lines():
            typer.echo(line)
    raise typer.Exit(0 if found.ok else 1)


@app.command(epilog=epilog("pack"))
def pack(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Images: folder of class folders, table, or set.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the parts go.")],
    resize: Annotated[
        int | None, typer.Option(min=1, help="Bring the shorter side to so many pixels; default: files as they are.")
    ] = None,
    canvas: Annotated[
        int | None, typer.Option(min=1, help="Keep only a centre square of so many pixels, after --resize.")
    ] = None,
    squash: Annotated[bool, typer.Option("--squash", help="With --resize: bring both sides to it.")] = False,
    grey: Annotated[
        bool, typer.Option("--grey", help="With --resize or --canvas: one channel instead of three.")
    ] = False,
    quality: Annotated[
        int | None, typer.Option(min=1, max=100, help="Of the JPEG, with --resize or --canvas; 90 if not given.")
    ] = None,
    part_megabytes: Annotated[int, typer.Option(min=1, help="No part is larger, in millions of bytes.")] = 50,
) -> None:
    """Pack images with their labels and splits into parts small enough to carry; `data=FOLDER` reads them in place.

    Image files are kept byte for byte unless --resize or --canvas makes them smaller.
    """
    from vicinal.data import open_path
    from vicinal.data import pack as pack_records
    from vicinal.training.console import Console

    transform = _preparation(resize, canvas, squash=squash, grey=grey, quality=quality)
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
        bool, typer.Option("--by-class", help="Number the images in one folder per class; default: by their names.")
    ] = False,
) -> None:
    """Write packed images as files again, with a table of labels and splits. Training needs no unpacking."""
    from vicinal.data import Packed
    from vicinal.data import unpack as unpack_records
    from vicinal.training.console import Console

    records = Packed(str(folder)).load()
    with Console().following(len(records), 0, "unpacking") as follower:
        table = unpack_records(records, to, by="class" if by_class else "name", progress=follower.advance)
    typer.echo(f"{len(records)} images of {records.name}: in {to}, labels and splits in {table}")


def _preparation(
    resize: int | None, canvas: int | None, *, squash: bool, grey: bool, quality: int | None
) -> "ImageTransform | None":
    """What is done to images before they are packed; None keeps them as they are."""
    from vicinal.data.transforms import Fit, ImageTransform
    from vicinal.errors import ConfigError

    size = resize if canvas is None else canvas
    if size is None:
        given = [name for name, value in (("--squash", squash), ("--grey", grey), ("--quality", quality)) if value]
        if given:
            raise ConfigError(
                f"without --resize or --canvas images are packed as they are, but {', '.join(given)} came. "
                f"Give --resize too, or leave it out."
            )
        return None
    if squash and resize is None:
        raise ConfigError("--squash says how to --resize, but no --resize came. Give it too, or leave --squash out.")
    fit: Fit = "squash" if squash else "shorter"
    return ImageTransform(size=size, resize=resize, fit=fit, canvas=canvas, channels=1 if grey else 3)

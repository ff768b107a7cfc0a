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
    canvas: Annotated[int | None, typer.Option(min=1)] = None,
    squash: Annotated[bool, typer.Option("--squash")] = False,
    gray: Annotated[bool, typer.Option("--gray", "--grey")] = False,
    quality: Annotated[int | None, typer.Option(min=1, max=100)] = None,
    part_megabytes: Annotated[int, typer.Option(min=1)] = 50,
) -> None:
    """Pack images with their labels and splits into a few files; `--data FOLDER` reads them in
    place.

    Image files are kept byte for byte unless --resize or --canvas makes them smaller.

    Args:
        source: Images: folder of class folders, table, or set.
        folder: Where the parts go.
        resize: Resize the shorter side to this many pixels; default: keep the files.
        canvas: Keep only a center square of this many pixels, after --resize.
        squash: With --resize: resize both sides to it.
        gray: With --resize or --canvas: one channel instead of three.
        quality: JPEG quality, with --resize or --canvas; default: 90.
        part_megabytes: Largest size of a part, in millions of bytes.

    Examples:
        vicinal data pack pictures/ packed/ --resize 256
    """
    from vicinal.data import ImageTransform, open_path
    from vicinal.data import pack as pack_records
    from vicinal.data.transforms import Fit
    from vicinal.errors import ConfigError
    from vicinal.training.console import Console

    size, transform = resize if canvas is None else canvas, None
    if size is not None:
        fit: Fit = "squash" if squash else "shorter"
        transform = ImageTransform(
            size=size, resize=resize, fit=fit, canvas=canvas, channels=1 if gray else 3
        )
    elif squash or gray or quality is not None:
        raise ConfigError(
            "--squash, --gray and --quality need --resize or --canvas: without, files are kept as "
            "is."
        )
    if squash and resize is None:
        raise ConfigError("--squash needs --resize. Give it too, or leave --squash out.")
    records, most = open_path(source).load(), part_megabytes * 10**6
    with Console().following(len(records), 0, "packing") as follower:
        files = pack_records(
            records,
            folder,
            transform=transform,
            quality=quality or 90,
            part_bytes=most,
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


@app.command()
def unpack(
    folder: Path, to: Path, by_class: Annotated[bool, typer.Option("--by-class")] = False
) -> None:
    """Write packed images as files again, with a table of labels and splits. Training reads packed
    data directly.

    Args:
        folder: A folder that `data pack` wrote.
        to: Where the image files go; new or empty.
        by_class: One folder per class, numbered images; default: their former names.

    Examples:
        vicinal data unpack packed/ pictures/
    """
    from vicinal.data import Packed
    from vicinal.data import unpack as unpack_records
    from vicinal.training.console import Console

    records = Packed(str(folder)).load()
    with Console().following(len(records), 0, "unpacking") as follower:
        table = unpack_records(
            records, to, by="class" if by_class else "name", progress=follower.advance
        )
    typer.echo(f"{len(records)} images of {records.name}: in {to}, labels and splits in {table}")

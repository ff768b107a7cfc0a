"""``vicinal evaluate``: measure a run again, on its own test classes or on other data."""

import json
from pathlib import Path
from typing import Annotated

import typer


def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")],
    data: Annotated[
        str | None, typer.Option(help="Other data: folder, table or array file. Default: the run's own.")
    ] = None,
    split: Annotated[str, typer.Option(help="train, validation, test, or all.")] = "test",
    recalls: Annotated[str, typer.Option(help="The K of Recall@K.")] = "1,2,4,8",
    dims: Annotated[str, typer.Option(help="Also evaluate the first 32, 64, ... dimensions.")] = "",
    quantize: Annotated[
        str, typer.Option(help="Also evaluate quantized vectors: int8,binary,pq (pq needs faiss).")
    ] = "",
    rerank: Annotated[bool, typer.Option("--rerank", help="Also evaluate re-ranking and query expansion.")] = False,
    clustering: Annotated[bool, typer.Option(help="Also NMI, AMI and F1 by k-means.")] = True,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    skip_corrupt: Annotated[bool, typer.Option(help="Leave unreadable images out instead of stopping.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Evaluate the model of RUN: retrieval and clustering on its test classes or other data."""
    from vicinal.cli.tables import print_compact, print_table
    from vicinal.errors import ConfigError
    from vicinal.parallel import pick_device
    from vicinal.run_directory import RunDirectory
    from vicinal.training.console import Console
    from vicinal.training.finish import measure_run

    def numbers(option: str, text: str) -> tuple[int, ...]:
        try:
            return tuple(int(k) for k in text.split(",") if text)
        except ValueError:
            raise ConfigError(f"{option} takes whole numbers with commas, such as 1,2,4,8, got {text!r}.") from None

    results = measure_run(
        RunDirectory.open(run),
        data=data,
        split=split,
        recalls=numbers("--recalls", recalls),
        dims=numbers("--dims", dims),
        quantize=tuple(quantize.split(",")) if quantize else (),
        rerank=rerank,
        clustering=clustering,
        device=pick_device(device),
        skip_corrupt=skip_corrupt,
        console=Console(quiet=as_json),
    )
    if as_json:
        typer.echo(json.dumps(results, indent=2))
    else:
        print_table(results)
        print_compact(results)

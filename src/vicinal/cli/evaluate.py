"""``vicinal evaluate``: measure a run again, on its own test classes or on other data."""

import json
from pathlib import Path
from typing import Annotated

import typer


def evaluate(
    run: Path,
    data: str | None = None,
    split: str = "test",
    recalls: str = "1,2,4,8",
    dims: str = "",
    quantize: str = "",
    rerank: Annotated[bool, typer.Option("--rerank")] = False,
    clustering: bool = True,
    device: str = "auto",
    skip_corrupt: bool = False,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Evaluate the model of RUN: retrieval and clustering on its test classes or other data.

    Args:
        run: A run's folder.
        data: Other data: folder, table or array file. Default: the run's own.
        split: train, validation, test, or all.
        recalls: The K of Recall@K.
        dims: Also evaluate the first 32, 64, ... dimensions.
        quantize: Also evaluate quantized vectors: int8,binary,pq (pq needs faiss).
        rerank: Also evaluate re-ranking and query expansion.
        clustering: Also NMI, AMI and F1 by k-means.
        device: auto, cpu or cuda.
        skip_corrupt: Leave unreadable images out instead of stopping.
        as_json: Print JSON instead of a table.

    Examples:
        vicinal evaluate runs/birds
        vicinal evaluate runs/birds --data pictures/ --split all
    """
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

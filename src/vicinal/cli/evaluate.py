"""``vicinal evaluate``, ``embed`` and ``export``: what a run's model is worth, its vectors, and it
to publish."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

Ray = Annotated[int | None, typer.Option(metavar="WORKERS")]


def evaluate(
    run: Path,
    data: str | None = None,
    split: str | None = None,
    recalls: str = "1,2,4,8",
    dims: str = "",
    quantize: str = "",
    rerank: bool = False,
    clustering: bool = True,
    device: str = "auto",
    skip_corrupt: bool = False,
    processes: int | None = None,
    ray: Ray = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Evaluate the model of RUN: retrieval and clustering on its test classes or other data.

    Args:
        run: A run's folder.
        data: Other data: folder, table or array file. Default: the run's own.
        split: train, validation, test, or all. Default: test; of other data, what training did not
            see.
        recalls: The K of Recall@K.
        dims: Also evaluate the first 32, 64, ... dimensions.
        quantize: Also evaluate quantized vectors: int8,binary.
        rerank: Also evaluate k-reciprocal re-ranking.
        clustering: Also NMI, AMI and F1 by k-means.
        device: auto, cpu or cuda.
        skip_corrupt: Leave unreadable images out instead of stopping.
        processes: Share the work among so many processes of this machine.
        ray: Share it among this many workers of the Ray cluster at RAY_ADDRESS, or here.
        as_json: Print JSON instead of a table.

    Examples:
        vicinal evaluate runs/birds
        vicinal evaluate runs/birds --data pictures/
    """
    from vicinal.parallel import first, joined, launch, pick_device

    if launch(processes):
        return

    from vicinal.arguments import coerce
    from vicinal.cli.tables import print_compact, print_table
    from vicinal.evaluation.embedding import ranks_on_ray
    from vicinal.run_directory import RunDirectory
    from vicinal.training.console import Console
    from vicinal.training.finish import measure_run

    opened = RunDirectory.open(run.absolute())
    ks = coerce(recalls, tuple[int, ...], "--recalls")
    sizes = coerce(dims, tuple[int, ...], "--dims")

    def measured() -> dict[str, Any]:
        return measure_run(
            opened,
            data=data,
            split=split,
            recalls=ks,
            dims=sizes,
            quantize=coerce(quantize, tuple[str, ...], "--quantize"),
            rerank=rerank,
            clustering=clustering,
            device=pick_device(device),
            skip_corrupt=skip_corrupt,
            console=Console(quiet=as_json or ray is not None or not first()),
        )

    if ray is None:
        with joined():
            results = measured()
    else:
        results = ranks_on_ray(ray, measured)
    if not first():
        return
    if as_json:
        typer.echo(json.dumps(results, indent=2))
    else:
        print_table(results)
        print_compact(results)


def embed(
    run: Path,
    data: str,
    out: str = "embeddings.npz",
    device: str = "auto",
    batch_size: int = 256,
    workers: int = 0,
    skip_corrupt: bool = False,
    role: str | None = None,
    processes: int | None = None,
    ray: Ray = None,
) -> None:
    """Embed DATA with the model of RUN into a folder of Parquet shards, which every command takes
    as data.

    A killed command goes on when it is given again. With --out NAME.npz, into one array file with
    `embeddings`, `labels`, `classes` and `names`. Images without class folders form one class,
    named after their folder.

    Args:
        run: A run's folder.
        data: Folder of images or of class folders, image, table or array file.
        out: The folder to write, also a URL such as s3://BUCKET/embedded, or an .npz.
        device: auto, cpu or cuda.
        batch_size: Rows at a time.
        workers: Processes that read images.
        skip_corrupt: Leave unreadable images out instead of stopping.
        role: query or gallery, for a model with a network for each; default: the data's own roles.
        processes: Share the work among so many processes of this machine.
        ray: Embed with this many workers of the Ray cluster at RAY_ADDRESS, or here.

    Examples:
        vicinal embed runs/birds pictures/ --out embedded/
        vicinal embed runs/birds pictures/ --out vectors.npz
    """
    from vicinal.parallel import first, joined, launch, pick_device

    if launch(processes):
        return

    from vicinal.arguments import coerce
    from vicinal.data.folder import expanded
    from vicinal.evaluation import embedding
    from vicinal.models.embedder import Role
    from vicinal.training.console import Console

    network = coerce(role, Role | None, "--role")
    place = expanded(out).absolute()
    job = embedding.Job(
        run.absolute(), data, place, network, batch_size, workers, skip_corrupt=skip_corrupt
    )
    with joined():
        follow = Console(quiet=not first()).following
        count, unread = embedding.embed(job, pick_device(device), ray, follow)
    if first():
        for name in unread:
            typer.secho(f"skipped, could not be read: {name}", fg="yellow", err=True)
        typer.echo(f"{count} embeddings: {out}")


def export(
    run: Path,
    to: Annotated[Path | None, typer.Option(metavar="FOLDER")] = None,
    onnx: bool = True,
    also: str = "",
    format: str = "vicinal",
    role: str | None = None,
    license: Annotated[str, typer.Option(metavar="ID")] = "unknown",
) -> None:
    """Write the model of RUN as safetensors and ONNX, with preprocessing and a model card;
    `vicinal.load` opens it.

    Args:
        run: A run's folder.
        to: Where to write. Default: RUN/export.
        onnx: Also write ONNX, checked against torch.
        also: Further graphs, measured on the test records: float16,int8,openvino.
        format: vicinal, or sentence-transformers for a run over hf:, st: or minilm.
        role: query or gallery, for a run with separate networks.
        license: License of the weights for the card, such as apache-2.0.

    Examples:
        vicinal export runs/birds --to deployed/
    """
    from vicinal.arguments import coerce
    from vicinal.models.embedder import Role
    from vicinal.retrieval.export import export_run
    from vicinal.run_directory import RunDirectory

    network = coerce(role, Role | None, "--role")
    opened = RunDirectory.open(run)
    if coerce(format, Literal["vicinal", "sentence-transformers"], "--format") == "vicinal":
        exported = export_run(
            opened,
            to,
            onnx=onnx,
            also=coerce(also, tuple[str, ...], "--also"),
            role=network,
            license=license,
        )
    else:
        from vicinal.retrieval.sentences import export_sentences

        exported = export_sentences(opened, to, role=network, license=license)
    for path in exported.files:
        typer.echo(f"{path}  {path.stat().st_size / 1e3:,.0f} kB")
    if exported.difference is not None:
        typer.echo(
            f"onnxruntime gives torch's embeddings to {exported.difference:.1e}, on batches of "
            "several sizes"
        )
    for name, scores in exported.scores.items():
        typer.echo(f"{name}  R@1 {100 * scores['recall@1']:.1f}  MAP@R {100 * scores['map@r']:.1f}")

"""``vicinal export``: a run's model as a folder to publish."""

from pathlib import Path
from typing import Annotated

import typer


def export(
    run: Path,
    to: Annotated[Path | None, typer.Option(metavar="FOLDER")] = None,
    onnx: bool = True,
    role: str | None = None,
    license: Annotated[str, typer.Option(metavar="ID")] = "unknown",
) -> None:
    """Write the model of RUN as safetensors and ONNX, with preprocessing and a model card; `vicinal.load` opens it.

    Args:
        run: A run's folder.
        to: Where to write. Default: RUN/export.
        onnx: Also write ONNX, checked against torch.
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
    exported = export_run(RunDirectory.open(run), to, onnx=onnx, role=network, license=license)
    for path in exported.files:
        typer.echo(f"{path}  {path.stat().st_size / 1e3:,.0f} kB")
    if exported.difference is not None:
        typer.echo(f"onnxruntime gives torch's embeddings to {exported.difference:.1e}, on batches of several sizes")

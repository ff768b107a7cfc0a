"""``vicinal embed``: vectors of one's own data from a trained run."""

from dataclasses import replace
from pathlib import Path

import typer


def embed(
    run: Path,
    data: str,
    out: Path = Path("embeddings.npz"),
    device: str = "auto",
    batch_size: int = 256,
    workers: int = 0,
    skip_corrupt: bool = False,
    role: str | None = None,
) -> None:
    """Embed DATA with the model of RUN into an .npz with `embeddings`, `labels`, `classes` and `names`.

    Images without class folders form one class, named after their folder.

    Args:
        run: A run's folder.
        data: Folder of images or of class folders, image, table or array file.
        out: The .npz to write.
        device: auto, cpu or cuda.
        batch_size: Rows at a time.
        workers: Processes that read images.
        skip_corrupt: Leave unreadable images out instead of stopping.
        role: query or gallery, for a model with a network for each; default: the data's own roles.

    Examples:
        vicinal embed runs/birds pictures/ --out vectors.npz
    """
    import numpy as np

    from vicinal.arguments import coerce
    from vicinal.data import open_path
    from vicinal.data.folder import without_labels
    from vicinal.data.splits import SplitByClass
    from vicinal.errors import ConfigError
    from vicinal.evaluation.encoder import Encoder
    from vicinal.files import write_arrays
    from vicinal.models.embedder import Role
    from vicinal.parallel import pick_device
    from vicinal.run_directory import RunDirectory
    from vicinal.training.console import Console

    if out.suffix.lower() != ".npz":
        raise ConfigError(f"embeddings are written as .npz; got --out {out}. Let the name end in .npz.")
    encoder = Encoder.load(RunDirectory.open(run), pick_device(device))
    if role is not None:
        encoder = encoder.stream(coerce(role, Role, "--role"))
    records = without_labels(data)
    if records is None:
        found = open_path(data)
        if isinstance(found, SplitByClass):
            found = replace(found, test=1.0)  # nothing is split here, and one class is enough
        records = found.load()
    with Console().following(len(records), 0, "embedding") as follower:
        embedded = encoder.embed(
            records, batch_size=batch_size, workers=workers, skip_corrupt=skip_corrupt, progress=follower.advance
        )
    kept = embedded.records
    names = np.array([kept.source.name(index) for index in range(len(kept))])
    arrays = {"embeddings": embedded.vectors.numpy(), "labels": kept.labels, "classes": np.array(kept.classes)}
    write_arrays(out, arrays | {"names": names})
    for name in embedded.skipped:
        typer.secho(f"skipped, could not be read: {name}", fg="yellow", err=True)
    typer.echo(f"{len(kept)} embeddings of {embedded.vectors.shape[1]} dimensions: {out}")

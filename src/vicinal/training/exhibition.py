"""What a method shows of itself, written where a report finds it."""

from PIL import Image, ImageOps

from vicinal.data.records import Batch, Records
from vicinal.exhibits import records_of, to_json
from vicinal.files import write_atomically
from vicinal.methods.method import Method
from vicinal.run_directory import RunDirectory

TILE, COLUMNS = 64, 16  # thumbnails: pixels per side, tiles per row


def write_exhibition(run: RunDirectory, method: Method, train: Records, last_batch: Batch | None) -> None:
    """Write the method's captions and figures, with thumbnails of the training records that the exhibits show."""
    if method.captions:
        run.write_document("readings", dict(method.captions))
    exhibits = () if last_batch is None else method.figures(last_batch)
    if not exhibits:
        return
    shown = records_of(exhibits)
    pictures = bool(shown) and train.source.kind == "images"
    records = [
        {
            "id": index,
            "name": train.source.name(index),
            "class": train.classes[train.labels[index]],
            "tile": place if pictures else None,
        }
        for place, index in enumerate(shown)
    ]
    if pictures:
        sheet = Image.new("RGB", (COLUMNS * TILE, -(-len(shown) // COLUMNS) * TILE))
        for place, index in enumerate(shown):
            tile = ImageOps.fit(train.source.read(index).convert("RGB"), (TILE, TILE))
            sheet.paste(tile, (place % COLUMNS * TILE, place // COLUMNS * TILE))
        write_atomically(run.exhibit_thumbnails_path, lambda file: sheet.save(file, format="PNG", optimize=True))
    run.write_document(
        "exhibits", {"tile": TILE, "columns": COLUMNS, "records": records, "exhibits": to_json(exhibits)}
    )

"""The report's page: one HTML file, assembled from a run directory by a template that escapes whatever it is given."""

import base64
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

from vicinal.files import write_atomically, write_text
from vicinal.reports import facts
from vicinal.reports.artefacts import (
    EmbeddingMap,
    Record,
    Thumbnails,
    place_dendrogram,
    place_scatter,
    read_artefacts,
    read_method_figures,
    unit_square,
)
from vicinal.reports.colors import class_colors
from vicinal.reports.figures import draw
from vicinal.reports.html import chart_data, render_page
from vicinal.reports.series import (
    ACTIVE_CAPTION,
    SPECTRUM_CAPTION,
    charts,
    measures,
    read_progress,
    spectrum_chart,
)
from vicinal.reports.tables import changes, headline, per_cent, table, warning
from vicinal.run_directory import RunDirectory, config_of

_DOTS_PER_INCH = 160  # of the PNG figures: sharp on a dense screen, still small in a repository
_PNG_BYTES = 1_000_000  # a larger sheet of thumbnails goes into the page as JPEG, so that the page stays mailable


def write_page(path: Path) -> Path:
    """Write the figures, then the page, of the run at ``path``."""
    run = RunDirectory.open(path)
    for name, figure in draw(run.results or {}, read_progress(run.metrics()), read_artefacts(run)).items():
        write_atomically(run.figures_path / f"{name}.png", partial(figure.savefig, format="png", dpi=_DOTS_PER_INCH))
    # A file name that is no text at all reaches us as lone surrogates, which no encoding can hold.
    write_text(run.report_path, render(run).encode(errors="replace").decode())
    return run.report_path


def render(run: RunDirectory) -> str:
    """The page as text."""
    info, status, results = run.info, run.status, run.results or {}
    artefacts, method_figures, progress = read_artefacts(run), read_method_figures(run), read_progress(run.metrics())
    thumbnails, embedding_map = artefacts.thumbnails, artefacts.map
    drawn, spectrum = charts(progress), spectrum_chart(artefacts.diagnostics)
    active = [chart for chart in drawn if chart.key == "scalar-active"]
    selected = results.get("selected") or {}
    return render_page(
        "vicinal.reports",
        "page.html.j2",
        scripts=["charts.js", "map.js", "pictures.js"],
        filters={
            "per_cent": per_cent,
            "place": partial(_place, thumbnails),
            "placed_large": partial(_place, artefacts.gallery_thumbnails),
            "shown": partial(_place, method_figures.thumbnails),
            "scatter": place_scatter,
            "dendrogram": place_dendrogram,
        },
        thumbnails=thumbnails,
        sheet=_sheet(thumbnails),
        gallery_sheet=None if artefacts.gallery_thumbnails is thumbnails else _sheet(artefacts.gallery_thumbnails),
        heading=facts.heading(info),
        info=info,
        config=config_of(info),
        status=status,
        state=facts.state(status),
        created=facts.moment(str(info.get("created") or "")),
        settings=facts.settings(info),
        data=facts.data(info),
        environment=facts.environment(info),
        notes=facts.notes(info, results),
        results=results,
        table=table(results) if results.get("rows") else None,
        changes=changes(results) if results.get("rows") else [],
        headline=headline(results) if results.get("rows") else None,
        warning=warning(results) if results.get("rows") else "",
        selected=selected,
        curves=[chart for chart in drawn if chart not in active],
        active=active,
        active_caption=method_figures.captions.get("active", ACTIVE_CAPTION),
        captions={f"scalar-{group}": text for group, text in method_figures.captions.items()},
        method_figures=method_figures,
        figure_sheet=_sheet(method_figures.thumbnails),
        spectrum=spectrum,
        spectrum_caption=SPECTRUM_CAPTION,
        measures=measures(artefacts.diagnostics),
        progress=progress,
        artefacts=artefacts,
        charts=[chart_data(chart, selected.get("step")) for chart in (*drawn, spectrum) if chart],
        map=_map_data(embedding_map) if embedding_map else None,
    )


def _map_data(embedding_map: EmbeddingMap) -> dict[str, Any]:
    classes = sorted({record.label for record in embedding_map.records})
    number = {label: place for place, label in enumerate(classes)}
    positions = unit_square(embedding_map.positions)
    return {
        "classes": classes,
        "colours": class_colors(len(classes)),
        "x": positions[:, 0].round(4).tolist(),
        "y": (1 - positions[:, 1]).round(4).tolist(),  # a canvas counts downwards
        "class": [number[record.label] for record in embedding_map.records],
        "tile": [record.tile for record in embedding_map.records],
        "name": [record.name for record in embedding_map.records],
    }


def _place(thumbnails: Thumbnails | None, record: Record) -> str:
    """Where a record's tile lies on the sheet, as a CSS background position that holds at any size."""
    if thumbnails is None or record.tile is None:
        return "0 0"
    left, top, *_ = thumbnails.box(record.tile)
    width, height = (side - thumbnails.tile for side in thumbnails.size)
    return f"{100 * left / width if width else 0:.4f}% {100 * top / height if height else 0:.4f}%"


def _sheet(thumbnails: Thumbnails | None) -> str | None:
    """The sheet as a data URI; the page holds it once."""
    if thumbnails is None:
        return None
    encoded, kind = thumbnails.encoded, "png" if thumbnails.encoded.startswith(b"\x89PNG") else "jpeg"
    if len(encoded) > _PNG_BYTES and kind == "png":
        jpeg = BytesIO()
        thumbnails.image().save(jpeg, "jpeg", quality=80)
        encoded, kind = min((encoded, kind), (jpeg.getvalue(), "jpeg"), key=lambda choice: len(choice[0]))
    return f"data:image/{kind};base64,{base64.b64encode(encoded).decode()}"

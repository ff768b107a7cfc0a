"""The report's page: one HTML file, assembled from a run directory by a template that escapes whatever it is given."""

import base64
import json
from collections.abc import Mapping
from functools import partial
from hashlib import sha256
from importlib import resources
from io import BytesIO
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from vicinal.files import write_atomically, write_text
from vicinal.reports import facts
from vicinal.reports.artefacts import Artefacts, EmbeddingMap, Record, Thumbnails, read_artefacts
from vicinal.reports.colours import class_colours
from vicinal.reports.diagnostics import ACTIVE_READING, SPECTRUM_READING, measures, spectrum_chart
from vicinal.reports.exhibit_figures import draw_exhibits
from vicinal.reports.exhibits import Exhibition, place_dendrogram, place_scatter, read_exhibition
from vicinal.reports.lettering import letter
from vicinal.reports.pictures import draw_confused, draw_retrieval
from vicinal.reports.plots import draw_curves, draw_map, draw_spectrum, unit_square
from vicinal.reports.series import Chart, Curve, Progress, charts, read_progress
from vicinal.reports.tables import changes, per_cent, table
from vicinal.run_directory import RunDirectory, config_of

_DOTS_PER_INCH = 160  # of the PNG figures: sharp on a dense screen, still small in a repository
_PNG_BYTES = 1_000_000  # a larger sheet of thumbnails goes into the page as JPEG, so that the page stays mailable


def write_page(path: Path) -> Path:
    """Write the figures, then the page, of the run at ``path``."""
    run = RunDirectory.open(path)
    artefacts = read_artefacts(run)
    progress = read_progress(run.metrics())
    results, exhibition = run.results or {}, read_exhibition(run)
    for name, figure in (_figures(results, progress, artefacts) | draw_exhibits(exhibition)).items():
        letter(figure)
        write_atomically(run.figures_path / f"{name}.png", partial(figure.savefig, format="png", dpi=_DOTS_PER_INCH))
    page = render(run.info, run.status, results, progress, artefacts, exhibition)
    # A file name that is no text at all reaches us as lone surrogates, which no encoding can hold.
    write_text(run.report_path, page.encode(errors="replace").decode())
    return run.report_path


def render(
    info: Mapping[str, Any],
    status: Mapping[str, Any],
    results: Mapping[str, Any],
    progress: Progress,
    artefacts: Artefacts,
    exhibition: Exhibition = Exhibition(),  # noqa: B008 (frozen and empty)
) -> str:
    """The page as text: a pure function of what the run directory holds."""
    scripts = [_shipped(name) for name in ("charts.js", "map.js")]
    thumbnails, embedding_map = artefacts.thumbnails, artefacts.map
    drawn, spectrum = charts(progress), spectrum_chart(artefacts.diagnostics)
    active = [chart for chart in drawn if chart.key == "scalar-active"]
    selected = results.get("selected") or {}
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"per_cent": per_cent, "place": partial(_place, thumbnails)}
    environment.filters |= {"shown": partial(_place, exhibition.thumbnails), "scatter": place_scatter}
    environment.filters |= {"dendrogram": place_dendrogram}
    return environment.from_string(_shipped("page.html.j2")).render(
        css=Markup(_shipped("page.css")),
        scripts=[Markup(script) for script in scripts],
        script_hashes=[base64.b64encode(sha256(script.encode()).digest()).decode() for script in scripts],
        thumbnails=thumbnails,
        sheet=_sheet(thumbnails) if thumbnails else None,
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
        selected=selected,
        curves=[chart for chart in drawn if chart not in active],
        active=active,
        active_reading=exhibition.readings.get("active", ACTIVE_READING),
        readings={f"scalar-{group}": text for group, text in exhibition.readings.items()},
        exhibition=exhibition,
        exhibit_sheet=_sheet(exhibition.thumbnails) if exhibition.thumbnails else None,
        spectrum=spectrum,
        spectrum_reading=SPECTRUM_READING,
        measures=measures(artefacts.diagnostics),
        progress=progress,
        artefacts=artefacts,
        charts_json=_json([_chart_data(chart, selected) for chart in (*drawn, spectrum) if chart]),
        map_json=_json(_map_data(embedding_map)) if embedding_map else None,
        map_classes=_classes(embedding_map) if embedding_map else [],
    )


def _figures(results: Mapping[str, Any], progress: Progress, artefacts: Artefacts) -> dict[str, Figure]:
    """Those figures whose content the run has written."""
    drawn, spectrum = charts(progress), spectrum_chart(artefacts.diagnostics)
    figures: dict[str, Figure | None] = {}
    if drawn:
        figures["curves"] = draw_curves(drawn, (results.get("selected") or {}).get("step"))
    if spectrum:
        figures["spectrum"] = draw_spectrum(spectrum)
    if artefacts.map:
        figures["map"] = draw_map(artefacts.map, artefacts.thumbnails)
    if artefacts.thumbnails and artefacts.gallery:
        figures["retrieval"] = draw_retrieval(artefacts.gallery, artefacts.thumbnails)
    if artefacts.thumbnails:
        figures["confused"] = draw_confused(artefacts.confused, artefacts.thumbnails)
    return {name: figure for name, figure in figures.items() if figure is not None}


def _chart_data(chart: Chart, selected: Mapping[str, Any]) -> dict[str, Any]:
    mark = selected.get("step") if chart.axis == "step" else None
    return {
        "key": chart.key,
        "title": chart.title,
        "unit": chart.unit,
        "axis": chart.axis,
        "mark": mark,
        "lines": [{"name": name, **_curve_data(curve)} for name, curve in chart.lines.items()],
    }


def _curve_data(curve: Curve) -> dict[str, list[float]]:
    columns = {"x": curve.steps, "y": curve.mean}
    if curve.low != curve.high:
        columns |= {"low": curve.low, "high": curve.high}
    # Five digits are more than a screen can show, and half the bytes of a double.
    return {
        name: [float(f"{value:.5g}") if name != "x" else round(value, 1) for value in column]
        for name, column in columns.items()
    }


def _classes(embedding_map: EmbeddingMap) -> list[str]:
    return sorted({record.label for record in embedding_map.records})


def _map_data(embedding_map: EmbeddingMap) -> dict[str, Any]:
    classes = _classes(embedding_map)
    number = {label: place for place, label in enumerate(classes)}
    positions = unit_square(embedding_map.positions)
    return {
        "classes": classes,
        "colours": class_colours(len(classes)),
        "x": positions[:, 0].round(4).tolist(),
        "y": (1 - positions[:, 1]).round(4).tolist(),  # a canvas counts downwards
        "class": [number[record.label] for record in embedding_map.records],
        "tile": [record.tile for record in embedding_map.records],
        "name": [record.name for record in embedding_map.records],
    }


def _json(value: Any) -> Markup:
    """JSON that may stand in a script element: nothing in it can end the element or begin another."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)  # all ASCII, so U+2028 is escaped as well
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def _place(thumbnails: Thumbnails | None, record: Record) -> str:
    """Where a record's tile lies on the sheet, as a CSS background position that holds at any size."""
    if thumbnails is None or record.tile is None:
        return "0 0"
    left, top = thumbnails.corner(record.tile)
    width, height = (side - thumbnails.tile for side in thumbnails.size)
    return f"{100 * left / width if width else 0:.4f}% {100 * top / height if height else 0:.4f}%"


def _sheet(thumbnails: Thumbnails) -> str:
    """The sheet as a data URI; the page holds it once."""
    choices = {"png": thumbnails.png}
    if len(thumbnails.png) > _PNG_BYTES:
        jpeg = BytesIO()
        thumbnails.image().save(jpeg, "jpeg", quality=80)
        choices["jpeg"] = jpeg.getvalue()
    kind = min(choices, key=lambda kind: len(choices[kind]))
    return f"data:image/{kind};base64,{base64.b64encode(choices[kind]).decode()}"


def _shipped(name: str) -> str:
    return resources.files("vicinal.reports").joinpath(name).read_text(encoding="utf-8")

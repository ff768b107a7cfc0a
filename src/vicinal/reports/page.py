"""The report's page: one HTML file, assembled from a run directory by a template that escapes
whatever it is given."""

import base64
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

from vicinal.files import decoding, open_image, write_text
from vicinal.reports.artifacts import (
    EmbeddingMap,
    Record,
    Thumbnails,
    read_artifacts,
    unit_square,
)
from vicinal.reports.colors import class_colors
from vicinal.reports.html import Filters, chart_data, render_page
from vicinal.reports.series import charts, measures, read_progress
from vicinal.reports.tables import headline, per_cent, table, warning
from vicinal.run_directory import RunDirectory, config_of

Fact = tuple[str, str]  # what it is, what it says


def write_page(path: Path) -> Path:
    """Write the page of the run at ``path``."""
    run = RunDirectory.open(path)
    # A file name that is no text at all reaches us as lone surrogates, which no encoding can hold.
    write_text(run.report_path, render(run).encode(errors="replace").decode())
    return run.report_path


def render(run: RunDirectory) -> str:
    """The page as text; a RunError where a file of the run holds what none of ours wrote."""
    with decoding(run.path):
        return _rendered(run)


def _rendered(run: RunDirectory) -> str:
    info = run.info
    status = run.status
    results = run.results or {}
    artifacts = read_artifacts(run)
    progress = read_progress(run.metrics())
    thumbnails = artifacts.thumbnails
    large = artifacts.gallery_thumbnails
    drawn = charts(progress)
    active = [chart for chart in drawn if chart.key == "scalar-active"]
    selected = results.get("selected") or {}
    filters: Filters = {
        "per_cent": per_cent,
        "place": partial(_place, thumbnails),
        "placed_large": partial(_place, large),
    }
    measured = {"table": table, "headline": headline, "warning": warning}
    return render_page(
        "vicinal.reports",
        "page.html.j2",
        scripts=["charts.js", "map.js", "pictures.js"],
        filters=filters,
        sheet=_sheet(thumbnails),
        gallery_sheet=None if large is thumbnails else _sheet(large),
        heading=heading(info),
        info=info,
        status=status,
        state=state(status),
        created=str(info.get("created") or ""),
        settings=settings(info),
        data=data(info),
        environment=environment(info),
        notes=notes(info, results),
        results=results,
        **{name: tell(results) if results.get("rows") else None for name, tell in measured.items()},
        selected=selected,
        curves=[chart for chart in drawn if chart not in active],
        active=active,
        measures=measures(artifacts.diagnostics),
        progress=progress,
        artifacts=artifacts,
        charts=[chart_data(chart, selected.get("step")) for chart in drawn],
        map=_map_data(artifacts.map) if artifacts.map else None,
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
    """Where a record's tile lies on the sheet, as a CSS background position that holds at any
    size."""
    if thumbnails is None or record.tile is None:
        return "0 0"
    left, top, *_ = thumbnails.box(record.tile)
    width, height = (side - thumbnails.tile for side in thumbnails.size)
    return f"{100 * left / width if width else 0:.4f}% {100 * top / height if height else 0:.4f}%"


def _sheet(thumbnails: Thumbnails | None) -> str | None:
    """The sheet as a data URI, small enough that the page can be mailed; the page holds it once."""
    if thumbnails is None:
        return None
    webp = BytesIO()
    with open_image(BytesIO(thumbnails.encoded)) as image:
        image.save(webp, "webp", quality=80)
    return f"data:image/webp;base64,{base64.b64encode(webp.getvalue()).decode()}"


# -- what was trained, on what and with what: the facts of run.json and status.json as readable text
# -----------------


def readable(value: Any) -> str:
    """Any JSON value in one line, descriptions of objects as the call that makes them.

    >>> readable({"class": "TripletLoss", "margin": 0.2, "squared": True})
    'TripletLoss(margin=0.2, squared=True)'
    >>> readable({"records": 6000, "sizes": [64, 128.0, 1e-05]})
    'records=6000, sizes=64, 128, 1e-05'
    """
    if isinstance(value, dict):
        items = [f"{key}={readable(item)}" for key, item in value.items() if key != "class"]
        name = value.get("class")
        return f"{name}({', '.join(items)})" if name else ", ".join(items)
    if isinstance(value, list | tuple):
        return ", ".join(map(readable, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def heading(info: Mapping[str, Any]) -> tuple[str, str]:
    """What the page is about: the data's name, and the experiment in a few words.

    >>> slots = {"loss": {"name": "n_pair"}, "model": {"name": "resnet50"}}
    >>> slots["method"] = {"name": "hdml", "form": "paper"}
    >>> heading({"data": {"name": "birds"}, "config": {"preset": "cub", "slots": slots}})
    ('birds', 'hdml (form=paper) with n_pair on resnet50, preset cub')
    """
    config = config_of(info)
    slots = config.get("slots") or {}
    method, loss, model = (
        str((slots.get(name) or {}).get("name") or "") for name in ("method", "loss", "model")
    )
    if form := (slots.get("method") or {}).get("form"):
        method += f" (form={form})"
    text = " with ".join(filter(None, (method if method != "plain" else "", loss)))
    text += f" on {model}" if text and model else ""
    preset = f"preset {config['preset']}" if config.get("preset") else ""
    about = ", ".join(filter(None, (text, preset))) or str(config.get("title") or "")
    return str((info.get("data") or {}).get("name") or info.get("name") or "A run"), about


def settings(info: Mapping[str, Any]) -> list[tuple[str, list[Fact]]]:
    """Every resolved setting, by slot; those without a slot first."""
    groups: dict[str, list[Fact]] = {"": []}
    for name, value in (config_of(info).get("slots") or {}).items():
        if isinstance(value, dict):
            groups[name] = [(key, readable(part)) for key, part in value.items()]
        else:
            groups[""].append((name, readable(value)))
    return [(name, facts) for name, facts in groups.items() if facts]


def data(info: Mapping[str, Any]) -> list[Fact]:
    """The data set and how many examples and classes each part has."""
    about = info.get("data") or {}
    named = {name: about.get(name) for name in ("name", "description", "fingerprint")}
    return _facts(named | (about.get("counts") or {}))


def notes(info: Mapping[str, Any], results: Mapping[str, Any]) -> list[str]:
    """What the run noted about its data and results; the results repeat what was known before
    them."""
    return [
        str(note) for note in results.get("notes") or (info.get("data") or {}).get("notes") or []
    ]


def environment(info: Mapping[str, Any]) -> list[Fact]:
    """Where and with what it ran: enough to run it again."""
    named = {name: info.get(name) for name in ("name", "commit", "vicinal", "created")}
    return _facts(named | (info.get("hardware") or {}) | (info.get("versions") or {}))


def _facts(values: Mapping[str, Any]) -> list[Fact]:
    return [(name, readable(value)) for name, value in values.items() if value is not None]


def state(status: Mapping[str, Any]) -> str:
    """Describe the progress of a run in a sentence.

    >>> state({"state": "interrupted", "epoch": 3, "step": 180, "seconds": 61.0})
    'Interrupted in epoch 3 after 180 steps and 0:01:01 h; what follows is what it had written by
    then.'
    >>> state({"state": "finished", "epoch": 9, "step": 600, "seconds": 133})
    'Finished after 600 steps and 0:02:13 h.'
    """
    name = str(status.get("state", "unknown"))
    if name not in ("running", "interrupted", "failed", "finished"):
        return "The run has not recorded its progress; this page shows what it has written so far."
    after = ""  # a head in closed form takes no step
    if status.get("step"):
        seconds = timedelta(seconds=round(status.get("seconds") or 0))
        after = f" after {status['step']:,} steps and {seconds} h"
    if name == "finished":
        return f"Finished{after}."
    epoch = f" in epoch {status['epoch']}" if status.get("epoch") is not None else ""
    return f"{name.capitalize()}{epoch}{after}; what follows is what it had written by then."

"""Self-contained HTML pages, and the report's: assembled from a run directory by a template that
escapes all that it is given. Styles and scripts are inside, and scripts run only by their hash."""

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from hashlib import sha256
from importlib import resources
from io import BytesIO
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from vicinal.files import decoding, open_image
from vicinal.reports.artifacts import (
    Record,
    Thumbnails,
    map_columns,
    read_artifacts,
    read_progress,
)
from vicinal.reports.tables import headline, per_cent, table, warning
from vicinal.run_directory import RunDirectory, config_of

Fact = tuple[str, str]  # what it is, what it says
Filters = Mapping[str, Callable[..., Any]]


def render(run: RunDirectory) -> str:
    """The page as text; a RunError where a file of the run holds what none of ours wrote."""
    with decoding(run.path):
        info = run.info
        status = run.status
        results = run.results or {}
        artifacts = read_artifacts(run)
        charts, events = read_progress(run.metrics())
        selected = results.get("selected") or {}
        about = info.get("data") or {}
        measured = bool(results.get("rows"))
        same_sheet = artifacts.gallery_thumbnails is artifacts.thumbnails
        return render_page(
            "vicinal.reports",
            "page.html.j2",
            scripts=["charts.js", "map.js", "pictures.js"],
            filters={"per_cent": per_cent, "place": _place},
            sheet=_sheet(artifacts.thumbnails),
            gallery_sheet=None if same_sheet else _sheet(artifacts.gallery_thumbnails),
            heading=heading(info),
            info=info,
            status=status,
            state=state(status),
            settings=settings(info),
            data=data(info),
            environment=environment(info),
            notes=results.get("notes") or about.get("notes") or [],
            results=results,
            table=table(results) if measured else None,
            headline=headline(results) if measured else None,
            warning=warning(results) if measured else "",
            selected=selected,
            events=events,
            artifacts=artifacts,
            charts=[
                *({**chart, "mark": selected.get("step")} for chart in charts),
                *filter(None, [artifacts.thresholds]),
            ],
            map=None if artifacts.map is None else _map_data(*artifacts.map),
        )


def _map_data(records: Sequence[Record], positions: np.ndarray) -> dict[str, Any]:
    return {
        **map_columns([record["class"] for record in records], positions),
        "tile": [record["tile"] for record in records],
        "name": [record["name"] for record in records],
    }


def _place(record: Record, thumbnails: Thumbnails | None) -> str:
    """Where a record's tile lies on the sheet, as a CSS background position that holds at any
    size."""
    if thumbnails is None or record["tile"] is None:
        return "0 0"
    row, column = divmod(record["tile"], thumbnails.columns)
    width, height = (side // thumbnails.tile - 1 for side in thumbnails.size)
    return f"{100 * column / (width or 1):.4f}% {100 * row / (height or 1):.4f}%"


def _sheet(thumbnails: Thumbnails | None) -> str | None:
    """The sheet as a data URI, small enough that the page can be mailed; the page holds it once."""
    if thumbnails is None:
        return None
    webp = BytesIO()
    with open_image(BytesIO(thumbnails.encoded)) as image:
        image.save(webp, "webp", quality=80)
    return f"data:image/webp;base64,{base64.b64encode(webp.getvalue()).decode()}"


# -- the facts of run.json and status.json as readable text ---------------------------------------


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
    return _facts(about, ("name", "description", "fingerprint"), about.get("counts"))


def environment(info: Mapping[str, Any]) -> list[Fact]:
    """Where and with what it ran: enough to run it again."""
    names = ("name", "commit", "vicinal", "created")
    return _facts(info, names, info.get("hardware"), info.get("versions"))


def _facts(
    values: Mapping[str, Any], names: Sequence[str], *more: Mapping[str, Any] | None
) -> list[Fact]:
    found = {name: values.get(name) for name in names}
    for each in more:
        found |= each or {}
    return [(name, readable(value)) for name, value in found.items() if value is not None]


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


# -- any page -------------------------------------------------------------------------------------


def render_page(
    package: str, template: str, *, scripts: Sequence[str] = (), filters: Filters, **values: Any
) -> str:
    """Render a template of ``package`` with the style and the ``scripts`` of the reports."""
    texts = [shipped("vicinal.reports", name) for name in scripts]
    values |= {
        "css": Markup(shipped("vicinal.reports", "page.css")),
        "scripts": [Markup(text) for text in texts],
        "script_hashes": [
            base64.b64encode(sha256(text.encode()).digest()).decode() for text in texts
        ],
    }
    return render_text(
        package, template, filters={"json": script_json, **filters}, escape=True, **values
    )


def render_text(
    package: str, template: str, *, filters: Filters, escape: bool = False, **values: Any
) -> str:
    """Render a template of ``package``."""
    environment = Environment(
        autoescape=escape, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= filters
    return environment.from_string(shipped(package, template)).render(**values)


def shipped(package: str, name: str) -> str:
    """Read a file that comes with a package."""
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


def script_json(value: Any) -> Markup:
    """Write JSON that may stand in a script element: nothing in it can end the element or begin
    another."""
    # All ASCII, so U+2028 is escaped as well.
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))

"""Self-contained HTML pages: values are escaped, styles and scripts are inside, and scripts run
only by their hash. Colors are distinct without red and green."""

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from colorsys import hls_to_rgb
from hashlib import sha256
from importlib import resources
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

Filters = Mapping[str, Callable[..., Any]]

# Okabe and Ito, "Color universal design" (2008), yellow (too pale on white) replaced by a violet.
LINES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6a51a3", "#6b7280")


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


def class_colors(count: int) -> list[str]:
    """One color per class: the palette while it lasts, then hues that stay as far apart as many
    hues can.

    >>> class_colors(2), len(set(class_colors(200)))
    (['#0072b2', '#d55e00'], 200)
    """
    if count <= len(LINES):
        return list(LINES[:count])
    # Successive multiples of the golden angle never come close to one another.
    hues = [(0.381966 * i % 1, (0.45, 0.6, 0.35)[i % 3], 0.6) for i in range(count)]
    colors = (hls_to_rgb(*hue) for hue in hues)
    return ["#" + "".join(f"{round(255 * part):02x}" for part in color) for color in colors]

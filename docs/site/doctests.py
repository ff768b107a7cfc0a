"""Fence the doctests of docstrings, which Markdown would take for quotations."""

import re
from typing import Any

import griffe

_DOCTEST = re.compile(r"^>>> .*\n(?:(?!\s*$).*\n?)*", re.M)


class Doctests(griffe.Extension):
    """Wrap each run of ``>>>`` lines and its output in a fence."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring and ">>> " in obj.docstring.value:
            text = griffe.Docstring(obj.docstring.value).value + "\n"
            obj.docstring.value = _DOCTEST.sub(
                lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text
            )

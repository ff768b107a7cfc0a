"""Show the executed notebooks of docs/tutorials as pages: their Markdown, code, text and
pictures."""

import base64
import json
import re
from pathlib import PurePosixPath
from typing import Any

from mkdocs.structure.files import File, Files

_NOTEBOOK_LINK = re.compile(r"(\]\([^)\s#]+)\.ipynb((?:#[^)]*)?\))(?!\{ download)")


def on_files(files: Files, config: Any) -> Files:
    """Add a page, and a file for each picture, beside every notebook; the notebook itself can be
    downloaded."""
    for notebook in [file for file in files if file.src_uri.endswith(".ipynb")]:
        place = PurePosixPath(notebook.src_uri)
        text, pictures = page(json.loads(notebook.content_string), place.stem)
        files.append(File.generated(config, str(place.with_suffix(".md")), content=text))
        for name, content in pictures.items():
            files.append(File.generated(config, str(place.with_name(name)), content=content))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Lead links to a notebook to its page."""
    return _NOTEBOOK_LINK.sub(r"\1.md\2", markdown)


def page(notebook: dict[str, Any], name: str) -> tuple[str, dict[str, bytes]]:
    """The Markdown of a notebook, and its pictures by file name."""
    parts, pictures = list[str](), dict[str, bytes]()
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        magic, _, rest = source.partition("\n")
        parts.append(
            fenced("bash", rest) if magic.startswith("%%bash") else fenced("python", source)
        )
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                file = f"{name}_{len(pictures)}.png"
                pictures[file] = base64.b64decode("".join(data["image/png"]))
                parts.append(f"![Output of the code above]({file})")
            else:
                parts.append(
                    fenced("text", "".join(output.get("text", data.get("text/plain", ""))))
                )
    parts.insert(1, f"[Download this notebook]({name}.ipynb){{ download }}")
    return "\n\n".join(parts) + "\n", pictures


def fenced(language: str, text: str) -> str:
    """A block of code or output; four backticks, for a text may hold three."""
    return f"````{language}\n{text.strip(chr(10))}\n````"

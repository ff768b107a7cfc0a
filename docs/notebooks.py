"""Execute the tutorials and keep their output: ``python docs/notebooks.py [NAME ...] [--out
FOLDER]``.

Edit a notebook in Jupyter, then run this. Each one is executed from top to bottom in an empty
folder, with the interpreter that runs this script and its ``vicinal`` command. Needs ``pip install
nbclient ipykernel``.
"""

import argparse
import os
import re
import sys
import tempfile
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient

TUTORIALS = Path(__file__).resolve().parent / "tutorials"
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")  # colors of a terminal
LIMIT = 600  # seconds for a cell, on a busy machine
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def execute(path: Path) -> nbformat.NotebookNode:
    """Return the notebook with fresh output; an exception in a cell is raised."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook, timeout=LIMIT, record_timing=False, resources={"metadata": {"path": folder}}
        )
        client.execute()
        return cleaned(notebook, folder)


def cleaned(notebook: nbformat.NotebookNode, folder: str) -> nbformat.NotebookNode:
    """Leave out what changes from one run or machine to the next: progress on stderr, paths,
    identifiers."""
    notebook.metadata = {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    for number, cell in enumerate(notebook.cells):
        cell.id, cell.metadata = f"cell-{number}", {}
        if cell.cell_type != "code":
            continue
        cell.outputs = joined([output for output in cell.outputs if output.get("name") != "stderr"])
        for output in cell.outputs:
            if "text" in output:
                output.text = (
                    ESCAPES.sub("", output.text).replace(f"{folder}/", "").replace(folder, ".")
                )
            for kind, content in output.get("data", {}).items():
                if kind.startswith("text/"):
                    output.data[kind] = content.replace(f"{folder}/", "").replace(folder, ".")
    return notebook


def joined(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """Outputs with pieces of one stream in one."""
    found: list[nbformat.NotebookNode] = []
    for output in outputs:
        if found and output.output_type == "stream" == found[-1].output_type:
            found[-1].text += output.text
        else:
            found.append(output)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="such as tables; default: all")
    parser.add_argument(
        "--out", type=Path, default=TUTORIALS, help="folder to write to; default: in place"
    )
    options = parser.parse_args()
    os.environ["PATH"] = os.pathsep.join(
        [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    )
    os.environ["COLUMNS"] = "110"  # the width of the command line's tables
    for name in options.names or sorted(path.stem for path in TUTORIALS.glob("*.ipynb")):
        began = time.monotonic()
        notebook = execute(TUTORIALS / f"{name}.ipynb")
        nbformat.write(notebook, options.out / f"{name}.ipynb")
        sys.stdout.write(f"{name}: {time.monotonic() - began:.0f} s\n")


if __name__ == "__main__":
    main()

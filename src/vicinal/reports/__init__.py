"""Reports: what a run directory holds, as tables and one page. They read files, not objects."""

from pathlib import Path

from vicinal.files import write_text
from vicinal.reports.tables import table
from vicinal.run_directory import RunDirectory

__all__ = ["table", "write_report"]


def write_report(run_path: Path | str) -> Path:
    """Write ``report.html`` of a run from its directory alone; return its path.

    The page is one self-contained file that opens without a network. A run that is still going, was
    interrupted or failed gets a report of what it has written so far.
    """
    from vicinal.reports.page import render  # jinja2 loads only when a report is made

    run = RunDirectory.open(run_path)
    write_text(run.report_path, render(run))
    return run.report_path

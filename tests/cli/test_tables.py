"""Tables in the terminal, in a narrow one, and in a file."""

import re

import pytest

from vicinal.cli import tables
from vicinal.cli.tables import print_fitting, print_grid, print_table

RESULTS = {
    "records": 5924,
    "classes": 100,
    "split": "test",
    "skipped": 3,
    "rows": [{"name": "trained", "metrics": {"recall@1": 0.5}}],
    "notes": [f"could not be read: my pictures/{'long name ' * 12}.jpg"],
}


def test_a_file_gets_every_line_whole(capsys):
    print_table(RESULTS)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    # Not as narrow as the table below it.
    assert "5924 records of 100 test classes, 3 unreadable left out" in lines
    assert f"note: {RESULTS['notes'][0]}" in lines and "\x1b" not in "".join(lines)


@pytest.mark.parametrize("columns", [60, 100])
def test_a_terminal_gets_lines_that_fit(columns, capsys, monkeypatch):
    monkeypatch.setattr(tables.sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    print_table(RESULTS)
    shown = re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out)  # without what makes heads bold
    assert max(len(line.rstrip()) for line in shown.splitlines()) <= columns


HEADS = ["row", "Recall@1", "MAP@R", "Recall@1 vs. baseline", "published", "seeds"]
ROW = ["x" * 30, *["10.0 ± 1.0"] * 5]


@pytest.mark.parametrize(
    ("width", "expected"), [("120", HEADS), ("84", [*HEADS[:2], HEADS[3], HEADS[5]])]
)
def test_a_terminal_gets_the_columns_that_it_has_room_for(width, expected, capsys, monkeypatch):
    monkeypatch.setattr(tables.sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", width)
    print_fitting("title", HEADS, [ROW])
    out = capsys.readouterr().out
    assert [head for head in HEADS if head in out] == expected


def test_a_file_gets_every_column(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    print_fitting("title", HEADS, [ROW])
    out = capsys.readouterr().out
    assert [head for head in HEADS if head in out] == HEADS


def test_a_title_is_as_long_as_it_is_and_nothing_is_markup(capsys):
    print_grid("two [methods] together, on characters", ["row", "n"], [["[red]a[/]", "1"]])
    out = capsys.readouterr().out
    assert out.startswith("two [methods] together, on characters\n") and "[red]a[/]" in out

"""CSV and Parquet files as columns, with a place for every row that an error can name."""

import csv
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from vicinal.errors import ConfigError, DataError, unknown

_SEPARATORS = {".csv": ",", ".tsv": "\t"}


@dataclass(frozen=True)
class Columns:
    """A table as read: texts (CSV) or typed values (Parquet), None where a cell is empty.

    Attributes:
        path: the file.
        cells: column by name.
        lines: line of each row in the file; for files without lines, the row's number counted from 0.
        unit: what ``lines`` count, for messages.
    """

    path: Path
    cells: dict[str, list[Any]]
    lines: Sequence[int]
    unit: str

    def __len__(self) -> int:
        return len(self.lines)

    def place(self, row: int) -> str:
        return f"{self.path}, {self.unit} {self.lines[row]}"

    def texts(self, name: str) -> list[str]:
        """Return a column of texts or whole numbers as stripped texts; an empty cell is an error."""
        if name not in self.cells:
            raise DataError(f"{self.path}: " + unknown("column", name, self.cells))
        for row, cell in enumerate(self.cells[name]):
            if cell is None or not str(cell).strip():
                raise DataError(f"{self.place(row)}: `{name}` is empty. Fill it in or remove the row.")
            if isinstance(cell, float):
                raise DataError(f"{self.place(row)}: `{name}` is a decimal number, {cell}. Use whole numbers or text.")
        return [str(cell).strip() for cell in self.cells[name]]

    def numbers(self, without: Sequence[str]) -> dict[str, np.ndarray]:
        """Return the other columns of numbers, int64 or float64.

        The first filled cell tells numbers from texts. Texts are left out; among numbers, a cell that is empty or
        holds something else is an error.
        """
        numeric = {}
        for name, cells in self.cells.items():
            first = next((cell for cell in cells if cell is not None and cell != ""), None)
            if name not in without and not name.startswith("__index_level_") and _number(first) is not None:
                numeric[name] = self._numbers(name, cells)
        return numeric

    def _numbers(self, name: str, cells: list[Any]) -> np.ndarray:
        values = [_number(cell) for cell in cells]
        for row, value in enumerate(values):
            if value is None or not math.isfinite(value):
                raise DataError(f"{self.place(row)}: `{name}` is a column of numbers, got {cells[row]!r}.")
        whole = all(isinstance(value, int) and abs(value) < 2**63 for value in values)
        return np.array(values, dtype=np.int64 if whole else np.float64)


def read_columns(path: Path, *, without: str = "") -> Columns:
    """Read the table at ``path``: ``.csv``, ``.tsv`` or ``.parquet``; ``without`` names a column to leave out."""
    ending = path.suffix.lower()
    if ending in _SEPARATORS:
        return _read_csv(path, _SEPARATORS[ending])
    if ending == ".parquet":
        table = _parquet_file(path).read([name for name in column_names(path) if name != without])
        return Columns(path, table.to_pydict(), range(table.num_rows), "row")
    raise ConfigError(f"a table ends in .csv, .tsv or .parquet, got {path}. Convert or rename it.")


def column_names(path: Path) -> list[str]:
    """Return the names of a table's columns without reading the rest."""
    if path.suffix.lower() == ".parquet":
        return [str(name) for name in _parquet_file(path).schema_arrow.names]
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        return [name.strip() for name in file.readline().split(_SEPARATORS[path.suffix.lower()])]


def read_vectors(path: Path, name: str) -> Float[np.ndarray, "n d"]:
    """Read a Parquet column of lists of numbers, all of one length."""
    file = _parquet_file(path)
    from pyarrow import types  # after `_parquet_file`, which reports where there is no pyarrow

    if name not in file.schema_arrow.names:
        raise DataError(f"{path}: " + unknown("column", name, file.schema_arrow.names))
    column = file.read([name]).column(name).combine_chunks()
    listed = types.is_list(column.type) or types.is_fixed_size_list(column.type)
    if not listed or not (types.is_floating(column.type.value_type) or types.is_integer(column.type.value_type)):
        raise DataError(f"{path}: column `{name}` must hold lists of numbers, got {column.type}.")
    lengths = np.asarray(column.value_lengths().fill_null(-1))  # a row without a list has no length
    odd = np.flatnonzero((lengths != lengths[:1]) | (lengths < 0))
    if len(odd):
        found, first = max(lengths[odd[0]], 0), max(lengths[0], 0)
        raise DataError(
            f"{path}, row {odd[0]}: `{name}` has {found} numbers, the first row has {first}. All rows need the same."
        )
    values = column.flatten().to_numpy(zero_copy_only=False)  # a null among the numbers comes out as NaN
    return np.asarray(values).reshape(len(column), -1)


def _read_csv(path: Path, separator: str) -> Columns:
    rows, lines = list[list[str]](), list[int]()
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:  # spreadsheets put a byte order mark first
            reader = csv.reader(file, delimiter=separator, strict=True)
            header = [name.strip() for name in next(reader, [])]
            if len(set(header)) != len(header) or not header:
                raise DataError(f"{path}, line 1: the header must name each column once, got {header}.")
            for cells in filter(None, reader):  # an empty line has no cells
                if len(cells) != len(header):
                    raise DataError(
                        f"{path}, line {reader.line_num}: the header has {len(header)} columns, this row {len(cells)}. "
                        f"Quote cells that hold a {separator!r}."
                    )
                rows.append(cells)
                lines.append(reader.line_num)
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text: {error}. Save it as UTF-8.") from error
    except csv.Error as error:
        raise DataError(f"{path} is not readable as CSV: {error}.") from error
    return Columns(path, {name: [row[place] for row in rows] for place, name in enumerate(header)}, lines, "line")


def _parquet_file(path: Path) -> Any:
    try:
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise ConfigError("reading Parquet needs pyarrow: `pip install 'vicinal[parquet]'`.") from error
    try:
        return ParquetFile(path)
    except (OSError, ValueError) as error:  # pyarrow's own errors are ValueErrors
        raise DataError(f"{path} is not readable as Parquet: {error}") from error


def _number(cell: Any) -> int | float | None:
    """Return the number that a cell holds or spells, or None; False and True are 0 and 1."""
    if not isinstance(cell, str):
        return cell if isinstance(cell, (int, float)) else None
    with suppress(ValueError):
        return int(cell)
    with suppress(ValueError):
        return float(cell)
    return None

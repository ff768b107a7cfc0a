"""CSV and Parquet files as columns, with a place for every row that an error can name."""

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from vicinal.errors import ConfigError, DataError, unknown


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
        """A column of texts or whole numbers as texts without spaces around them; an empty cell is refused."""
        if name not in self.cells:
            raise DataError(f"{self.path}: " + unknown("column", name, self.cells))
        texts = []
        for row, cell in enumerate(self.cells[name]):
            if cell is None or not (text := str(cell).strip()):
                raise DataError(f"{self.place(row)}: `{name}` is empty. Fill it in or remove the row.")
            if isinstance(cell, float):
                raise DataError(f"{self.place(row)}: `{name}` is a decimal number, {cell}. Use whole numbers or text.")
            texts.append(text)
        return texts

    def numbers(self, without: Sequence[str]) -> dict[str, np.ndarray]:
        """The other columns of numbers, int64 or float64.

        The first filled cell tells numbers from texts. Texts are left out; among numbers, a cell that is empty or
        holds something else is refused.
        """
        numeric = {}
        for name, cells in self.cells.items():
            first = next((cell for cell in cells if cell is not None and cell != ""), None)
            if name not in without and not name.startswith("__index_level_") and _number(first) is not None:
                numeric[name] = self._numbers(name)
        return numeric

    def _numbers(self, name: str) -> np.ndarray:
        values = [_number(cell) for cell in self.cells[name]]
        for row, value in enumerate(values):
            if value is None or not math.isfinite(value):
                raise DataError(
                    f"{self.place(row)}: `{name}` is a column of numbers, but {self.cells[name][row]!r} came."
                )
        whole = all(isinstance(value, int) and abs(value) < 2**63 for value in values)
        return np.array(values, dtype=np.int64 if whole else np.float64)


def read_columns(path: Path, *, without: str = "") -> Columns:
    """The table at ``path``, by its ending: ``.csv``, ``.tsv`` or ``.parquet``; ``without`` names a column to leave."""
    ending = path.suffix.lower()
    if ending in (".csv", ".tsv"):
        return _read_csv(path, "\t" if ending == ".tsv" else ",")
    if ending == ".parquet":
        table = _parquet_file(path).read([name for name in parquet_columns(path) if name != without])
        return Columns(path, table.to_pydict(), range(table.num_rows), "row")
    raise ConfigError(f"a table ends in .csv, .tsv or .parquet, but {path} came. Convert or rename it.")


def parquet_columns(path: Path) -> list[str]:
    """The names of a Parquet file's columns, without reading the rest."""
    return [str(name) for name in _parquet_file(path).schema_arrow.names]


def read_vectors(path: Path, name: str) -> Float[np.ndarray, "n d"]:
    """A Parquet column of lists of numbers, all of one length."""
    known = parquet_columns(path)  # first, for it refuses where there is no pyarrow
    import pyarrow

    if name not in known:
        raise DataError(f"{path}: " + unknown("column", name, known))
    column = _parquet_file(path).read([name]).column(name).combine_chunks()
    if not (pyarrow.types.is_list(column.type) or pyarrow.types.is_fixed_size_list(column.type)):
        raise DataError(f"{path}: column {name!r} should hold lists of numbers, but holds {column.type}.")
    # fill_null: a row without a list has no length; -1 shows it
    lengths = np.asarray(column.value_lengths().fill_null(-1))
    odd = np.flatnonzero(lengths != (lengths[0] if len(lengths) else 0))
    if len(odd) or (lengths < 0).any():
        row = int(odd[0]) if len(odd) else 0
        raise DataError(
            f"{path}, row {row}: `{name}` has {max(lengths[row], 0)} numbers, "
            f"the first row has {max(lengths[0], 0)}. All rows need the same."
        )
    flat = column.flatten()
    if not (pyarrow.types.is_floating(flat.type) or pyarrow.types.is_integer(flat.type)):
        raise DataError(f"{path}: `{name}` should hold lists of numbers, but holds lists of {flat.type}.")
    values = flat.to_numpy(zero_copy_only=False)  # a null among the numbers comes out as NaN
    return np.asarray(values).reshape(len(column), -1)


def _read_csv(path: Path, delimiter: str) -> Columns:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:  # spreadsheets put a byte order mark first
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            header = [name.strip() for name in next(reader, [])]
            if len(set(header)) != len(header) or not header:
                raise DataError(f"{path}, line 1: the header should name each column once, but {header} came.")
            rows, lines = list[list[str]](), list[int]()
            for cells in reader:
                if not cells:  # an empty line
                    continue
                if len(cells) != len(header):
                    raise DataError(
                        f"{path}, line {reader.line_num}: the header has {len(header)} columns, this row {len(cells)}. "
                        f"Quote cells that hold a {delimiter!r}."
                    )
                rows.append(cells)
                lines.append(reader.line_num)
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text: {error}. Save it as UTF-8.") from error
    except csv.Error as error:
        raise DataError(f"{path} is not readable as CSV: {error}.") from error
    return Columns(path, {name: [row[place] for row in rows] for place, name in enumerate(header)}, lines, "line")


def _parquet_file(path: Path) -> Any:
    parquet = _pyarrow_parquet()
    try:
        return parquet.ParquetFile(path)
    except (OSError, ValueError) as error:  # pyarrow's own errors are ValueErrors
        raise DataError(f"{path} is not readable as Parquet: {error}") from error


def _pyarrow_parquet() -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ConfigError("reading Parquet needs pyarrow: `pip install 'vicinal[parquet]'`.") from error
    return pyarrow.parquet


def _number(cell: Any) -> int | float | None:
    """The number that a cell holds or spells, or None."""
    if isinstance(cell, (int, float)):  # bool is an int: False and True become 0 and 1
        return int(cell) if isinstance(cell, int) else cell
    if not isinstance(cell, str):
        return None
    try:
        return int(cell)
    except ValueError:
        try:
            return float(cell)
        except ValueError:
            return None

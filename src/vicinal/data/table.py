"""Tables, CSV or Parquet: of image paths, of texts or of both, with a label each, of pairs of
views, and of feature vectors (also ``.npz``).

They are read as columns, with a place for every row that an error can name.
"""

import csv
import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar
from zipfile import BadZipFile, ZipFile, is_zipfile

import numpy as np
from jaxtyping import Float

from vicinal.data.location import existing, expanded
from vicinal.data.records import GALLERY, QUERY, FeatureArray, ImageFiles, Records, Texts
from vicinal.data.splits import Order, SplitByClass
from vicinal.errors import ConfigError, DataError, few, unknown
from vicinal.files import read_arrays

VIEWS = ("query_path", "gallery_path")
LONGEST = 10_000  # characters of a text; encoders read fewer
TABLES = (
    "A table has `label` and columns of numbers; `path` (of images); `text`; `features` (vectors); "
    "or `query_path` and `gallery_path`. Name others with data.label=COLUMN, data.path=COLUMN."
)
_SEPARATORS = {".csv": ",", ".tsv": "\t"}
_MAPPED = 2**28  # bytes of feature vectors that stay on disk where they can
_ROWS = 2**16  # of them checked at a time


@dataclass(frozen=True)
class Columns:
    """A table as read: texts (CSV) or typed values (Parquet), None where a cell is empty.

    Attributes:
        path: the file.
        cells: column by name.
        lines: line of each row in the file; for files without lines, the row's number counted from
            0.
        unit: what ``lines`` count, for messages.
    """

    path: Path
    cells: dict[str, list[Any]]
    lines: Sequence[int]
    unit: str = "row"

    def __len__(self) -> int:
        return len(self.lines)

    def place(self, row: int) -> str:
        return f"{self.path}, {self.unit} {self.lines[row]}"

    def texts(self, name: str) -> list[str]:
        """Return a column of texts or whole numbers as stripped texts; an empty cell is an
        error."""
        if name not in self.cells:
            raise DataError(f"{self.path}: " + unknown("column", name, self.cells))
        for row, cell in enumerate(self.cells[name]):
            if cell is None or not str(cell).strip():
                raise DataError(
                    f"{self.place(row)}: `{name}` is empty. Fill it in or remove the row."
                )
            if isinstance(cell, float):
                raise DataError(
                    f"{self.place(row)}: `{name}` is a decimal number, {cell}. Use whole numbers "
                    "or text."
                )
        return [str(cell).strip() for cell in self.cells[name]]

    def sentences(self, name: str) -> list[str]:
        """Return a column of texts to embed; one that is empty, too long or no text is an error."""
        texts = self.texts(name)
        for row, text in enumerate(texts):
            if problem := unfit(text):
                raise DataError(f"{self.place(row)}: `{name}` {problem}")
        return texts

    def splits(self, name: str = "split") -> list[str] | None:
        return self.texts(name) if name in self.cells else None

    def numbers(self, name: str, *, whole: bool = False) -> np.ndarray:
        """Return a column of numbers, int64 where all of them are whole and float64 else; any other
        cell is an error.

        Args:
            name: of the column.
            whole: whether a decimal or negative number is an error, too.
        """
        values = [_number(cell) for cell in self.cells[name]]
        for row, value in enumerate(values):
            if (
                value is None
                or not math.isfinite(value)
                or (whole and not (isinstance(value, int) and value >= 0))
            ):
                kind = "a whole number" if whole else "a number"
                raise DataError(
                    f"{self.place(row)}: `{name}` must be {kind}, got {self.cells[name][row]!r}."
                )
        integers = all(isinstance(value, int) and abs(value) < 2**63 for value in values)
        return np.array(values, dtype=np.int64 if integers else np.float64)

    def other_numbers(self, without: Collection[str]) -> dict[str, np.ndarray]:
        """Return the other columns of numbers; the first filled cell of a column tells numbers from
        texts."""
        filled = {
            name: next((c for c in cells if c not in (None, "")), None)
            for name, cells in self.cells.items()
        }
        return {
            name: self.numbers(name)
            for name, cell in filled.items()
            if name not in without
            and not name.startswith("__index_level_")
            and _number(cell) is not None
        }


def unfit(text: str) -> str:
    """Say why a text cannot be embedded; nothing where it can.

    >>> unfit("a" * 20_000), unfit("a wren")
    ('has 20,000 characters; at most 10,000 are read. Cut it into parts.', '')
    """
    if len(text) > LONGEST:
        return f"has {len(text):,} characters; at most {LONGEST:,} are read. Cut it into parts."
    if "\0" in text:
        return f"holds a NUL at character {text.index(chr(0))}: it is no text. Remove it."
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        return "holds half a surrogate pair, which is no text. Write it as UTF-8."
    return "" if text.strip() else "is empty. Give it words."


def read_columns(path: Path, *, without: str = "") -> Columns:
    """Read the table at ``path``: ``.csv``, ``.tsv`` or ``.parquet``; ``without`` names a column to
    leave out."""
    ending = path.suffix.lower()
    if ending in _SEPARATORS:
        return _read_csv(path, _SEPARATORS[ending])
    if ending == ".parquet":
        with _parquet(path) as file:
            table = file.read([name for name in file.schema_arrow.names if name != without])
            return Columns(path, table.to_pydict(), range(table.num_rows))
    raise ConfigError(f"a table ends in .csv, .tsv or .parquet, got {path}. Convert or rename it.")


def column_names(path: Path) -> list[str]:
    """Return the names of a table's columns without reading the rest."""
    if path.suffix.lower() == ".parquet":
        with _parquet(path) as parquet:
            return [str(name) for name in parquet.schema_arrow.names]
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        names = next(csv.reader([file.readline()], delimiter=_SEPARATORS[path.suffix.lower()]), [])
        return [name.strip() for name in names]


def array_names(path: Path) -> list[str]:
    """Return the names of an ``.npz``'s arrays without reading them; none of a file that is no
    ``.npz``."""
    with suppress(BadZipFile, OSError), ZipFile(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist()]
    return []


def read_vectors(path: Path, name: str) -> Float[np.ndarray, "n d"]:
    """Read a Parquet column of lists of numbers, all of one length."""
    if name not in column_names(path):
        raise DataError(f"{path}: " + unknown("column", name, column_names(path)))
    from pyarrow import types

    with _parquet(path) as file:
        column = file.read([name]).column(name).combine_chunks()
    listed = types.is_list(column.type) or types.is_fixed_size_list(column.type)
    if not listed or not (
        types.is_floating(column.type.value_type) or types.is_integer(column.type.value_type)
    ):
        raise DataError(f"{path}: column `{name}` must hold lists of numbers, got {column.type}.")
    lengths = np.asarray(column.value_lengths().fill_null(0))  # a row without a list has no length
    if len(odd := np.flatnonzero(lengths != lengths[:1])):
        counts = f"{lengths[odd[0]]} numbers, the first row has {lengths[0]}"
        raise DataError(f"{path}, row {odd[0]}: `{name}` has {counts}. All rows need the same.")
    values = column.flatten().to_numpy(
        zero_copy_only=False
    )  # a null among the numbers comes out as NaN
    return np.asarray(values).reshape(len(column), lengths[0] if len(column) else 0)


def _read_csv(path: Path, separator: str) -> Columns:
    rows, lines = list[list[str]](), list[int]()
    try:
        with path.open(
            newline="", encoding="utf-8-sig"
        ) as file:  # spreadsheets put a byte order mark first
            reader = csv.reader(file, delimiter=separator, strict=True)
            header = [name.strip() for name in next(reader, [])]
            if len(header) == 1 and ";" in header[0]:
                raise DataError(
                    f"{path}, line 1: {header[0]!r} should be several columns. Separate them by "
                    "commas."
                )
            if len(set(header)) != len(header) or not header:
                raise DataError(
                    f"{path}, line 1: the header must name each column once, got {header}."
                )
            for cells in filter(None, reader):  # an empty line has no cells
                if len(cells) != len(header):
                    counts = f"the header has {len(header)} columns, this row {len(cells)}"
                    raise DataError(
                        f"{path}, line {reader.line_num}: {counts}. Quote cells that hold a "
                        f"{separator!r}."
                    )
                rows.append(cells)
                lines.append(reader.line_num)
    except (UnicodeDecodeError, csv.Error) as error:
        line = reader.line_num
        if isinstance(
            error, UnicodeDecodeError
        ):  # of a line that does not come back when it is decoded
            with path.open("rb") as binary:
                whole = (text == text.decode(errors="replace").encode() for text in binary)
                line = next((number for number, same in enumerate(whole, 1) if not same), 1)
        fault = f"{path}, line {line}: not readable as a table in UTF-8: {error}"
        raise DataError(f"{fault}. Save it as UTF-8 text.") from error
    return Columns(
        path,
        {name: [row[place] for row in rows] for place, name in enumerate(header)},
        lines,
        "line",
    )


@contextmanager
def _parquet(path: Path) -> Iterator[Any]:
    """Open a Parquet file; what goes wrong while it is read names the path."""
    try:
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise ConfigError(
            "reading Parquet needs pyarrow: `pip install 'vicinal[parquet]'`."
        ) from error
    try:
        with ParquetFile(path) as file:
            names = file.schema_arrow.names
            if len(set(names)) != len(names):
                raise DataError(f"{path} must name each column once, got {names}. Rename them.")
            yield file
    except (OSError, ValueError) as error:  # pyarrow's own errors are ValueErrors
        raise DataError(f"{path} is not readable as Parquet: {error}. Write it again.") from error


def _number(cell: Any) -> int | float | None:
    """Return the number that a cell holds or spells, or None; False and True are 0 and 1."""
    if not isinstance(cell, str):
        return cell if isinstance(cell, (int, float)) else None
    with suppress(ValueError):
        return int(cell)
    with suppress(ValueError):
        return float(cell)
    return None


# -- tables of image paths
# ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _ImageTable(SplitByClass):
    """A table of image paths; relative ones start from ``images``, or from the table's own
    folder."""

    images: str | None = None

    def _paths(
        self, columns: Columns, names: Sequence[str], *, strict: bool, once: bool = True
    ) -> tuple[Path, list[list[str]]]:
        """Return the folder of the images and the named columns; ``once``: no path may be twice in
        the first."""
        root = expanded(self.images) if self.images is not None else columns.path.parent
        paths = {name: columns.texts(name) for name in names}
        if not len(columns):
            raise DataError(f"{columns.path} has a header but no rows.")
        lines: dict[str, int] = {}
        for row, path in enumerate(paths[names[0]]):
            if once and path in lines:
                before = f"{columns.unit} {lines[path]}"
                raise DataError(
                    f"{columns.place(row)}: {path} is already in {before}. List it once."
                )
            lines[path] = columns.lines[row]
        missing = [
            f"{columns.unit} {columns.lines[row]}, `{name}`: {root / path}"
            for name in names
            for row, path in enumerate(paths[name])
            if strict and not (root / path).is_file()
        ]
        if missing:
            fault = f"{len(missing)} in its {len(columns)} rows: {few(missing, separator='; ')}"
            advice = (
                f"Relative paths start from {root.resolve()}; `data.images` names another folder."
            )
            raise DataError(f"{columns.path} names images that do not exist, {fault}. {advice}")
        return root, list(paths.values())


@dataclass(frozen=True)
class Table(_ImageTable):
    """Images named by the columns ``path``, ``label`` and, where the set brings its own, ``split``.

    Splits are ``train``, ``validation`` (or ``val``) and ``test``. Further columns of numbers
    become columns of the records (``camera``, ``angle``, ...); columns of text are left out.

    With a column ``text`` the records are pictures and the texts that describe them. ``label`` may
    then be missing: rows with the same text are a class, or, where a picture has several texts,
        each picture.

    Args:
        path: the ``.csv``, ``.tsv`` or ``.parquet`` file; ``$VICINAL_DATA`` and ``~`` are expanded.
        test: share of the classes that are for testing, where there is no ``split`` column.
        order: whether those are drawn or the last ones of the sorted labels.
        seed: of the draw.
        images: folder from which relative image paths start; None for the table's own.
        label: the column of classes.
        image: the column of image paths.
        text: the column of texts; None for pictures alone.
    """

    label: str = "label"
    image: str = "path"
    text: str | None = None

    def load(self, *, strict: bool = True) -> Records:
        """Read the table. With ``strict=False`` missing images stay in it, for a check that names
        each of them."""
        columns = read_columns(existing(self.path))
        texts = None if self.text is None else columns.sentences(self.text)
        root, (paths,) = self._paths(columns, (self.image,), strict=strict, once=texts is None)
        numbers = columns.other_numbers((self.image, self.label, "split", self.text or ""))
        if texts is not None and self.label not in columns.cells:
            labels = texts if len(set(paths)) == len(paths) else paths
        else:
            labels = columns.texts(self.label)
        source, name = ImageFiles(root, paths), columns.path.stem
        records = self._records(name, source, labels, columns.splits(), columns.place, numbers)
        if texts is None:
            return records
        first: dict[str, int] = {}
        for row, path in enumerate(paths):
            before = first.setdefault(path, row)
            if (labels[row], records.splits[row]) != (labels[before], records.splits[before]):
                raise DataError(
                    f"{columns.place(row)}: {path} is {labels[row]!r} in {records.splits[row]} "
                    "here, but "
                    f"{labels[before]!r} in {records.splits[before]} in {columns.unit} "
                    f"{columns.lines[before]}."
                )
        return records.captioned(texts)


@dataclass(frozen=True)
class Sentences(SplitByClass):
    """Texts with a label each, in the columns ``text``, ``label`` and, where the set brings its
    own, ``split``.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "words.csv").write_text("text,label\\nhow do I pay?,money\\nwhere is it?,place\\n")
    ...     records = Sentences(f"{folder}/words.csv").load()
    >>> records.source.read(0), records.classes
    ('how do I pay?', ('money', 'place'))

    Args:
        path: the ``.csv``, ``.tsv`` or ``.parquet`` file; ``$VICINAL_DATA`` and ``~`` are expanded.
        test: share of the classes that are for testing, where there is no ``split`` column.
        order: whether those are drawn or the last ones of the sorted labels.
        seed: of the draw.
        label: the column of classes.
        text: the column of texts.
    """

    kind: ClassVar[str] = "text"
    label: str = "label"
    text: str = "text"

    def load(self) -> Records:
        columns = read_columns(existing(self.path))
        texts, labels = columns.sentences(self.text), columns.texts(self.label)
        if not texts:
            raise DataError(f"{columns.path} has a header but no rows.")
        numbers = columns.other_numbers(without=(self.label, "split", self.text))
        source = Texts(texts, text_names(columns, texts))
        return self._records(
            columns.path.stem, source, labels, columns.splits(), columns.place, numbers
        )


def text_names(columns: Columns, texts: Sequence[str]) -> list[str]:
    """Return a name for each text of a table: itself; of equal texts the later ones say where they
    are from."""
    first = {text: row for row, text in reversed([*enumerate(texts)])}
    places = [f" ({columns.unit} {line})" for line in columns.lines]
    return [text if first[text] == row else text + places[row] for row, text in enumerate(texts)]


@dataclass(frozen=True)
class CrossView(_ImageTable):
    """Images named in pairs by the columns ``query_path`` and ``gallery_path``.

    A gallery image is a class: several queries may name the same one, but a query has one. Further
        columns, where there
    are any: ``angle``, by how many degrees the gallery image is turned counter-clockwise against
        the query, 0 without
    the column (training turns it at random on top, see HER); ``split``, ``train``, ``validation``
    or ``test``.

    The records are first the queries in the table's order, then the gallery; their columns are
    ``role`` (1 query, 2 gallery) and ``angle``, how far each image is turned: of a pair, the
    gallery's angle less the query's is the table's.

    >>> from tempfile import TemporaryDirectory
    >>> from PIL import Image
    >>> with TemporaryDirectory() as folder:
    ...     for name in ("street.png", "map.png"):
    ...         _ = Image.new("RGB", (8, 8)).save(Path(folder, name))
    ...     _ = Path(folder, "pairs.csv").write_text("query_path,gallery_path,angle\\nstreet.png,map.png,90\\n")
    ...     records = CrossView(f"{folder}/pairs.csv", test=1.0).load()
    >>> records.columns["role"].tolist(), records.columns["angle"].tolist()
    ([1, 2], [-90.0, 0.0])

    Args:
        path: the ``.csv``, ``.tsv`` or ``.parquet`` file; ``$VICINAL_DATA`` and ``~`` are expanded.
        test: share of the gallery images that are for testing, where there is no ``split`` column.
        order: whether those are drawn or the last ones of the sorted names.
        seed: of the draw.
        images: folder from which relative image paths start; None for the table's own.
    """

    def load(self, *, strict: bool = True) -> Records:
        """Read the table. With ``strict=False`` missing images stay in it, for a check that names
        each of them."""
        columns = read_columns(existing(self.path))
        root, (queries, matches) = self._paths(columns, VIEWS, strict=strict)
        angles = columns.numbers("angle") if "angle" in columns.cells else np.zeros(len(columns))
        name = columns.path.stem
        asked = self._records(
            name, ImageFiles(root, queries), matches, columns.splits(), columns.place
        )
        first = np.unique(asked.labels, return_index=True)[
            1
        ]  # the row in which each class comes first
        splits = asked.splits[first]
        for row in np.flatnonzero(asked.splits != splits[asked.labels]):
            before = first[asked.labels[row]]
            raise DataError(
                f"{columns.place(int(row))}: {matches[row]} is a {asked.splits[row]} image here "
                "and a "
                f"{asked.splits[before]} image in {columns.unit} {columns.lines[before]}. Give "
                "all its rows one split."
            )
        columns_of_both = {"role": np.repeat([QUERY, GALLERY], [len(queries), len(first)])}
        # On the query's side, for a gallery image may be turned differently against each of its
        # queries.
        columns_of_both["angle"] = np.concatenate([-angles, np.zeros(len(first))])
        source = ImageFiles(root, [*queries, *(matches[row] for row in first)])
        labels, splits = (
            np.concatenate([part, part[first]]) for part in (asked.labels, asked.splits)
        )
        return Records(name, source, labels, asked.classes, splits, columns_of_both)


# -- feature vectors
# ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Arrays(SplitByClass):
    """Feature vectors [n d] with a label each and, where the set brings its own, splits.

    An ``.npz`` holds the arrays ``features`` and ``labels``, and may hold ``splits``, ``names`` and
    further arrays of n numbers, which become columns of the records. A Parquet file holds the same
    as columns, ``features`` as lists. ``label``, ``split`` and ``name`` are understood too. Of a
    table without ``features`` (CSV, TSV or Parquet), all other columns of numbers are the vector.

    Args:
        path: the file; ``$VICINAL_DATA`` and ``~`` are expanded.
        test: share of the classes that are for testing, where there are no splits.
        order: whether those are the last ones of the sorted labels, as in the published zero-shot
            splits, or drawn.
        seed: of the draw.
        features: name of the array or column of vectors.
        label: name of the array or column of labels, whole numbers or text; ``labels`` is
            understood for ``label``.
        text: name of the array or column of texts that describe what the vectors are of; None for
            vectors alone.
    """

    kind: ClassVar[str] = "features"
    order: Order = "sorted"
    features: str = "features"
    label: str = "label"
    text: str | None = None

    def load(self, *, strict: bool = True) -> Records:
        """Read the file. With ``strict=False`` NaN and infinite features stay in, for a check that
        names each row."""
        path = existing(self.path)
        if path.suffix.lower() == ".npz":
            features, columns = self._read_npz(path)
        elif path.suffix.lower() == ".parquet" and self.features in column_names(path):
            features = read_vectors(path, self.features)
            columns = read_columns(path, without=self.features)
        elif path.suffix.lower() in (*_SEPARATORS, ".parquet"):
            features, columns = self._of_numbers(read_columns(path))
        else:
            raise ConfigError(
                "feature vectors come as .npz, .parquet, .csv or .tsv, got "
                f"{path}. Convert or rename it."
            )
        if not features.size:
            raise DataError(f"{path} holds no features: their shape is {list(features.shape)}.")
        if features.dtype not in (np.float16, np.float32):
            with np.errstate(
                over="ignore"
            ):  # what does not fit becomes infinite, which is checked next
                features = features.astype(np.float32)
        parts = (features[start : start + _ROWS] for start in range(0, len(features), _ROWS))
        infinite = np.flatnonzero(
            np.concatenate([~np.isfinite(part).all(axis=1) for part in parts])
        )
        if strict and len(infinite):
            named = few([columns.lines[row] for row in infinite.tolist()], 5)
            found = (
                f"{len(infinite)} of {len(features)} feature vectors hold NaN or infinite "
                f"numbers (rows {named})"
            )
            raise DataError(f"{path}: {found}. Fix or remove them.")
        label, split, name = (_named(each, columns.cells) for each in self._roles)
        if not label:
            raise DataError(
                f"{path}: {unknown('column', self.label, columns.cells)} Name the labels with "
                "data.label=COLUMN."
            )
        texts = None if self.text is None else columns.sentences(self.text)
        source = FeatureArray(
            features, columns.texts(name) if name else [f"row {row}" for row in columns.lines]
        )
        numbers, splits = (
            columns.other_numbers((label, split, name, self.text or "")),
            columns.splits(split),
        )
        records = self._records(
            path.stem, source, columns.texts(label), splits, columns.place, numbers
        )
        return records if texts is None else records.captioned(texts)

    @property
    def _roles(self) -> tuple[str, str, str]:
        return self.label, "split", "name"

    def _of_numbers(self, columns: Columns) -> tuple[np.ndarray, Columns]:
        """Return columns of numbers as vectors, and the columns that are none."""
        kept = [_named(each, columns.cells) for each in (*self._roles, self.text or "")]
        numbers = columns.other_numbers(kept)
        if not numbers:
            raise DataError(
                f"{columns.path} has {len(columns)} rows, but no column of numbers among "
                f"{', '.join(columns.cells)}. {TABLES}"
            )
        cells = {name: cells for name, cells in columns.cells.items() if name not in numbers}
        return np.stack([*numbers.values()], axis=1), replace(columns, cells=cells)

    def _read_npz(self, path: Path) -> tuple[np.ndarray, Columns]:
        """Read the array of vectors, and the arrays that have one entry for each of them."""
        if not is_zipfile(path):
            raise DataError(
                f"{path} is not an .npz: it is no zip file, or was cut off. Write it again: "
                "numpy.savez."
            )
        arrays = read_arrays(path, mapped=_MAPPED)
        name = self.features
        if (
            name == "features" and name not in arrays and "embeddings" in arrays
        ):  # which `vicinal embed` writes
            name = "embeddings"
        if name not in arrays:
            raise DataError(f"{path}: " + unknown("array", name, arrays))
        features = arrays.pop(name)
        if features.ndim != 2 or features.dtype.kind not in "fiu":
            raise DataError(
                f"{path}: `{name}` must be numbers [n d], got {features.dtype} "
                f"{list(features.shape)}."
            )
        label = _named(self.label, arrays)
        labels, classes = arrays.get(label, np.array("")), arrays.get("classes", np.array(0))
        numbered = labels.dtype.kind in "iu" and classes.dtype.kind in "US" and labels.size
        if numbered and 0 <= labels.min() <= labels.max() < len(classes):
            arrays[label] = classes[labels]
        cells = {}
        for key, array in arrays.items():
            if array.shape == features.shape[:1]:
                cells[key] = (array.astype(str) if array.dtype.kind == "S" else array).tolist()
            elif key in (label, self.text, *(_named(role, arrays) for role in self._roles)):
                shapes = f"{len(features)} rows, but `{key}` has the shape {list(array.shape)}"
                raise DataError(f"{path}: `{name}` has {shapes}. Give every row one entry.")
        return features, Columns(path, cells, range(len(features)))


def _named(role: str, names: Collection[str]) -> str:
    """Return the name, with or without an s, that stands for a role; empty where none does."""
    return next((name for name in (role, f"{role}s", role.removesuffix("s")) if name in names), "")

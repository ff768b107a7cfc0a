"""Tables, CSV or Parquet: of image paths, of texts or of both, with a label each, of pairs of
views, and of feature vectors (also ``.npz``).

They are read as columns, with a place for every row that an error can name.
"""

import csv
import math
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, ClassVar
from zipfile import BadZipFile, ZipFile

import numpy as np
from jaxtyping import Float

from vicinal.arguments import Share
from vicinal.data.folder import existing, expanded
from vicinal.data.loader import contents
from vicinal.data.records import (
    GALLERY,
    QUERY,
    FeatureArray,
    ImageFiles,
    Records,
    Source,
    Texts,
)
from vicinal.data.splits import Labeled, Order, SplitByClass, grouped, labels_in
from vicinal.errors import ConfigError, DataError, few, package, unknown
from vicinal.files import decoding, read_arrays, read_object, region, regular, write_atomically
from vicinal.remote import cache_folder, laid_out, listed, sent, streaming

VIEWS = ("query_path", "gallery_path")
BOXES = (("x", "y", "w", "h"), ("x_1", "y_1", "x_2", "y_2"))  # the second as open-metric-learning's
Inputs = tuple[Source, Collection[str]]  # and the columns that are not numbers of their own
LONGEST = 10_000  # characters of a text; encoders read fewer
TABLES = (
    "A table has `label` and columns of numbers; `path` (of images); `text`; `features` (vectors); "
    "or `query_path` and `gallery_path`. Name others with data.label=COLUMN, data.path=COLUMN."
)


@dataclass(frozen=True)
class Columns:
    """A table as read: texts (CSV) or typed values (Parquet, arrays), None where a cell is empty.

    Attributes:
        path: the file.
        cells: column by name; one of vectors is an array [n d].
        lines: line of each row in the file; for files without lines, the row's number counted from
            0.
        unit: what ``lines`` count, for messages.
    """

    path: Path
    cells: dict[str, Any]
    lines: Sequence[int]
    unit: str = "row"

    def __len__(self) -> int:
        return len(self.lines)

    def place(self, row: int) -> str:
        return f"{self.path}, {self.unit} {self.lines[row]}"

    def named(self, role: str) -> str:
        """Return the column for a role, with or without an s; the role itself where there is
        none."""
        names = (role, f"{role}s", role.removesuffix("s"))
        return next((name for name in names if name in self.cells), role)

    def texts(self, name: str, fault: Callable[[str], str] = lambda text: "") -> list[str]:
        """Return a column of texts or whole numbers as stripped texts; an empty cell, or one with a
        ``fault``, is an error."""
        if name not in self.cells:
            known = unknown("column", name, self.cells)
            raise DataError(
                f"{self.path}: {known} Name others with data.label=COLUMN and the like."
            )
        if len(self.cells[name]) != len(self):
            raise DataError(
                f"{self.path} has {len(self)} rows, but `{name}` has {len(self.cells[name])}. Give "
                "every row one entry."
            )
        texts = ["" if cell is None else str(cell).strip() for cell in self.cells[name]]
        for row, text in enumerate(texts):
            found = fault(text) if text else "is empty. Fill it in or remove the row."
            if isinstance(self.cells[name][row], float):
                found = f"is a decimal number, {text}. Use whole numbers or text."
            if found:
                raise DataError(f"{self.place(row)}: `{name}` {found}")
        return texts

    def numbers(self, name: str) -> np.ndarray:
        """Return a column of numbers, int64 where all of them are whole and float64 else; any other
        cell is an error."""
        values = [_number(cell) for cell in self.cells[name]]
        for row, value in enumerate(values):
            if value is None or not math.isfinite(value):
                raise DataError(
                    f"{self.place(row)}: `{name}` must be a number, got {self.cells[name][row]!r}."
                )
        integers = all(isinstance(value, int) and abs(value) < 2**63 for value in values)
        return np.array(values, dtype=np.int64 if integers else np.float64)

    def other_numbers(self, without: Collection[str]) -> dict[str, np.ndarray]:
        """Return the other columns of numbers; the first filled cell of a column tells numbers from
        texts."""
        filled = {
            name: next((cell for cell in cells if cell is not None and cell != ""), None)
            for name, cells in self.cells.items()
            if name not in without and isinstance(cells, list) and len(cells) == len(self)
        }
        return {
            name: self.numbers(name)
            for name, cell in filled.items()
            if not name.startswith("__index_level_") and _number(cell) is not None
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


def read_columns(path: Path) -> Columns:
    """Read a table: ``.csv``, ``.tsv``, ``.parquet``, or the arrays of an ``.npz``."""
    ending = path.suffix.lower()
    if ending in (".csv", ".tsv"):
        return _read_csv(path)
    if ending == ".npz":
        return _read_npz(path)
    if ending != ".parquet":
        raise ConfigError(
            f"a table ends in .csv, .tsv or .parquet, got {path}. Convert or rename it."
        )
    with parquet(regular(path)) as file:
        table = file.read()
        cells: dict[str, Any] = {name: table.column(name) for name in table.column_names}
        for name, column in cells.items():
            cells[name] = column.to_pylist()
            if column.type.num_fields:  # lists, as an array [n d] where all are of one length
                with suppress(ValueError, TypeError):
                    cells[name] = np.stack(column.to_numpy())
        return Columns(path, cells, range(table.num_rows))


def column_names(path: Path) -> Collection[str]:
    """Return the names of a table's columns, or of an ``.npz``'s arrays."""
    ending = path.suffix.lower()
    if ending == ".npz":
        with suppress(BadZipFile, OSError), ZipFile(regular(path)) as archive:
            return [name.removesuffix(".npy") for name in archive.namelist()]
        return []
    if ending == ".parquet":
        with parquet(path) as file:
            return [*file.schema_arrow.names]
    return read_columns(path).cells


def _read_csv(path: Path) -> Columns:
    """Read text between commas, semicolons or tabs: of these the one that the first line has most
    often."""
    rows = list[list[str]]()
    lines = list[int]()
    try:
        # spreadsheets put a byte order mark first
        with regular(path).open(encoding="utf-8-sig", newline="") as file:
            separator = max(",;\t", key=file.readline().count)
            file.seek(0)
            reader = csv.reader(file, delimiter=separator, strict=True)
            names = [name.strip() for name in next(reader, [])]
            if len(set(names)) != len(names) or not names:
                raise csv.Error(f"the header must name each column once, got {names}")
            for row in filter(None, reader):
                if len(row) != len(names):
                    raise csv.Error(f"other columns than the {len(names)} of the header")
                rows.append(row)
                lines.append(reader.line_num)
    except csv.Error as error:
        raise DataError(
            f"{path}, line {reader.line_num or 1}: {error}. Quote cells that hold {separator!r}."
        ) from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is no table in UTF-8: {error}. Save it as UTF-8 text.") from error
    cells = {name: [row[place] for row in rows] for place, name in enumerate(names)}
    return Columns(path, cells, lines, "line")


def _read_npz(path: Path) -> Columns:
    arrays = read_arrays(path)
    if "embeddings" in arrays:  # which `vicinal embed` writes
        arrays["features"] = arrays.pop("embeddings")
        if "classes" in arrays:
            arrays["labels"] = arrays.pop("classes")[arrays["labels"]]
    cells = dict[str, Any]()
    for name, array in arrays.items():
        if array.dtype.kind == "S":
            array = array.astype(str)
        if array.ndim:
            cells[name] = array.tolist() if array.ndim == 1 else array
    # Rows are those of the longest [n d], or else of the longest array.
    rows = max(((np.ndim(cells[name]) == 2, len(cells[name])) for name in cells), default=(0, 0))
    return Columns(path, cells, range(rows[1]))


@contextmanager
def parquet(path: Path) -> Iterator[Any]:
    """Open a Parquet file, of which what is asked for is read; what goes wrong names the path."""
    arrow = pyarrow_module()
    try:
        with streaming(path) as opened, arrow.parquet.ParquetFile(opened) as file:
            names = file.schema_arrow.names
            if len(set(names)) != len(names):
                raise ValueError(f"it must name each column once, got {names}")
            yield file
    except (OSError, ValueError) as error:  # pyarrow's own errors are ValueErrors
        raise DataError(f"{path} is not readable as Parquet: {error}. Write it again.") from error


def pyarrow_module() -> Any:
    """Return pyarrow, with its Parquet; an error where it is not installed."""
    package("pyarrow.parquet", "parquet")
    return package("pyarrow", "parquet")


def _number(cell: Any) -> int | float | None:
    """Return the number that a cell holds or spells, or None; False and True are 0 and 1."""
    if not isinstance(cell, str):
        return cell if isinstance(cell, (int, float)) else None
    for kind in (int, float):
        with suppress(ValueError):
            return kind(cell)
    return None


class _Tabular(Labeled):
    """A data set of one table: a source of inputs, a label for each row, and further columns."""

    label: str = "label"
    text: str | None = None

    def load(self, *, strict: bool = True) -> Records:
        """Read the table. With ``strict=False`` missing images, and NaN or infinite features, stay
        in it, for a check that names each of them."""
        columns = read_columns(existing(self.path))
        if not len(columns):
            raise DataError(f"{columns.path} has no rows.")
        source, used = self._source(columns, strict=strict)
        texts = None
        if self.text is not None and source.kind != "text":
            texts = columns.texts(self.text, unfit)
        label = columns.named(self.label)
        labels: Sequence[str | Sequence[str]]
        if texts is not None and label not in columns.cells:
            several = len(set(source.names)) < len(texts)  # of some picture
            labels = source.names if several else texts
        else:
            cells = columns.cells.get(label, ())
            if not np.ndim(next(iter(cells), "")):
                cells = columns.texts(label)
            labels = [labels_in(cell, self.separator) for cell in cells]
        split = columns.named("split")
        splits = columns.texts(split) if split in columns.cells else None
        above = [name for name in self.hierarchy if name != label]
        numbers = columns.other_numbers((*used, *above, label, split))
        records = self._records(columns.path.stem, source, labels, splits, columns.place, numbers)
        records = grouped(records, {name: columns.texts(name) for name in above})
        return records if texts is None else records.captioned(texts)

    @abstractmethod
    def _source(self, columns: Columns, *, strict: bool) -> Inputs:
        """Return the inputs of a table."""


# -- tables of image paths -------------------------------------------------------------------------


def box_columns(columns: Columns) -> tuple[str, ...]:
    """Return the columns of boxes; none where the table has none."""
    return next((names for names in BOXES if columns.cells.keys() >= set(names)), ())


def picture_paths(columns: Columns, name: str, margin: float) -> list[str]:
    """Return the paths in a column, with the regions that the columns of boxes cut."""
    paths = columns.texts(name)
    names = box_columns(columns)
    if not names:
        return paths
    boxes = np.stack([columns.numbers(name) for name in names], axis=1)
    if names == BOXES[1]:
        boxes[:, 2:] -= boxes[:, :2]
    empty = (boxes[:, :2] < 0).any(axis=1) | (boxes[:, 2:] <= 0).any(axis=1)
    for row in np.flatnonzero(empty).tolist():
        raise DataError(
            f"{columns.place(row)}: the box {boxes[row].tolist()} (x, y, w, h) holds no pixel. "
            "Give pixels from the top left, and a width and height above 0."
        )
    return [region(path, box, margin) for path, box in zip(paths, boxes.tolist(), strict=True)]


def _image_files(
    columns: Columns, name: str, images: str | None, margin: float = 0.0, *, strict: bool
) -> ImageFiles:
    """Return the images that a column names."""
    root = listed(columns.path.parent if images is None else expanded(images))
    source = ImageFiles(root, picture_paths(columns, name, margin))
    if strict and (missing := source.absent()):
        places = [
            f"{columns.unit} {columns.lines[row]}: {root / source.paths[row]}" for row in missing
        ]
        raise DataError(
            f"{columns.path} names images that do not exist, {len(missing)} in its {len(columns)} "
            f"rows of `{name}`: {few(places, separator='; ')}. Relative paths start from "
            f"{root.resolve()}; `data.images` names another folder."
        )
    return source


class Table(_Tabular):
    """Images named by the columns ``path``, ``label`` and, where the set brings its own, ``split``.

    Splits are ``train``, ``validation`` (or ``val``) and ``test``. Further columns of numbers
    become columns of the records (``camera``, ``angle``, ...); columns of text are left out.

    Columns ``x``, ``y``, ``w``, ``h``, or ``x_1``, ``y_1``, ``x_2``, ``y_2``, are a box in each
    picture (pixels from its top left): a record is what lies in it.

    With a column ``text`` the records are pictures and the texts that describe them. ``label`` may
    then be missing: rows with the same text are a class, or, where a picture has several texts,
    each picture.

    Args:
        path: the ``.csv``, ``.tsv`` or ``.parquet`` file; ``$VICINAL_DATA`` and ``~`` are expanded.
        test: share of the classes that are for testing, where there is no ``split`` column.
        order: whether those are drawn or the last ones of the sorted labels.
        seed: of the draw.
        label: the column of classes.
        images: folder from which relative image paths start; None for the table's own.
        image: the column of image paths.
        text: the column of texts; None for pictures alone.
        margin: how much of its width and height a box is widened by on each side.
    """

    images: str | None = None
    image: str = "path"
    margin: Share = 0.0

    def _source(self, columns: Columns, *, strict: bool) -> Inputs:
        source = _image_files(columns, self.image, self.images, self.margin, strict=strict)
        return source, (self.image, self.text or "", *box_columns(columns))


class Sentences(_Tabular):
    """Texts with a label each, in the columns ``text``, ``label`` and, where the set brings its
    own, ``split``.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     rows = "text,label\\nhow do I pay?,money\\nwhere is it?,place\\n"
    ...     _ = Path(folder, "words.csv").write_text(rows)
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
    text: str = "text"

    def _source(self, columns: Columns, *, strict: bool) -> Inputs:
        texts = columns.texts(self.text, unfit)
        return Texts(texts, text_names(columns, texts)), (self.text,)


def text_names(columns: Columns, texts: Sequence[str]) -> list[str]:
    """Return a name for each text of a table: itself; of equal texts the later ones say where they
    are from."""
    first = {text: row for row, text in reversed([*enumerate(texts)])}
    places = [f" ({columns.unit} {line})" for line in columns.lines]
    return [text if first[text] == row else text + places[row] for row, text in enumerate(texts)]


class CrossView(SplitByClass):
    """Images named in pairs by the columns ``query_path`` and ``gallery_path``.

    A gallery image is a class: several queries may name the same one, but a query has one. Further
    columns, where there are any: ``angle``, by how many degrees the gallery image is turned
    counter-clockwise against the query, 0 without the column (training turns it at random on top,
    see HER); ``split``, ``train``, ``validation`` or ``test``.

    The records are first the queries in the table's order, then the gallery; their columns are
    ``role`` (1 query, 2 gallery) and ``angle``, how far each image is turned: of a pair, the
    gallery's angle less the query's is the table's.

    >>> from tempfile import TemporaryDirectory
    >>> from PIL import Image
    >>> with TemporaryDirectory() as folder:
    ...     for name in ("street.png", "map.png"):
    ...         _ = Image.new("RGB", (8, 8)).save(Path(folder, name))
    ...     rows = "query_path,gallery_path,angle\\nstreet.png,map.png,90\\n"
    ...     _ = Path(folder, "pairs.csv").write_text(rows)
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

    images: str | None = None

    def load(self, *, strict: bool = True) -> Records:
        """Read the table. With ``strict=False`` missing images stay in it, for a check that names
        each of them."""
        columns = read_columns(existing(self.path))
        queries, matches = (
            _image_files(columns, name, self.images, strict=strict) for name in VIEWS
        )
        if not len(queries):
            raise DataError(f"{columns.path} has no rows.")
        angles = columns.numbers("angle") if "angle" in columns.cells else np.zeros(len(columns))
        given = columns.texts("split") if "split" in columns.cells else None
        name = columns.path.stem
        asked = self._records(name, queries, matches.paths, given, columns.place)
        # the row in which each class comes first
        first = np.unique(asked.labels, return_index=True)[1]
        for row in np.flatnonzero(asked.splits != asked.splits[first][asked.labels]).tolist():
            raise DataError(
                f"{columns.place(row)}: {matches.paths[row]} is a {asked.splits[row]} image here, "
                "but not in the rows above. Give all its rows one split."
            )
        # On the query's side, for a gallery image may be turned differently against each of its
        # queries.
        sides = {
            "role": np.repeat([QUERY, GALLERY], [len(queries), len(first)]),
            "angle": np.concatenate([-angles, np.zeros(len(first))]),
        }
        both = asked.take(np.concatenate([np.arange(len(queries)), first]))
        paths = [*queries.paths, *(matches.paths[row] for row in first)]
        return replace(both, source=ImageFiles(queries.root, paths), columns=sides)


# -- feature vectors -------------------------------------------------------------------------------


class Arrays(_Tabular):
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

    def unlabeled(self) -> Source:
        """Return the vectors alone, for whoever needs no labels."""
        return self._source(read_columns(existing(self.path)), strict=True)[0]

    def _source(self, columns: Columns, *, strict: bool) -> Inputs:
        name = columns.named("name")
        roles = (columns.named(self.label), columns.named("split"), name, self.text or "")
        used: Collection[str] = (self.features,)
        if self.features in columns.cells:
            features = columns.cells[self.features]
            if np.ndim(features) != 2 or features.dtype.kind not in "fiu":
                raise DataError(
                    f"{columns.path}: `{self.features}` must be numbers [n d], as many in every "
                    f"row, got {features[0]!r:.60}."
                )
        else:
            numbers = columns.other_numbers(roles)
            if not numbers:
                raise DataError(
                    f"{columns.path} has {len(columns)} rows, but no column of numbers among "
                    f"{', '.join(columns.cells)}. {TABLES}"
                )
            features = np.stack([*numbers.values()], axis=1)
            used = numbers
        if features.dtype not in (np.float16, np.float32):
            # what does not fit becomes infinite, which is checked next
            with np.errstate(over="ignore"):
                features = features.astype(np.float32)
        finite = np.isfinite(features).all(axis=1)
        if strict and not finite.all():
            rows = np.flatnonzero(~finite).tolist()
            raise DataError(
                f"{columns.path}: {len(rows)} of {len(features)} feature vectors hold NaN or "
                f"infinite numbers (rows {few([columns.lines[row] for row in rows], 5)}). Fix or "
                "remove them."
            )
        places = [f"row {row}" for row in columns.lines]
        names = columns.texts(name) if name in columns.cells else places
        return FeatureArray(features, names), (*used, *roles)


# -- embeddings: a folder of Parquet shards that `vicinal embed` writes and every command reads ---
#
# A shard has the columns path, label, split, content (of what was embedded, see loader.contents),
# further numbers and vector. embeddings.json says how many shards there are and which model made
# the vectors.

MANIFEST = "embeddings.json"
_SHARD_TEXTS = ("path", "label", "split")


def shard_path(folder: Path, number: int) -> Path:
    """Return where a shard lies."""
    return folder / f"part-{number:05d}.parquet"


def write_shard(path: Path, records: Records, vectors: Float[np.ndarray, "n d"]) -> None:
    """Write the vectors of some records, whole or not at all."""
    arrow = pyarrow_module()
    names = records.class_names()
    columns: Mapping[str, Any] = {
        "path": records.names(),
        "label": names if records.every is not None else [name for (name,) in names],
        "split": records.splits.tolist(),
        "content": contents(records),
        **records.columns,
        "vector": arrow.FixedSizeListArray.from_arrays(vectors.reshape(-1), vectors.shape[1]),
    }
    table = arrow.table(columns)
    texts = [*_SHARD_TEXTS]
    write_atomically(
        path, lambda file: arrow.parquet.write_table(table, file, use_dictionary=texts)
    )
    sent(path)


def embedding_count(folder: Path) -> int:
    """Return how many embeddings a folder holds."""
    count = 0
    for file in laid_out(folder).glob("part-*.parquet"):
        with parquet(file) as opened:
            count += opened.metadata.num_rows
    return count


class Embeddings(SplitByClass):
    """Embeddings that ``vicinal embed`` wrote as a folder of Parquet shards.

    They lie in a temporary file while they are used, not in memory. A run whose model made them
    takes them as its embeddings; any other takes them as feature vectors.

    Args:
        path: the folder; ``$VICINAL_DATA`` and ``~`` are expanded.

    >>> Embeddings("embedded/")
    Embeddings(path='embedded/', test=0.5, order='random', seed=0)
    """

    kind: ClassVar[str] = "features"

    @staticmethod
    def lies_in(folder: Path) -> bool:
        """Whether a folder holds embeddings."""
        return (folder / MANIFEST).is_file()

    def load(self) -> Records:
        root = existing(self.path)
        with decoding(root / MANIFEST):
            about = read_object(root / MANIFEST)
            files = [shard_path(root, number) for number in range(about["shards"])]
            shape = (about["rows"], about["dim"])
            model = about["model"]
        if missing := [file.name for file in files if not file.is_file()]:
            raise DataError(
                f"{root} lacks {len(missing)} of {len(files)} shards, such as {missing[0]}. Give "
                "the same `vicinal embed` once more: it goes on."
            )
        cache_folder().mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=cache_folder()) as space:
            vectors = np.memmap(space, np.float32, "w+", shape=shape)
        parts = []
        count = 0
        for file in files:
            with parquet(file) as opened:
                table = opened.read()
            found = np.reshape(table.column("vector").combine_chunks().flatten(), (-1, shape[1]))
            if not np.isfinite(found).all():
                raise DataError(f"{file} holds NaN or infinite numbers. Check the model.")
            vectors[count : count + len(found)] = found
            count += len(found)
            parts.append(table.drop_columns("vector"))
        columns = pyarrow_module().concat_tables(parts).to_pydict()
        source = FeatureArray(vectors[:count], columns["path"])
        source.model = model
        source.contents = np.array(columns.pop("content"), np.uint64)
        numbers = {name: np.array(columns[name]) for name in columns if name not in _SHARD_TEXTS}
        return self._records(
            root.name, source, columns["label"], columns["split"], source.name, numbers
        )

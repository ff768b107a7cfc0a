"""Files that are there whole or not at all, and readers that never run code: one writer and one
reader per format."""

import errno
import glob
import json
import math
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from hashlib import file_digest
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np

from vicinal.errors import DataError, RunError, VicinalError
from vicinal.remote import fetched

try:
    import fcntl
except ImportError:  # Windows, which removes no open file anyway
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image
    from torch import Tensor

# numpy parses an array's header with ``ast``. In Python 3.11 all threads share its count of
# recursions: where a garbage collection lets another thread parse in between, the first fails with
# a SystemError (CPython issue 106905). Reentrant, because what a collection runs may read, too.
_HEADERS = RLock()
# Images that are decoded, by content: of the others that Pillow knows, PostScript starts a program.
IMAGE_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
MOST_PIXELS = 150_000_000  # 450 MB decoded
MOST_ASPECT = 100  # with a shorter side of 256 pixels, 6.5 million
HEIC = (".heic", ".heif")
REGION = "#xywh="  # W3C Media Fragments URI 1.0, Section 4.2.2, in pixels of the upright picture
Document = dict[str, Any]  # the object of a JSON file
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS)
# What safetensors calls the types of torch.
_KINDS = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
}
PARTS = ".*.part"  # names of what is not yet written to the end


# -- writing --------------------------------------------------------------------------------------


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Let ``write`` fill a temporary file beside ``path``, sync it, and rename it into place.

    A reader, or a process started after ``kill -9``, sees the old content or the new, never a part.
    A symbolic link at ``path`` is replaced, not followed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = _part_of(path)
    try:
        with naming(path), os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.umask(mask := os.umask(0))  # which can only be asked for by setting it
        os.chmod(temporary, 0o666 & ~mask)  # mkstemp makes private files; these are ordinary ones
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def _part_of(path: Path) -> tuple[int, str]:
    """Open a temporary file beside ``path``, after removing those of writers that were killed."""
    remove_parts(path.parent, glob.escape(path.name))
    while True:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        lock_open_file(handle)
        if os.fstat(handle).st_nlink:
            return handle, name
        os.close(handle)  # another writer took it for a dead one's before it was locked


def remove_parts(folder: Path, name: str = "*") -> None:
    """Remove what killed processes left half-written in ``folder``; what a living one writes is
    locked."""
    for part in folder.glob(f".{name}.*.part"):
        if part.is_file() and not part.is_symlink():
            with suppress(OSError), nullcontext() if fcntl is None else part.open("rb") as left:
                if left is None or lock_open_file(left.fileno(), wait=False):
                    part.unlink()


def lock_open_file(handle: int, *, wait: bool = True) -> bool:
    """Lock a file until it is closed; return whether its file system has locks.

    A BlockingIOError where another process holds it and ``wait`` is False.
    """
    if fcntl is not None:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            return False
    return True


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name ``path`` in errors that know none, such as that of a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


def sync_directory(path: Path) -> None:
    """Make a rename inside ``path`` survive a power cut."""
    if os.name == "nt":  # where a folder cannot be opened
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_text(path: Path, text: str) -> None:
    # A lone surrogate, which stands for a byte of a file's name that is no text, becomes the escape
    # that JSON reads.
    write_atomically(path, lambda file: file.write(text.encode(errors="backslashreplace")))


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write an ``.npz`` of plain arrays."""
    write_atomically(path, lambda file: np.savez_compressed(file, **dict(arrays)))  # type: ignore[arg-type]


class Rows(NamedTuple):
    """A tensor that is written some rows at a time."""

    shape: tuple[int, ...]
    dtype: "torch.dtype"
    blocks: "Iterable[Tensor]"


def write_tensors(path: Path, tensors: "Mapping[str, Tensor | Rows]") -> None:
    """Write tensors as a ``.safetensors`` file, with little memory besides.

    The file is eight bytes of the header's length, the header, and the numbers of each tensor, the
    widest first, so that each begins at a multiple of its width.
    """
    import torch

    header = {}
    end = 0
    ordered = sorted(tensors.items(), key=lambda each: -each[1].dtype.itemsize)
    for name, tensor in ordered:
        start = end
        end += math.prod(tensor.shape) * tensor.dtype.itemsize
        kind = _KINDS[str(tensor.dtype).removeprefix("torch.")]
        header[name] = {
            "dtype": kind,
            "shape": [*tensor.shape],
            "data_offsets": [start, end],
        }
    told = json.dumps(header, separators=(",", ":")).encode()
    told += b" " * (-len(told) % 8)

    def write(file: BinaryIO) -> None:
        file.write(len(told).to_bytes(8, "little") + told)
        for _, tensor in ordered:
            for block in tensor.blocks if isinstance(tensor, Rows) else [tensor]:
                flat = block.detach().cpu().reshape(-1)
                file.write(flat.view(torch.uint8).numpy().data)

    write_atomically(path, write)


# -- folders that others may have filled ----------------------------------------------------------


def followed(path: Path) -> Path:
    """Follow the links of a path, absolute; one that leads back to itself stays, and cannot be
    opened."""
    return Path(os.path.realpath(path))


def check_links(folder: Path, without: str = "") -> None:
    """Raise a DataError for a symbolic link in ``folder`` that leads out of it, but not for those
    in its folder ``without``.

    Whoever writes below, removes, or shows what is there would otherwise do so wherever the
    folder's author wished.
    """
    root = followed(folder)
    for place, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(place, name)
            if path.is_symlink() and not followed(path).is_relative_to(root):
                raise DataError(
                    f"{path} is a link to {followed(path)}, outside of {folder}. Remove it, or put "
                    "what it links to in its place."
                )
        if Path(place) == root and without in folders:
            folders.remove(without)


# -- reading --------------------------------------------------------------------------------------


def regular(path: Path) -> Path:
    """Return the path of a regular file, fetched where it lies behind a URL; a pipe or a device,
    which could be read without end, is an error."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise DataError(f"{path} is not a regular file. Remove it, or restore it from a copy.")
    return fetched(path)


def file_hash(path: Path) -> str:
    with regular(path).open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


@contextmanager
def decoding(path: Path, remedy: str = "Restore it from a copy.") -> Iterator[None]:
    """Name ``path`` in what is raised over its content, which may be damaged in any way."""
    try:
        yield
    except (OSError, VicinalError):
        raise
    except Exception as error:
        raise RunError(f"{path} is damaged ({type(error).__name__}: {error}). {remedy}") from error


@contextmanager
def _reading(path: Path, kind: str) -> Iterator[None]:
    """Name ``path`` where a file that is there is not of its kind."""
    try:
        yield
    except (FileNotFoundError, VicinalError):
        raise
    except Exception as error:  # readers raise what their parsing of a damaged file runs into
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        advice = "Restore it from a copy, or remove it."
        if "allow_pickle" in str(error):  # numpy's word for arrays that could run code
            advice = "Save texts as text: `numpy.asarray(labels, dtype=str)`."
        raise DataError(f"{path} is not readable as {kind}: {reason}. {advice}") from error


def read_json(path: Path) -> Any:
    with _reading(path, "JSON"):
        return json.loads(regular(path).read_text(encoding="utf-8"))


def read_object(path: Path) -> Document:
    """Read the object of a JSON file."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise DataError(
            f"{path} must hold a JSON object, got a {type(value).__name__}. Restore it from a copy."
        )
    return value


def read_lines(path: Path) -> Iterator[Document]:
    """Yield the objects of a file of JSON lines, if it is there; a last line cut off by a crash is
    left out."""
    if not path.exists():
        return
    with regular(path).open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            with _reading(path, f"JSON in line {number}"):
                value = json.loads(line)
            if not isinstance(value, dict):
                raise DataError(
                    f"{path}, line {number}: expected a JSON object, got a {type(value).__name__}."
                )
            yield value


def read_array(path: Path, *, mapped: bool = False) -> np.ndarray:
    """Read the array of an ``.npy``, never unpickling; ``mapped`` leaves it on the disk,
    read-only."""
    with _reading(path, "an .npy array"), _HEADERS:
        return np.load(regular(path), "r" if mapped else None, allow_pickle=False)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read all arrays of an ``.npz``, never unpickling."""
    with (
        _reading(path, "an .npz of plain arrays"),
        regular(path).open("rb") as file,  # numpy would leave that of a cut-off archive open
        _HEADERS,
        np.load(file, allow_pickle=False) as archive,
    ):
        return {name: archive[name] for name in archive.files}


def read_tensors(path: Path) -> "dict[str, Tensor]":
    """Read all tensors of a ``.safetensors`` file, on the CPU."""
    from safetensors.torch import load_file

    with _reading(path, "safetensors"):
        return load_file(regular(path))


# -- image files as training, search and export read them -----------------------------------------


def open_image(file: Path | BinaryIO, formats: tuple[str, ...] = IMAGE_FORMATS) -> "Image":
    """Open an image of one of the formats, with any name; nothing else calls Pillow's."""
    from PIL.Image import open

    return open(file, formats=formats)


def parted(path: Path | str) -> tuple[Path, tuple[int, ...]]:
    """Return a file, and the box (x, y, w, h) that a path names of it; nothing for all of it.

    >>> parted("a/birds.jpg#xywh=10,0,32,48"), parted("a/birds.jpg")
    ((PosixPath('a/birds.jpg'), (10, 0, 32, 48)), (PosixPath('a/birds.jpg'), ()))
    """
    found = re.fullmatch(rf"(.*){REGION}(\d+),(\d+),(\d+),(\d+)", str(path), re.DOTALL)
    return (Path(found[1]), tuple(map(int, found.groups()[1:]))) if found else (Path(path), ())


def region(path: str, box: Sequence[float], margin: float) -> str:
    """Name a box (x, y, w, h) of a picture, widened on each side by a share of its width and
    height.

    >>> region("a.jpg", (20, 1, 10, 50), margin=0.1)
    'a.jpg#xywh=19,0,12,56'
    """
    x, y, w, h = box
    left = max(0, round(x - margin * w))
    top = max(0, round(y - margin * h))
    right = round(x + w + margin * w)
    bottom = round(y + h + margin * h)
    return f"{path}{REGION}{left},{top},{right - left},{bottom - top}"


def read_image(path: Path) -> "Image":
    """Decode the image at ``path``, or a region of it, upright, RGB or 8-bit gray; a DataError
    names the file."""
    path, box = parted(path)
    image = _read_file(path)
    if not box:
        return image
    x, y, w, h = box
    if min(w, h) < 1 or x >= image.width or y >= image.height:
        raise DataError(
            f"image {path} has {image.width} x {image.height} pixels; the box {box} (x, y, w, h) "
            "holds none of them. Mend its row."
        )
    return image.crop((x, y, min(x + w, image.width), min(y + h, image.height)))


def _read_file(path: Path) -> "Image":
    try:
        regular(path)
        if path.suffix.lower() in HEIC:
            try:
                from pillow_heif import register_heif_opener
            except ImportError as error:
                fault = "pillow-heif is not installed: `pip install 'vicinal[heic]'`"
                raise DataError(fault) from error
            register_heif_opener()
            return decode(path, (*IMAGE_FORMATS, "HEIF"))
        return decode(path)
    except FileNotFoundError as error:
        raise DataError(f"image {path} is missing.") from error
    except Exception as error:  # decoders raise what their parsing of a damaged file runs into
        raise DataError(
            f"image {path} cannot be read: {error}. `vicinal data check` lists all such files; "
            "fix or remove them, or "
            f"leave them out: `training.skip_corrupt=true` in training, --skip-corrupt elsewhere."
        ) from error


def decode(file: Path | BinaryIO, formats: tuple[str, ...] = IMAGE_FORMATS) -> "Image":
    """Decode an image file, upright, RGB or 8-bit gray; raise what decoders raise, and a DataError
    for its size."""
    with open_image(file, formats) as image:
        width, height = image.size
        # They need more memory than any photograph, as they are or with a resized shorter side.
        if width * height > MOST_PIXELS or max(image.size) > MOST_ASPECT * min(image.size):
            raise DataError(
                f"{width:,} x {height:,} pixels are too many or too narrow; accepted are at most "
                f"{MOST_PIXELS / 10**6:g} million pixels and sides in a ratio of {MOST_ASPECT} to 1"
            )
        image.load()
        return eight_bit(upright(image))


def upright(image: "Image") -> "Image":
    """Turn a decoded image as its EXIF orientation says: a telephone only notes how it was held."""
    from PIL import ExifTags, ImageOps

    try:
        held = image.getexif().get(ExifTags.Base.Orientation, 1)
        return image if held == 1 else ImageOps.exif_transpose(image)
    except Exception:  # a picture whose tags are damaged is still a picture
        return image


def eight_bit(image: "Image") -> "Image":
    """Return an image as RGB or 8-bit gray."""
    from PIL.Image import fromarray

    if image.mode in ("L", "RGB"):
        return image
    if image.mode == "F":
        raise DataError(
            "its pixels are decimal numbers of unknown range; save it with 8 or 16 bits"
        )
    # Pillow would clip 16 bits to 255, to white.
    if image.mode == "I" or image.mode.startswith("I;16"):
        return fromarray((np.clip(np.asarray(image), 0, 65535) // 256).astype(np.uint8))
    if "transparency" in image.info:  # Pillow warns when a palette loses it at once
        image = image.convert("RGBA")
    return image.convert("RGB")

"""Near duplicates: copies, crops, re-encodings and resizes of one picture; nothing is ever removed
here.

Whether two files show the same picture is a matter of their pixels, not of their class: the run's
model is not asked. A picture is compared by small color views of the whole and of nine crops: two
are alike where the whole of one is near a view of the other. How near is near enough is measured on
copies planted among the collection's own pictures, and on mirror images of them, which are copies
of nothing.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO

import numpy as np
import torch
from jaxtyping import Float, Float16, Float32, Float64, Int64
from PIL import Image, ImageEnhance
from torch import Tensor

from vicinal.data.records import Progress
from vicinal.errors import ConfigError, DataError
from vicinal.evaluation.neighbors import require_finite
from vicinal.files import open_image, read_arrays, write_arrays
from vicinal.retrieval.collection import Snapshot
from vicinal.retrieval.contact_sheets import Contents, Group

_SHOWN = 24  # pictures of a group
MOST_PAIRS = 20_000_000  # found; beyond, the distance is no longer one between near rows
_BLOCK, _WIDTH = 1024, 8192  # rows by rows in one float32 product: 32 MiB
_EXACT = 8192  # pairs at a time whose distance is taken in float64
_DIRECTIONS, _SAMPLE = 32, 5000  # in which rows are compared first, and rows that tell which
_TILE = 512  # such rows in one product with a block, which then stays in a core's cache
_FEW = (
    8192  # pairs of a block that are looked at one by one; of more, all of the block are multiplied
)
_VIEW = 8  # pixels of a view's side
_CROP = 0.87  # of the sides; with it, crops down to about 0.8 are found
# standard deviation of gray levels below which a picture shows nothing that could be compared
_FLAT = 4.0
_WHOLE = 64  # pixels of a side from which views are taken
_EDGE = _WHOLE * (1 - _CROP) / 2
_VIEWS = [(0.0, 0.0, float(_WHOLE), float(_WHOLE))] + [
    (x * _EDGE, y * _EDGE, x * _EDGE + _WHOLE * _CROP, y * _EDGE + _WHOLE * _CROP)
    for x in range(3)
    for y in range(3)
]
_PLANTED, _MIRRORED = 100, 1000  # pictures of which copies are planted, and mirror images
# share of the pictures that is thought to have a copy: one in fifty, where every planted one has
_COPIED = 0.02


@dataclass(frozen=True)
class Pairs:
    """Pairs of rows, each once, ``left < right``, by growing ``left``, then ``right``.

    Attributes:
        left: first row of each pair.
        right: second row.
        distances: between the two.
    """

    left: Int64[np.ndarray, "p"]
    right: Int64[np.ndarray, "p"]
    distances: Float64[np.ndarray, "p"]

    def __len__(self) -> int:
        return len(self.left)


_NO_PAIRS = Pairs(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))


def close_pairs(
    rows: Float[np.ndarray, "n d"],
    distance: float,
    *,
    first: int | None = None,
    progress: Progress = lambda done: None,
) -> Pairs:
    """Find the pairs of rows with at most this distance, exactly: float32 proposes, float64
    decides.

    Long rows are compared first in the few directions in which they vary most, where no two are
    farther apart than in
    all of them: a pair that is too far there needs no further look.

    Args:
        rows: may be memory-mapped; some are read at a time.
        distance: 0 or more; 0 finds equal rows.
        first: only pairs with one of so many rows at the beginning.
        progress: called with how many rows have met all rows after them.
    """
    if not 0 <= distance < np.inf:
        raise ConfigError(
            f"pairs are sought within a distance of 0 or more; got distance = {distance}."
        )
    first = len(rows) if first is None else first
    many = f"more than {MOST_PAIRS:,} pairs of {len(rows):,} rows"
    too_many = DataError(
        f"within a distance of {distance:g} lie {many}. Ask for a smaller distance."
    )
    short = _projected(rows) if len(rows) > _WIDTH and rows.shape[1] >= 2 * _DIRECTIONS else None
    width = _WIDTH if short is None else _TILE

    def compare(top: int) -> Pairs:
        """Compare a block of rows with all from its first on."""
        found, block, count = [_NO_PAIRS], _rows(rows, top, min(_BLOCK, first - top)), 0
        left = None if short is None else _turned(short[top : top + len(block)])
        for start in range(top, len(rows), width):
            proposed = None
            if left is not None and short is not None:
                proposed = _proposed(left, short[start : start + width], distance)
                if proposed is None:
                    continue
            if proposed is None or len(proposed[0]) > _FEW:
                found.append(_within(block, _rows(rows, start, width), top, start, distance))
            else:
                others = torch.from_numpy(np.array(rows[start + proposed[1].numpy()], np.float32))
                found.append(_decided(block[proposed[0]], others, *proposed, top, start, distance))
            count += len(found[-1])
            if count > MOST_PAIRS:
                raise too_many
        return _joined(found)

    found, count, threads = [_NO_PAIRS], 0, torch.get_num_threads()
    torch.set_num_threads(1)  # of each block's small products; the blocks are compared side by side
    pool = ThreadPoolExecutor(threads)
    try:
        for top, pairs in zip(
            range(0, first, _BLOCK), pool.map(compare, range(0, first, _BLOCK)), strict=True
        ):
            found.append(pairs)
            count += len(pairs)
            if count > MOST_PAIRS:
                raise too_many
            progress(min(top + _BLOCK, first))
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)
    pairs = _joined(found)
    order = np.lexsort((pairs.right, pairs.left))
    return Pairs(pairs.left[order], pairs.right[order], pairs.distances[order])


def _joined(parts: Sequence[Pairs]) -> Pairs:
    return Pairs(
        *(
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("left", "right", "distances")
        )
    )


def _rows(rows: np.ndarray, start: int, count: int) -> Float[Tensor, "b d"]:
    block = torch.from_numpy(
        np.array(rows[start : start + count], dtype=np.float32)
    )  # a copy, out of the memory map
    require_finite(block, f"vectors from row {start}")
    return block


def _projected(rows: np.ndarray) -> Float[Tensor, "n c"]:
    """Turn rows so that they are short: their places along the directions in which a sample varies
    most."""
    sample = np.asarray(rows[:: max(1, len(rows) // _SAMPLE)], np.float64)
    sample = np.nan_to_num(
        sample, nan=0, posinf=0, neginf=0
    )  # which `_rows` rejects below, with the row's number
    directions = torch.from_numpy(
        np.linalg.eigh(np.cov(sample, rowvar=False))[1][:, -_DIRECTIONS:].copy()
    )
    short = torch.empty(len(rows), _DIRECTIONS + 2)
    for start in range(0, len(rows), _WIDTH):  # in float64: only the last rounding counts
        short[start : start + _WIDTH] = _with_squares(
            (_rows(rows, start, _WIDTH).double() @ directions).float()
        )
    return short


def _with_squares(rows: Float[Tensor, "n d"]) -> Float[Tensor, "n d+2"]:
    """Append |x|² and 1 to each row x, so that one product with `_turned` rows gives squared
    distances."""
    return torch.cat(
        [rows, rows.square().sum(dim=1, keepdim=True), rows.new_ones(len(rows), 1)], dim=1
    )


def _turned(rows: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """Make (-2 x, 1, |x|²) of (x, |x|², 1)."""
    return torch.cat([-2 * rows[:, :-2], rows[:, -1:], rows[:, -2:-1]], dim=1)


def _proposed(left: Tensor, right: Tensor, limit: float) -> tuple[Tensor, Tensor] | None:
    """Find the pairs of `_turned` rows and rows `_with_squares` that may lie within a distance, by
    one float32 product.

    |x - y|² = (-2 x, 1, |x|²) · (y, |y|², 1)
    """
    values = left @ right.T
    # Higham 2002, Section 3.1: a sum of d products is wrong by at most d u times the sum of their
    # sizes; four such sums at most, and the largest length stands for all. Rounded rows add as much
    # as four more products.
    longest = max(float(left[:, -1].max()), float(right[:, -2].max()))
    bound = limit**2 + 4 * (left.shape[1] + 8) * torch.finfo(torch.float32).eps * longest
    if values.amin() > bound:  # nearly always, and far faster than to list them
        return None
    first, second = (values <= bound).nonzero(as_tuple=True)
    return first, second


def _within(left: Tensor, right: Tensor, top: int, start: int, limit: float) -> Pairs:
    """Find the pairs of one block, as row numbers; of a block on the diagonal only those above
    it."""
    proposed = _proposed(_turned(_with_squares(left)), _with_squares(right), limit)
    if proposed is None:
        return _NO_PAIRS
    parts = zip(*(torch.split(side, _EXACT) for side in proposed), strict=True)
    return _joined([_decided(left[a], right[b], a, b, top, start, limit) for a, b in parts])


def _decided(
    left: Tensor, right: Tensor, first: Tensor, second: Tensor, top: int, start: int, limit: float
) -> Pairs:
    """Keep those of some pairs that lie above the diagonal and within the distance, in float64."""
    distances = (left.double() - right.double()).norm(dim=1)
    near = (distances <= limit) & (first + top < second + start)
    return Pairs(
        (first[near] + top).numpy(), (second[near] + start).numpy(), distances[near].numpy()
    )


def connected(count: int, left: np.ndarray, right: np.ndarray) -> Int64[np.ndarray, "n"]:
    """Number the connected components of ``count`` rows that these pairs link."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    links = coo_matrix((np.ones(len(left)), (left, right)), shape=(count, count))
    return np.asarray(connected_components(links, directed=False)[1], dtype=np.int64)


Groups = list[tuple[list[int], list[float]]]


def group_pairs(count: int, pairs: Pairs) -> Groups:
    """Group ``count`` rows that near pairs link, directly or through others.

    Returns:
        rows of each group, ascending, and the distance of each to the nearest other of its group;
        the surest group
        first: by the distance of its nearest two.
    """
    nearest = np.full(count, np.inf)
    for side in (pairs.left, pairs.right):
        np.minimum.at(nearest, side, pairs.distances)
    component = connected(count, pairs.left, pairs.right)
    rows = np.flatnonzero(np.isfinite(nearest))
    rows = rows[np.argsort(component[rows], kind="stable")]
    parts = np.split(rows, np.flatnonzero(np.diff(component[rows])) + 1) if len(rows) else []
    groups = [(part.tolist(), nearest[part].tolist()) for part in parts]
    return sorted(groups, key=lambda group: (min(group[1]), group[0]))


# -- likeness of pictures -------------------------------------------------------------------------


def picture_views(image: Image.Image) -> Float32[np.ndarray, "v d"] | None:
    """Small color views of a picture and of its crops, each centered and of length 1; None where it
    is all flat."""
    small = image.convert("RGB").resize((_WHOLE, _WHOLE), Image.Resampling.BOX)
    shown = [small.resize((_VIEW, _VIEW), Image.Resampling.BOX, box) for box in _VIEWS]
    views = np.stack([np.asarray(view) for view in shown]).astype(np.float32)
    views = (views - views.mean(axis=(1, 2), keepdims=True)).reshape(len(_VIEWS), -1)
    lengths = np.linalg.norm(views, axis=1, keepdims=True)
    return None if lengths.min() < _FLAT * np.sqrt(views.shape[1]) else views / lengths


def collection_views(
    snapshot: Snapshot, progress: Progress = lambda done: None
) -> tuple[Int64[np.ndarray, "m"], Float16[np.ndarray, "m v d"]]:
    """Return the rows of a collection that have a picture to compare, and their views; kept beside
    the generation."""
    path = snapshot.folder / "views.npz"
    try:
        kept = read_arrays(path)
        rows, views = kept["rows"], kept["views"]
        if (
            views.shape == (len(rows), len(_VIEWS), 3 * _VIEW**2)
            and views.dtype == np.float16
            and len(rows)
        ):
            return rows.astype(np.int64), views
    except (FileNotFoundError, DataError, KeyError):
        pass

    def read(row: int) -> Float32[np.ndarray, "v d"] | None:
        try:
            return picture_views(snapshot.image(snapshot.items()[row].id))
        except DataError:  # a feature vector, or a file that is gone
            return None

    found = list[tuple[int, np.ndarray]]()
    with ThreadPoolExecutor(2) as pool:  # Pillow decodes outside of Python's lock
        for row, seen in enumerate(pool.map(read, range(len(snapshot)))):
            if seen is not None:
                found.append((row, seen.astype(np.float16)))
            progress(row + 1)
    if len(found) < 2:
        fault = (
            f"duplicates are found by pictures, and {len(found)} of {len(snapshot)} items "
            "have a readable one"
        )
        raise DataError(f"{fault}. Compare the embeddings instead, with --embeddings --distance D.")
    rows, views = (
        np.array([row for row, _ in found], np.int64),
        np.stack([seen for _, seen in found]),
    )
    if snapshot.folder.is_dir():
        write_arrays(path, {"rows": rows, "views": views})
    return rows, views


def alike_pairs(views: Float[np.ndarray, "n v d"], distance: float) -> Pairs:
    """Find the pairs of pictures of which the whole of one lies within a distance of a view of the
    other."""
    count = len(views)
    near = close_pairs(views.transpose(1, 0, 2).reshape(-1, views.shape[2]), distance, first=count)
    left, right = (
        np.minimum(near.left, near.right % count),
        np.maximum(near.left, near.right % count),
    )
    order = np.lexsort((near.distances, right, left))
    order = order[left[order] != right[order]]
    _, first = np.unique(
        left[order] * count + right[order], return_index=True
    )  # the nearest of each pair
    order = order[first]
    return Pairs(left[order], right[order], near.distances[order])


def copies(image: Image.Image, rng: np.random.Generator) -> Iterator[Image.Image]:
    """Copies as people make them: re-encoded, resized, cropped, brightened, and all of that at
    once."""
    image = image.convert("RGB")
    width, height = image.size
    share = rng.uniform(0.85, 0.95)
    left, top = (1 - share) * rng.random() * width, (1 - share) * rng.random() * height
    cropped = image.crop(
        (round(left), round(top), round(left + share * width), round(top + share * height))
    )
    yield _encoded(image)
    yield image.resize((max(1, width // 2), max(1, height // 2)))
    yield cropped
    yield ImageEnhance.Brightness(image).enhance(rng.uniform(0.8, 1.2))
    yield _encoded(
        ImageEnhance.Brightness(cropped.resize((max(1, width // 2), max(1, height // 2)))).enhance(
            1.1
        )
    )


def _encoded(image: Image.Image) -> Image.Image:
    file = BytesIO()
    image.save(file, "JPEG", quality=40)
    return open_image(file)


@dataclass(frozen=True)
class Likeness:
    """How near pictures are that are copies, measured on planted ones.

    Attributes:
        distance: up to which two pictures are taken for copies of one another.
        recall: share of the planted copies that lie within it of their original.
        precision: share of right ones among these and what lies within it of as many mirror images.
        planted: how many copies the recall is of; others set the distance.
        mirrored: how many mirror images the precision is of.
    """

    distance: float
    recall: float
    precision: float
    planted: int
    mirrored: int

    @property
    def words(self) -> str:
        return (
            f"At a distance of {self.distance:.4f}, {self.recall:.1%} of {self.planted} copies "
            "planted among these "
            "pictures (re-encoded, resized, cropped by 5 to 15 %, brightened, all at once) are "
            "found, and "
            f"{self.precision:.1%} of what is found is right, by {self.mirrored} mirror images, "
            "which are copies of "
            f"nothing."
        )


def calibrate_likeness(
    snapshot: Snapshot,
    rows: Int64[np.ndarray, "m"],
    views: Float[np.ndarray, "m v d"],
    *,
    seed: int = 0,
) -> Likeness:
    """Set the distance where copies of half of some pictures are found best, and measure it on the
    other half.

    Best is by F1, with what mirror images are near to counted as often as among pictures that
    rarely have a copy.
    """
    rng = np.random.default_rng(seed)
    chosen, mirrored = rng.permutation(len(rows))[:_PLANTED], rng.permutation(len(rows))[:_MIRRORED]
    planted = [
        (place, seen)
        for place in chosen.tolist()
        for copy in copies(snapshot.image(snapshot.items()[rows[place]].id), rng)
        if (seen := picture_views(copy)) is not None
    ]
    if not planted:
        raise DataError(
            "copies of these pictures show too little to be compared. Name a distance with "
            "--distance."
        )
    originals, copied = (
        np.array([place for place, _ in planted]),
        np.stack([seen for _, seen in planted]),
    )
    own = _distances(copied, views)[np.arange(len(planted)), originals]
    turned = views[mirrored].reshape(-1, len(_VIEWS), _VIEW, _VIEW, 3)[:, :, :, ::-1]
    others = _distances(turned.reshape(len(mirrored), len(_VIEWS), -1).astype(np.float32), views)
    others[np.arange(len(mirrored)), mirrored] = np.inf  # many a thing is symmetric
    half = np.isin(originals, chosen[: (len(chosen) + 1) // 2])

    def shares(within: float, own: np.ndarray, others: np.ndarray) -> tuple[float, float]:
        """Recall of the copies, and how many wrong ones lie within the distance of a picture."""
        return float((own <= within).mean()), float((others <= within).sum() / len(others))

    def quality(within: float) -> float:
        right, wrong = shares(within, own[half], others[::2])
        return 2 * right / (right + wrong / _COPIED + 1)

    distance = float(max(np.unique(own[half]), key=quality)) + 1e-3  # views are kept in float16
    rest = own[~half] if not half.all() else own
    right, wrong = shares(distance, rest, others[1::2] if len(others) > 1 else others)
    return Likeness(distance, right, right / max(1e-9, right + wrong), len(rest), len(others[1::2]))


def _distances(
    copied: Float[np.ndarray, "q v d"], views: Float[np.ndarray, "m v d"]
) -> Float32[np.ndarray, "q m"]:
    """Distances of pictures: of the whole of one and the nearest view of the other."""
    whole, seen = torch.from_numpy(copied[:, 0]), torch.from_numpy(copied)
    columns = []
    for some in np.array_split(views, max(1, len(views) // _BLOCK)):
        others = torch.from_numpy(some.astype(np.float32))
        there = (
            torch.cdist(whole, others.flatten(0, 1)).view(len(whole), *others.shape[:2]).amin(dim=2)
        )
        back = (
            torch.cdist(others[:, 0], seen.flatten(0, 1))
            .view(len(others), *seen.shape[:2])
            .amin(dim=2)
            .T
        )
        columns.append(torch.minimum(there, back))
    return torch.cat(columns, dim=1).numpy()


def duplicate_pairs(
    snapshot: Snapshot,
    rows: Int64[np.ndarray, "m"],
    views: Float[np.ndarray, "m v d"],
    distance: float,
) -> Pairs:
    """Find pairs of items with alike pictures, or of equal content, where the first is paired with
    all others."""
    near = alike_pairs(views, distance)
    of_content, equal = dict[str, int](), list[tuple[int, int]]()
    for row, item in enumerate(snapshot.items()):
        if item.digest and (other := of_content.setdefault(item.digest, row)) != row:
            equal.append((other, row))
    same = np.array(equal, np.int64).reshape(-1, 2)
    return _joined(
        [
            Pairs(same[:, 0], same[:, 1], np.zeros(len(same))),
            Pairs(rows[near.left], rows[near.right], near.distances),
        ]
    )


def duplicate_contents(snapshot: Snapshot, found: Groups, distance: float, words: str) -> Contents:
    """Fill the page of near duplicates: surest group first; groups whose labels differ are
    marked."""
    groups = []
    for number, (rows, nearest) in enumerate(found, 1):
        labels = sorted(
            {label for row in rows if (label := snapshot.items()[row].label) is not None}
        )
        more = ", ..." if len(labels) > 4 else ""
        warning = f"labels differ: {', '.join(labels[:4])}{more}" if len(labels) > 1 else ""
        groups.append(Group(number, rows, nearest, f"Group {number}: {len(rows):,} items", warning))
    items = sum(len(group.rows) for group in groups)
    facts = [
        ("groups", f"{len(groups):,}"),
        ("items in them", f"{items:,}"),
        ("distance", f"{distance:.4g}"),
    ]
    if disagreeing := sum(bool(group.warning) for group in groups):
        facts.append(("groups with different labels", f"{disagreeing:,}"))
    note = (
        "Nothing was removed. The number below a picture is its distance to the nearest other "
        "of its group."
    )
    empty = "No two items lie within the distance."
    return Contents("Near duplicates", facts, [words, note], groups, _SHOWN, empty)

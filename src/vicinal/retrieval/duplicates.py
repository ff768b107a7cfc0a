"""Near duplicates: copies, crops, re-encodings and resizes of one picture; nothing is ever removed
here.

Whether two files show the same picture is a matter of their pixels, not of their class: the run's
model is not asked. A picture is compared by small color views of the whole and of nine crops: two
are alike where the whole of one is near a view of the other. How near is near enough is measured on
copies planted among the collection's own pictures, and on mirror images of them, which are copies
of nothing.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO

import numpy as np
import torch
from jaxtyping import Float, Float16, Float32, Float64, Int64
from PIL import Image, ImageEnhance

from vicinal.data.records import Progress
from vicinal.errors import DataError, few
from vicinal.files import open_image, read_arrays, write_arrays
from vicinal.retrieval.collection import Snapshot
from vicinal.retrieval.contact_sheets import Contents, Group

MOST_PAIRS = 20_000_000  # found; beyond, the distance is no longer one between near rows
_BLOCK = 1024  # rows that are compared with others at a time
_TILE = 512  # of the others: a product then stays in a core's cache
_DIRECTIONS = 32  # in which long rows are compared first
_SAMPLE = 5000  # rows that tell which these are
_EXACT = 8192  # pairs at a time whose distance is taken from differences
_SHOWN = 24  # pictures of a group
_VIEW = 8  # pixels of a view's side
_WHOLE = 64  # pixels of a side from which views are taken
_CROP = 0.87  # of the sides; with it, crops down to about 0.8 are found
_EDGE = _WHOLE * (1 - _CROP) / 2
_VIEWS = [(0.0, 0.0, float(_WHOLE), float(_WHOLE))] + [
    (x * _EDGE, y * _EDGE, x * _EDGE + _WHOLE * _CROP, y * _EDGE + _WHOLE * _CROP)
    for x in range(3)
    for y in range(3)
]
# standard deviation of gray levels below which a picture shows nothing that could be compared
_FLAT = 4.0
_PLANTED = 100  # pictures of which copies are planted
_MIRRORED = 1000  # mirror images
# share of the pictures that is thought to have a copy: one in fifty, where every planted one has
_COPIED = 0.02


# -- near rows ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pairs:
    """Pairs of rows, each once, ``left < right``.

    Attributes:
        left: first row of each pair.
        right: second row.
        distances: between the two.
    """

    left: Int64[np.ndarray, "p"]
    right: Int64[np.ndarray, "p"]
    distances: Float64[np.ndarray, "p"]


def close_pairs(
    rows: Float[np.ndarray, "n d"],
    distance: float,
    *,
    first: int | None = None,
    progress: Progress = lambda done: None,
) -> Pairs:
    """Find the pairs of rows with at most this Euclidean distance, ordered by ``left``.

    Long rows are compared first in the few directions in which they vary most, where no two are
    farther apart than in all of them. Distances are then taken from differences, so that equal
    rows have 0.

    Args:
        rows: may be memory-mapped.
        distance: 0 or more; 0 finds equal rows.
        first: only pairs with one of so many rows at the beginning.
        progress: called with how many rows have met all others.
    """
    first = len(rows) if first is None else first
    found = [np.empty((3, 0))]
    if not first:
        return Pairs(np.empty(0, int), np.empty(0, int), np.empty(0))
    short = torch.tensor(_projected(rows))
    short = short - short.mean(dim=0)
    squares = short.square().sum(dim=1, keepdim=True)
    ones = torch.ones_like(squares)
    # |x - y|² = (-2 x, |x|², 1) · (y, 1, |y|²)
    lefts = torch.cat([-2 * short, squares, ones], dim=1)
    rights = torch.cat([short, ones, squares], dim=1)
    # Higham 2002, Section 3.1: what a float32 product and its sums can be wrong by.
    slack = 4 * (rights.shape[1] + 8) * torch.finfo(torch.float32).eps * float(squares.max())
    limit = distance**2 + slack
    count = 0
    for start in range(0, first, _BLOCK):
        block = lefts[start : min(first, start + _BLOCK)]
        for top in range(start, len(rows), _TILE):
            values = block @ rights[top : top + _TILE].T
            if values.amin() > limit:  # nearly always, and far faster than to list them
                continue
            ends = ((values <= limit).nonzero() + torch.tensor([start, top])).T.numpy()
            ends = ends[:, ends[0] < ends[1]]
            for part in np.array_split(ends, ends.shape[1] // _EXACT + 1, axis=1):
                both = np.asarray(rows[part], np.float64)
                far = np.linalg.norm(both[0] - both[1], axis=1)
                found.append(np.concatenate([part, far[None]])[:, far <= distance])
                count += found[-1].shape[1]
        if count > MOST_PAIRS:
            raise DataError(
                f"within a distance of {distance:g} lie more than {MOST_PAIRS:,} pairs of "
                f"{len(rows):,} rows. Ask for a smaller distance."
            )
        progress(start + len(block))
    left, right, distances = np.concatenate(found, axis=1)
    order = np.lexsort((right, left))
    return Pairs(left[order].astype(int), right[order].astype(int), distances[order])


def _projected(rows: Float[np.ndarray, "n d"]) -> Float32[np.ndarray, "n c"]:
    """Return many long rows by their places along the directions in which a sample varies most."""
    from sklearn.decomposition import PCA

    if len(rows) <= _SAMPLE or rows.shape[1] <= 2 * _DIRECTIONS:
        return np.asarray(rows, np.float32)
    model = PCA(_DIRECTIONS, svd_solver="covariance_eigh").fit(rows[:: len(rows) // _SAMPLE])
    parts = np.array_split(rows, len(rows) // _SAMPLE)
    return np.concatenate([model.transform(part).astype(np.float32) for part in parts])


Groups = list[tuple[list[int], list[float]]]


def group_pairs(count: int, pairs: Pairs) -> Groups:
    """Group ``count`` rows that near pairs link, directly or through others.

    Returns:
        rows of each group, ascending, and the distance of each to the nearest other of its group;
        the surest group first: by the distance of its nearest two.
    """
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    nearest = np.full(count, np.inf)
    for side in (pairs.left, pairs.right):
        np.minimum.at(nearest, side, pairs.distances)
    links = coo_matrix((np.ones(len(pairs.left)), (pairs.left, pairs.right)), shape=(count, count))
    component = connected_components(links, directed=False)[1]
    groups = dict[int, tuple[list[int], list[float]]]()
    for row in np.flatnonzero(np.isfinite(nearest)).tolist():
        rows, distances = groups.setdefault(int(component[row]), ([], []))
        rows.append(row)
        distances.append(float(nearest[row]))
    return sorted(groups.values(), key=lambda group: (min(group[1]), group[0]))


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
        return kept["rows"], kept["views"]
    except (FileNotFoundError, DataError, KeyError):
        pass

    def read(id: int) -> Float32[np.ndarray, "v d"] | None:
        try:
            return picture_views(snapshot.image(id))
        except DataError:  # a feature vector, or a file that is gone
            return None

    rows = list[int]()
    views = list[np.ndarray]()
    with ThreadPoolExecutor(2) as pool:  # Pillow decodes outside of Python's lock
        for row, seen in enumerate(pool.map(read, [item.id for item in snapshot.items()])):
            if seen is not None:
                rows.append(row)
                views.append(seen.astype(np.float16))
            progress(row + 1)
    if len(rows) < 2:
        fault = (
            f"duplicates are found by pictures, and {len(rows)} of {len(snapshot)} items "
            "have a readable one"
        )
        raise DataError(f"{fault}. Compare the embeddings instead, with --embeddings --distance D.")
    found = np.array(rows, np.int64), np.stack(views)
    if snapshot.folder.is_dir():
        write_arrays(path, {"rows": found[0], "views": found[1]})
    return found


def copies(image: Image.Image, rng: np.random.Generator) -> Iterator[Image.Image]:
    """Copies as people make them: re-encoded, resized, cropped, brightened, and all of that at
    once."""
    image = image.convert("RGB")
    width, height = image.size
    half = max(1, width // 2), max(1, height // 2)
    share = rng.uniform(0.85, 0.95)
    left = (1 - share) * rng.random() * width
    top = (1 - share) * rng.random() * height
    box = (round(left), round(top), round(left + share * width), round(top + share * height))
    cropped = image.crop(box)
    yield _encoded(image)
    yield image.resize(half)
    yield cropped
    yield ImageEnhance.Brightness(image).enhance(rng.uniform(0.8, 1.2))
    yield _encoded(ImageEnhance.Brightness(cropped.resize(half)).enhance(1.1))


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
            "planted among these pictures (re-encoded, resized, cropped by 5 to 15 %, brightened, "
            f"all at once) are found, and {self.precision:.1%} of what is found is right, by "
            f"{self.mirrored} mirror images, which are copies of nothing."
        )


def calibrate_likeness(
    snapshot: Snapshot, rows: Int64[np.ndarray, "m"], views: Float[np.ndarray, "m v d"]
) -> Likeness:
    """Set the distance where copies of half of some pictures are found best, and measure it on the
    other half.

    Best is by F1, with what mirror images are near to counted as often as among pictures that
    rarely have a copy.
    """
    rng = np.random.default_rng(0)
    chosen = rng.permutation(len(rows))[:_PLANTED]
    mirrored = rng.permutation(len(rows))[:_MIRRORED]
    originals = list[int]()
    planted = list[np.ndarray]()
    for place in chosen.tolist():
        for copy in copies(snapshot.image(snapshot.items()[rows[place]].id), rng):
            if (seen := picture_views(copy)) is not None:
                originals.append(place)
                planted.append(seen)
    if not planted:
        raise DataError(
            "copies of these pictures show too little to be compared. Name a distance with "
            "--distance."
        )
    own = _distances(np.stack(planted), views)[np.arange(len(planted)), originals]
    turned = views[mirrored].reshape(-1, len(_VIEWS), _VIEW, _VIEW, 3)[:, :, :, ::-1]
    others = _distances(turned.reshape(len(mirrored), len(_VIEWS), -1), views)
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
    left = torch.from_numpy(copied.astype(np.float32))
    columns = []
    for some in np.array_split(views, len(views) // _BLOCK + 1):
        right = torch.from_numpy(some.astype(np.float32))
        there = torch.cdist(left[:, 0], right.transpose(0, 1)).amin(dim=0)
        back = torch.cdist(right[:, 0], left.transpose(0, 1)).amin(dim=0)
        columns.append(torch.minimum(there, back.T))
    return torch.cat(columns, dim=1).numpy()


def duplicate_pairs(
    snapshot: Snapshot,
    rows: Int64[np.ndarray, "m"],
    views: Float[np.ndarray, "m v d"],
    distance: float,
) -> Pairs:
    """Find the pairs of items of which the whole of one picture lies within a distance of a view of
    the other, and those of equal content, where the first is paired with all others."""
    count = len(views)
    near = close_pairs(views.transpose(1, 0, 2).reshape(-1, views.shape[2]), distance, first=count)
    ends = np.sort(rows[np.stack([near.left, near.right % count])], axis=0)
    of_content = dict[str, int]()
    equal = [
        (other, row)
        for row, item in enumerate(snapshot.items())
        if item.digest and (other := of_content.setdefault(item.digest, row)) != row
    ]
    ends = np.concatenate([np.array(equal, int).reshape(-1, 2).T, ends], axis=1)
    distances = np.concatenate([np.zeros(len(equal)), near.distances])
    order = np.lexsort((distances, ends[1], ends[0]))
    order = order[ends[0, order] != ends[1, order]]
    _, nearest = np.unique(ends[:, order], axis=1, return_index=True)  # of each pair
    order = order[nearest]
    return Pairs(ends[0, order], ends[1, order], distances[order])


def duplicate_contents(snapshot: Snapshot, found: Groups, distance: float, words: str) -> Contents:
    """Fill the page of near duplicates: surest group first; groups whose labels differ are
    marked."""
    groups = []
    for number, (rows, nearest) in enumerate(found, 1):
        labels = sorted({snapshot.items()[row].label for row in rows} - {None}, key=str)
        warning = f"labels differ: {few(labels, 4)}" if len(labels) > 1 else ""
        groups.append(Group(number, rows, nearest, f"Group {number}: {len(rows):,} items", warning))
    facts = [
        ("groups", f"{len(groups):,}"),
        ("items in them", f"{sum(len(group.rows) for group in groups):,}"),
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

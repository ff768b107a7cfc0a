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
from io import BytesIO

import numpy as np
import torch
from jaxtyping import Float, Int64
from PIL import Image, ImageEnhance

from vicinal.data.records import Progress
from vicinal.errors import ConfigError, DataError, few
from vicinal.files import open_image
from vicinal.retrieval.collection import Snapshot
from vicinal.retrieval.items import Rows, Vector, Vectors
from vicinal.retrieval.pages import Group, Page

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
_VIEWS = [(0.0, 0.0, 64.0, 64.0)] + [
    (x, y, x + _WHOLE * _CROP, y + _WHOLE * _CROP)
    for x in (0, _EDGE, 2 * _EDGE)
    for y in (0, _EDGE, 2 * _EDGE)
]
# standard deviation of gray levels below which a picture shows nothing that could be compared
_FLAT = 4.0
_PLANTED = 100  # pictures of which copies are planted
_MIRRORED = 1000  # mirror images
# share of the pictures that is thought to have a copy: one in fifty, where every planted one has
_COPIED = 0.02


# -- near rows ------------------------------------------------------------------------------------


Pairs = tuple[Int64[np.ndarray, "2 p"], Vector]  # of rows, each once; distances
Views = Float[np.ndarray, "m v d"]


def close_pairs(rows: Vectors, distance: float, *, first: int | None = None) -> Pairs:
    """Find the pairs of rows with at most this Euclidean distance, the lower row first, in order.

    Long rows are compared first in the few directions in which they vary most, where no two are
    farther apart than in all of them. Distances are then taken from differences, so that equal
    rows have 0.

    Args:
        rows: the rows.
        distance: 0 or more; 0 finds equal rows.
        first: only pairs with one of so many rows at the beginning.
    """
    first = len(rows) if first is None else first
    found = [np.empty((3, 0))]
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
    for start in range(0, first, _BLOCK):
        block = lefts[start : min(first, start + _BLOCK)]
        for top in range(start, len(rows), _TILE):
            values = block @ rights[top : top + _TILE].T
            if values.amin() > limit:  # nearly always, and far faster than to list them
                continue
            ends = ((values <= limit).nonzero() + torch.tensor([start, top])).T.numpy()
            ends = ends[:, ends[0] < ends[1]]
            for part in np.array_split(ends, ends.shape[1] // _EXACT + 1, axis=1):
                left, right = np.asarray(rows[part], np.float64)
                far = np.linalg.norm(left - right, axis=1)
                found.append(np.concatenate([part, far[None]])[:, far <= distance])
        if sum(part.shape[1] for part in found) > MOST_PAIRS:
            raise DataError(
                f"within a distance of {distance:g} lie more than {MOST_PAIRS:,} pairs of "
                f"{len(rows):,} rows. Ask for a smaller distance."
            )
    pairs = np.concatenate(found, axis=1)
    pairs = pairs[:, np.lexsort((pairs[1], pairs[0]))]
    return pairs[:2].astype(int), pairs[2]


def distinct_pairs(ends: Int64[np.ndarray, "2 p"], distances: Vector) -> Pairs:
    """Return pairs of different rows, each once with its least distance, in the order of
    `close_pairs`."""
    order = distances.argsort(kind="stable")
    ends, first = np.unique(np.sort(ends[:, order], axis=0), axis=1, return_index=True)
    apart = ends[0] != ends[1]
    return ends[:, apart], distances[order[first[apart]]]


def _projected(rows: Vectors) -> Vectors:
    """Return many long rows by their places along the directions in which a sample varies most."""
    from sklearn.decomposition import PCA

    if len(rows) <= _SAMPLE or rows.shape[1] <= 2 * _DIRECTIONS:
        return np.asarray(rows, np.float32)
    model = PCA(_DIRECTIONS, svd_solver="covariance_eigh").fit(rows[:: len(rows) // _SAMPLE])
    parts = np.array_split(rows, len(rows) // _SAMPLE)
    return np.concatenate([model.transform(part).astype(np.float32) for part in parts])


def group_pairs(count: int, pairs: Pairs) -> list[tuple[list[int], list[float]]]:
    """Group ``count`` rows that near pairs link, directly or through others.

    Returns:
        rows of each group, ascending, and the distance of each to the nearest other of its group;
        the surest group first: by the distance of its nearest two.
    """
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    ends, distances = pairs
    nearest = np.full(count, np.inf)
    for side in ends:
        np.minimum.at(nearest, side, distances)
    links = coo_matrix((np.ones(len(distances)), ends), shape=(count, count))
    component = connected_components(links, directed=False)[1]
    groups = dict[int, tuple[list[int], list[float]]]()
    for row in np.flatnonzero(np.isfinite(nearest)).tolist():
        rows, near = groups.setdefault(int(component[row]), ([], []))
        rows.append(row)
        near.append(float(nearest[row]))
    return sorted(groups.values(), key=lambda group: (min(group[1]), group[0]))


# -- likeness of pictures -------------------------------------------------------------------------


def picture_views(image: Image.Image) -> Vectors | None:
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
) -> tuple[Rows, Views]:
    """Return the rows of a collection that have a picture to compare, and their views."""

    def read(id: int) -> Vectors | None:
        try:
            return picture_views(snapshot.image(id))
        except DataError:  # a feature vector, or a file that is gone
            return None

    found = dict[int, np.ndarray]()
    with ThreadPoolExecutor(2) as pool:  # Pillow decodes outside of Python's lock
        for row, seen in enumerate(pool.map(read, [item.id for item in snapshot.items])):
            if seen is not None:
                found[row] = seen.astype(np.float16)
            progress(row + 1)
    if len(found) < 2:
        raise DataError(
            f"duplicates are found by pictures, and {len(found)} of {len(snapshot)} items have a "
            "readable one. Name their folder with --images."
        )
    return np.array([*found], np.int64), np.stack([*found.values()])


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


def calibrate_likeness(snapshot: Snapshot, rows: Rows, views: Views) -> tuple[float, str]:
    """Return the distance where copies of half of some pictures are found best, and in words how
    many copies of the other half lie within it of their original, and how much of what does is
    right.

    Best is by F1, with what mirror images are near to counted as often as among pictures that
    rarely have a copy.
    """
    rng = np.random.default_rng(0)
    chosen = rng.permutation(len(rows))[:_PLANTED]
    mirrored = rng.permutation(len(rows))[:_MIRRORED]
    originals = list[int]()
    planted = list[np.ndarray]()
    for place in chosen.tolist():
        for copy in copies(snapshot.image(snapshot.items[rows[place]].id), rng):
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

    distance = float(max(np.unique(own[half]), key=quality)) + 1e-3  # views are float16
    rest = own if half.all() else own[~half]
    right, wrong = shares(distance, rest, others[1::2])
    precision = right / max(1e-9, right + wrong)
    words = (
        f"At a distance of {distance:.4f}, {right:.1%} of {len(rest)} copies planted among these "
        "pictures (re-encoded, resized, cropped by 5 to 15 %, brightened, all at once) are found, "
        f"and {precision:.1%} of what is found is right, by {len(others[1::2])} mirror images, "
        "which are copies of nothing."
    )
    return distance, words


def _distances(copied: Views, views: Views) -> Vectors:
    """Distances of pictures: of the whole of one and the nearest view of the other."""
    left = torch.from_numpy(copied.astype(np.float32))
    columns = []
    for some in np.array_split(views, len(views) // _BLOCK + 1):
        right = torch.from_numpy(some.astype(np.float32))
        there = torch.cdist(left[:, 0], right.transpose(0, 1)).amin(dim=0)
        back = torch.cdist(right[:, 0], left.transpose(0, 1)).amin(dim=0)
        columns.append(torch.minimum(there, back.T))
    return torch.cat(columns, dim=1).numpy()


def duplicate_pairs(snapshot: Snapshot, rows: Rows, views: Views, distance: float) -> Pairs:
    """Find the pairs of items of which the whole of one picture lies within a distance of a view of
    the other, and those of equal content, where the first is paired with all others."""
    count = len(views)
    near, far = close_pairs(
        views.transpose(1, 0, 2).reshape(-1, views.shape[2]), distance, first=count
    )
    first = dict[str, int]()  # row of each content
    equal = [
        (row, first.setdefault(item.digest, row))
        for row, item in enumerate(snapshot.items)
        if item.digest
    ]
    ends = np.concatenate([rows[near % count], np.array(equal, int).reshape(-1, 2).T], axis=1)
    return distinct_pairs(ends, np.concatenate([far, np.zeros(len(equal))]))


def duplicate_page(
    snapshot: Snapshot,
    distance: float | None = None,
    *,
    embeddings: bool = False,
    progress: Progress = lambda done: None,
) -> Page:
    """Find near duplicates: surest group first; groups whose labels differ are marked.

    Args:
        snapshot: the collection.
        distance: up to which pictures are copies; None calibrates it.
        embeddings: whether to compare these within the distance, instead of pictures.
        progress: called with how many pictures are read.
    """
    if distance is not None and not 0 <= distance < float("inf"):
        raise ConfigError(f"a distance is 0 or more; got --distance {distance}.")
    words = "The distance was named."
    if embeddings and distance is not None:
        pairs = close_pairs(snapshot.euclidean_vectors(), distance)
    else:
        rows, views = collection_views(snapshot, progress)
        if distance is None:
            distance, words = calibrate_likeness(snapshot, rows, views)
        pairs = duplicate_pairs(snapshot, rows, views, distance)
    found = group_pairs(len(snapshot), pairs)
    groups = []
    for number, (members, nearest) in enumerate(found, 1):
        labels = sorted({snapshot.items[row].label for row in members} - {None}, key=str)
        warning = f"labels differ: {few(labels, 4)}" if len(labels) > 1 else ""
        groups.append(Group(members, nearest, f"Group {number}: {len(members):,} items", warning))
    facts = [
        ("groups", f"{len(groups):,}"),
        ("items in them", f"{sum(len(group.rows) for group in groups):,}"),
        ("distance", f"{distance:.4g}"),
        ("groups with different labels", f"{sum(bool(group.warning) for group in groups):,}"),
    ]
    note = (
        "Nothing was removed. The number below a picture is its distance to the nearest other "
        "of its group."
    )
    return Page("Near duplicates", facts, [words, note], groups, _SHOWN)

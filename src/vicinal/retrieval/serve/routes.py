"""Search by picture, by item, by vector and by class; the items, listed, one by one, and as
pictures."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from threading import Lock
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Depends, Path, Query, Request, Response
from PIL import Image
from pydantic import BaseModel, BeforeValidator, Field

from vicinal.data.images import upright
from vicinal.data.table import LONGEST
from vicinal.errors import DataError
from vicinal.retrieval.collection import Snapshot
from vicinal.retrieval.query import conditions, query_of
from vicinal.retrieval.serve.guard import (
    FORMATS,
    MOST,
    UPLOAD,
    Limits,
    RequestError,
    decoded,
    text,
)
from vicinal.retrieval.serve.library import Library
from vicinal.retrieval.store import Item

_LARGEST = 2**63 - 1  # of an id
# of a coordinate: above, a float32 sum of 65,536 squares could overflow, and no embedding comes
# near
_MOST = 1e9
_SMALL = 64  # pixels; below, PNG is as small as JPEG and shows no artifacts
_LARGE = 1280  # pixels of the longer side of a picture that is shown large

By = Literal["image", "item", "text", "vector", "class"]
Text = Annotated[str, BeforeValidator(text)]
Id = Annotated[int, Path(ge=0, le=_LARGEST, description="An item's id.")]
Label = Annotated[str | None, Query(max_length=1000, description="Only items of this class.")]
Where = Annotated[
    list[str] | None,
    Query(max_length=16, description="Only items with this metadatum, as `key=value`; repeatable."),
]
Coordinate = Annotated[float, Field(ge=-_MOST, le=_MOST, allow_inf_nan=False)]
MaxDistance = Annotated[
    float | None,
    Query(
        ge=0,
        le=_MOST,
        allow_inf_nan=False,
        description="Farther is no match; by default as calibrated.",
    ),
]
Named = Annotated[
    int | None,
    Query(
        ge=0, le=_LARGEST, description="The generation this address is for; lets browsers keep it."
    ),
]
K = Annotated[int, Query(ge=1, le=MOST, description="How many neighbors.")]
Listed = Annotated[int, Query(ge=1, le=MOST, description="How many in one answer.")]
Offset = Annotated[int, Query(ge=0, le=2**31, description="How many to leave out before them.")]
_BYTES = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_IMAGE = f"The bytes of an image file: {', '.join(FORMATS)}, detected from their content."
_UPLOAD = {"requestBody": {"required": True, "description": _IMAGE, "content": _BYTES}}
_PICTURE: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The picture, encoded anew.",
        "content": {"image/jpeg": {}, "image/png": {}},
    }
}


class Answer(BaseModel):
    generation: int = Field(
        description="The generation of the collection that this whole answer is from."
    )


class ItemAnswer(BaseModel):
    id: int = Field(description="Stays with the item through all generations.")
    path: Text = Field(description="Where it lies below the folder that was indexed.")
    label: Text | None = Field(description="Its class, where one is known.")
    metadata: dict[Text, Text]


class MatchAnswer(ItemAnswer):
    distance: float
    matches: bool | None = Field(
        description="Whether it is near enough; null where there is no threshold."
    )


class ThresholdAnswer(BaseModel):
    """The distance beyond which a neighbor is no match."""

    distance: float
    false_match_rate: float | None = Field(
        description="Share of pairs of different validation classes that lie nearer; null where "
        "the request named it."
    )


class ClassCount(BaseModel):
    label: Text
    items: int


class Classes(Answer):
    classes: list[ClassCount]


class OneItem(Answer):
    item: ItemAnswer


class Items(Answer):
    total: int = Field(description="How many there are in all pages together.")
    offset: int
    items: list[ItemAnswer]


class Found(Answer):
    """Neighbors, nearest first."""

    by: By
    query: ItemAnswer | None = Field(
        description="The item searched from, which is not among the matches."
    )
    threshold: ThresholdAnswer | None
    no_match: bool | None = Field(
        description="True where nothing lies within the threshold; null without one."
    )
    matches: list[MatchAnswer]
    embedding_seconds: float | None = Field(
        description="Decoding and embedding of a picture or text."
    )
    search_seconds: float


class Vector(BaseModel):
    """A search by vector."""

    vector: list[Coordinate] = Field(
        min_length=1, max_length=65_536, description="An embedding of this run's model."
    )


@dataclass(frozen=True)
class _Options:
    """What all searches take: how many neighbors, which items may be found, and where matches
    end."""

    k: int
    where: Mapping[str, str]
    max_distance: float | None


async def _body(request: Request) -> bytes:
    return await request.body()  # which the guard has read, within its limits


def search_routes(library: Library, limits: Limits) -> APIRouter:
    """Route the searches; each works on one snapshot from beginning to end."""
    routes = APIRouter(tags=["search"])
    one_at_a_time = Lock()  # an embedding takes the cores, and a picture much memory

    async def options(
        k: K = 24, label: Label = None, where: Where = None, max_distance: MaxDistance = None
    ) -> _Options:
        return _Options(k, conditions(where or (), label), max_distance)

    Options = Annotated[_Options, Depends(options)]

    def found(
        by: By,
        start: Callable[[Snapshot], tuple[Item | None, np.ndarray]],
        options: _Options,
        embedding_seconds: float | None = None,
    ) -> Found:
        """Search once on one snapshot; ``start`` gives its item, if it is by one, and its
        vector."""
        snapshot = library.snapshot()
        query, vector = start(snapshot)
        if vector.shape != (snapshot.dim,):
            asked = f"a vector of {snapshot.dim} numbers, as this collection holds."
            raise RequestError(
                422, asked, f"{vector.size} numbers.", "Send an embedding of this run's model."
            )
        began = time.perf_counter()
        exclude = () if query is None else (query.id,)
        near = snapshot.search(vector[None], options.k, where=options.where, exclude=exclude)[0]
        seconds = time.perf_counter() - began
        threshold = threshold_of(library, options.max_distance)
        within = [
            None if threshold is None else match.distance <= threshold.distance for match in near
        ]
        judged = zip(near, within, strict=True)
        return Found(
            generation=snapshot.generation,
            by=by,
            query=None if query is None else ItemAnswer(**vars(query)),
            threshold=threshold,
            no_match=None if threshold is None else not any(within),
            matches=[
                MatchAnswer(**vars(one.item), distance=one.distance, matches=ok)
                for one, ok in judged
            ],
            embedding_seconds=embedding_seconds,
            search_seconds=seconds,
        )

    def timed(embed: Callable[[], np.ndarray]) -> tuple[np.ndarray, float]:
        with one_at_a_time:
            start = time.perf_counter()
            return embed(), time.perf_counter() - start

    @routes.post(UPLOAD, openapi_extra=_UPLOAD, summary="Search by a picture")
    def by_image(data: Annotated[bytes, Depends(_body)], options: Options) -> Found:
        """Neighbors of an uploaded picture, whose bytes are the body (`curl --data-binary
        @bird.jpg`)."""
        embed = library.embed
        if embed is None:
            got = (
                f"this run embeds {'texts' if library.kind == 'text' else 'feature vectors'}, "
                "not pictures."
            )
            raise RequestError(415, "a search by picture.", got, "Search by item or by vector.")
        vector, seconds = timed(lambda: embed(decoded(data, limits)))
        return found("image", lambda _: (None, vector), options, seconds)

    @routes.get("/api/search/item/{id}", summary="Search by an item")
    def by_item(id: Id, options: Options) -> Found:
        """Neighbors of an item of the collection, without itself."""
        return found("item", lambda snapshot: (item_of(snapshot, id), snapshot.vector(id)), options)

    @routes.get("/api/search/text", summary="Search by a text")
    def by_text(
        q: Annotated[str, Query(min_length=1, max_length=LONGEST, description="What to look for.")],
        options: Options,
    ) -> Found:
        """Neighbors of what a text describes, where the run has a text encoder."""
        reader = library.reader
        if reader is None:
            got = "this run has no text encoder."
            raise RequestError(
                415, "a search by text.", got, "Train on a table with the columns path and text."
            )
        vector, seconds = timed(lambda: reader.embed(q)[0])
        return found("text", lambda _: (None, vector), options, seconds)

    @routes.post("/api/search/vector", summary="Search by a vector")
    def by_vector(body: Vector, options: Options) -> Found:
        """Neighbors of an embedding that was made elsewhere, with `vicinal embed` or an exported
        model."""
        return found("vector", lambda _: (None, np.array(body.vector)), options)

    @routes.get("/api/search/class", summary="Search by a class")
    def by_class(
        name: Annotated[str, Query(max_length=1000, description="The class.")], options: Options
    ) -> Found:
        """What lies nearest to the mean of a class; its own items are found too."""

        def mean(snapshot: Snapshot) -> tuple[None, np.ndarray]:
            if name not in snapshot.labels():
                raise RequestError(
                    404,
                    f"the class {name[:60]!r}.",
                    "the collection has none.",
                    "See /api/classes.",
                )
            return None, query_of(snapshot, None, labels=[name]).vector

        return found("class", mean, options)

    return routes


def item_routes(library: Library) -> APIRouter:
    """Listings and pictures. A picture's address may carry the generation, only so that browsers
    may keep it."""
    routes = APIRouter(prefix="/api", tags=["items"])
    Spread = Annotated[
        bool, Query(description="Evenly from the whole collection, instead of the first ones.")
    ]

    @routes.get("/classes", summary="All classes")
    def classes() -> Classes:
        """The classes of the collection with their numbers of items, by name."""
        snapshot = library.snapshot()
        counts = [
            ClassCount(label=label, items=count) for label, count in snapshot.labels().items()
        ]
        return Classes(generation=snapshot.generation, classes=counts)

    @routes.get("/items", summary="Items of the collection")
    def items(
        label: Label = None, offset: Offset = 0, limit: Listed = 60, spread: Spread = False
    ) -> Items:
        """Items by ascending id, a page at a time, all or those of one class."""
        snapshot = library.snapshot()
        rows = range(len(snapshot)) if label is None else snapshot.rows({"label": label}).tolist()
        step = max(1, len(rows) // limit) if spread else 1
        page = [ItemAnswer(**vars(snapshot.items()[row])) for row in rows[offset::step][:limit]]
        return Items(generation=snapshot.generation, total=len(rows), offset=offset, items=page)

    @routes.get("/items/{id}", summary="One item")
    def one(id: Id) -> OneItem:
        snapshot = library.snapshot()
        return OneItem(
            generation=snapshot.generation, item=ItemAnswer(**vars(item_of(snapshot, id)))
        )

    def picture(id: int, side: int, named: int | None) -> Response:
        snapshot = library.collection.snapshot()  # pictures are the same by any label
        item_of(snapshot, id)
        try:
            content, kind = encoded(snapshot.image(id), side)
        except DataError as error:
            got = f"there is none to show: {type(error).__name__} while reading it."
            advice = "Its file may be gone or damaged, or there is none. Index again."
            raise RequestError(404, f"the picture of item {id}.", got, advice) from error
        # An item's content belongs to its generation: under the address of that one it may be kept
        # for good.
        same = named == snapshot.generation
        keep = "private, max-age=31536000, immutable" if same else "no-store"
        headers = {"Cache-Control": keep, "X-Generation": str(snapshot.generation)}
        return Response(content, media_type=kind, headers=headers)

    @routes.get(
        "/items/{id}/thumbnail", responses=_PICTURE, response_class=Response, summary="Thumbnail"
    )
    def thumbnail(
        id: Id, side: Literal["64", "128", "256"] = "128", generation: Named = None
    ) -> Response:
        """A small picture, its longer side at most `side` pixels; without the file's metadata."""
        return picture(id, int(side), generation)

    @routes.get("/items/{id}/image", responses=_PICTURE, response_class=Response, summary="Picture")
    def image(id: Id, generation: Named = None) -> Response:
        """A large picture, encoded anew, without the file's metadata."""
        return picture(id, _LARGE, generation)

    return routes


def encoded(image: Image.Image, side: int) -> tuple[bytes, str]:
    """Encode the picture with its longer side at most ``side``, without its metadata; return its
    media type, too."""
    small = upright(image)
    small = small.copy() if small.mode == "L" else small.convert("RGB")
    small.thumbnail((side, side), Image.Resampling.LANCZOS, reducing_gap=2.0)
    small.info.clear()  # EXIF, comments and profiles stay behind
    kind = "png" if max(small.size) <= _SMALL else "jpeg"
    file = BytesIO()
    small.save(file, kind, quality=85)
    return file.getvalue(), f"image/{kind}"


def item_of(snapshot: Snapshot, id: int) -> Item:
    """Return the item, or a 404."""
    try:
        return snapshot.item(id)
    except DataError as error:
        got = f"generation {snapshot.generation} of the collection holds none of that id."
        raise RequestError(
            404, f"item {id}.", got, "It may have been removed since; search again."
        ) from error


def threshold_of(library: Library, max_distance: float | None) -> ThresholdAnswer | None:
    """Return the threshold that the request names, or else the calibrated one."""
    if max_distance is not None:
        return ThresholdAnswer(distance=max_distance, false_match_rate=None)
    known = library.threshold
    return (
        None
        if known is None
        else ThresholdAnswer(distance=known.distance, false_match_rate=known.false_match)
    )

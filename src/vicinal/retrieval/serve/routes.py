"""Search by picture, by item, by text, by vector and by class; the items, listed, one by one, and
as pictures."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Body, Depends, HTTPException, Path, Query
from starlette.responses import Response

from vicinal.data.table import LONGEST
from vicinal.errors import DataError
from vicinal.retrieval.asking import conditions, query_vector
from vicinal.retrieval.calibration import Threshold
from vicinal.retrieval.collection import Snapshot
from vicinal.retrieval.items import Item
from vicinal.retrieval.library import Library
from vicinal.retrieval.pages import encoded
from vicinal.retrieval.serve.guard import FORMATS, MOST, Answer, answer, decoded, upload

_LARGEST = 2**63 - 1  # of an id
# of a coordinate: above, a float32 sum of 65,536 squares could overflow
_MOST = 1e9
_LARGE = 1280  # pixels of the longer side of a picture that is shown large

Id = Annotated[int, Path(ge=0, le=_LARGEST, description="An item's id.")]
Label = Annotated[str | None, Query(description="Only items of this class.")]
Coordinate = Annotated[float, Query(ge=-_MOST, le=_MOST, allow_inf_nan=False)]
Named = Annotated[
    int | None,
    Query(description="The generation this address is for; lets browsers keep it."),
]
Listed = Annotated[int, Query(ge=1, le=MOST, description="How many in one answer.")]
Offset = Annotated[int, Query(ge=0, le=2**31, description="How many to leave out before them.")]
_BYTES = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
_IMAGE = f"The bytes of an image file: {', '.join(FORMATS)}, detected from their content."
_UPLOAD = {"requestBody": {"required": True, "description": _IMAGE, "content": _BYTES}}
_PICTURE: dict[int | str, dict[str, Any]] = {200: {"content": {"image/jpeg": {}, "image/png": {}}}}


@dataclass(frozen=True)
class _Options:
    """What all searches take: how many neighbors, which items may be found, and where matches
    end."""

    k: Annotated[int, Query(ge=1, le=MOST, description="How many neighbors.")] = 24
    label: Label = None
    where: Annotated[
        list[str] | None,
        Query(description="Only items with this metadatum, as `key=value`; repeatable."),
    ] = None
    max_distance: Annotated[
        float | None,
        Query(
            ge=0,
            le=_MOST,
            allow_inf_nan=False,
            description="Farther is no match; by default as calibrated.",
        ),
    ] = None


def search_routes(library: Library) -> APIRouter:
    """Route the searches; each works on one snapshot from beginning to end."""
    routes = APIRouter(prefix="/api/search", tags=["search"])
    one_at_a_time = Lock()  # an embedding takes the cores, and a picture much memory

    Options = Annotated[_Options, Depends()]

    def found(
        by: str,
        start: Callable[[Snapshot], np.ndarray],
        options: _Options,
        item: int | None = None,
    ) -> Answer:
        """Search once on one snapshot near what ``start`` makes, without ``item``."""
        snapshot = library.snapshot()
        query = None if item is None else item_of(snapshot, item).document
        began = time.perf_counter()
        vector = start(snapshot)
        embedded = time.perf_counter()
        exclude = () if item is None else (item,)
        where = conditions(options.where or (), options.label)
        near = snapshot.search(vector[None], options.k, where=where, exclude=exclude)[0]
        searched = time.perf_counter()
        threshold = threshold_of(library, options.max_distance, by)
        within = [threshold and threshold.accepts(match) for match in near]
        return answer(
            snapshot,
            by=by,
            query=query,
            threshold=threshold and threshold.document,
            no_match=None if threshold is None else not any(within),
            matches=[
                {**match.item.document, "distance": match.distance, "matches": ok}
                for match, ok in zip(near, within, strict=True)
            ],
            embedding_seconds=embedded - began if by in ("image", "text") else None,
            search_seconds=searched - embedded,
        )

    @routes.post("/image", openapi_extra=_UPLOAD)
    def by_image(data: Annotated[bytes, Depends(upload)], options: Options) -> Answer:
        """Neighbors of an uploaded picture, whose bytes are the body (`curl --data-binary
        @bird.jpg`)."""
        if library.model.kind != "images":
            raise HTTPException(415, f"This run embeds {library.model.kind}, not pictures.")
        image = decoded(data)
        with one_at_a_time:
            return found("image", lambda _: library.model.embed([image])[0], options)

    @routes.get("/item/{id}")
    def by_item(id: Id, options: Options) -> Answer:
        """Neighbors of an item of the collection, without itself."""
        return found("item", lambda snapshot: snapshot.vector(id), options, id)

    @routes.get("/text")
    def by_text(
        q: Annotated[str, Query(min_length=1, max_length=LONGEST, description="What to look for.")],
        options: Options,
    ) -> Answer:
        """Neighbors of what a text describes, where the run has a text encoder."""
        reader = library.reader
        if reader is None:
            raise HTTPException(
                415,
                "This run has no text encoder. Train on a table with the columns path and text.",
            )
        with one_at_a_time:
            return found("text", lambda _: reader.embed(q)[0], options)

    @routes.post("/vector")
    def by_vector(
        vector: Annotated[list[Coordinate], Body(embed=True, min_length=1, max_length=65_536)],
        options: Options,
    ) -> Answer:
        """Neighbors of an embedding that was made elsewhere, with `vicinal embed` or an exported
        model."""
        return found("vector", lambda _: np.array(vector), options)

    @routes.get("/class")
    def by_class(name: Annotated[str, Query(description="The class.")], options: Options) -> Answer:
        """What lies nearest to the mean of a class; its own items are found too."""
        return found("class", lambda snapshot: query_vector(snapshot, None, labels=[name]), options)

    return routes


def item_routes(library: Library) -> APIRouter:
    """Listings and pictures. A picture's address may carry the generation, only so that browsers
    may keep it."""
    routes = APIRouter(prefix="/api", tags=["items"])
    Spread = Annotated[
        bool, Query(description="Evenly from the whole collection, instead of the first ones.")
    ]

    @routes.get("/classes")
    def classes() -> Answer:
        """The classes of the collection with their numbers of items, by name."""
        snapshot = library.snapshot()
        counts = [{"label": label, "items": count} for label, count in snapshot.labels().items()]
        return answer(snapshot, classes=counts)

    @routes.get("/items")
    def items(
        label: Label = None, offset: Offset = 0, limit: Listed = 60, spread: Spread = False
    ) -> Answer:
        """Items by ascending id, a page at a time, all or those of one class."""
        snapshot = library.snapshot()
        rows = range(len(snapshot)) if label is None else snapshot.rows({"label": label}).tolist()
        step = max(1, len(rows) // limit) if spread else 1
        page = [snapshot.items[row].document for row in rows[offset::step][:limit]]
        return answer(snapshot, total=len(rows), offset=offset, items=page)

    @routes.get("/items/{id}")
    def one(id: Id) -> Answer:
        """One item."""
        snapshot = library.snapshot()
        return answer(snapshot, item=item_of(snapshot, id).document)

    def picture(id: int, side: int, named: int | None) -> Response:
        snapshot = library.collection.snapshot()  # pictures are the same by any label
        item_of(snapshot, id)
        try:
            content, kind = encoded(snapshot.image(id), side)
        except DataError as error:
            raise HTTPException(404, str(error)) from error
        # An item's content belongs to its generation: under the address of that one it may be kept
        # for good.
        same = named == snapshot.generation
        keep = "private, max-age=31536000, immutable" if same else "no-store"
        return Response(content, media_type=kind, headers={"Cache-Control": keep})

    @routes.get("/items/{id}/thumbnail", responses=_PICTURE, response_class=Response)
    def thumbnail(
        id: Id, side: Literal["64", "128", "256"] = "128", generation: Named = None
    ) -> Response:
        """A small picture, its longer side at most `side` pixels; without the file's metadata."""
        return picture(id, int(side), generation)

    @routes.get("/items/{id}/image", responses=_PICTURE, response_class=Response)
    def image(id: Id, generation: Named = None) -> Response:
        """A large picture, encoded anew, without the file's metadata."""
        return picture(id, _LARGE, generation)

    return routes


def item_of(snapshot: Snapshot, id: int) -> Item:
    """Return the item, or a 404."""
    try:
        return snapshot.item(id)
    except DataError as error:
        raise HTTPException(404, str(error)) from error


def threshold_of(library: Library, max_distance: float | None, by: str) -> Threshold | None:
    """Return the threshold that the request names, or else the calibrated one."""
    if max_distance is not None:
        return Threshold(max_distance, None, "")
    return (library.of_texts if by == "text" else None) or library.threshold

"""Search by picture, by item, by vector and by class."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, Path, Query, Request

from vicinal.errors import DataError
from vicinal.retrieval.collection import Snapshot
from vicinal.retrieval.index.store import Item
from vicinal.retrieval.query import conditions, query_of
from vicinal.retrieval.serve.errors import BODY, NOT_FOUND, SHARED, Problem, RequestError
from vicinal.retrieval.serve.library import FORMATS, Library, Limits
from vicinal.retrieval.serve.pictures import decoded
from vicinal.retrieval.serve.schemas import By, Found, ItemAnswer, MatchAnswer, ThresholdAnswer, Vector
from vicinal.retrieval.serve.workers import Together, Workers

LARGEST = 2**63 - 1  # of an id
_MOST = 1e9  # of a coordinate: above, a float32 sum of 65,536 squares could overflow, and no embedding comes near

Id = Annotated[int, Path(ge=0, le=LARGEST, description="An item's id.")]
Label = Annotated[str | None, Query(max_length=1000, description="Only items of this class.")]
Where = Annotated[
    list[str] | None, Query(max_length=16, description="Only items with this metadatum, as `key=value`; repeatable.")
]
MaxDistance = Annotated[
    float | None,
    Query(ge=0, le=_MOST, allow_inf_nan=False, description="Farther is no match; by default as calibrated."),
]
_BODY = {
    "requestBody": {
        "required": True,
        "description": f"The bytes of an image file: {', '.join(FORMATS)}, told by content.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


@dataclass(frozen=True)
class _Options:
    """What all searches take: how many neighbors, which items may be found, and where matches end."""

    k: int
    where: Mapping[str, str]
    max_distance: float | None


def search_routes(library: Library, limits: Limits, searching: Workers, embedding: Workers) -> APIRouter:
    """The searches; each works on one snapshot from beginning to end."""
    together = Together()
    routes = APIRouter(prefix="/api/search", tags=["search"], responses=SHARED)
    K = Annotated[int, Query(ge=1, le=limits.k, description="How many neighbors.")]
    unsupported: dict[int | str, dict[str, Any]] = {
        415: {"model": Problem, "description": "No picture of a known type, or a run of feature vectors."}
    }

    async def options(
        k: K = 24, label: Label = None, where: Where = None, max_distance: MaxDistance = None
    ) -> _Options:
        return _Options(k, conditions(where or (), label), max_distance)

    async def of_any_class(k: K = 24, where: Where = None, max_distance: MaxDistance = None) -> _Options:
        return _Options(k, conditions(where or ()), max_distance)

    Options = Annotated[_Options, Depends(options)]

    async def found(
        by: By,
        start: Callable[[Snapshot], tuple[Item | None, np.ndarray]],
        options: _Options,
        embedding_seconds: float | None = None,
    ) -> Found:
        return await searching.run(lambda: _found(library, together, by, start, options, embedding_seconds))

    @routes.post("/image", openapi_extra=_BODY, responses=BODY | unsupported, summary="Search by a picture")
    async def by_image(request: Request, options: Options) -> Found:
        """Neighbors of an uploaded picture, whose bytes are the body (`curl --data-binary @bird.jpg`)."""
        embed = library.embed
        if embed is None:
            got = "this run embeds feature vectors, not pictures."
            raise RequestError(415, "a search by picture.", got, "Search by item or by vector.")
        data = await request.body()  # the guard counts it as it arrives

        def embedded() -> tuple[np.ndarray, float]:
            start = time.perf_counter()
            return embed(decoded(data, limits)), time.perf_counter() - start

        vector, seconds = await embedding.run(embedded)
        return await found("image", lambda _: (None, vector), options, seconds)

    @routes.get("/item/{id}", responses=NOT_FOUND, summary="Search by an item")
    async def by_item(id: Id, options: Options) -> Found:
        """Neighbors of an item of the collection, without itself."""
        return await found("item", lambda snapshot: (item_of(snapshot, id), snapshot.vector(id)), options)

    @routes.post("/vector", responses=BODY, summary="Search by a vector")
    async def by_vector(body: Vector, options: Options) -> Found:
        """Neighbors of an embedding that was made elsewhere, with `vicinal embed` or an exported model."""
        vector = np.asarray(body.vector, dtype=np.float64)
        if not (np.abs(vector) <= _MOST).all():  # NaN compares false
            got = f"{np.count_nonzero(~(np.abs(vector) <= _MOST))} of {len(vector)} are not."
            asked = f"finite numbers, none beyond {_MOST:g}."
            raise RequestError(422, asked, got, "Send an embedding of this run's model.")
        return await found("vector", lambda _: (None, vector), options)

    @routes.get("/class", responses=NOT_FOUND, summary="Search by a class")
    async def by_class(
        name: Annotated[str, Query(max_length=1000, description="The class.")],
        options: Annotated[_Options, Depends(of_any_class)],
    ) -> Found:
        """What lies nearest to the mean of a class; its own items are found too."""

        def mean(snapshot: Snapshot) -> tuple[None, np.ndarray]:
            if name not in snapshot.labels():
                raise RequestError(404, f"the class {name[:60]!r}.", "the collection has none.", "See /api/classes.")
            return None, query_of(snapshot, None, labels=[name]).vector

        return await found("class", mean, options)

    return routes


def item_of(snapshot: Snapshot, id: int) -> Item:
    """The item, or a 404."""
    try:
        return snapshot.item(id)
    except DataError as error:
        got = f"generation {snapshot.generation} of the collection holds none of that id."
        raise RequestError(404, f"item {id}.", got, "It may have been removed since; search again.") from error


def _found(
    library: Library,
    together: Together,
    by: By,
    start: Callable[[Snapshot], tuple[Item | None, np.ndarray]],
    options: _Options,
    embedding_seconds: float | None,
) -> Found:
    """One search on one snapshot; ``start`` gives its item, if it is by one, and its vector."""
    snapshot = library.collection.snapshot()
    query, vector = start(snapshot)
    if vector.shape != (snapshot.dim,):
        asked = f"a vector of {snapshot.dim} numbers, as this collection holds."
        raise RequestError(422, asked, f"{vector.size} numbers.", "Send an embedding of this run's model.")
    began = time.perf_counter()
    without = None if query is None else query.id
    found = together.search(snapshot, vector, options.k, where=options.where, without=without)
    seconds = time.perf_counter() - began
    threshold = threshold_of(library, options.max_distance)
    limit = None if threshold is None else threshold.distance
    matches = [MatchAnswer.found(match, limit) for match in found]
    return Found(
        generation=snapshot.generation,
        by=by,
        query=None if query is None else ItemAnswer.of(query),
        threshold=threshold,
        no_match=None if limit is None else not any(match.matches for match in matches),
        matches=matches,
        embedding_seconds=embedding_seconds,
        search_seconds=seconds,
    )


def threshold_of(library: Library, max_distance: float | None) -> ThresholdAnswer | None:
    """The threshold that the request names, or else the calibrated one."""
    if max_distance is not None:
        return ThresholdAnswer(distance=max_distance, false_match_rate=None)
    known = library.threshold
    return None if known is None else ThresholdAnswer(distance=known.distance, false_match_rate=known.false_match)

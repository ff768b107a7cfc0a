"""Search by picture, by item, by vector and by class."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Path, Query, Request

from vicinal.errors import DataError
from vicinal.search.collection import Item, Snapshot
from vicinal.search.query import query_of
from vicinal.serve.answers import By, Found, ItemAnswer, MatchAnswer, ThresholdAnswer, Vector
from vicinal.serve.library import Library
from vicinal.serve.limits import FORMATS, Limits
from vicinal.serve.pictures import decoded
from vicinal.serve.refusals import BODY, NOT_FOUND, SHARED, Problem, Refusal
from vicinal.serve.together import Together
from vicinal.serve.workers import Workers

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


def search_routes(library: Library, limits: Limits, searching: Workers, embedding: Workers) -> APIRouter:
    """The searches; each works on one snapshot from beginning to end."""
    together = Together()
    routes = APIRouter(prefix="/api/search", tags=["search"], responses=SHARED)
    K = Annotated[int, Query(ge=1, le=limits.k, description="How many neighbours.")]
    unsupported: dict[int | str, dict[str, Any]] = {
        415: {"model": Problem, "description": "No picture of a known type, or a run of feature vectors."}
    }

    @routes.post("/image", openapi_extra=_BODY, responses=BODY | unsupported, summary="Search by a picture")
    async def by_image(
        request: Request, k: K = 24, label: Label = None, where: Where = None, max_distance: MaxDistance = None
    ) -> Found:
        """Neighbours of an uploaded picture, whose bytes are the body (`curl --data-binary @bird.jpg`)."""
        narrowed, embed = conditions(label, where), library.embed
        if embed is None:
            raise Refusal(
                415,
                "a picture was to be embedded.",
                "this run embeds feature vectors, not pictures.",
                "Search by item or by vector.",
            )
        data = await request.body()  # the guard counts it as it arrives

        def embedded() -> tuple[np.ndarray, float]:
            start = time.perf_counter()
            return embed(decoded(data, limits)), time.perf_counter() - start

        vector, seconds = await embedding.run(embedded)
        asked = Asked("image", lambda _: (None, vector), embedding_seconds=seconds)
        return await searching.run(lambda: _found(library, together, asked, k, narrowed, max_distance))

    @routes.get("/item/{id}", responses=NOT_FOUND, summary="Search by an item")
    async def by_item(
        id: Id, k: K = 24, label: Label = None, where: Where = None, max_distance: MaxDistance = None
    ) -> Found:
        """Neighbours of an item of the collection, without itself."""
        narrowed = conditions(label, where)

        def own(snapshot: Snapshot) -> tuple[Item, np.ndarray]:
            return item_of(snapshot, id), snapshot.vector(id)

        return await searching.run(lambda: _found(library, together, Asked("item", own), k, narrowed, max_distance))

    @routes.post("/vector", responses=BODY, summary="Search by a vector")
    async def by_vector(
        body: Vector, k: K = 24, label: Label = None, where: Where = None, max_distance: MaxDistance = None
    ) -> Found:
        """Neighbours of an embedding that was made elsewhere, with `vicinal embed` or an exported model."""
        narrowed, vector = conditions(label, where), np.asarray(body.vector, dtype=np.float64)
        if not (np.abs(vector) <= _MOST).all():  # NaN compares false
            raise Refusal(
                422,
                f"finite numbers, none beyond {_MOST:g}.",
                f"{np.count_nonzero(~(np.abs(vector) <= _MOST))} of {len(vector)} are not.",
                "Send an embedding of this run's model.",
            )
        asked = Asked("vector", lambda _: (None, vector))
        return await searching.run(lambda: _found(library, together, asked, k, narrowed, max_distance))

    @routes.get("/class", responses=NOT_FOUND, summary="Search by a class")
    async def by_class(
        name: Annotated[str, Query(max_length=1000, description="The class.")],
        k: K = 24,
        where: Where = None,
        max_distance: MaxDistance = None,
    ) -> Found:
        """What lies nearest to the mean of a class; its own items are found too."""
        narrowed = conditions(None, where)

        def mean(snapshot: Snapshot) -> tuple[None, np.ndarray]:
            if name not in snapshot.labels():
                raise Refusal(404, f"the class {name[:60]!r}.", "the collection has none.", "See /api/classes.")
            return None, query_of(snapshot, None, labels=[name]).vector

        return await searching.run(lambda: _found(library, together, Asked("class", mean), k, narrowed, max_distance))

    return routes


def conditions(label: str | None, where: list[str] | None) -> dict[str, str]:
    """What items must have, from the query's ``label`` and ``key=value`` pairs."""
    found = {} if label is None else {"label": label}
    for pair in where or ():
        key, sign, value = pair.partition("=")
        if not sign or not key or key in found:
            raise Refusal(
                422, "where: pairs of key=value, each key once.", f"{pair[:60]!r}.", "Write it as where=camera=2."
            )
        found[key] = value
    return found


def item_of(snapshot: Snapshot, id: int) -> Item:
    """The item, or a 404."""
    try:
        return snapshot.item(id)
    except DataError as error:
        raise Refusal(
            404,
            f"item {id}.",
            f"generation {snapshot.generation} of the collection holds none of that id.",
            "It may have been removed since; search anew.",
        ) from error


@dataclass(frozen=True)
class Asked:
    """How a search is asked, and what gives its item, if it is one, and its vector on a snapshot."""

    by: By
    start: Callable[[Snapshot], tuple[Item | None, np.ndarray]]
    embedding_seconds: float | None = None


def _found(
    library: Library,
    together: Together,
    asked: Asked,
    k: int,
    where: Mapping[str, str],
    max_distance: float | None,
) -> Found:
    """One search on one snapshot."""
    snapshot = library.collection.snapshot()
    query, vector = asked.start(snapshot)
    if vector.shape != (snapshot.dim,):
        raise Refusal(
            422,
            f"a vector of {snapshot.dim} numbers, as this collection holds.",
            f"{vector.size} numbers.",
            "Send an embedding of this run's model.",
        )
    start = time.perf_counter()
    found = together.search(snapshot, vector, k, where=where, without=None if query is None else query.id)
    seconds = time.perf_counter() - start
    threshold = threshold_of(library, max_distance)
    limit = None if threshold is None else threshold.distance
    matches = [MatchAnswer.found(match, limit) for match in found]
    return Found(
        generation=snapshot.generation,
        by=asked.by,
        query=None if query is None else ItemAnswer.of(query),
        threshold=threshold,
        no_match=None if limit is None else not any(match.matches for match in matches),
        matches=matches,
        embedding_seconds=asked.embedding_seconds,
        search_seconds=seconds,
    )


def threshold_of(library: Library, max_distance: float | None) -> ThresholdAnswer | None:
    """The threshold that the request names, or else the calibrated one."""
    if max_distance is not None:
        return ThresholdAnswer(distance=max_distance, false_match_rate=None)
    known = library.threshold
    return None if known is None else ThresholdAnswer(distance=known.distance, false_match_rate=known.false_match)

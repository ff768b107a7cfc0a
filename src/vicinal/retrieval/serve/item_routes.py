"""The items of the collection: listed, one by one, and as pictures."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response

from vicinal.errors import DataError
from vicinal.retrieval.serve.errors import NOT_FOUND, SHARED, RequestError, text
from vicinal.retrieval.serve.library import MEBIBYTE, Library, Limits
from vicinal.retrieval.serve.pictures import Shelf, encoded
from vicinal.retrieval.serve.schemas import ClassCount, Classes, ItemAnswer, Items, OneItem
from vicinal.retrieval.serve.search_routes import Id, Label, item_of
from vicinal.retrieval.serve.workers import Workers

_SHELF = 32 * MEBIBYTE  # about 8,000 thumbnails
_PICTURE: dict[int | str, dict[str, Any]] = {
    200: {"description": "The picture, encoded anew.", "content": {"image/jpeg": {}, "image/png": {}}}
}


def item_routes(library: Library, limits: Limits, listing: Workers, drawing: Workers) -> APIRouter:
    """Listings and pictures. A picture's address may carry the generation, only so that browsers may keep it."""
    routes = APIRouter(prefix="/api", tags=["items"], responses=SHARED)
    shelf = Shelf(_SHELF)
    Listed = Annotated[int, Query(ge=1, le=limits.listed, description="How many items.")]
    Offset = Annotated[int, Query(ge=0, le=2**31, description="How many items to leave out before them.")]
    Spread = Annotated[bool, Query(description="Evenly from the whole collection, instead of the first ones.")]

    @routes.get("/classes", summary="All classes")
    async def classes() -> Classes:
        """The classes of the collection with their numbers of items, by name."""

        def listed() -> Classes:
            snapshot = library.collection.snapshot()
            counts = [ClassCount(label=text(label), items=n) for label, n in sorted(snapshot.labels().items())]
            return Classes(generation=snapshot.generation, classes=counts)

        return await listing.run(listed)

    @routes.get("/items", summary="Items of the collection")
    async def items(label: Label = None, offset: Offset = 0, limit: Listed = 60, spread: Spread = False) -> Items:
        """Items by ascending id, a page at a time, all or those of one class."""

        def listed() -> Items:
            snapshot = library.collection.snapshot()
            rows = range(len(snapshot)) if label is None else snapshot.attributes.rows({"label": label}).tolist()
            step = max(1, len(rows) // limit) if spread else 1
            every = snapshot.items()
            page = [ItemAnswer.of(every[row]) for row in rows[offset::step][:limit]]
            return Items(generation=snapshot.generation, total=len(rows), offset=offset, items=page)

        return await listing.run(listed)

    @routes.get("/items/{id}", responses=NOT_FOUND, summary="One item")
    async def one(id: Id) -> OneItem:
        def found() -> OneItem:
            snapshot = library.collection.snapshot()
            return OneItem(generation=snapshot.generation, item=ItemAnswer.of(item_of(snapshot, id)))

        return await listing.run(found)

    async def picture(id: int, side: int, named: int | None, *, kept: bool) -> Response:
        def drawn() -> tuple[bytes, str, int]:
            snapshot = library.collection.snapshot()
            item_of(snapshot, id)

            def make() -> tuple[bytes, str]:
                try:
                    return encoded(snapshot.image(id), side)
                except DataError as error:
                    got = f"there is none to show: {type(error).__name__} while reading it."
                    advice = "Its file may be gone or damaged, or the collection holds feature vectors. Index again."
                    raise RequestError(404, f"the picture of item {id}.", got, advice) from error

            content, kind = shelf.get((snapshot.generation, id, side), make) if kept else make()
            return content, kind, snapshot.generation

        content, kind, generation = await drawing.run(drawn)
        # An item's content belongs to its generation: under the address of that one it may be kept for good.
        keep = "private, max-age=31536000, immutable" if named == generation else "no-store"
        return Response(content, media_type=kind, headers={"Cache-Control": keep, "X-Generation": str(generation)})

    Named = Annotated[
        int | None, Query(ge=0, le=2**63 - 1, description="The generation this address is for; lets browsers keep it.")
    ]

    # Three sides, so that nobody can fill the shelf with a thousand sizes of one picture.
    @routes.get("/items/{id}/thumbnail", responses=NOT_FOUND | _PICTURE, response_class=Response, summary="Thumbnail")
    async def thumbnail(id: Id, side: Literal["64", "128", "256"] = "128", generation: Named = None) -> Response:
        """A small picture, its longer side at most `side` pixels; without the file's metadata."""
        return await picture(id, int(side), generation, kept=True)

    @routes.get("/items/{id}/image", responses=NOT_FOUND | _PICTURE, response_class=Response, summary="Picture")
    async def image(id: Id, generation: Named = None) -> Response:
        """A large picture, encoded anew, without the file's metadata."""
        return await picture(id, limits.picture_side, generation, kept=False)

    return routes

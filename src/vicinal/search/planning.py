"""What the next generation of a collection will hold, before anything is embedded."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import permutations
from pathlib import Path
from typing import Protocol

from vicinal.data import Folder, Table
from vicinal.data.location import expanded
from vicinal.errors import ConfigError, DataError, unknown
from vicinal.run_directory import RunDirectory
from vicinal.search.collection import Item, Snapshot
from vicinal.search.listing import Listing, list_data_set, list_place, place_path
from vicinal.search.own_data import own_data, own_description
from vicinal.search.places import Place


class Following(Protocol):
    def advance(self, done: int, facts: str = "") -> None: ...


class Audience(Protocol):
    """Who is told how far the work has come; ``training.console.Console`` is one."""

    def line(self, text: str, *, warning: bool = False) -> None: ...

    def following(self, total: int, done: int, title: str) -> AbstractContextManager[Following]: ...


@dataclass(frozen=True)
class Request:
    """What to index, and how.

    Attributes:
        paths: places to bring up to date; none for those of the collection, or, where there is none yet, the run's own
            data.
        remove: places to take out of the collection.
        split: the part of the run's own data, or of named data that have splits.
        images: folder of the pictures where tables or feature vectors name them.
        batch_size: things embedded at a time.
        workers: processes that read images ahead.
        ray: workers of a Ray cluster that read and embed instead of this process; None for none.
        skip_corrupt: leave out what cannot be read, instead of refusing in the end.
        store: ``"flat"``, or folder or URL of Milvus; None for what it was.
        store_index: how Milvus searches; None for what it was.
    """

    paths: Sequence[str] = ()
    remove: Sequence[str] = ()
    split: str = "all"
    images: str | None = None
    batch_size: int = 256
    workers: int = 0
    ray: int | None = None
    skip_corrupt: bool = False
    store: str | None = None
    store_index: str | None = None


@dataclass
class Plan:
    """The next generation, as far as it is known without embedding.

    Attributes:
        listings: what the places that are brought up to date hold now.
        kept: places that stay as they are.
        items: of all of them.
        contents: for each content of the listings, one listing and entry that has it.
        next_id: the first id that is still free.
        unreadable: things whose content cannot even be read, each with the reason.
    """

    listings: list[Listing]
    kept: list[Place]
    items: list[Item] = field(default_factory=list)
    contents: dict[str, tuple[int, int]] = field(default_factory=dict)
    next_id: int = 0
    unreadable: list[str] = field(default_factory=list)

    @property
    def places(self) -> list[Place]:
        """Of the next generation, in the order that ``Item.place`` counts in."""
        return [*self.kept, *(listing.place for listing in self.listings)]


def make_plan(
    run: RunDirectory, collection: Path, request: Request, audience: Audience, before: Snapshot | None, *, anew: bool
) -> Plan:
    """Read what there is and compare it with the generation before.

    Args:
        run: whose collection it is; for its own data and splits.
        collection: its folder.
        request: what the user asked for.
        audience: told how many things are read, and which cannot be.
        before: the generation before, if there is one.
        anew: whether all places have to be read, because another model made the vectors of the one before.
    """
    places = () if before is None else before.places
    gone = {_absolute(path) for path in request.remove}
    for path in sorted(gone - {place.path for place in places}):
        raise ConfigError(unknown("place of the collection", path, [place.path for place in places]))
    named = list(dict.fromkeys(_absolute(path) for path in request.paths))
    if not named and not places:
        named = [place_path(own_description(run))]
    listings = [_list(run, collection, path, request.split, request.images) for path in named]
    others = [place for place in places if place.path not in {*named, *gone}]
    if anew or not (named or gone):
        listings += [_list(run, collection, place.path, place.split, place.images) for place in others]
        others = []
    plan = Plan(listings, others)
    _refuse_nested(plan.places)
    _fill(plan, collection, audience, before)
    return plan


def _fill(plan: Plan, collection: Path, audience: Audience, before: Snapshot | None) -> None:
    """Items that stay, and those of the listings: known ones keep their id, new ones get the next."""
    known = dict[tuple[str, str], Item]()
    if before is not None:
        plan.next_id = before.about["next_id"]
        position = {place.path: number for number, place in enumerate(plan.kept)}
        for item in before.items():
            place = before.places[item.place].path
            known[place, item.path] = item
            if place in position:
                plan.items.append(replace(item, place=position[place]))
    total, done = sum(len(listing.entries) for listing in plan.listings), 0
    with audience.following(total, 0, "reading") as follower:
        for number, listing in enumerate(plan.listings):
            for row, entry in enumerate(listing.entries):
                done += 1
                follower.advance(done)
                try:
                    digest = listing.digest(row, collection)
                except DataError as error:
                    plan.unreadable.append(f"{entry.path}: {error}")
                    audience.line(f"cannot be read: {plan.unreadable[-1]}", warning=True)
                    continue
                old = known.get((listing.place.path, entry.path))
                id = plan.next_id if old is None else old.id
                plan.next_id += old is None
                at = len(plan.kept) + number
                plan.items.append(Item(id, entry.path, entry.label, dict(entry.metadata), at, digest))
                plan.contents.setdefault(digest, (number, row))
    plan.items.sort(key=lambda item: item.id)


def _list(run: RunDirectory, collection: Path, path: str, split: str, images: str | None) -> Listing:
    own = own_description(run)
    plain = isinstance(own, Folder | Table) and split == "all"  # then all files count, with or without a class
    if path == place_path(own) and not plain:
        data, records = own_data(run)  # with the very settings, and the very classes held out
        return list_data_set(data, split=split, images=images, records=records)
    return list_place(path, collection, split=split, images=images)


def _absolute(path: str) -> str:
    """The name by which a place is known: absolute, or the word of an embedded data set."""
    found = expanded(path)
    return str(found.resolve()) if found.exists() or "/" in path else path


def _refuse_nested(places: Sequence[Place]) -> None:
    """Two folders, one inside the other, would hold the same things twice."""
    folders = [place for place in places if place.kind in ("folder", "data set") and place.root is not None]
    for inner, outer in permutations(folders, 2):
        if Path(str(inner.root)).is_relative_to(str(outer.root)):
            raise ConfigError(
                f"{inner.path} lies in {outer.path}, so its images would be there twice. Index one of them; "
                f"--remove takes the other out."
            )

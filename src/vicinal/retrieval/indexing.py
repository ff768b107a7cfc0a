"""Making a collection and keeping it true: new items are added, changed ones replaced, gone ones
removed.

What is embedded is decided by content. A vector is made once for each content and model, is kept in
a journal from the moment it exists, and is used again for a file that was only moved. The new
generation becomes visible at the end.

Embedding is done in this process, or on many machines by Ray Data. Ray's workers each hold the
model and read the images themselves, so what is indexed has to lie where all of them can reach it.
Vectors come back to the one process that writes the collection, and are those of the plain path up
to the rounding of float32.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from vicinal.data import Folder, Table, own_data, own_description
from vicinal.data.loader import load_all
from vicinal.data.location import expanded
from vicinal.data.records import Records, Taken
from vicinal.errors import ConfigError, DataError, unknown
from vicinal.evaluation.encoder import Encoder
from vicinal.retrieval.collection import (
    FOLDER,
    POINTER,
    CollectionDirectory,
    Place,
    Snapshot,
    model_fingerprint,
)
from vicinal.retrieval.generations import VectorJournal, publish, writing
from vicinal.retrieval.listing import Listing, images_of, list_data_set, list_place, place_path
from vicinal.retrieval.milvus import Engine, drop_engine, wanted_engine, write_engine
from vicinal.retrieval.store import Item
from vicinal.run_directory import RunDirectory

JOURNAL = "journal.bin"
_NAMED = 10  # unreadable items that an error names
Batches = Iterator[
    tuple[list[int], np.ndarray, list[int]]
]  # places embedded, their vectors, places left unread


class Audience(Protocol):
    """Receives progress and warnings; ``training.console.Console`` is one."""

    def line(self, text: str, *, warning: bool = False) -> None: ...

    def following(self, total: int, done: int, title: str) -> AbstractContextManager[Any]: ...


@dataclass(frozen=True)
class Request:
    """What to index, and how.

    Attributes:
        paths: places to bring up to date; none for those of the collection, or, where there is none
            yet, the run's own data.
        remove: places to take out of the collection.
        split: the part of the run's own data, or of named data that have splits.
        images: folder of the pictures where tables or feature vectors name them.
        batch_size: items embedded at a time.
        workers: processes that read images ahead.
        ray: workers of a Ray cluster that read and embed instead of this process; None for none.
        skip_corrupt: leave out what cannot be read, instead of raising in the end.
        store: ``"flat"``, or folder or URL of Milvus; None for what it was.
        store_index: how Milvus searches; None for what it was.
        trust: take over the places and the engine of a collection that somebody else made.
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
    trust: bool = False


@dataclass(frozen=True)
class Indexed:
    """What indexing did.

    Attributes:
        generation: the newest one now.
        items: how many items the collection holds.
        embedded: how many vectors had to be made; contents embedded before need none.
        added: items that are new.
        replaced: items whose content changed.
        removed: items that are gone.
        unreadable: items that were left out, each with the reason where more is known than that.
        recall: of an approximate index against exact search on a sample; None where search is
            exact.
    """

    generation: int
    items: int
    embedded: int
    added: int
    replaced: int
    removed: int
    unreadable: tuple[str, ...]
    recall: float | None = None


def index(
    run: RunDirectory,
    request: Request,
    audience: Audience,
    *,
    collection: Path | None = None,
    device: torch.device | None = None,
) -> Indexed:
    """Bring a run's collection up to date.

    Args:
        run: whose model embeds.
        request: what to index, and how.
        audience: receives progress, and what cannot be read.
        collection: its folder; by default ``RUN/collection``.
        device: where to embed; by default the CPU.
    """
    encoder = Encoder.load(run, device).stream("gallery")
    path = (run.path / FOLDER if collection is None else collection).absolute()
    with writing(path):
        return _Indexing(run, encoder, path, request, audience).go()


class _Indexing:
    """One call of ``index``: what its steps share."""

    def __init__(
        self, run: RunDirectory, encoder: Encoder, path: Path, request: Request, audience: Audience
    ) -> None:
        self.run, self.encoder, self.path, self.request, self.audience = (
            run,
            encoder,
            path,
            request,
            audience,
        )
        self.model, self.dim = model_fingerprint(run), encoder.embedder.embedding_dim
        self.before = before = (
            CollectionDirectory(path).snapshot() if (path / POINTER).is_file() else None
        )
        about = {} if before is None else before.about
        if before is not None and not (before.trusted or request.trust):
            named = ", ".join(place.path for place in before.places) or "no place"
            fault = f"the collection in {path} was not indexed by you here; it names {named}"
            raise ConfigError(f"{fault}. Say --trust to take that over, or remove the collection.")
        self.same_model, self.store = about.get("model") == self.model, about.get("store")
        self.engine = wanted_engine(
            request.store, request.store_index, self.store, path, self.model
        )
        if self.engine is not None and encoder.embedder.metric != "euclidean":
            raise ConfigError(
                "engines search by Euclidean distance, but this head is hyperbolic. Omit --store."
            )
        # Rows of the generation before by content; vectors of another model are worth nothing.
        self.old = () if before is None else before.items()
        self.rows = (
            {item.digest: row for row, item in enumerate(self.old)} if self.same_model else {}
        )

    def go(self) -> Indexed:
        anew = self.before is not None and not self.same_model
        plan = make_plan(self.run, self.path, self.request, self.audience, self.before, anew=anew)
        takes = self.encoder.preprocessing.kind
        for listing in plan.listings:
            if listing.source.kind != takes:
                fault = (
                    f"this run's model embeds {takes}, but {listing.place.path} holds "
                    f"{listing.source.kind}"
                )
                raise DataError(f"{fault}. Index data of the kind it was trained on.")
        with closing(VectorJournal(self.path / JOURNAL, dim=self.dim, model=self.model)) as journal:
            embedded = self._embed(plan, journal)
            if plan.unreadable and not self.request.skip_corrupt:
                named = "; ".join(plan.unreadable[:_NAMED]) + (
                    "; ..." if len(plan.unreadable) > _NAMED else ""
                )
                total = sum(len(listing.entries) for listing in plan.listings)
                fault = f"{len(plan.unreadable)} of {total} items cannot be read: {named}"
                advice = (
                    "Repair or remove them, or leave them out with --skip-corrupt; what was "
                    "embedded is kept."
                )
                raise DataError(f"{fault}. {advice}")
            items = [
                item for item in plan.items if item.digest in journal or item.digest in self.rows
            ]
            generation = self._publish(items, plan, journal)
        journal.clear()
        old, new = ({item.id: item.digest for item in each} for each in (self.old, items))
        added, removed = len(new.keys() - old.keys()), len(old.keys() - new.keys())
        replaced = sum(new[id] != old[id] for id in new.keys() & old.keys())
        recall = (CollectionDirectory(self.path).snapshot().about.get("store") or {}).get("recall")
        return Indexed(
            generation,
            len(items),
            embedded,
            added,
            replaced,
            removed,
            tuple(plan.unreadable),
            recall,
        )

    def _embed(self, plan: "Plan", journal: VectorJournal) -> int:
        """Make the vectors that are missing, each batch into the journal at once; return how
        many."""
        missing = {
            digest: where for digest, where in plan.contents.items() if digest not in self.rows
        }
        wanted = {digest: where for digest, where in missing.items() if digest not in journal}
        done, embedded = len(missing) - len(wanted), 0
        with self.audience.following(len(missing), done, "embedding") as follower:
            for number, listing in enumerate(plan.listings):
                here = [digest for digest, (of, _) in wanted.items() if of == number]
                rows = np.array([wanted[digest][1] for digest in here], dtype=np.int64)
                for kept, vectors, unread in self._batches(listing, rows):
                    journal.append([here[place] for place in kept], vectors)
                    damaged = {
                        here[place] for place in unread
                    }  # of all items with such a content one was looked at
                    for item in plan.items if damaged else ():
                        if item.digest in damaged:
                            plan.unreadable.append(item.path)
                            self.audience.line(f"cannot be read: {item.path}", warning=True)
                    done, embedded = done + len(kept) + len(unread), embedded + len(kept)
                    follower.advance(done)
        return embedded

    def _batches(self, listing: Listing, rows: np.ndarray) -> Batches:
        size, request = self.request.batch_size, self.request
        if request.ray is None:
            return embed_rows(self.encoder, listing, rows, batch_size=size, workers=request.workers)
        return embed_rows_on_ray(self.run, listing, rows, batch_size=size, workers=request.ray)

    def _publish(self, items: Sequence[Item], plan: "Plan", journal: VectorJournal) -> int:
        before, engine, store = self.before, self.engine, self.store
        wanted = None if engine is None else asdict(engine)
        same = self.same_model and (None if store is None else {**store, "recall": None}) == wanted
        # One that the user takes over is written once more, with the user's own seal.
        known = before is not None and before.trusted and same
        if (
            before is not None
            and known
            and (tuple(items), tuple(plan.places)) == (before.items(), before.places)
        ):
            return before.generation
        facts: dict[str, Any] = {"metric": self.encoder.embedder.metric, "model": self.model}
        facts |= {
            "run": str(self.run.path.absolute()),
            "next_id": plan.next_id,
            "retired": None if same else store,
        }
        vectors = self._vectors(items, journal)
        writer = None if engine is None else partial(write_engine, engine, items, self.old, store)
        number = publish(
            self.path, items, vectors, dim=self.dim, places=plan.places, facts=facts, engine=writer
        )
        retired = None if before is None else before.about.get("retired")
        if (
            before is not None and retired is not None
        ):  # its last readers are two generations behind now
            drop_engine(Engine(**retired), before.dim)
        return number

    def _vectors(self, items: Sequence[Item], journal: VectorJournal) -> Iterator[np.ndarray]:
        for item in items:
            row = self.rows.get(item.digest)
            yield (
                journal.vector(item.digest)
                if row is None or self.before is None
                else self.before.vectors()[row]
            )


@dataclass
class Plan:
    """What the next generation will hold, before anything is embedded.

    Attributes:
        listings: what the places that are brought up to date hold now.
        kept: places that stay as they are.
        items: of all of them.
        contents: for each content of the listings, one listing and entry that has it.
        next_id: the first id that is still free.
        unreadable: items whose content cannot even be read, each with the reason.
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
    run: RunDirectory,
    collection: Path,
    request: Request,
    audience: Audience,
    before: Snapshot | None,
    *,
    anew: bool,
) -> Plan:
    """Read what there is and compare it with the generation before.

    Args:
        run: whose collection it is; for its own data and splits.
        collection: its folder.
        request: what the user asked for.
        audience: receives how many items are read, and which cannot be.
        before: the generation before, if there is one.
        anew: whether all places have to be read, because another model made the vectors of the one
            before.
    """
    places = () if before is None else before.places
    gone = {absolute_place(path) for path in request.remove}
    for path in sorted(gone - {place.path for place in places}):
        raise ConfigError(
            unknown("place of the collection", path, [place.path for place in places])
        )
    named = list(dict.fromkeys(absolute_place(path) for path in request.paths))
    if not named and not places:
        named = [place_path(own_description(run))]
    listings = [list_again(run, collection, path, request.split, request.images) for path in named]
    others = [place for place in places if place.path not in {*named, *gone}]
    if anew or not (named or gone):
        listings += [
            list_again(run, collection, place.path, place.split, place.images) for place in others
        ]
        others = []
    plan = Plan(listings, others)
    _reject_nested(plan.places)
    _fill(plan, collection, audience, before)
    return plan


def _fill(plan: Plan, collection: Path, audience: Audience, before: Snapshot | None) -> None:
    """Fill in the items that stay, and those of the listings: known ones keep their id, new ones
    get the next."""
    known = dict[tuple[str, str], Item]()
    if before is not None:
        plan.next_id = max(
            [before.about.get("next_id", 0), *(item.id + 1 for item in before.items()[-1:])]
        )
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
                plan.items.append(
                    Item(id, entry.path, entry.label, dict(entry.metadata), at, digest)
                )
                plan.contents.setdefault(digest, (number, row))
    plan.items.sort(key=lambda item: item.id)


def list_again(
    run: RunDirectory, collection: Path, path: str, split: str, images: str | None
) -> Listing:
    """List a place as it is now; the run's own data with the settings and the held-out classes of
    its training."""
    own = own_description(run)
    plain = (
        isinstance(own, Folder | Table) and split == "all"
    )  # then all files count, with or without a class
    if path == place_path(own) and isinstance(own, Table) and images is None:
        images = images_of(own)
    if path == place_path(own) and not plain:
        data, records = own_data(run)  # with the very settings, and the very classes held out
        return list_data_set(data, split=split, images=images, records=records)
    return list_place(path, collection, split=split, images=images)


def absolute_place(path: str) -> str:
    """Return the name by which a place is known: absolute, or the word of an embedded data set."""
    found = expanded(path)
    return str(found.resolve()) if found.exists() or "/" in path else path


def _reject_nested(places: Sequence[Place]) -> None:
    """Reject two folders, one inside the other: they would hold the same items twice."""
    folders = [
        place for place in places if place.kind in ("folder", "data set") and place.root is not None
    ]
    for inner, outer in permutations(folders, 2):
        if Path(str(inner.root)).is_relative_to(str(outer.root)):
            fault = f"{inner.path} lies in {outer.path}, so its images would be there twice"
            raise ConfigError(f"{fault}. Index one of them; --remove takes the other out.")


# -- embedding ------------------------------------------------------------------------------------


def unlabeled_records(listing: Listing, rows: np.ndarray) -> Records:
    """Return some entries of a listing as records of one class, to be embedded."""
    source, count = Taken(listing.source, rows), len(rows)
    return Records(
        listing.place.path, source, np.zeros(count, np.int64), ("",), np.full(count, "test")
    )


def embed_rows(
    encoder: Encoder, listing: Listing, rows: np.ndarray, *, batch_size: int, workers: int
) -> Batches:
    """Embed some entries of a listing; for each batch the places among ``rows``, their vectors, and
    those unread."""
    if not len(rows):
        return
    records = unlabeled_records(listing, rows)
    for batch in load_all(
        records,
        encoder.preprocessing,
        batch_size,
        workers,
        skip_corrupt=True,
        device=encoder.device,
    ):
        vectors = np.empty((0, encoder.embedder.embedding_dim), np.float32)
        if len(batch.indices):
            with (
                torch.inference_mode()
            ):  # entered for each batch: a generator must not leave its caller in it
                vectors = encoder.embedder(batch.inputs).float().cpu().numpy()
        yield batch.indices.tolist(), vectors, list(batch.skipped)


def embed_rows_on_ray(
    run: RunDirectory, listing: Listing, rows: np.ndarray, *, batch_size: int, workers: int
) -> Batches:
    """Embed as ``embed_rows`` does, by ``workers`` workers of the cluster at ``RAY_ADDRESS``, or of
    this machine."""
    if workers < 1:
        raise ConfigError(f"--ray needs at least 1 worker; got {workers}.")
    if not len(rows):
        return
    with _cluster() as data:
        # A block for each batch, or one worker would get all; made here, for tasks that make them
        # would wait for a processor while the workers hold every one.
        batches = [
            np.arange(first, min(first + batch_size, len(rows)))
            for first in range(0, len(rows), batch_size)
        ]
        embedded = data.from_numpy(batches).map_batches(
            _Worker,
            fn_constructor_args=(str(run.path.absolute()), listing, rows, batch_size),
            batch_size=batch_size,
            concurrency=workers,
            num_gpus=1 if torch.cuda.is_available() else 0,
        )
        for batch in embedded.iter_batches(batch_size=batch_size, batch_format="numpy"):
            read = batch["read"].astype(bool)
            vectors = np.asarray(batch["vector"], np.float32)[read]
            yield batch["place"][read].tolist(), vectors, batch["place"][~read].tolist()


class _Worker:
    """One process of the cluster, with the model in memory."""

    def __init__(self, run: str, listing: Listing, rows: np.ndarray, batch_size: int) -> None:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._encoder = Encoder.load(RunDirectory.open(Path(run)), device).stream("gallery")
        self._listing, self._rows, self._batch_size = listing, rows, batch_size

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        asked, size = batch["data"], self._batch_size
        dim = self._encoder.embedder.embedding_dim
        vectors, read = np.zeros((len(asked), dim), np.float32), np.zeros(len(asked), np.uint8)
        for kept, found, _ in embed_rows(
            self._encoder, self._listing, self._rows[asked], batch_size=size, workers=0
        ):
            vectors[kept], read[kept] = found, 1
        return {"place": asked, "vector": vectors, "read": read}


@contextmanager
def _cluster() -> Iterator[Any]:
    """Ray Data, connected; what was started here is stopped at the end."""
    try:
        import ray
        import ray.data
    except ImportError as error:
        raise ConfigError(
            "embedding on several machines needs Ray: `pip install 'vicinal[ray]'`."
        ) from error
    ours = not ray.is_initialized()
    if ours:
        ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.WARNING)
    context = ray.data.DataContext.get_current()
    shown, context.enable_progress_bars = context.enable_progress_bars, False  # we have our own
    try:
        yield ray.data
    finally:
        context.enable_progress_bars = shown
        if ours:
            ray.shutdown()

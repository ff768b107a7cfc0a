"""Making a collection and keeping it true: new items are added, changed ones replaced, gone ones
removed.

What is embedded is decided by content. A vector is made once for each content and model, is kept in
a cache from the moment it exists, and is used again for a file that was only moved. The new
generation becomes visible at the end.

Embedding is done in this process, or on many machines by Ray Data. Ray's workers each hold the
model and read the images themselves, so what is indexed has to lie where all of them can reach it.
Vectors come back to the one process that writes the collection, and are those of the plain path up
to the rounding of float32.
"""

import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from vicinal.data import own_description
from vicinal.data.loader import load_all
from vicinal.errors import ConfigError, DataError, few, unknown
from vicinal.evaluation.embedding import gpus_each, ray_cluster
from vicinal.evaluation.encoder import Encoder
from vicinal.files import read_array, write_atomically
from vicinal.parallel import pick_device
from vicinal.retrieval.collection import (
    FOLDER,
    CollectionDirectory,
    Snapshot,
    publish,
    writing,
)
from vicinal.retrieval.items import Item, Place
from vicinal.retrieval.listing import Listing, absolute_place, list_again, place_path
from vicinal.retrieval.milvus import absolute_address, open_store, write_store
from vicinal.run_directory import RunDirectory, model_fingerprint

_NAMED = 10  # unreadable items that an error names
_RECALL_QUERIES = 200  # on which an approximate engine is compared with exact search
_RECALL_K = 10
Batches = Iterator[tuple[list[int], np.ndarray]]  # places embedded, and their vectors


@dataclass(frozen=True)
class Request:
    """What to index, and how.

    Attributes:
        paths: places to bring up to date; without any, the run's own data.
        remove: places to take out of the collection.
        split: the part of the run's own data, or of named data that have splits.
        images: folder of the pictures where tables or feature vectors name them.
        batch_size: items embedded at a time.
        workers: processes that read images ahead.
        ray: workers of a Ray cluster that read and embed instead of this process; None for none.
        skip_corrupt: leave out what cannot be read, instead of raising in the end.
        store: folder or URL of Milvus, which then has a copy.
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
    unreadable: Sequence[str]
    recall: float | None = None


def index(
    run: RunDirectory,
    request: Request,
    console: Any,
    *,
    collection: Path | None = None,
    device: torch.device | None = None,
) -> Indexed:
    """Bring a run's collection up to date.

    Args:
        run: whose model embeds.
        request: what to index, and how.
        console: a ``training.console.Console``; receives progress, and what cannot be read.
        collection: its folder; by default ``RUN/collection``.
        device: where to embed; by default the CPU.
    """
    encoder = Encoder.load(run, device).stream("gallery")
    if request.store is not None and encoder.embedder.metric != "euclidean":
        raise ConfigError(
            "engines search by Euclidean distance, but this head is hyperbolic. Omit --store."
        )
    path = (run.path / FOLDER if collection is None else collection).absolute()
    with writing(path):
        return _Indexing(run, encoder, path, request, console).go()


class _Indexing:
    """One call of ``index``: what its steps share.

    Attributes:
        about: facts of the generation before.
        places: of it.
        old: its items.
        same_model: whether its vectors are those of the model now.
        vectors: all that need not be made, by content.
        unreadable: items whose content cannot be read, each with the reason where it is known.
    """

    def __init__(
        self, run: RunDirectory, encoder: Encoder, path: Path, request: Request, console: Any
    ) -> None:
        self.run = run
        self.encoder = encoder
        self.collection = CollectionDirectory(path)
        self.request = request
        self.console = console
        self.model = model_fingerprint(run)
        self.about: Mapping[str, Any] = {}
        self.places: Sequence[Place] = ()
        self.old: Sequence[Item] = ()
        self.vectors = VectorCache(path, self.model)
        self.unreadable = list[str]()
        if self.collection.latest_generation():
            before = self.collection.snapshot()
            self.about = before.about
            self.places = before.places
            self.old = before.items()
        self.same_model = self.about.get("model") == self.model
        if self.same_model:
            self.vectors.hold([item.digest for item in self.old], before.vectors())

    def go(self) -> Indexed:
        gone = {absolute_place(path) for path in self.request.remove}
        known = [place.path for place in self.places]
        for path in sorted(gone.difference(known)):
            raise ConfigError(unknown("place of the collection", path, known))
        listings = self._listings(gone)
        named = {listing.place.path for listing in listings} | gone
        places = [place for place in self.places if place.path not in named]
        items = [
            replace(item, place=places.index(self.places[item.place]))
            for item in self.old
            if self.places[item.place] in places
        ]
        next_id = max([self.about.get("next_id", 0), *(item.id + 1 for item in self.old[-1:])])
        ids = {(self.places[item.place].path, item.path): item.id for item in self.old}
        embedded = 0
        for listing in listings:
            digests = self._digests(listing)
            embedded += self._embed(listing, digests)
            for row, digest in digests.items():
                entry = listing.entries[row]
                if digest in self.vectors:
                    id = ids.get((listing.place.path, entry.path), next_id)
                    next_id = max(next_id, id + 1)
                    items.append(replace(entry, id=id, place=len(places), digest=digest))
                else:
                    self._leave_out(entry.path)
            places.append(listing.place)
        items.sort(key=lambda item: item.id)
        if self.unreadable and not self.request.skip_corrupt:
            total = sum(len(listing.entries) for listing in listings)
            raise DataError(
                f"{len(self.unreadable)} of {total} items cannot be read: "
                f"{few(self.unreadable, _NAMED, '; ')}. Repair or remove them, or leave them "
                "out with --skip-corrupt; what was embedded is kept."
            )
        self._publish(items, places, next_id)
        self.vectors.clear()
        old, now = ({item.id: item.digest for item in each} for each in (self.old, items))
        snapshot = self.collection.snapshot()
        return Indexed(
            snapshot.generation,
            len(items),
            embedded,
            added=len(now.keys() - old.keys()),
            replaced=sum(now[id] != old[id] for id in now.keys() & old.keys()),
            removed=len(old.keys() - now.keys()),
            unreadable=self.unreadable,
            recall=_recall(snapshot),
        )

    def _listings(self, gone: set[str]) -> list[Listing]:
        """List the places to bring up to date: those named, or else the run's own data."""
        asked = self.request
        own = place_path(own_description(self.run))
        given = list(dict.fromkeys(map(absolute_place, asked.paths)))
        first = given or ([] if self.places else [own])
        wanted = {path: (asked.split, asked.images) for path in first}
        if not self.same_model or not (given or gone):
            for place in self.places:
                if place.path not in (own, *given, *gone):
                    command = shlex.join(
                        ["vicinal", "index", str(self.run.path), *given, place.path]
                    )
                    raise ConfigError(
                        f"the collection holds {place.path}, which is neither the run's own data "
                        f"nor named here, and is not read. Name it: `{command}`; or take it out "
                        "with --remove."
                    )
                if place.path not in gone:
                    wanted.setdefault(place.path, (place.split, place.images))
        listings = [list_again(self.run, path, *how) for path, how in wanted.items()]
        for listing in listings:
            takes = self.encoder.taking(listing.source).preprocessing.kind
            if listing.source.kind != takes:
                raise DataError(
                    f"this run's model embeds {takes}, but {listing.place.path} holds "
                    f"{listing.source.kind}. Index data of the kind it was trained on."
                )
        return listings

    def _digests(self, listing: Listing) -> dict[int, str]:
        """Read all entries; return by row the content of those that can be read."""
        found = dict[int, str]()
        with self.console.following(len(listing.entries), 0, "reading") as follower:
            for row, entry in enumerate(listing.entries):
                try:
                    found[row] = listing.digest(row)
                except DataError as error:
                    self._leave_out(f"{entry.path}: {error}".rstrip("."))
                follower.advance(row + 1)
        return found

    def _leave_out(self, what: str) -> None:
        self.unreadable.append(what)
        self.console.line(f"cannot be read: {what}", warning=True)

    def _embed(self, listing: Listing, digests: Mapping[int, str]) -> int:
        """Make the vectors that are missing, each batch into the cache at once; return how many."""
        row_of = {digest: row for row, digest in digests.items()}
        wanted = [digest for digest in row_of if digest not in self.vectors]
        rows = np.array([row_of[digest] for digest in wanted], np.int64)
        done = len(row_of) - len(wanted)
        made = 0
        with self.console.following(len(row_of), done, "embedding") as follower:
            for kept, vectors in self._batches(listing, rows) if wanted else ():
                self.vectors.append([wanted[place] for place in kept], vectors)
                made += len(kept)
                follower.advance(done + made)
        return made

    def _batches(self, listing: Listing, rows: np.ndarray) -> Batches:
        asked = self.request
        if asked.ray is None:
            return embed_rows(self.encoder, listing, rows, asked.batch_size, asked.workers)
        return embed_rows_on_ray(self.run, listing, rows, asked.batch_size, asked.ray)

    def _publish(self, items: Sequence[Item], places: Sequence[Place], next_id: int) -> None:
        """Write the next generation, unless nothing changed."""
        address = None if self.request.store is None else absolute_address(self.request.store)
        kept = (self.about.get("store") or {}).get("address")
        same_items = (tuple(items), tuple(places)) == (self.old, self.places)
        if self.same_model and same_items and kept == address:
            return
        vectors = [self.vectors[item.digest] for item in items]
        path = self.collection.path
        embedder = self.encoder.embedder
        dim = embedder.embedding_dim
        number = 1 + self.collection.latest_generation()
        facts = {
            "metric": embedder.metric,
            "model": self.model,
            "run": str(self.run.path.absolute()),
            "next_id": next_id,
            "store": address and write_store(address, path, number, items, vectors, dim),
        }
        publish(path, items, vectors, dim=dim, places=places, facts=facts)


def _recall(snapshot: Snapshot) -> float | None:
    """Measure the share of the exact nearest that an approximate engine finds, over vectors of
    the collection drawn as queries."""
    kept = snapshot.about.get("store")
    if kept is None or kept["index"] == "FLAT":
        return None
    drawn = np.random.default_rng(0).permutation(len(snapshot))[:_RECALL_QUERIES]
    queries = np.array(snapshot.vectors()[drawn])
    exact = snapshot.search(queries, _RECALL_K)
    with closing(open_store(kept["address"], kept)) as store:
        found = store.search(queries, _RECALL_K, where={})
    hits = sum(
        len({id for id, _ in near} & {match.item.id for match in true})
        for near, true in zip(found, exact, strict=True)
    )
    return hits / sum(map(len, exact))


# -- embedding ------------------------------------------------------------------------------------


class VectorCache:
    """The vectors of one model as they are made, by the SHA-256 of what they were made of: a file
    for each batch.

    Args:
        folder: of the collection.
        model: fingerprint of what makes them; caches of other models are removed.
    """

    def __init__(self, folder: Path, model: str) -> None:
        self.path = folder / f"embedded-{model[:32]}"
        self._vectors: dict[str, np.ndarray] = {}
        for old in folder.glob("embedded-*"):
            if old != self.path:
                shutil.rmtree(old)
        for file in self.path.glob("*.npy"):
            self._read(file)

    def _read(self, file: Path) -> None:
        entries = read_array(file, mapped=True)
        self.hold(entries["digest"].tolist(), entries["vector"])

    def hold(self, digests: Sequence[str], vectors: Float[np.ndarray, "n d"]) -> None:
        """Know these, too, which are kept elsewhere."""
        self._vectors.update(zip(digests, np.asarray(vectors), strict=True))

    def __contains__(self, digest: str) -> bool:
        return digest in self._vectors

    def __getitem__(self, digest: str) -> Float[np.ndarray, "d"]:
        return self._vectors[digest]

    def append(self, digests: Sequence[str], vectors: Float[np.ndarray, "n d"]) -> None:
        """Keep these; when it returns, they survive a power cut."""
        columns = [("digest", "U64"), ("vector", "<f4", vectors.shape[1:])]
        entries = np.array([*zip(digests, vectors, strict=True)], columns)
        file = self.path / f"{digests[0]}.npy"
        write_atomically(file, lambda opened: np.save(opened, entries))
        self._read(file)

    def clear(self) -> None:
        """Remove the files: their vectors are in a generation now."""
        shutil.rmtree(self.path, ignore_errors=True)


def embed_rows(
    encoder: Encoder, listing: Listing, rows: np.ndarray, batch_size: int, workers: int
) -> Batches:
    """Embed some entries of a listing; for each batch the places among ``rows`` that could be read,
    and their vectors."""
    encoder = encoder.taking(listing.source)
    records = listing.records(rows)
    for batch in load_all(
        records, encoder.preprocessing, batch_size, workers, True, encoder.device
    ):
        vectors, kept, _ = encoder.forward([batch])
        if vectors is not None:
            yield kept, vectors.numpy()


def embed_rows_on_ray(
    run: RunDirectory, listing: Listing, rows: np.ndarray, batch_size: int, workers: int
) -> Batches:
    """Embed as ``embed_rows`` does, by ``workers`` workers of the cluster at ``RAY_ADDRESS``, or of
    this machine."""
    if workers < 1:
        raise ConfigError(f"--ray needs at least 1 worker; got {workers}.")
    with ray_cluster() as ray:
        # A block for each batch, or one worker would get all; made here, for tasks that make them
        # would wait for a processor while the workers hold every one.
        batches = np.split(np.arange(len(rows)), range(batch_size, len(rows), batch_size))
        embedded = ray.data.from_numpy(batches).map_batches(
            _Worker,
            fn_constructor_args=(run.path.absolute(), listing, rows),
            batch_size=batch_size,
            concurrency=workers,
            num_gpus=gpus_each(ray),
        )
        for batch in embedded.iter_batches(batch_size=batch_size, batch_format="numpy"):
            yield batch["place"].tolist(), np.stack(batch["vector"])


class _Worker:
    """One process of the cluster, with the model in memory."""

    def __init__(self, run: Path, listing: Listing, rows: np.ndarray) -> None:
        self._encoder = Encoder.load(RunDirectory.open(run), pick_device("auto")).stream("gallery")
        self._listing = listing
        self._rows = rows

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        asked = batch["data"]
        width = self._encoder.embedder.embedding_dim
        places = [asked[:0]]
        vectors = [np.empty((0, width), np.float32)]
        for kept, found in embed_rows(
            self._encoder, self._listing, self._rows[asked], len(asked), 0
        ):
            places.append(asked[kept])
            vectors.append(found)
        return {"place": np.concatenate(places), "vector": np.concatenate(vectors)}

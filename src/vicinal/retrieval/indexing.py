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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vicinal.data.loader import load_all
from vicinal.errors import ConfigError, DataError, few, unknown
from vicinal.evaluation.embedding import on_ray
from vicinal.evaluation.encoder import Encoder
from vicinal.files import read_array, write_atomically
from vicinal.parallel import pick_device
from vicinal.retrieval.collection import (
    FOLDER,
    CollectionDirectory,
    Snapshot,
    drawn,
    publish,
    writing,
)
from vicinal.retrieval.items import Rows, Vectors
from vicinal.retrieval.listing import Listing, absolute_place, list_again, own_place
from vicinal.retrieval.stores import absolute_address, open_store, write_store
from vicinal.run_directory import RunDirectory, model_fingerprint

_NAMED = 10  # unreadable items that an error names
_RECALL_QUERIES = 200  # on which an approximate engine is compared with exact search
_RECALL_K = 10
Batches = Iterator[tuple[Rows, Vectors]]  # entries embedded, and their vectors


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
    paths: Sequence[str] = (),
    *,
    console: Any,
    remove: Sequence[str] = (),
    split: str = "all",
    images: str | None = None,
    batch_size: int = 256,
    workers: int = 0,
    ray: int | None = None,
    skip_corrupt: bool = False,
    store: str | None = None,
    collection: Path | None = None,
    device: torch.device | None = None,
) -> Indexed:
    """Bring a run's collection up to date.

    Args:
        run: whose model embeds.
        paths: places to bring up to date; without any, the run's own data.
        console: a ``training.console.Console``; receives progress, and what cannot be read.
        remove: places to take out of the collection.
        split: the part of the run's own data, or of named data that have splits.
        images: folder of the pictures where tables or feature vectors name them.
        batch_size: items embedded at a time.
        workers: processes that read images ahead.
        ray: workers of a Ray cluster that read and embed instead of this process; None for none.
        skip_corrupt: leave out what cannot be read, instead of raising in the end.
        store: address of Milvus or LanceDB, which then has a copy.
        collection: its folder; by default ``RUN/collection``.
        device: where to embed; by default the CPU.
    """
    encoder = Encoder.load(run, device).stream("gallery")
    embedder = encoder.embedder
    if store is not None and embedder.metric != "euclidean":
        raise ConfigError(
            "engines search by Euclidean distance, but this head is hyperbolic. Omit --store."
        )
    path = (collection or run.path / FOLDER).absolute()
    with writing(path):
        held = CollectionDirectory(path)
        before = held.snapshot() if held.latest_generation() else None
        about = before.about if before else {}
        known = before.places if before else ()
        old = tuple(before.items) if before else ()
        model = model_fingerprint(run)
        same_model = about.get("model") == model
        vectors = VectorCache(path, model)
        if before and same_model:
            vectors.hold([item.digest for item in old], before.vectors)
        made = len(vectors)
        own = own_place(run)
        named = {place.path: place for place in known}
        gone = {absolute_place(name) for name in remove}
        for name in sorted(gone - named.keys()):
            raise ConfigError(unknown("place of the collection", name, named))
        given = dict.fromkeys(map(absolute_place, paths), (split, images))
        if not given and (not known or split != "all"):
            given = {own: (split, images or (named[own].images if own in named else None))}
        everything = not same_model or not (paths or gone)
        for name in sorted(named.keys() - given.keys() - gone) if everything else ():
            if name != own:
                command = shlex.join(["vicinal", "index", str(run.path), *given, name])
                raise ConfigError(
                    f"the collection holds {name}, which is neither the run's own data nor named "
                    f"here, and is not read. Name it: `{command}`; or take it out with --remove."
                )
            given[name] = named[name].split, named[name].images
        listings = [list_again(run, name, *how) for name, how in given.items()]
        for listing in listings:
            encoder.taking(listing.source, listing.place.path)
        places = [place for place in known if place.path not in given.keys() | gone]
        items = [
            replace(item, place=places.index(known[item.place]))
            for item in old
            if known[item.place] in places
        ]
        next_id = about.get("next_id", 0)
        ids = {(known[item.place].path, item.path): item.id for item in old}
        unreadable = list[str]()
        embed: Callable[..., Batches] = partial(embed_rows, encoder, workers=workers)
        if ray is not None:
            embed = partial(embed_rows_on_ray, run, workers=ray)
        for listing in listings:
            digests, unread = _digests(listing, console)
            _embed_missing(vectors, digests, partial(embed, listing, batch_size), console)
            for row, digest in digests.items():
                entry = listing.entries[row]
                if digest not in vectors:
                    unread.append(entry.path)
                    continue
                id = ids.get((listing.place.path, entry.path), next_id)
                next_id = max(next_id, id + 1)
                items.append(replace(entry, id=id, place=len(places), digest=digest))
            places.append(listing.place)
            for what in unread:
                console.line(f"cannot be read: {what}", warning=True)
            unreadable += unread
        items.sort(key=lambda item: item.id)
        if unreadable and not skip_corrupt:
            total = sum(len(listing.entries) for listing in listings)
            raise DataError(
                f"{len(unreadable)} of {total} items cannot be read: "
                f"{few(unreadable, _NAMED, '; ')}. Repair or remove them, or leave them out with "
                "--skip-corrupt; what was embedded is kept."
            )
        address = store and absolute_address(store)
        unchanged = same_model and (tuple(items), tuple(places)) == (old, known)
        if not unchanged or address != (about.get("store") or {}).get("address"):
            rows_of_items = [vectors[item.digest] for item in items]
            dim = embedder.embedding_dim
            number = 1 + held.latest_generation()
            facts = {
                "metric": embedder.metric,
                "model": model,
                "next_id": next_id,
                "store": address and write_store(address, path, number, items, rows_of_items, dim),
            }
            publish(path, items, rows_of_items, dim=dim, places=places, facts=facts)
        shutil.rmtree(vectors.path, ignore_errors=True)  # its vectors are in a generation now
        was, now = ({item.id: item.digest for item in each} for each in (old, items))
        snapshot = held.snapshot()
        compact = snapshot.compact()
        return Indexed(
            snapshot.generation,
            len(items),
            len(vectors) - made,
            added=len(now.keys() - was.keys()),
            replaced=sum(now[id] != was[id] for id in now.keys() & was.keys()),
            removed=len(was.keys() - now.keys()),
            unreadable=unreadable,
            recall=_recall(snapshot) or compact,
        )


def _digests(listing: Listing, console: Any) -> tuple[dict[int, str], list[str]]:
    """Read all entries; return by row the content of those that can be read, and what cannot."""
    found = dict[int, str]()
    unread = list[str]()
    with console.following(len(listing.entries), 0, "reading") as follower:
        for row, entry in enumerate(listing.entries):
            try:
                found[row] = listing.digest(row)
            except DataError as error:
                unread.append(f"{entry.path}: {error}".rstrip("."))
            follower.advance(row + 1)
    return found, unread


def _embed_missing(
    vectors: "VectorCache",
    digests: Mapping[int, str],
    batches: Callable[[Rows], Batches],
    console: Any,
) -> None:
    """Make the vectors that are missing, each batch into the cache at once."""
    total = len(set(digests.values()))
    wanted = {digest: row for row, digest in digests.items() if digest not in vectors}
    done = total - len(wanted)
    with console.following(total, done, "embedding") as follower:
        for rows, found in batches(np.array([*wanted.values()])) if wanted else ():
            vectors.append([digests[row] for row in rows.tolist()], found)
            done += len(rows)
            follower.advance(done)


def _recall(snapshot: Snapshot) -> float | None:
    """Measure the share of the exact nearest that an approximate engine finds, over vectors of
    the collection drawn as queries."""
    kept = snapshot.about.get("store")
    if kept is None or kept["index"] == "FLAT":
        return None
    rows = drawn(len(snapshot), min(_RECALL_QUERIES, len(snapshot) // 2))
    queries = np.array(snapshot.vectors[rows])
    others = [snapshot.items[row].id for row in rows]
    exact = snapshot.search(queries, _RECALL_K, exclude=others)
    with closing(open_store(kept["address"], kept)) as store:
        found = store.search(queries, _RECALL_K, where={}, exclude=others)
    hits = sum(
        len({id for id, _ in near} & {match.item.id for match in true})
        for near, true in zip(found, exact, strict=True)
    )
    return hits / sum(map(len, exact))


# -- embedding ------------------------------------------------------------------------------------


class VectorCache(dict[str, np.ndarray]):
    """The vectors of one model as they are made, by the SHA-256 of what they were made of: a file
    for each batch.

    Args:
        folder: of the collection.
        model: fingerprint of what makes them; caches of other models are removed.
    """

    def __init__(self, folder: Path, model: str) -> None:
        super().__init__()
        self.path = folder / f"embedded-{model[:32]}"
        for old in folder.glob("embedded-*"):
            if old != self.path:
                shutil.rmtree(old)
        for file in self.path.glob("*.npy"):
            self._read(file)

    def _read(self, file: Path) -> None:
        entries = read_array(file, mapped=True)
        self.hold(entries["digest"].tolist(), entries["vector"])

    def hold(self, digests: Sequence[str], vectors: Vectors) -> None:
        """Know these, too, which are kept elsewhere."""
        self.update(zip(digests, np.asarray(vectors), strict=True))

    def append(self, digests: Sequence[str], vectors: Vectors) -> None:
        """Keep these; when it returns, they survive a power cut."""
        columns = [("digest", "U64"), ("vector", "<f4", vectors.shape[1:])]
        entries = np.array([*zip(digests, vectors, strict=True)], columns)
        file = self.path / f"{digests[0]}.npy"
        write_atomically(file, lambda opened: np.save(opened, entries))
        self._read(file)


def embed_rows(
    encoder: Encoder, listing: Listing, batch_size: int, rows: Rows, *, workers: int = 0
) -> Batches:
    """Embed some entries of a listing; for each batch those that could be read, and their
    vectors."""
    encoder = encoder.taking(listing.source, listing.place.path)
    how = encoder.preprocessing, batch_size, workers, True, encoder.device
    for batch in load_all(listing.records(rows), *how):
        vectors, kept, _ = encoder.forward([batch])
        if vectors is not None:
            yield rows[kept], vectors.numpy()


def embed_rows_on_ray(
    run: RunDirectory, listing: Listing, batch_size: int, rows: Rows, *, workers: int
) -> Batches:
    """Embed as ``embed_rows`` does, by ``workers`` workers of the cluster at ``RAY_ADDRESS``, or of
    this machine."""
    # A block for each batch, or one worker would get all; made here, for tasks that make them
    # would wait for a processor while the workers hold every one.
    blocks = np.split(rows, range(batch_size, len(rows), batch_size))
    settings = run.path.absolute(), listing
    for batch in on_ray(_Worker, settings, blocks, batch_size, workers):
        yield batch["row"], np.stack(batch["vector"])


class _Worker:
    """One process of the cluster, with the model in memory."""

    def __init__(self, run: Path, listing: Listing) -> None:
        self._encoder = Encoder.load(RunDirectory.open(run), pick_device("auto")).stream("gallery")
        self._listing = listing

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        rows = batch["data"]
        nothing = np.empty((0, self._encoder.embedder.embedding_dim), np.float32)
        made = embed_rows(self._encoder, self._listing, len(rows), rows)
        kept, vectors = next(made, (rows[:0], nothing))
        return {"row": kept, "vector": vectors}

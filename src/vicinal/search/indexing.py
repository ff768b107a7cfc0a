"""Making a collection and keeping it true: new things are added, changed ones replaced, gone ones removed.

What is embedded is decided by content. A vector is made once for each content and model, is kept in a journal from the
moment it exists, and is used again for a file that was only moved. The new generation becomes visible at the end.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vicinal.errors import DataError
from vicinal.evaluation.encoder import Encoder
from vicinal.run_directory import RunDirectory
from vicinal.search.collection import FOLDER, POINTER, CollectionDirectory, Item
from vicinal.search.embedding import Batches, embed_rows
from vicinal.search.engine import Engine, drop_engine, wanted_engine, write_engine
from vicinal.search.fingerprint import model_fingerprint
from vicinal.search.generations import publish, writing
from vicinal.search.journal import VectorJournal
from vicinal.search.listing import Listing
from vicinal.search.planning import Audience, Plan, Request, make_plan

JOURNAL = "journal.bin"
_NAMED = 10  # unreadable things that a refusal names


@dataclass(frozen=True)
class Indexed:
    """What indexing did.

    Attributes:
        generation: the newest one now.
        items: how many things the collection holds.
        embedded: how many vectors had to be made; contents seen before need none.
        added: things that are new.
        replaced: things whose content changed.
        removed: things that are gone.
        unreadable: things that were left out, each with the reason where more is known than that.
        recall: of an approximate index against exact search on a sample; None where search is exact.
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
        audience: told how far the work has come, and what cannot be read.
        collection: its folder; by default ``RUN/collection``.
        device: where to embed; by default the CPU.
    """
    encoder = Encoder.load(run, device).stream("gallery")
    path = (run.path / FOLDER if collection is None else collection).absolute()
    with writing(path):
        return _Indexing(run, encoder, path, request, audience).go()


class _Indexing:
    """One call of ``index``: what its steps share."""

    def __init__(self, run: RunDirectory, encoder: Encoder, path: Path, request: Request, audience: Audience) -> None:
        self.run, self.encoder, self.path, self.request, self.audience = run, encoder, path, request, audience
        self.model, self.dim = model_fingerprint(run), encoder.embedder.dim or encoder.embedder.width
        self.before = CollectionDirectory(path).snapshot() if (path / POINTER).is_file() else None
        about = {} if self.before is None else self.before.about
        self.same_model = about.get("model") == self.model
        self.engine = wanted_engine(request.store, request.store_index, about.get("store"), path, self.model)
        self.same_engine = _same(self.engine, about.get("store"))
        # Rows of the generation before by content; of another model they are worth nothing.
        known = self.before.items() if self.before is not None and self.same_model else ()
        self.rows = {item.digest: row for row, item in enumerate(known)}

    def go(self) -> Indexed:
        anew = self.before is not None and not self.same_model
        plan = make_plan(self.run, self.path, self.request, self.audience, self.before, anew=anew)
        for listing in plan.listings:
            self._refuse_other_kind(listing)
        journal = VectorJournal(self.path / JOURNAL, dim=self.dim, model=self.model)
        try:
            embedded = self._embed(plan, journal)
            self._refuse_unreadable(plan)
            items = [item for item in plan.items if item.digest in journal or item.digest in self.rows]
            generation = self._published(items, plan, journal)
        finally:
            journal.close()
        journal.clear()
        return self._summary(generation, items, embedded, plan)

    def _refuse_other_kind(self, listing: Listing) -> None:
        takes = self.encoder.preprocessing.kind
        if listing.source.kind != takes:
            raise DataError(
                f"this run's model embeds {takes}, but {listing.place.path} holds {listing.source.kind}. "
                f"Index data of the kind it was trained on."
            )

    def _embed(self, plan: Plan, journal: VectorJournal) -> int:
        """Make the vectors that are missing, each batch into the journal at once; return how many."""
        missing = {digest: where for digest, where in plan.contents.items() if digest not in self.rows}
        wanted = {digest: where for digest, where in missing.items() if digest not in journal}
        done, embedded = len(missing) - len(wanted), 0
        with self.audience.following(len(missing), done, "embedding") as follower:
            for number, listing in enumerate(plan.listings):
                here = [digest for digest, (of, _) in wanted.items() if of == number]
                rows = np.array([wanted[digest][1] for digest in here], dtype=np.int64)
                for kept, vectors, unread in self._batches(listing, rows):
                    journal.append([here[place] for place in kept], vectors)
                    self._report({here[place] for place in unread}, plan)
                    done, embedded = done + len(kept) + len(unread), embedded + len(kept)
                    follower.advance(done)
        return embedded

    def _batches(self, listing: Listing, rows: np.ndarray) -> Batches:
        size, request = self.request.batch_size, self.request
        if request.ray is None:
            return embed_rows(self.encoder, listing, rows, batch_size=size, workers=request.workers)
        from vicinal.search.bulk import embed_rows_on_ray

        return embed_rows_on_ray(self.run, listing, rows, batch_size=size, workers=request.ray)

    def _report(self, digests: set[str], plan: Plan) -> None:
        """Name all things with a content that is no picture, of which only one was looked at."""
        for item in plan.items if digests else ():
            if item.digest in digests:
                plan.unreadable.append(item.path)
                self.audience.line(f"cannot be read: {item.path}", warning=True)

    def _refuse_unreadable(self, plan: Plan) -> None:
        if plan.unreadable and not self.request.skip_corrupt:
            named = "; ".join(plan.unreadable[:_NAMED]) + ("; ..." if len(plan.unreadable) > _NAMED else "")
            raise DataError(
                f"{len(plan.unreadable)} of {sum(len(listing.entries) for listing in plan.listings)} things cannot be "
                f"read: {named}. Mend or remove them, or leave them out with --skip-corrupt; what was embedded is kept "
                f"for that."
            )

    def _published(self, items: Sequence[Item], plan: Plan, journal: VectorJournal) -> int:
        before, engine = self.before, self.engine
        same = before is not None and self.same_model and self.same_engine
        if before is not None and same and (tuple(items), tuple(plan.places)) == (before.items(), before.places):
            return before.generation
        number = publish(
            self.path,
            items,
            self._vectors(items, journal),
            dim=self.dim,
            places=plan.places,
            next_id=plan.next_id,
            facts={
                "model": self.model,
                "run": str(self.run.path.absolute()),
                "retired": None if before is None or same else before.about.get("store"),
            },
            engine=None
            if engine is None
            else lambda number, folder: write_engine(engine, number, items, folder, "euclidean", before),
        )
        retired = None if before is None else before.about.get("retired")
        if before is not None and retired is not None:  # its last readers are two generations behind now
            drop_engine(Engine(**retired), before.dim)
        return number

    def _vectors(self, items: Sequence[Item], journal: VectorJournal) -> Iterator[np.ndarray]:
        for item in items:
            row = self.rows.get(item.digest)
            yield journal.vector(item.digest) if row is None or self.before is None else self.before.vectors()[row]

    def _summary(self, generation: int, items: Sequence[Item], embedded: int, plan: Plan) -> Indexed:
        old = {} if self.before is None else {item.id: item.digest for item in self.before.items()}
        new = {item.id: item.digest for item in items}
        store = CollectionDirectory(self.path).snapshot().about.get("store")
        return Indexed(
            generation=generation,
            items=len(items),
            embedded=embedded,
            added=len(new.keys() - old.keys()),
            replaced=sum(new[id] != old[id] for id in new.keys() & old.keys()),
            removed=len(old.keys() - new.keys()),
            unreadable=tuple(plan.unreadable),
            recall=None if store is None else Engine(**store).recall,
        )


def _same(engine: Engine | None, store: Mapping[str, Any] | None) -> bool:
    if store is None or engine is None:
        return store is None and engine is None
    return replace(Engine(**store), recall=None) == engine

"""An embedder with its preprocessing: what turns records into vectors, and what a run keeps of a
model."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from vicinal import parallel
from vicinal.arguments import build, describe
from vicinal.data import TRANSFORMS
from vicinal.data.loader import load_all
from vicinal.data.records import (
    BOTH,
    GALLERY,
    QUERY,
    Batch,
    FeatureArray,
    Progress,
    Records,
    Source,
)
from vicinal.data.transforms import FeatureTransform, TextTransform, Transform
from vicinal.distances import Metric
from vicinal.errors import DataError, RunError
from vicinal.files import decoding, read_object, read_tensors, write_json, write_tensors
from vicinal.models import MODELS
from vicinal.models.custom import trusted
from vicinal.models.embedder import Apply, Embedder, Role, TwoStreamEmbedder
from vicinal.run_directory import FORMAT, RunDirectory, model_fingerprint

_PART = 2**22  # numbers of the images that a CPU takes at once: 27 of 224 x 224 pixels
_ROLES: dict[int, Role] = {QUERY: "query", GALLERY: "gallery"}


@dataclass(frozen=True)
class Embedded:
    """Vectors of some records.

    Attributes:
        vectors: one row per record that could be read, on the CPU.
        records: those records, in the same order.
        skipped: names of the records that could not be read.
        metric: by which vectors are near.
    """

    vectors: Float[Tensor, "n d"]
    records: Records
    skipped: tuple[str, ...]
    metric: Metric = "euclidean"

    @property
    def labels(self) -> Tensor:
        return torch.from_numpy(self.records.labels).long()

    @property
    def targets(self) -> Tensor:
        """``labels``, or a matrix of all classes of each row."""
        return torch.from_numpy(self.records.targets)

    def take(self, rows: Int[np.ndarray, "n"]) -> "Embedded":
        """Return some rows."""
        return replace(self, vectors=self.vectors[rows], records=self.records.take(rows))

    def first(self, size: int, *, normalize: bool) -> "Embedded":
        """Cut vectors to their first numbers, scaled to length 1 again where the model does so."""
        vectors = self.vectors[:, :size]
        return replace(
            self, vectors=torch.nn.functional.normalize(vectors, dim=1) if normalize else vectors
        )

    def roles(self) -> tuple[Int[Tensor, "q"], Int[Tensor, "g"] | None]:
        """Positions of the queries and of the gallery; all rows and None where each row is sought
        among the others."""
        role = self.records.columns.get("role")
        if role is None or (role == BOTH).all():
            return torch.arange(len(self.vectors)), None
        if (role == BOTH).any():
            raise DataError(
                f"{self.records.name} mixes rows that are query and gallery with rows that are "
                "one of them. "
                f"Give every row the role {QUERY} (query) or {GALLERY} (gallery), or none a role."
            )
        queries, gallery = (np.flatnonzero(role == one) for one in (QUERY, GALLERY))
        return torch.from_numpy(queries), torch.from_numpy(gallery)

    def sides(self) -> tuple[Tensor, Tensor, dict[str, Any]]:
        """Return the queries, their labels and, where they have one, ``gallery`` and
        ``gallery_labels``."""
        queries, rows = self.roles()
        if rows is None:  # as they lie, maybe on the disk
            return self.vectors, self.targets, {}
        gallery = {"gallery": self.vectors[rows], "gallery_labels": self.targets[rows]}
        return self.vectors[queries], self.targets[queries], gallery


@dataclass(frozen=True)
class Encoder:
    """From records to vectors: preprocessing, network and device together.

    Attributes:
        run: whose model this is, where it was loaded.
        given: whether inputs are embeddings already.
    """

    embedder: Embedder
    preprocessing: Transform
    device: torch.device
    run: RunDirectory | None = None
    given: bool = False

    def stream(self, role: Role | None) -> "Encoder":
        """The encoder of queries or of gallery images alone, for any role of records; most
        models have one for all.

        In a joint embedding texts are the queries.

        A gallery is indexed through ``stream("gallery")`` and asked through ``stream("query")``.
        """
        embedder = self.embedder.stream(role)
        preprocessing = TextTransform() if embedder.reads_text else self.preprocessing
        return replace(self, embedder=embedder, preprocessing=preprocessing)

    def taking(self, source: Source, name: str) -> "Encoder":
        """Return the encoder for a source: embeddings that this very model made it leaves as they
        are; a DataError with its name for a source of another kind."""
        whole, _ = source.origin(np.arange(0))
        made_by = whole.model if isinstance(whole, FeatureArray) else None
        if made_by is not None and self.run and made_by == model_fingerprint(self.run):
            return replace(self, preprocessing=FeatureTransform(), given=True)
        if source.kind != self.preprocessing.kind:
            raise DataError(
                f"this model embeds {self.preprocessing.kind}, got {name}, which holds "
                f"{source.kind}. Use data of the kind it was trained on."
            )
        return self

    def embed(
        self,
        records: Records,
        *,
        batch_size: int = 256,
        workers: int = 0,
        skip_corrupt: bool = False,
        features: bool = False,
        progress: Progress | None = None,
    ) -> Embedded:
        """Embed all records in evaluation mode; several processes take a part each, and every one
        gets all rows.

        A model without a text encoder leaves out the texts beside pictures.

        Args:
            features: give the backbone's feature y instead of the embedding z.
            progress: called with how many records are done.
        """
        self = self.taking(records.source, records.name)
        if records.captions is not None and not self.embedder.reads_text:
            records = records.pictures()
        if self.given:
            source, rows = records.source.origin(np.arange(len(records)))
            whole = np.array_equal(rows, np.arange(len(source)))  # which may lie on the disk
            held = source.features if whole else source.read_all(rows)  # type: ignore[attr-defined]
            return Embedded(torch.from_numpy(held), records, (), self.embedder.metric)
        share = parallel.part(range(len(records)))
        mine = records.take(np.asarray(share, dtype=np.int64))
        batches = load_all(mine, self.preprocessing, batch_size, workers, skip_corrupt, self.device)
        vectors, kept, skipped = self.forward(batches, features=features, progress=progress)
        shares = parallel.from_all(
            (vectors, [share[row] for row in kept], [share[row] for row in skipped])
        )
        found = [vectors for vectors, _, _ in shares if vectors is not None]
        positions = [row for _, kept, _ in shares for row in kept]
        unread = tuple(records.source.name(row) for _, _, skipped in shares for row in skipped)
        if not found:
            raise DataError(
                f"{records.name} has no readable record to embed ({len(unread)} could not be read)."
            )
        metric: Metric = "euclidean" if features else self.embedder.metric
        return Embedded(
            torch.cat(found), records.take(np.asarray(positions, dtype=np.int64)), unread, metric
        )

    def forward(
        self,
        batches: Iterable[Batch],
        *,
        features: bool = False,
        progress: Progress | None = None,
    ) -> tuple[Tensor | None, list[int], list[int]]:
        """Return vectors, the positions they belong to, and those that could not be read; None
        where there is no vector."""
        rows = list[Tensor]()
        kept = list[int]()
        skipped = list[int]()
        training = self.embedder.training
        self.embedder.eval()
        try:
            with torch.inference_mode():
                for batch in batches:
                    skipped.extend(batch.skipped)
                    kept.extend(batch.indices.tolist())
                    if len(batch.indices):
                        rows.append(self.vectors(batch, features=features).float().cpu())
                    if progress is not None:
                        progress(len(kept))
        finally:
            self.embedder.train(training)
        # A copy out of inference mode, so that callers may differentiate.
        return torch.cat(rows).clone() if rows else None, kept, skipped

    def vectors(self, batch: Batch, *, features: bool = False) -> Float[Tensor, "n d"]:
        """Send each row through the network of its role."""
        batch = batch.to(self.device)
        if self.given:
            return batch.inputs
        inputs = batch.inputs
        embedder = self.embedder
        apply = partial(self._in_parts, Embedder.features if features else Embedder.__call__)
        if not isinstance(embedder, TwoStreamEmbedder):
            return apply(embedder, inputs)
        if batch.texts is not None:
            return embedder.joined(apply, batch.texts, inputs, batch.extras["role"] == QUERY)
        roles = batch.extras.get("role", torch.zeros(len(batch.indices)))
        parts = list[Tensor]()
        places = list[Tensor]()
        for role in torch.unique(roles).tolist():
            places.append((roles == role).nonzero().flatten().to(inputs.device))
            parts.append(apply(embedder.stream(_ROLES.get(int(role))), inputs[places[-1]]))
        return torch.cat(parts)[torch.cat(places).argsort()]

    def _in_parts(self, apply: Apply, embedder: Embedder, inputs: Tensor) -> Float[Tensor, "n d"]:
        """Apply the network to a batch; on a CPU to a few images at a time, whose maps would fill
        its memory."""
        rows = max(1, _PART // inputs[0].numel()) if self.device.type == "cpu" else len(inputs)
        return torch.cat([apply(embedder, part) for part in torch.split(inputs, rows)])

    def save_description(self, run: RunDirectory) -> None:
        """Write ``model.json``; a network that could not be rebuilt from it raises now, not after
        training."""
        build(describe(self.embedder), MODELS | trusted(self.embedder))
        parts = {"embedder": describe(self.embedder), "preprocessing": describe(self.preprocessing)}
        write_json(run.model_path, {"format": FORMAT, **parts})

    def save_weights(self, run: RunDirectory) -> None:
        write_tensors(run.weights_path, self.embedder.state_dict())

    @classmethod
    def load(
        cls, run: RunDirectory, device: torch.device | None = None, *, trust: Any = None
    ) -> "Encoder":
        """The selected model of a run, rebuilt without executing anything from it.

        Args:
            trust: the class of a network of the user's own; see ``vicinal.models.custom.trusted``.
        """
        if not run.weights_path.is_file():
            advice = "Let it train to its first evaluation."
            if run.status.get("state") != "running":
                advice = f"It stopped: `vicinal train --resume {run.path}` goes on."
            raise RunError(f"{run.path} has no selected model yet (model.safetensors). {advice}")
        document = read_object(run.model_path)
        if document.get("format") != FORMAT:
            raise RunError(
                f"{run.model_path} is not a model of format {FORMAT}. Use the version that wrote "
                "it."
            )
        with decoding(run.model_path):
            embedder = build(document["embedder"], MODELS | trusted(trust))
            preprocessing = build(document["preprocessing"], TRANSFORMS)
            if not isinstance(embedder, Embedder) or not hasattr(preprocessing, "kind"):
                raise TypeError(
                    f"got a {type(embedder).__name__} and a {type(preprocessing).__name__}"
                )
        try:
            embedder.load_state_dict(read_tensors(run.weights_path))
        except RuntimeError as error:
            raise RunError(f"{run.weights_path} does not fit {run.model_path}: {error}") from error
        device = device or torch.device("cpu")
        return cls(embedder.to(device).eval(), preprocessing, device, run)

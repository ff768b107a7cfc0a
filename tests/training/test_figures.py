"""A method's captions and figures on their way into the run directory."""

import numpy as np
import pytest
import torch
from PIL import Image

from vicinal.data.records import Batch, FeatureArray, ImageArray, Records
from vicinal.figures import Member, RecordTuple, Tuples
from vicinal.reports.artifacts import read_method_figures
from vicinal.run_directory import RunDirectory
from vicinal.training.finish import COLUMNS, TILE, write_figures

SHOWN = Tuples(
    "Heaviest", "Look.", (RecordTuple((Member(2, "anchor"), Member(0, "negative")), "1.3"),)
)


class Shows:
    """As much of a method as the method_figures asks for."""

    def __init__(self, figures=(), captions=None):
        self._figures = figures
        self.captions = captions or {}

    def figures(self, batch):
        return self._figures


BATCH = Batch(torch.zeros(1, 2), torch.zeros(1, dtype=torch.long), torch.arange(1))


@pytest.fixture
def run(tmp_path):
    return RunDirectory.create(tmp_path / "run")


def records(source):
    return Records("r", source, np.array([0, 1, 1]), ("a", "b"), np.array(["train"] * 3))


def test_a_method_that_shows_nothing_writes_nothing(run):
    write_figures(run, Shows(), records(FeatureArray(np.zeros((3, 2)), "xyz")), BATCH)
    assert not run.artifacts_path.exists()


def test_tuples_come_with_names_and_thumbnails(run):
    pixels = np.stack([np.full((9, 7), 100 * place, dtype=np.uint8) for place in range(3)])
    write_figures(
        run, Shows([SHOWN], {"hardness": "Look."}), records(ImageArray(pixels, "xyz")), BATCH
    )
    found = read_method_figures(run)
    assert found.figures == (SHOWN,) and found.captions == {"hardness": "Look."}
    assert {id: (r.name, r.label, r.tile) for id, r in found.records.items()} == {
        2: ("z", "b", 0),
        0: ("x", "a", 1),
    }
    with Image.open(run.figure_thumbnails_path) as sheet:
        assert sheet.size == (COLUMNS * TILE, TILE)
        # Gray, as the pictures.
        assert sheet.getpixel((1, 1)) == 200 and sheet.getpixel((TILE + 1, 1)) == 0


def test_feature_vectors_are_shown_by_name(run):
    write_figures(run, Shows([SHOWN]), records(FeatureArray(np.zeros((3, 2)), "xyz")), BATCH)
    assert not run.figure_thumbnails_path.exists()
    assert read_method_figures(run).records[2].tile is None

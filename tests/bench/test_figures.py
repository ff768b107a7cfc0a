"""Figures of a table: drawn from what is there, absent where there is nothing."""

import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from vicinal.bench.figures import draw, png
from vicinal.bench.page import html, write_pages
from vicinal.bench.run import collect
from vicinal.bench.summary import summarise
from vicinal.bench.tables import Matrix, Readings

READINGS = Readings("hardness/lambda", "λ", ("plain", "method"), level="plain")
LEVELS = {"plain": {"clean": "plain", "noisy": "plain"}}
MATRIX = Matrix({"clean": {"mining": "method"}, "noisy": {"mining": "method"}}, LEVELS)


@pytest.fixture
def summary(table, record, tmp_path):
    def make(figure, values, **facts):
        record(table, values, **facts)
        return summarise(collect(replace(table, figure=figure), tmp_path / "results"))

    return make


def shown(figure):
    return " ".join(text.get_text() for axes in figure.axes for text in axes.texts)


def test_points_stand_at_the_reading_that_their_runs_reached(summary):
    values = {"plain": [0.5, 0.6], "method": [0.7, 0.8]}
    figure = draw(summary(READINGS, values, readings={"hardness/lambda": [0.25, 0.1]}))
    (container,) = figure.axes[0].containers
    at, scores = container.lines[0].get_data()
    assert list(at) == [0.25, 0.25] and sorted(scores) == pytest.approx([55, 75])
    assert "method" in shown(figure)


def test_cells_hold_the_difference_to_the_twin_with_its_interval_and_mark_what_is_sure(summary):
    figure = draw(summary(MATRIX, {"plain": [0.5, 0.6, 0.7], "method": [0.55, 0.651, 0.749]}))
    assert shown(figure).startswith("plain mining pick clean 60.0 ± 24.8 ▲ +5.0 ± 0.2 mining noisy 60.0")
    assert [patch.get_linewidth() for patch in figure.axes[0].patches] == [1.6, 1.6]  # framed: it is the one to pick
    figure = draw(summary(MATRIX, {"plain": [0.5, 0.6, 0.7], "method": [0.45, 0.7, 0.6]}))
    assert "▲" not in shown(figure).split("Methods:")[0] and "clean 60.0 ± 24.8 −1.7 ± 25.9 plain" in shown(figure)
    assert [patch.get_linewidth() for patch in figure.axes[0].patches] == [0.6, 0.6]


def test_one_seed_shows_differences_and_picks_nothing(summary):
    text = shown(draw(summary(MATRIX, {"plain": [0.5], "method": [0.6]})))
    assert "clean 50.0 +10.0 – noisy" in text and "of 1 seed: no interval" in " ".join(text.split())


@pytest.mark.parametrize("figure", [READINGS, MATRIX, None])
def test_without_results_or_without_a_figure_nothing_is_drawn(figure, table, tmp_path):
    assert draw(summarise(collect(replace(table, figure=figure), tmp_path))) is None


def test_a_condition_that_was_not_run_says_so(summary, table, record, tmp_path):
    cells = {"clean": {"mining": "method"}, "noisy": {"mining": "plain"}}
    figure = draw(summary(Matrix(cells), {"plain": [0.5], "method": [0.6]}))
    assert "clean +10.0" in shown(figure) and "noisy not yet" in shown(figure)


def test_the_pages_hold_the_picture(summary, tmp_path):
    found = summary(MATRIX, {"plain": [0.5, 0.6], "method": [0.6, 0.7]})
    text, page = write_pages(found, tmp_path / "pages")
    pixels = np.asarray(Image.open(tmp_path / "pages" / "tiny.png"))
    assert pixels.std() > 1 and "(tiny.png)" in text.read_text() and "data:image/png;base64," in page.read_text()
    assert png(draw(found)) == (tmp_path / "pages" / "tiny.png").read_bytes()  # equal results, equal bytes
    assert "data:image/png" not in html(found)
    assert Image.open(io.BytesIO(png(draw(found)))).format == "PNG"

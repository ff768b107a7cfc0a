"""Figures: any name can be written, everything is drawn, nothing warns, and verdicts differ without
color, too."""

from importlib.resources import files

import numpy as np
from matplotlib.collections import PatchCollection
from matplotlib.colors import to_hex

from vicinal.reports.artefacts import EmbeddingMap, Record, read_artefacts, unit_square
from vicinal.reports.colors import INK, RIGHT, WRONG
from vicinal.reports.figures import _SOLID, apart, draw_curves, draw_map, draw_retrieval, printable
from vicinal.reports.series import Chart, Curve


def test_any_name_can_be_written_on_a_figure(pixels):
    curve = Curve([0, 1], [1.0, 2.0], [1.0, 2.0], [1.0, 2.0])
    names = [
        "漢字",
        "$x",
        "$\\nonsense{$",
        "_hidden",
        "a\nb",
        "\udcff",
        "\U0001f9ff",
        "\u202eabc",
        "",
    ]
    figure = draw_curves(
        [Chart("key", "$\\nonsense{$", "number", {name: curve for name in names})], selected_step=1
    )
    assert len(figure.axes[0].get_legend().get_texts()) == len(names)
    assert pixels(figure).min() < 128


def test_lines_differ_in_more_than_shade(pixels):
    """Recall@1 and R-precision were two blues."""
    curve = Curve([0, 1], [1.0, 2.0], [1.0, 2.0], [1.0, 2.0])
    names = ["Recall@1", "Recall@2", "Recall@4", "Recall@8", "MAP@R", "R-precision", *"abcdefghij"]
    lines = (
        draw_curves([Chart("key", "validation", "share", dict.fromkeys(names, curve))], None)
        .axes[0]
        .lines
    )
    styles = [(to_hex(line.get_color()), line.get_linestyle()) for line in lines]
    assert len(set(styles)) == len(names) and styles[0][1] != styles[5][1]
    assert (
        f"SOLID = {_SOLID}," in (files("vicinal.reports") / "charts.js").read_text()
    )  # as on the page


def test_a_share_a_band_and_a_single_point_can_be_drawn(pixels):
    band = Curve([0, 10], [0.5, 0.6], [0.4, 0.5], [0.6, 0.7])
    point = Curve([3], [0.5], [0.5], [0.5])
    charts = [Chart("a", "a", "share", {"x": band}), Chart("b", "b", "falling", {"x": point})]
    assert pixels(draw_curves(charts, selected_step=None)).min() < 128


def test_a_map_of_names_has_points_and_no_pictures(pixels):
    records = [Record(str(i), "AB"[i % 2], None) for i in range(6)]
    figure = draw_map(EmbeddingMap(records, np.random.default_rng(0).normal(size=(6, 2))), None)
    assert not figure.axes[0].images
    assert pixels(figure).min() < 128


def test_the_map_names_its_classes():
    records = [Record(str(i), f"{'long ' * 20 * (i < 3)}class {i // 3}", None) for i in range(9)]
    places = np.repeat([[0.0, 0.0], [1.0, 0.0], [0.5, 1.0]], 3, axis=0)
    words = [
        text.get_text() for text in draw_map(EmbeddingMap(records, places), None).axes[0].texts
    ]
    assert sorted(words)[:2] == ["class 1", "class 2"]
    assert len(words) == 3 and any(
        word.startswith("long long") and word.endswith("…") for word in words
    )


def test_the_unit_square_keeps_the_aspect_and_survives_a_single_point():
    square = unit_square(np.array([[0.0, 0.0], [10.0, 5.0]]))
    np.testing.assert_allclose(square, [[0, 0.25], [1, 0.75]])
    np.testing.assert_allclose(unit_square(np.array([[3.0, 4.0]])), [[0.5, 0.5]])


def test_chosen_points_are_apart():
    points = np.random.default_rng(0).random((300, 2))
    chosen = points[apart(points, 0.1)]
    gaps = np.abs(chosen[:, None] - chosen[None]).max(axis=2)
    assert gaps[~np.eye(len(chosen), dtype=bool)].min() >= 0.1
    assert len(chosen) > 20


def has_color(image: np.ndarray, color: str) -> bool:
    wanted = [int(color[i : i + 2], 16) for i in (1, 3, 5)]
    return bool((np.abs(image.astype(int) - wanted).max(axis=2) < 12).any())


def test_verdicts_differ_in_color_and_line(reported, pixels):
    artefacts = read_artefacts(reported.run)
    figure = draw_retrieval(artefacts.gallery, artefacts.thumbnails)
    frames = [c for c in figure.axes[0].collections if isinstance(c, PatchCollection)]
    dashes = {
        to_hex(frame.get_edgecolor()[0]): frame.get_linestyle()[0][1] is not None
        for frame in frames
    }
    assert dashes == {INK: False, RIGHT: False, WRONG: True}
    image = pixels(figure)
    assert has_color(image, RIGHT) and has_color(image, WRONG)


def test_what_no_font_has_is_a_box_and_what_would_turn_the_line_is_gone():
    assert printable("a\ue000\u202eb\n") == "a□b "

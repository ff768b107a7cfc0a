"""A method's own pictures: read back as they were written, placed on the page, drawn, and rejected
where malformed."""

import re

import numpy as np
import pytest
from PIL import Image

from vicinal.errors import ConfigError, RunError, VicinalError
from vicinal.figures import (
    Dendrogram,
    Leaf,
    Member,
    Merge,
    Point,
    RecordTuple,
    Scatter,
    Segment,
    Tuples,
    from_json,
    records_of,
    to_json,
)
from vicinal.reports import write_report
from vicinal.reports.artifacts import MethodFigures, read_method_figures
from vicinal.reports.page import EDGE, WIDTH, place_dendrogram, place_scatter
from vicinal.run_directory import RunDirectory

HOSTILE = "<script>window.injected = true</script>"
SCATTER = Scatter(
    f"Negatives {HOSTILE}",
    f"Read & weep {HOSTILE}",
    (
        Point(0.0, 0.0, "anchor", HOSTILE),
        Point(4.0, 0.0, f"real {HOSTILE}"),
        Point(2.0, 1.0, "_drawn"),
    ),
    (Segment(1, 2), Segment(0, 0)),
)
TUPLES = Tuples(
    f"Heaviest {HOSTILE}",
    "Look twice.",
    (
        RecordTuple(
            (Member(7, "anchor"), Member(3, f"negative {HOSTILE}")), f"weight 1.31 {HOSTILE}"
        ),
    ),
)


def write(run, *figures, tile=8, thumbnails=True, captions=None):
    records = [
        {
            "id": id,
            "name": f"{id}.png {HOSTILE}",
            "class": f"c{id} {HOSTILE}",
            "tile": place if thumbnails else None,
        }
        for place, id in enumerate(records_of(figures))
    ]
    document = {"tile": tile, "columns": 2, "records": records, "figures": to_json(figures)}
    run.write_document("figures", document)
    if captions is not None:
        run.write_document("captions", captions)
    if thumbnails and records:
        Image.new("RGB", (2 * tile, -(-len(records) // 2) * tile), "red").save(
            run.figure_thumbnails_path
        )


@pytest.fixture
def run(tmp_path):
    run = RunDirectory.create(tmp_path / "run")
    run.write_info({})
    return run


@pytest.fixture(scope="module")
def shown(make_run, tmp_path_factory):
    run = make_run(tmp_path_factory.mktemp("figures") / "run", labels=("a", "b"), steps=60)
    write(
        run, SCATTER, TUPLES, captions={"hardness": f"Pull {HOSTILE} is alpha.", "active": "Mine."}
    )
    return run, write_report(run.path).read_text(encoding="utf-8")


def test_what_was_written_is_read_back(run):
    write(run, SCATTER, TUPLES, captions={"hardness": "Look."})
    found = read_method_figures(run)
    assert found.figures == (SCATTER, TUPLES)
    assert found.captions == {"hardness": "Look."}
    assert found.records[3].tile == 1 and found.thumbnails.tile == 8


def test_a_run_without_figures_shows_none(run):
    assert read_method_figures(run) == MethodFigures()


def test_the_page_has_a_section_for_them(shown):
    _, text = shown
    assert 'href="#method"' in text and 'id="method"' in text
    assert text.count('class="figure"') == 2
    assert text.count("data:image/webp;base64,") == 2  # the run's own sheet, and the figures'


def test_all_free_text_is_escaped(shown):
    _, text = shown
    assert text.count("<script>") == 3 and HOSTILE not in text  # the page's own three
    assert text.count("&lt;script&gt;window.injected") >= 9


def test_a_caption_stands_under_its_chart(shown):
    _, text = shown
    chart = re.search(r'data-chart="scalar-hardness">(.*?)</figure>', text, re.S)[1]
    assert "is alpha." in chart
    active = re.search(r'data-chart="scalar-active">(.*?)</figure>', text, re.S)[1]
    assert "Mine." in active


def test_every_group_has_a_sign_and_an_entry_in_the_legend(shown):
    _, text = shown
    legend = re.search(r'<ul class="groups">(.*?)</ul>', text, re.S)[1]
    assert legend.count("<li>") == 3
    drawing = re.search(r'<svg class="scatter".*?</svg>', text, re.S)[0]
    assert drawing.count("<title>") == 3 and drawing.count("<circle") == 1
    assert drawing.count("<line") == 1, "an arrow of no length is not drawn"


def test_points_keep_their_shape_and_stay_inside():
    placed = place_scatter(SCATTER)
    at = np.array([point[:2] for point in placed["points"]])
    assert (at >= EDGE - 0.1).all() and (at <= [WIDTH - EDGE + 0.1, placed["height"]]).all()
    across = at[1, 0] - at[0, 0]
    up = at[0, 1] - at[2, 1]
    assert across / up == pytest.approx(4, rel=0.01), "one scale for both axes, upwards is up"


@pytest.mark.parametrize(
    "points", [(), (Point(1.0, 1.0, "alone"),), (Point(0.0, 0.0, "a"), Point(0.0, 9.0, "b"))]
)
def test_degenerate_scatters_have_a_place(points):
    placed = place_scatter(Scatter("t", "r", points))
    assert len(placed["points"]) == len(points)
    assert all(np.isfinite(point[:2]).all() for point in placed["points"])


def test_a_record_that_is_not_listed_is_rejected(run):
    document = {"tile": 8, "columns": 2, "records": [], "figures": to_json([TUPLES])}
    run.write_document("figures", document)
    with pytest.raises(RunError, match=r"figures\.json"):
        read_method_figures(run)


@pytest.mark.parametrize(
    "figure",
    [
        {"class": "system", "command": "true"},
        {"class": "Point", "x": 0.0, "y": 0.0, "group": "a"},
        7,
    ],
)
def test_what_is_no_figure_is_rejected_by_name(run, figure):
    run.write_document("figures", {"tile": 8, "columns": 2, "records": [], "figures": [figure]})
    with pytest.raises(VicinalError, match=r"figures\.json|unknown class|a method's figure is"):
        read_method_figures(run)


def test_a_segment_between_points_that_are_not_there_is_rejected():
    with pytest.raises(ConfigError, match="2 points"):
        Scatter("t", "r", (Point(0.0, 0.0, "a"),) * 2, (Segment(0, 2),))
    assert from_json(to_json([SCATTER, TUPLES])) == (SCATTER, TUPLES)


TREE = Dendrogram(
    f"Classes {HOSTILE}",
    "Left is far.",
    (Leaf(4, "a"), Leaf(5, f"b {HOSTILE}"), Leaf(6, "c"), Leaf(7, "d")),
    (Merge(0, 2, 1.0), Merge(1, 3, 2.0), Merge(4, 5, 4.0)),
)


def test_branches_of_a_tree_do_not_cross_and_stand_at_their_heights():
    placed = place_dendrogram(TREE)
    assert [leaf.name[0] for leaf in placed["leaves"]] == ["a", "c", "b", "d"]
    (first, _), (second, _), (root, said) = placed["brackets"]
    assert first[1::2] == (0.5, 1.5) and second[1::2] == (2.5, 3.5) and root[1::2] == (1.0, 3.0)
    assert root[0] == first[2] and root[4] == second[2], "a bracket begins where its nodes end"
    assert root[2] < second[2] < first[2] < WIDTH
    assert said == "4: 4 of 4"


@pytest.mark.parametrize("leaves", [(), (Leaf(0, "alone"),)])
def test_degenerate_trees_have_a_place(leaves):
    placed = place_dendrogram(Dendrogram("t", "r", leaves, ()))
    assert len(placed["leaves"]) == len(leaves) and placed["brackets"] == []
    same = place_dendrogram(Dendrogram("t", "r", (Leaf(0, "a"), Leaf(0, "b")), (Merge(0, 1, 0.0),)))
    assert np.isfinite(same["brackets"][0][0]).all()


def test_a_tree_is_on_the_page(make_run, tmp_path):
    run = make_run(tmp_path / "run", labels=("a", "b"), steps=60)
    write(run, TREE)
    text = write_report(run.path).read_text(encoding="utf-8")
    drawing = re.search(r'<div class="dendrogram".*?</div>', text, re.S)[0]
    assert (
        drawing.count("<path") == 3
        and drawing.count("<li") == drawing.count('class="thumb shown"') == 4
    )
    assert HOSTILE not in text


@pytest.mark.parametrize(
    "merges",
    [
        (Merge(0, 1, 1.0),),  # not whole
        (Merge(0, 1, 1.0), Merge(0, 2, 2.0)),  # a node twice
        (Merge(0, 4, 1.0), Merge(1, 2, 1.0)),  # a node to come
        (Merge(0, 1, 1.0), Merge(2, 3, float("nan"))),
    ],
)
def test_what_is_no_tree_is_rejected(merges):
    with pytest.raises(ConfigError, match="the tree 't'"):
        Dendrogram("t", "r", (Leaf(0, "a"), Leaf(1, "b"), Leaf(2, "c")), merges)

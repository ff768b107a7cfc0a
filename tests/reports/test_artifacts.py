"""Artifacts as the report sees them: judged neighbors, absent files, and errors of what
contradicts the format."""

import numpy as np
import pytest
from PIL import Image

from vicinal.errors import RunError
from vicinal.reports.artifacts import ACTIVE_CAPTION, Artifacts, read_artifacts
from vicinal.run_directory import RunDirectory


@pytest.fixture
def run(tmp_path):
    """Three records of two classes, on a sheet of two columns."""
    run = RunDirectory.create(tmp_path / "run")
    run.write_info({})
    records = [
        {"id": 5 + i, "name": f"{i}.png", "class": c, "tile": i} for i, c in enumerate("AAB")
    ]
    run.write_document("records", {"tile": 4, "columns": 2, "records": records})
    Image.new("L", (8, 8)).save(run.thumbnails_path)
    return run


def test_a_run_without_artifacts_has_nothing_to_show(tmp_path):
    captions = {"scalar-active": ACTIVE_CAPTION}
    found = read_artifacts(RunDirectory(tmp_path))
    assert found == Artifacts(None, [], None, None, [], [], [], captions, None)


def test_neighbors_are_right_when_they_share_the_query_class(run):
    run.write_arrays(
        "retrieval",
        query=np.array([5]),
        neighbors=np.array([[6, 7]]),
        distances=np.array([[0.25, 0.5]], dtype=np.float32),
        untrained_neighbors=np.array([[7, -1]]),
    )
    [query] = read_artifacts(run).gallery
    assert query["name"] == "0.png"
    assert [(n["class"], n["right"], n["distance"]) for n in query["trained"]] == [
        ("A", True, 0.25),
        ("B", False, 0.5),
    ]
    assert [(n["class"], n["right"]) for n in query["untrained"]] == [("B", False)]


def test_without_a_sheet_records_have_names_and_no_tiles(run):
    run.thumbnails_path.unlink()
    run.write_arrays("map", record=np.array([5, 7]), position=np.zeros((2, 2), dtype=np.float32))
    artifacts = read_artifacts(run)
    assert artifacts.thumbnails is None
    assert [(r["name"], r["tile"]) for r in artifacts.map[0]] == [("0.png", None), ("2.png", None)]


def test_without_records_what_needs_them_is_left_out(run):
    run.write_arrays("map", record=np.array([5]), position=np.zeros((1, 2), dtype=np.float32))
    pair = {"class": "A", "taken_for": "B", "share": 0.5, "queries": 2, "example": [5, 7]}
    run.write_document("classes", {"confused": [pair]})
    (run.artifacts_path / "records.json").unlink()
    artifacts = read_artifacts(run)
    assert artifacts.map is None and artifacts.confused[0]["example"] == []


def test_the_worst_classes_made_mistakes_and_are_shown_by_some_of_their_records(run):
    worst = [
        {"class": "A", "records": 2, "recall@1": 0.5},
        {"class": "B", "records": 1, "recall@1": 1.0},
    ]
    run.write_document("classes", {"worst": worst})
    [shown] = read_artifacts(run).worst
    assert [record["name"] for record in shown["examples"]] == ["0.png", "1.png"]


@pytest.mark.parametrize("kept", [0, 0.9])
def test_a_damaged_sheet_is_rejected_with_the_remedy(run, kept):
    Image.effect_noise((64, 64), 90).save(run.thumbnails_path)
    whole = run.thumbnails_path.read_bytes()
    run.thumbnails_path.write_bytes(whole[: int(kept * len(whole))] or b"no picture")
    with pytest.raises(RunError, match=r"thumbnails\.png cannot be read as an image.* Remove it"):
        read_artifacts(run)


def test_retrievals_have_larger_pictures_where_the_run_wrote_them(run):
    one = {name: np.array([[6]]) for name in ("neighbors", "distances", "untrained_neighbors")}
    run.write_arrays("retrieval", query=np.array([5]), **one)
    assert read_artifacts(run).gallery_thumbnails == read_artifacts(run).thumbnails
    records = [
        {"id": id, "name": "x.png", "class": "A", "tile": tile} for tile, id in enumerate((6, 5))
    ]
    run.write_document("retrieval_records", {"tile": 16, "columns": 2, "records": records})
    Image.new("RGB", (32, 16)).save(run.retrieval_thumbnails_path)
    artifacts = read_artifacts(run)
    assert artifacts.gallery_thumbnails.tile == 16 and artifacts.gallery[0]["tile"] == 1


def test_pairs_within_each_distance_are_a_chart(run):
    assert read_artifacts(run).thresholds is None
    shares = {"same": np.array([0.5, 1]), "different": np.array([0, 1])}
    run.write_arrays("thresholds", distance=np.array([0.7, 1.4]), **shares)
    chart = read_artifacts(run).thresholds
    assert (chart["axis"], chart["unit"]) == ("distance", "share")
    assert [line["y"] for line in chart["lines"]] == [[0.5, 1.0], [0.0, 1.0]]


def test_what_contradicts_the_format_is_rejected_by_name(run):
    run.write_arrays("map", record=np.array([99]), position=np.zeros((1, 2)))
    with pytest.raises(RunError, match=r"artifacts is damaged .*99"):
        read_artifacts(run)

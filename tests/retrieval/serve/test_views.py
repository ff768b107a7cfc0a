"""What is served, the map, the hardness view and the report."""

from dataclasses import replace
from threading import Event

import numpy as np

from vicinal.errors import ConfigError

HOSTILE = "<img src=x onerror='window.injected = true'>"


def ready(client):
    for _ in range(200):
        answer = client.get("/api/map")
        if answer.status_code != 202:
            return answer
    raise AssertionError("the map was never ready")


def test_about_tells_run_collection_and_limits(client):
    about = client.get("/api/about").json()
    assert about["title"] == "Shapes never seen before." and about["preset"] == "shapes"
    assert (about["items"], about["classes"], about["dim"], about["kind"]) == (36, 3, 16, "images")
    assert about["pictures"] is True and about["threshold"] is None and about["limits"]["k"] == 200


def test_the_map_fills_the_unit_square_and_names_classes(client):
    body = ready(client).json()
    assert body["state"] == "ready" and body["ids"] == list(range(36)) and body["method"] == "t-SNE"
    places = np.array([body["x"], body["y"]])
    assert places.min() >= 0 and places.max() <= 1 and np.ptp(places, axis=1).max() == 1
    classes = [body["classes"][number] for number in body["class"]]
    assert classes[::12] == ["disc", "square", HOSTILE]
    assert len(set(body["colors"])) == 3


def test_while_the_map_is_computed_everything_else_goes_on(library, client_of, spiral):
    go = Event()

    def slow(snapshot):
        go.wait(5)
        return spiral(snapshot)

    with client_of(replace(library, layout=slow)) as client:
        for _ in range(2):
            answer = client.get("/api/map")
            assert answer.status_code == 202 and answer.json()["state"] == "computing"
        assert client.get("/api/hardness").status_code == client.get("/report").status_code == 200
        go.set()
        assert ready(client).status_code == 200


def test_a_map_that_fails_is_told_and_tried_again(library, client_of, spiral):
    tries = []

    def fails_once(snapshot):
        tries.append(1)
        if len(tries) == 1:
            raise ConfigError("t-SNE would not")
        return spiral(snapshot)

    with client_of(replace(library, layout=fails_once)) as client:
        answer = ready(client)
        assert answer.status_code == 500 and "t-SNE would not" in answer.json()["detail"]
        assert ready(client).status_code == 200


def test_hardness_comes_first_then_active_then_loss_and_validation(client):
    body = client.get("/api/hardness").json()
    keys = [chart["key"] for chart in body["charts"]]
    assert keys == ["scalar-hardness", "scalar-active", "scalar-loss", "evaluation-validation"]
    first = body["charts"][0]
    assert first["caption"] == "lambda is how hard the negatives are." and first["mark"] == 50
    assert first["lines"][0]["name"] == "lambda" and len(first["lines"][0]["x"]) == 60
    assert body["worst"][0] == {"label": "disc", "records": 12, "recall": 0.5, "items": 12}
    assert body["confused"][0]["taken_for"] == "square" and body["generation"] == 1


def test_a_run_with_damaged_numbers_is_told(library, client_of, write_run, tmp_path):
    run = write_run(tmp_path / "run")
    run.metrics_path.write_text('{"kind": "step", "step": "x", "epoch": 0, "loss": 1}\n')
    with client_of(replace(library, run=run)) as client:
        for path in ("/api/hardness", "/report"):
            answer = client.get(path)
            assert answer.status_code == 500 and "run is damaged" in answer.json()["detail"]


def test_the_report_is_made_from_the_runs_numbers_and_never_from_its_page(client, served):
    served.report_path.write_text("<script>window.injected = true</script>")
    answer = client.get("/report")
    assert "window.injected = true</script>" not in answer.text
    assert "lambda is how hard the negatives are." in answer.text
    assert answer.headers["Content-Security-Policy"].startswith("sandbox allow-scripts;")

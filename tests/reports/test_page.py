"""The page as text: whole, small, escaped, and made from whatever the run has written so far."""

import json
import re
from html.parser import HTMLParser

import pytest

from vicinal.errors import VicinalError
from vicinal.reports import write_report


class Outline(HTMLParser):
    """Elements, ids and addresses of a page, as a browser without scripts would find them."""

    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.attributes = []
        self.feed(text)
        self.ids = {value for name, value in self.attributes if name == "id"}
        named = ("href", "src", "srcset", "action")
        self.links = [value for name, value in self.attributes if name in named]
        self.handlers = [name for name, _ in self.attributes if name.startswith("on")]

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs


@pytest.fixture(scope="module")
def outline(reported):
    return Outline(reported.text)


def embedded(text, id):
    return json.loads(
        re.search(rf'<script type="application/json" id="{id}">(.*?)</script>', text, re.S)[1]
    )


def test_every_section_is_there_and_in_the_contents(outline):
    sections = {
        "result",
        "training",
        "retrieval",
        "map",
        "classes",
        "generalization",
        "events",
        "setup",
    }
    assert sections <= outline.ids
    assert {f"#{section}" for section in sections} <= set(outline.links)


def test_the_page_refers_to_nothing_outside_itself(outline):
    assert all(link.startswith(("#", "data:")) for link in outline.links)


def test_names_like_script_tags_make_no_elements(reported, outline):
    assert outline.tags.count("script") == 5  # two of data, three of ours
    assert "img" not in outline.tags
    assert outline.handlers == []
    assert "&lt;script&gt;window.injected" in reported.text
    assert "49" not in re.findall(r"<bdi>(.*?)</bdi>", reported.text)


def test_scripts_run_only_by_their_hash(reported):
    policy = re.search(r'Content-Security-Policy" content="(.*?)"', reported.text)[1]
    assert policy.startswith("default-src 'none'")
    assert policy.count("sha256-") == 3
    assert "unsafe-inline" not in policy.partition("script-src")[2]


def test_embedded_data_cannot_leave_its_element(reported):
    for id in ("charts-data", "map-data"):
        raw = re.search(rf'id="{id}">(.*?)</script>', reported.text, re.S)[1]
        assert not set("<>&\u2028") & set(raw)
    assert (
        "<script>window.injected = true</script>" in embedded(reported.text, "map-data")["classes"]
    )


def test_the_thumbnails_stand_in_the_page_once(reported):
    assert reported.text.count("data:image/webp;base64,") == 1


def test_the_page_says_what_was_trained(reported):
    for text in (
        "vicinal train glyphs epochs=10",
        "e2038b8",
        "2 cores, x86_64",
        "2.13.0",
        "records=5200, classes=260",
        '<th scope="row">beta</th><td>50</td>',
        "Finished after 600 steps and 0:01:37 h.",
        "+44.3",
        "validation recall@1",
        "One class had a single record &amp; was left out.",
        "3 files could not be read: &lt;b&gt;a.png&lt;/b&gt;",
        '<b>0.900</b><i style="--part:0.9000"',
    ):
        assert text in reported.text, text


def test_a_change_that_is_not_significant_is_no_headline(reported, make_run, tmp_path):
    assert (
        "no significant change" not in reported.text and "This run ended below" not in reported.text
    )
    run = make_run(tmp_path / "run", steps=5)
    gains = {"untrained": {"recall@1": {"mean": 0.443, "low": -0.02, "high": 0.9}}}
    run.write_results({**run.results, "gains": gains})
    text = write_report(run.path).read_text(encoding="utf-8")
    assert "<b>no significant change</b><small>+44.3 points (−2.0 to +90.0)</small>" in text
    assert re.search(r"The model kept is [^<]*\. Behind a gain, its 95 %", text)


def test_a_run_that_ended_below_its_untrained_row_says_so_at_the_top(make_run, tmp_path):
    run = make_run(tmp_path / "run", steps=5)
    scores = {"untrained": 0.5, "trained": 0.4}
    rows = [{"name": name, "metrics": {"map@r": score}} for name, score in scores.items()]
    last = {"step": 5, "epoch": 1, "by": "last step", "value": None}
    run.write_results({**run.results, "rows": rows, "selected": last})
    text = write_report(run.path).read_text(encoding="utf-8")
    assert "The model kept is that of the last step." in text and "chosen by" not in text
    warning = "This run ended below the untrained model: MAP@R 50.0 → 40.0, −10.0 points."
    assert 0 < text.index(warning) < text.index('<dl class="headline">')


def test_a_run_that_has_not_finished_gets_a_useful_report(reported_interrupted):
    outline = Outline(reported_interrupted.text)
    assert {"training", "generalization", "events", "setup"} <= outline.ids
    assert not {"result", "retrieval", "map", "classes"} & outline.ids
    assert "Interrupted in epoch 9 after 130 steps" in reported_interrupted.text


def test_a_run_that_has_only_begun_still_says_what_it_is(make_run, tmp_path):
    run = make_run(tmp_path / "run", state="running", steps=1)
    run.metrics_path.unlink()
    run.status_path.unlink()
    text = write_report(str(run.path)).read_text(encoding="utf-8")
    assert "has not recorded its progress" in text
    assert Outline(text).ids & {"training", "events"} == set()


def test_feature_arrays_are_shown_by_name(reported_features):
    assert "data:image/webp" not in reported_features.text
    assert "<bdi>&lt;i&gt;gull&lt;/i&gt;</bdi>" in reported_features.text


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("metrics.jsonl", b'{"message": "caf\xe9"}\n', r"{}.*\. [A-Z]"),
        ("artifacts/captions.json", b"\xff", r"{}.*\. [A-Z]"),
        ("metrics.jsonl", b'{"kind": "step", "step": "x", "loss": 1}\n', "damaged"),
        ("results.json", b'{"rows": [], "notes": 7, "selected": [1]}', "damaged"),
        ("artifacts/diagnostics.json", b'{"rows": [{"name": "train", "recall@1": {}}]}', "damaged"),
    ],
)
def test_damage_is_named_with_the_remedy(file, content, message, make_run, tmp_path):
    run = make_run(tmp_path / "run", steps=5)
    (run.path / file).write_bytes(content)
    with pytest.raises(VicinalError, match=message.format(re.escape(str(run.path / file)))):
        write_report(run.path)

"""Plans: ids that stay with their things, contents met once, places that do not hold the same twice."""

import pytest

from vicinal.errors import ConfigError
from vicinal.search.collection import CollectionDirectory
from vicinal.search.indexing import index
from vicinal.search.planning import Request, make_plan


@pytest.fixture
def plan(image_run, listener):
    """``plan(path, ..., before=snapshot, anew=True)``"""

    def call(*paths, before=None, anew=False, **settings):
        request = Request([str(path) for path in paths], **settings)
        return make_plan(image_run, image_run.path / "collection", request, listener, before, anew=anew)

    return call


@pytest.fixture
def before(image_run, photographs, listener):
    index(image_run, Request([str(photographs)]), listener)
    return CollectionDirectory.of(image_run.path).snapshot()


def test_a_first_plan_numbers_things_in_their_order(plan, photographs, draw):
    draw(photographs / "a" / "copy.png", 0)
    made = plan(photographs)
    assert [item.id for item in made.items] == list(range(13)) and made.next_id == 13
    assert len(made.contents) == 12, "two files are equal"


def test_known_things_keep_their_ids(plan, before, photographs, draw):
    draw(photographs / "a" / "0-first.png", 100)
    made = plan(photographs, before=before)
    assert {item.path: item.id for item in made.items}["a/0-first.png"] == 12
    assert [item for item in made.items if item.id < 12] == list(before.items())


def test_places_that_are_not_named_stay_unread(plan, before, tmp_path, draw, photographs):
    draw(tmp_path / "more" / "e" / "1.png", 200)
    made = plan(tmp_path / "more", before=before)
    assert [place.path for place in made.kept] == [str(photographs)] and len(made.listings) == 1
    assert [place.path for place in made.places] == [str(photographs), str(tmp_path / "more")]
    assert len(plan(tmp_path / "more", before=before, anew=True).listings) == 2, "another model needs them all"


def test_a_place_named_twice_is_read_once(plan, photographs):
    assert len(plan(photographs, f"{photographs}/../photographs").items) == 12


def test_folders_in_folders_and_unknown_places_are_refused(plan, before, photographs, tmp_path):
    with pytest.raises(ConfigError, match="there twice"):
        plan(photographs / "a", before=before)
    with pytest.raises(ConfigError, match="unknown place of the collection"):
        plan(remove=[str(tmp_path / "nowhere")], before=before)
